"""Preemption inside one queue: by priority, gangs as a whole, and not before a protection ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.acceptance.e2e.cohort import (
    decided,
    endless,
    evicted,
    gpus,
    history,
    moment,
    priority,
    runs,
    verdicts,
)
from tests.acceptance.e2e.site import GPU, cluster_queue, pod_template, pytorchjob
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

BY_PRIORITY = {"withinClusterQueue": "LowerPriority"}
PROTECTED = 4
"""Seconds: long enough to request the quota of a workload that has just been admitted."""


async def test_a_gang_of_lower_priority_is_preempted_as_a_whole_and_is_admitted_again(world: World) -> None:
    high = await priority(world, "high", 1000)
    await world.policy(cluster_queue(world.namespace, 8, preemption=BY_PRIORITY))
    await runs(world, pytorchjob("gang", workers=3, template=pod_template(2, 600)))
    await world.submit(endless("equal", "main", 1))
    refused = await world.reason_is("equal", "WaitingForQuota")
    gang = f"{world.namespace}/PyTorchJob/gang"
    assert refused["victims"] == [{"who": gang, "why": "its priority is not lower"}]
    assert refused["message"].endswith("not preempted: 1 whose priority is not lower")
    told = await world.site.queuectl("explain", "job/equal", "-n", world.namespace)
    assert f"Considered  {gang}: its priority is not lower" in told.out
    assert (await world.workload("gang", "PyTorchJob"))["phase"] == "Admitted"

    urgent = await runs(world, endless("urgent", "main", 8, priority=high))
    reason = await evicted(world, "gang", "PyTorchJob")
    assert (reason["cause"], reason["by"]) == ("InClusterQueue", f"{world.namespace}/Job/{urgent}")
    waits = await world.reason_is("gang", "WaitingForQuota", "PyTorchJob")
    assert waits["requested"] >= 2
    assert await gpus(world, world.namespace) == 8
    await world.delete(urgent)
    await world.started("gang", "PyTorchJob")
    assert await verdicts(world, "gang", "PyTorchJob") == [
        *("Queued", "Admitted", "Evicted", "Released", "Admitted"),
    ]


async def test_a_protected_workload_runs_until_its_protection_ends_and_is_then_preempted_at_once(
    world: World,
) -> None:
    high = await priority(world, "high", 1000)
    rules = {**BY_PRIORITY, "minRunTime": {"InClusterQueue": PROTECTED}}
    await world.policy(cluster_queue(world.namespace, 8, preemption=rules))
    await world.submit(endless("runs", "main", 8))
    await world.phase("runs", "Admitted")
    await world.submit(endless("urgent", "main", 8, priority=high))
    until = moment(await decided(world, "runs", "Admitted")) + timedelta(seconds=PROTECTED)
    ended = await decided(world, "runs", "Evicted")
    assert moment(ended) >= until
    waited = [row["reason"] for row in await history(world, "urgent") if row["verdict"] == "Pending"]
    assert waited[0]["code"] == "MinRunTimeProtected"
    assert (waited[0]["requested"], waited[0]["resource"]) == (8, GPU)
    runs_still = f"protected until {until:%Y-%m-%dT%H:%M:%SZ}"
    assert [one["why"] for one in waited[0]["victims"]] == [runs_still]
    assert until.isoformat(timespec="seconds").removesuffix("+00:00") in waited[0]["message"]
    await world.started("urgent")
    assert (await evicted(world, "runs"))["by"] == f"{world.namespace}/Job/urgent"
