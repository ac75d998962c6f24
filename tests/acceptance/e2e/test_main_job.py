"""The main use case on both control planes: a labelled job waits, runs, and is recorded in the ledger."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.acceptance.e2e.cohort import LONG, endless, runs, succeed
from tests.acceptance.e2e.site import (
    GPU,
    Site,
    cluster_queue,
    eventually,
    job,
    pod_template,
    pytorchjob,
)
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

LABEL = "example.com/accelerator"


@pytest.mark.every_version
async def test_a_labelled_job_runs_on_its_flavor_and_gives_its_quota_back(world: World) -> None:
    made = await world.submit(job("train", template=pod_template(2, seconds=0.2)))
    assert made["spec"]["suspend"] is True
    await world.phase("train", "Finished")
    done = await world.get("train")
    assert done["spec"]["suspend"] is False
    assert done["spec"]["template"]["spec"]["nodeSelector"] == {LABEL: "a100"}
    assert any(c["type"] == "Complete" and c["status"] == "True" for c in done["status"]["conditions"])
    await world.nothing_used(world.namespace)
    history = await world.site.rest(f"/workloads/{world.namespace}/Job/train/history")
    assert [row["verdict"] for row in history["items"]] == ["Queued", "Admitted", "Retired"]


async def test_a_job_that_is_too_large_stays_suspended_and_says_which_limit_and_by_how_much(
    world: World,
) -> None:
    await world.submit(job("huge", template=pod_template(16)))
    reason = await world.reason("huge")
    assert reason["code"] == "ExceedsMaxQuota"
    assert (reason["requested"], reason["available"], reason["shortBy"]) == (16, 8, 8)
    assert (reason["limit"], reason["node"]) == ("nominalQuota", f"ClusterQueue/{world.namespace}")
    assert (reason["flavor"], reason["resource"]) == ("a100", GPU)
    assert (await world.get("huge"))["spec"]["suspend"] is True
    told = await world.site.queuectl("explain", "job/huge", "-n", world.namespace)
    assert told.code == 0
    assert "ExceedsMaxQuota" in told.out
    assert "short by 8" in told.out
    plain = await world.site.queuectl("explain", "job/huge", "-n", world.namespace, "-o", "json")
    assert plain.json["reason"] == reason


@pytest.mark.every_version
async def test_kubectl_describe_says_what_explain_says(world: World, kubectl: Site) -> None:
    manifest = yaml.safe_dump(job("huge", template=pod_template(16)))
    created = await kubectl.kubectl("-n", world.namespace, "apply", "-f", "-", stdin=manifest)
    assert created.code == 0, created.err
    reason = await world.reason("huge")

    async def described() -> bool:
        found = await kubectl.kubectl("-n", world.namespace, "describe", "job", "huge")
        return reason["message"] in found.out

    await eventually("kubectl describe shows the reason", described)
    queues = await kubectl.kubectl("-n", world.namespace, "get", "localqueue", "main", "-o", "json")

    async def listed() -> bool:
        nonlocal queues
        queues = await kubectl.kubectl("-n", world.namespace, "get", "localqueue", "main", "-o", "json")
        waiting = queues.json.get("status", {}).get("waiting", [])
        return [(w["name"], w["reason"]["code"]) for w in waiting] == [("huge", "ExceedsMaxQuota")]

    await eventually("the LocalQueue's status names the pending workloads", listed)
    assert queues.json["status"]["pendingWorkloads"] == 1


async def test_jobs_wait_and_run_when_quota_is_free(world: World) -> None:
    await runs(world, endless("first", "main", 8))
    for name in ("second", "third"):
        await world.submit(job(name, template=pod_template(8, seconds=0.2)))
    waiting = await world.reason_is("second", "WaitingForQuota")
    assert waiting["shortBy"] == 8
    await succeed(world, "first")
    for name in ("first", "second", "third"):
        await world.phase(name, "Finished")
    await world.nothing_used(world.namespace)


@pytest.mark.every_version
async def test_a_pytorchjob_is_one_gang(world: World) -> None:
    await runs(world, pytorchjob("gang", workers=3, template=pod_template(2, LONG)))
    admitted = await world.phase("gang", "Admitted", "PyTorchJob")
    pod_sets = {p["name"]: p["count"] for p in admitted["admission"]["podSets"]}
    assert pod_sets == {"master": 1, "worker": 3}
    assert (await world.used(world.namespace))["a100", GPU] == 8
    obj = await world.started("gang", "PyTorchJob")
    for replica in obj["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["nodeSelector"] == {LABEL: "a100"}
    await succeed(world, "gang", "PyTorchJob")
    await world.phase("gang", "Finished", "PyTorchJob")
    await world.nothing_used(world.namespace)


async def test_a_gang_that_does_not_fit_completely_does_not_start(world: World) -> None:
    await world.submit(pytorchjob("gang", workers=4, template=pod_template(2)))
    reason = await world.reason("gang", "PyTorchJob")
    assert (reason["code"], reason["requested"], reason["shortBy"]) == ("ExceedsMaxQuota", 10, 2)
    assert (await world.get("gang", "PyTorchJob"))["spec"]["runPolicy"]["suspend"] is True


@pytest.mark.every_version
async def test_a_held_job_is_evicted_until_no_pod_is_alive_and_runs_again_after_its_release(
    world: World,
) -> None:
    await world.submit(job("train", template=pod_template(8, seconds=60)))
    await world.phase("train", "Admitted")
    await world.annotate("train", "queuectl.dev/hold", "true")
    await world.reason_is("train", "OnHold")
    assert (await world.get("train"))["spec"]["suspend"] is True
    await world.nothing_used(world.namespace)
    await world.annotate("train", "queuectl.dev/hold", None)
    again = await world.phase("train", "Admitted")
    assert again["attempt"] == 2


async def test_a_deleted_job_gives_its_quota_back(world: World) -> None:
    await world.submit(job("train", template=pod_template(8, seconds=60)))
    await world.phase("train", "Admitted")
    await world.delete("train")
    await world.nothing_used(world.namespace)


async def test_a_drained_queue_stops_running_jobs_and_a_resumed_one_starts_them_again(world: World) -> None:
    await world.submit(job("train", template=pod_template(1, seconds=60)))
    await world.phase("train", "Admitted")
    await world.policy(cluster_queue(world.namespace, 8, stopPolicy="HoldAndDrain"))
    await world.reason_is("train", "Suspended")
    await world.nothing_used(world.namespace)
    await world.policy(cluster_queue(world.namespace, 8, stopPolicy="None"))
    await world.phase("train", "Admitted")


async def test_under_strict_fifo_the_head_blocks_the_queue_and_the_reason_says_so(world: World) -> None:
    await world.policy(cluster_queue(world.namespace, 8, queueingStrategy="StrictFIFO"))
    await world.submit(job("large", template=pod_template(9)))
    await world.reason_is("large", "ExceedsMaxQuota")
    await world.submit(job("small", template=pod_template(1)))
    await world.reason_is("small", "WaitingForHead")


async def test_the_second_flavor_is_used_if_the_first_has_no_quota_left(world: World) -> None:
    await world.policy(cluster_queue(world.namespace, 4, ("a100", "spot")))
    for name in ("one", "two"):
        await world.submit(job(name, template=pod_template(3, seconds=20)))
    selectors = {
        (await world.started(n))["spec"]["template"]["spec"]["nodeSelector"][LABEL] for n in ("one", "two")
    }
    assert selectors == {"a100", "spot"}


async def test_the_higher_priority_is_admitted_first(world: World) -> None:
    await world.policy(
        {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": f"{world.namespace}-high"},
            "value": 1000,
        }
    )
    await world.submit(job("running", template=pod_template(8, seconds=600)))
    await world.phase("running", "Admitted")
    await world.submit(job("low", template=pod_template(8, seconds=0.2)))
    await world.reason_is("low", "WaitingForQuota")
    urgent = job("high", template=pod_template(8, seconds=0.2))
    urgent["metadata"]["labels"]["queuectl.dev/priority-class"] = f"{world.namespace}-high"
    await world.submit(urgent)
    await world.reason_is("high", "WaitingForQuota")
    await world.delete("running")
    high, low = await world.phase("high", "Finished"), await world.phase("low", "Finished")
    assert high["admittedAt"] is None or low["admittedAt"] is None or high["admittedAt"] < low["admittedAt"]


async def test_lists_have_their_sequence_and_age(world: World) -> None:
    found = await world.site.rest("/workloads")
    assert set(found) >= {"items", "next", "sequence", "ageSeconds", "status"}
    assert found["status"] == 200
    missing = await world.site.rest(f"/workloads/{world.namespace}/Job/nobody")
    assert missing["status"] == 404
    told = await world.site.queuectl("explain", "job/nobody", "-n", world.namespace)
    assert told.code == 1
    wrong = await world.site.queuectl("explain")
    assert wrong.code == 2


async def test_the_ledger_is_consistent_with_its_history(world: World) -> None:
    found = await world.site.queuectl("verify", "-o", "json")
    assert found.code == 0, found.out + found.err
    assert json.loads(found.out) == {"findings": []}
