"""Lending of idle quota, as objects and commands show it. Its order and its limits are the core's alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.e2e.cohort import (
    decided,
    end_pods,
    endless,
    evicted,
    gpus,
    runs,
    team,
    verdicts,
)
from tests.acceptance.e2e.site import GPU
from tests.acceptance.e2e.world import World

pytestmark = pytest.mark.asyncio(loop_scope="session")

RECLAIMS = {"reclaimWithinCohort": "Any"}


async def test_borrowed_quota_is_reclaimed_by_its_owner_and_used_by_no_other_queue_meanwhile(
    world: World,
) -> None:
    owners = await team(world, "owners", 6, preemption=RECLAIMS)
    guests = await team(world, "guests", 2)
    await runs(world, endless("guest", "guests", 5, lingers=True))
    assert (await gpus(world, guests), await gpus(world, owners)) == (5, 0)

    await world.submit(endless("owner", "owners", 6))
    waits = await world.reason_is("owner", "WaitingForPreemptedWorkloads")
    assert (waits["requested"], waits["resource"], waits["node"]) == (6, GPU, f"Cohort/{world.namespace}")
    taken = await evicted(world, "guest")
    assert (taken["code"], taken["cause"]) == ("Preempted", "InCohortReclamation")
    assert taken["by"] == f"{world.namespace}/Job/owner"
    # Three GPUs are free but reserved: without them there would be too few for the owner.
    await world.submit(endless("late", "guests", 3))
    kept = await world.reason_is("late", "WaitingForQuota")
    assert "reserved for workloads ahead of it" in kept["message"]
    assert (await world.workload("guest"))["phase"] == "Evicting"
    assert (await gpus(world, guests), await gpus(world, owners)) == (5, 0)
    await _it_is_told(world)

    await end_pods(world, "guest")
    admitted = await world.started("owner")
    assert admitted["spec"]["suspend"] is False
    assert (await gpus(world, guests), await gpus(world, owners)) == (0, 6)
    await world.delete("owner")
    await world.phase("guest", "Admitted")
    await world.phase("late", "Admitted")
    assert await verdicts(world, "guest") == ["Queued", "Admitted", "Evicted", "Released", "Admitted"]
    times = [
        (await decided(world, name, verdict))["sequence"]
        for name, verdict in (("guest", "Evicted"), ("owner", "Admitted"), ("late", "Admitted"))
    ]
    assert times == sorted(times)
    assert await verdicts(world, "late") == ["Queued", "Admitted"]


async def _it_is_told(world: World) -> None:
    """What the command line shows of both, while one is being preempted for the other."""
    where = ("-n", world.namespace)
    owner, guest, past = await asyncio.gather(
        world.site.queuectl("explain", "job/owner", *where),
        world.site.queuectl("explain", "job/guest", *where),
        world.site.queuectl("history", "job/guest", *where, "-o", "json"),
    )
    assert "WaitingForPreemptedWorkloads" in owner.out
    assert f"Held by     {world.namespace}/Job/guest: 5 since" in owner.out, owner.out
    assert f"Preempted (InCohortReclamation) by {world.namespace}/Job/owner" in guest.out
    last = past.json["items"][-1]
    assert (last["verdict"], last["reason"]["by"]) == ("Evicted", f"{world.namespace}/Job/owner")
