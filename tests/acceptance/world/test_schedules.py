"""More schedules of the whole system than `make test` plays, and crashes at its writes and awaits."""

from __future__ import annotations

import pytest

from tests.world.crash_points import SCHEDULE, awaits, crash_points
from tests.world.on_postgres import played_on_postgres
from tests.world.planted import BUGS, PlantedBug, planted
from tests.world.schedule import schedule
from tests.world.world import play_schedule

BATCH = 11
FIRSTS = (101, 112, 123)
EVERY = 15
"""Of the writes and awaits of one schedule, every so many-th is crashed at."""


@pytest.mark.parametrize("first", FIRSTS)
def test_schedules_break_no_rule(first: int) -> None:
    outcomes = [play_schedule(schedule(seed)) for seed in range(first, first + BATCH)]
    assert {one.schedule.seed: one.violations for one in outcomes if one.violations} == {}


def test_on_postgres_a_schedule_ends_as_on_the_twin() -> None:
    (outcome,) = played_on_postgres([101])
    assert outcome.violations == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_applies(bug: PlantedBug) -> None:
    with planted(bug):
        pass


def test_a_crash_at_a_write_or_an_await_ends_as_well_as_none() -> None:
    whole = play_schedule(SCHEDULE, watched=True)
    assert whole.writes > 50
    assert set(whole.waited) < awaits()
    assert len(whole.waited) > 40
    points = crash_points(whole.writes, whole.waited, EVERY)
    outcomes = {point: play_schedule(SCHEDULE, point).violations for point in points}
    assert {point: violations for point, violations in outcomes.items() if violations} == {}
