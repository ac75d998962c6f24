"""A whole installation on the small API, once: each thing that queuectl does for a workload.

tests/acceptance/e2e tries the same and much more, on real API servers too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.sandbox.example import fake_node
from tests.acceptance.e2e.cohort import (
    end_pods,
    endless,
    evicted,
    gpus,
    priority,
    runs,
    succeed,
    team,
    verdicts,
)
from tests.acceptance.e2e.site import (
    GPU,
    Site,
    cluster_queue,
    flavor,
    job,
    local_queue,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World
from tests.integration.ledger.places import reachable_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCELERATOR = "example.com/accelerator"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    """A sandbox with a node of 64 GPUs and a flavor."""
    with reachable_folder() as folder:
        site = Site(folder / "data", "small")
        try:
            await site.start()
            async with site.client() as api:
                await api.request("POST", "/api/v1/nodes", fake_node("node", "a100", gpus=64))
                path = "/apis/queuectl.dev/v1beta1/resourceflavors"
                await api.request("POST", path, flavor("a100", {ACCELERATOR: "a100"}))
            yield site
        finally:
            await site.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def world(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A namespace with LocalQueue `main` on a ClusterQueue for 8 GPUs."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    async with site.client() as api:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.request("POST", "/api/v1/namespaces", namespace)
        world = World(site, api, name)
        await world.policy(cluster_queue(name, 8))
        await world.policy(local_queue(name, "main", name))
        yield world


async def test_a_job_is_queued_admitted_on_its_flavor_and_retired(world: World) -> None:
    submitted = await world.submit(job("train", template=pod_template(2, seconds=0.2)))
    assert submitted["spec"]["suspend"] is True
    await world.phase("train", "Finished")
    assert (await world.get("train"))["spec"]["template"]["spec"]["nodeSelector"] == {ACCELERATOR: "a100"}
    await world.nothing_used(world.namespace)
    assert await verdicts(world, "train") == ["Queued", "Admitted", "Retired"]


async def test_a_job_waits_for_quota_and_starts_when_it_is_free(world: World) -> None:
    await runs(world, endless("first", "main", 8))
    await world.submit(endless("second", "main", 3))
    assert (await world.reason_is("second", "WaitingForQuota"))["shortBy"] == 3
    await succeed(world, "first")
    await world.started("second")


async def test_a_gang_starts_as_a_whole_or_not_at_all(world: World) -> None:
    await world.submit(pytorchjob("large", workers=4, template=pod_template(2)))
    reason = await world.reason("large", "PyTorchJob")
    assert (reason["code"], reason["requested"], reason["shortBy"]) == ("ExceedsMaxQuota", 10, 2)
    await world.submit(pytorchjob("gang", workers=3, template=pod_template(2, 600)))
    await world.started("gang", "PyTorchJob")
    assert (await world.used(world.namespace))["a100", GPU] == 8


async def test_idle_quota_is_borrowed_and_reclaimed_by_its_owner(world: World) -> None:
    owners = await team(world, "owners", 6, preemption={"reclaimWithinCohort": "Any"})
    guests = await team(world, "guests", 2)
    await runs(world, endless("guest", "guests", 5, lingers=True))
    assert await gpus(world, guests) == 5
    await world.submit(endless("owner", "owners", 6))
    await world.reason_is("owner", "WaitingForPreemptedWorkloads")
    assert (await evicted(world, "guest"))["cause"] == "InCohortReclamation"
    assert (await gpus(world, guests), await gpus(world, owners)) == (5, 0)
    await end_pods(world, "guest")
    await world.started("owner")
    assert (await gpus(world, guests), await gpus(world, owners)) == (0, 6)


async def test_a_lower_priority_is_preempted_and_admitted_again(world: World) -> None:
    high = await priority(world, "high", 1000)
    preempts = {"withinClusterQueue": "LowerPriority"}
    await world.policy(cluster_queue(world.namespace, 8, preemption=preempts))
    await runs(world, endless("low", "main", 8))
    await runs(world, endless("urgent", "main", 8, priority=high))
    assert (await evicted(world, "low"))["by"] == f"{world.namespace}/Job/urgent"
    await world.delete("urgent")
    await world.started("low")
    assert await verdicts(world, "low") == ["Queued", "Admitted", "Evicted", "Released", "Admitted"]


async def test_a_held_job_is_evicted_and_runs_again_after_its_release(world: World) -> None:
    await runs(world, endless("train", "main", 8))
    await world.annotate("train", "queuectl.dev/hold", "true")
    await world.reason_is("train", "OnHold")
    await world.nothing_used(world.namespace)
    await world.annotate("train", "queuectl.dev/hold", None)
    assert (await world.started("train"))["spec"]["suspend"] is False
    assert (await world.workload("train"))["attempt"] == 2


async def test_a_drained_queue_evicts_and_a_resumed_one_admits(world: World) -> None:
    await runs(world, endless("train", "main", 1))
    await world.policy(cluster_queue(world.namespace, 8, stopPolicy="HoldAndDrain"))
    await world.nothing_used(world.namespace)
    await world.policy(cluster_queue(world.namespace, 8, stopPolicy="None"))
    await world.started("train")


async def test_a_deleted_job_gives_its_quota_back(world: World) -> None:
    await runs(world, endless("train", "main", 8))
    await world.delete("train")
    await world.nothing_used(world.namespace)


async def test_rest_and_the_command_line_explain_a_job_alike(world: World) -> None:
    await world.submit(job("huge", template=pod_template(16)))
    reason = await world.reason_is("huge", "ExceedsMaxQuota")
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (16, 8, 8)
    waited = await world.site.rest(f"/workloads/{world.namespace}/Job/huge/waited")
    assert waited["status"] == 200, waited
    command = await world.site.queuectl("explain", "job/huge", "-n", world.namespace, "-o", "json")
    assert command.json["reason"] == reason


async def test_a_job_without_a_queue_is_left_alone(world: World) -> None:
    submitted = await world.submit(job("free", queue=None, template=pod_template(64, seconds=600)))
    assert submitted["spec"].get("suspend", False) is False
    await runs(world, endless("train", "main", 8))
    assert (await world.workload("free"))["status"] == 404


async def test_the_ledger_agrees_with_its_history(site: Site) -> None:
    verified = await site.queuectl("verify")
    assert verified.code == 0, verified.out + verified.err
