"""Verdicts about devices are decisions: one for each change, and the same after a restart (B18)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuectl.core.decisions import Amend, Decision, Evict
from queuectl.core.features.idle_devices import GRACE
from queuectl.core.model.device_use import DeviceUse, UseFinding, UseVerdict
from queuectl.core.model.events import DeviceUseFound
from queuectl.core.model.workload import WorkloadId
from tests.builders import World, local_queue, observed, queue, workload
from tests.doubles import engine_state

A = WorkloadId("uid-a")
IDLE = UseFinding(UseVerdict.IDLE, 4, 4, 1.0, 0.0001, 0.0)
BUSY = UseFinding(UseVerdict.BUSY, 4, 1, 0.95, 0.9, 0.8)
UNKNOWN = UseFinding(UseVerdict.UNKNOWN, 4)


def running(**fields: object) -> World:
    """A world in which workload `a` runs with 4 GPUs."""
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    world.submit(workload("a", gpus=4, **fields))  # type: ignore[arg-type]
    world.run()
    world.settle()
    world.tell(observed(workload("a", gpus=4, **fields), suspended=False, generation=2))  # type: ignore[arg-type]
    assert world.run() == []
    return world


def find(world: World, finding: UseFinding, *, lasts: float = 900, attempt: int = 1) -> list[Decision]:
    """Tell of a finding now, and return what is decided."""
    until = world.now + timedelta(seconds=lasts)
    world.tell(DeviceUseFound(A, attempt, finding, world.now, until))
    world.pass_time(0)
    return world.run()


def use(world: World) -> DeviceUse | None:
    return engine_state.state(world.engine).entries[A].past.use


def test_a_verdict_is_decided_when_it_changes_and_not_for_each_check() -> None:
    world = running()
    for finding, decided in (
        (IDLE, [Amend]),
        (IDLE._replace(engine=0.0002, coverage=0.9), []),
        (BUSY, [Amend]),
        (BUSY, []),
        (BUSY._replace(idle_devices=0), [Amend]),
    ):
        world.pass_time(60)
        assert [type(one) for one in find(world, finding)] == decided
        assert use(world) is not None


def test_what_is_wasted_is_summed_at_each_change() -> None:
    world = running()
    find(world, IDLE)
    world.pass_time(100)
    find(world, IDLE)
    world.pass_time(100)
    find(world, BUSY)
    world.pass_time(50)
    find(world, UNKNOWN)
    found = use(world)
    assert found is not None
    assert found.wasted_ms == 1000 * (4 * 200 + 1 * 50)
    assert found.wasted_at(world.now + timedelta(seconds=9)) == found.wasted_ms


def test_unknown_counts_nothing_as_idle_and_ends_nothing() -> None:
    world = running()
    begun = world.now
    for finding in (IDLE, UNKNOWN, IDLE._replace(verdict=UseVerdict.HANG), IDLE):
        find(world, finding)
        world.pass_time(100)
    find(world, IDLE)
    found = use(world)
    assert found is not None
    assert (found.idle_at(world.now), found.idle_since) == (300_000, begun)
    find(world, BUSY)
    found = use(world)
    assert found is not None
    assert (found.idle_at(world.now + timedelta(hours=1)), found.idle_since) == (0, None)


def test_a_finding_that_no_check_follows_becomes_unknown() -> None:
    world = running()
    find(world, IDLE, lasts=300)
    ends = world.now + timedelta(seconds=300)
    world.pass_time(299)
    assert world.run() == []
    world.pass_time(200)
    assert [type(one) for one in world.run()] == [Amend]
    found = use(world)
    assert found is not None
    assert (found.finding, found.since, found.wasted_ms) == (UNKNOWN, ends, 4 * 300_000)


@pytest.mark.parametrize("attempt", [0, 2], ids=["of an earlier attempt", "of a later attempt"])
def test_a_finding_of_another_attempt_says_nothing(attempt: int) -> None:
    world = running()
    assert find(world, IDLE, attempt=attempt) == []
    assert use(world) is None


def test_a_finding_of_a_workload_that_is_not_known_says_nothing() -> None:
    world = World(queue("cq", 4), local_queue("lq", "cq"))
    assert find(world, IDLE) == []


def test_an_eviction_ends_the_verdict() -> None:
    world = running()
    find(world, IDLE)
    world.tell(observed(workload("a", gpus=4, hold=True), suspended=False, generation=3))
    (evicted,) = world.run()
    assert isinstance(evicted, Evict)
    assert use(world) is None
    assert find(world, IDLE) == []


def test_an_older_finding_changes_nothing() -> None:
    world = running()
    world.pass_time(100)
    find(world, IDLE)
    old = world.now - timedelta(seconds=50)
    world.tell(DeviceUseFound(A, 1, BUSY, old, world.now + GRACE))
    assert world.run() == []
