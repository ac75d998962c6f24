"""`fit` on whole sites: what waits becomes smaller, keeps its place, and starts with its new size."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.acceptance.e2e.site import GPU, OLDER, Json, eventually, job, pod_template, pytorchjob
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


def large(name: str, gpus: int, **spec: Any) -> Json:
    return job(name, template=pod_template(gpus, 600), **spec)


async def requests(world: World, name: str, gpus: int) -> None:
    """Wait until the reason of `name` says that it requests so many GPUs."""

    async def look() -> bool:
        reason = (await world.workload(name)).get("reason") or {}
        return bool(reason.get("requested") == gpus)

    await eventually(f"the reason of {name} has {gpus} GPUs", look)


async def decisions(world: World, name: str) -> list[Json]:
    """The oldest first."""
    told = await world.site.queuectl("history", f"job/{name}", "-n", world.namespace, "-o", "json")
    assert told.code == 0, told.err
    return list(told.json["items"])


async def test_a_workload_with_fewer_pods_keeps_its_place_and_its_history_says_why_it_waits(
    world: World,
) -> None:
    site, where = world.site, ("-n", world.namespace)
    await world.submit(large("holder", 8))
    await world.started("holder")
    await world.submit(large("first", 2, parallelism=4, completions=4))
    await requests(world, "first", 8)
    await world.submit(large("second", 2, parallelism=3, completions=3))
    await requests(world, "second", 6)
    checked = await site.queuectl("fit", "job/first", "--gpus", "6", *where, "--dry-run")
    assert (checked.code, "nothing is written" in checked.out) == (0, True), checked.err
    told = await site.queuectl("fit", "job/first", "--gpus", "6", *where)
    assert told.code == 0, told.err
    assert "spec.parallelism 4 -> 3" in told.out
    await requests(world, "first", 6)
    assert [(await world.workload(name))["position"] for name in ("first", "second")] == [1, 2]
    decided = await decisions(world, "first")
    assert [one["verdict"] for one in decided] == ["Queued", "Pending", "Queued", "Pending"]
    before = await world.site.rest(
        f"/workloads/{world.namespace}/job/first?{urlencode({'asOf': decided[1]['time']})}"
    )
    assert [one["podSets"][0]["count"] for one in (before, await world.workload("first"))] == [4, 3]
    await world.delete("holder")
    await world.started("first")
    await requests(world, "second", 6)
    assert (await world.used(world.namespace))["a100", GPU] == 6
    refused = await site.queuectl("fit", "job/first", "--pods", "1", *where)
    assert (refused.code, "only a workload that waits" in refused.err) == (1, True)


@pytest.mark.every_version
async def test_pods_of_a_waiting_job_get_fewer_gpus_where_the_api_server_permits_it(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)
    await world.submit(large("ran", 8))
    await world.started("ran")
    assert (await site.queuectl("hold", "job/ran", *where, "--yes", "--wait")).code == 0
    await world.reason_is("ran", "OnHold")

    async def stopped() -> bool:
        return not (await world.get("ran"))["status"].get("active")

    await eventually("its controller has seen the stop", stopped)
    told = await site.queuectl("fit", "job/ran", "--gpus", "2", *where)
    if site.version == OLDER:
        assert told.code == 1
        assert "spec.template: Invalid value\n" in told.err
        assert "from Kubernetes 1.36 on" in told.err
        return
    assert told.code == 0, told.err
    assert f"resources.limits[{GPU}] 8 -> 2" in told.out
    assert (await site.queuectl("release", "job/ran", *where)).code == 0
    await world.started("ran")
    assert (await world.used(world.namespace))["a100", GPU] == 2


async def test_a_pytorchjob_gets_fewer_workers(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)

    await world.submit(pytorchjob("wide", workers=15, template=pod_template(1, 600)))
    await world.reason_is("wide", "ExceedsMaxQuota", "PyTorchJob")
    told = await site.queuectl("fit", "pytorchjob/wide", "--pods", "7", "--podset", "worker", *where)
    assert told.code == 0, told.err
    assert "spec.pytorchReplicaSpecs.Worker.replicas 15 -> 7" in told.out
    await world.started("wide", "PyTorchJob")
    assert (await world.used(world.namespace))["a100", GPU] == 8


async def test_a_workload_gets_the_largest_size_with_which_it_starts(world: World) -> None:
    site, where = world.site, ("-n", world.namespace)
    await world.submit(large("holder", 3))
    await world.started("holder")
    await world.submit(large("waits", 2, parallelism=4, completions=4))
    await requests(world, "waits", 8)
    told = await site.queuectl("fit", "job/waits", "--to-start", *where)
    assert told.code == 0, told.err
    assert "spec.parallelism 4 -> 2" in told.out
    await world.started("waits")
    assert (await world.used(world.namespace))["a100", GPU] == 7
