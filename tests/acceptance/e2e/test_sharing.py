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
from tests.acceptance.e2e.site import GPU, eventually
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


async def test_two_queues_that_borrow_the_idle_quota_of_a_third_get_equal_shares(world: World) -> None:
    await world.policy(
        {
            "apiVersion": "queuectl.dev/v1beta1",
            "kind": "Cohort",
            "metadata": {"name": world.namespace},
            "spec": {"fairSharing": {"enabled": True}},
        }
    )
    await team(world, "idle", 8)
    first, second = [await team(world, name, 0, preemption=RECLAIMS) for name in ("first", "second")]
    early = [f"early-{n}" for n in range(4)]
    for name in early:
        await runs(world, endless(name, "first", 2))
    late = [f"late-{n}" for n in range(3)]
    for name in late:
        await world.submit(endless(name, "second", 2))

    async def equal() -> bool:
        return (await gpus(world, first), await gpus(world, second)) == (4, 4)

    await eventually("both have the same", equal)
    ends = {name: await verdicts(world, name) for name in early}
    victims = [name for name, found in ends.items() if "Evicted" in found]
    # The two that started last: they lose least.
    assert victims == early[2:]
    for name in victims:
        reason = await evicted(world, name)
        assert (reason["cause"], reason["by"]) == ("InCohortFairSharing", _any_of(world, late, reason["by"]))
        await world.reason_is(name, "WaitingForQuota")
    # The shares stay equal, though both queues have more pending workloads.
    waiting = [n for n in late if (await world.workload(n))["phase"] == "Pending"]
    assert len(waiting) == 1
    await world.reason_is(waiting[0], "WaitingForQuota")
    assert (await gpus(world, first), await gpus(world, second)) == (4, 4)
    assert [len([v for v in await verdicts(world, n) if v == "Evicted"]) for n in early] == [0, 0, 1, 1]


def _any_of(world: World, names: list[str], found: str) -> str:
    known = [f"{world.namespace}/Job/{name}" for name in names]
    return found if found in known else f"one of {known}"
