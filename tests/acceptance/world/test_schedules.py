"""Schedules of the whole system, and crashes at its writes and awaits."""

from __future__ import annotations

import pytest

from tests.instruments import ON_POSTGRES, row
from tests.world.aimed import AIMED, NEVER
from tests.world.command import crashed, played
from tests.world.crash_points import SCHEDULE, awaits
from tests.world.on_postgres import played_on_postgres
from tests.world.planted import BUGS, PlantedBug, planted
from tests.world.world import play_schedule

SEEDS = range(1, 1_001)
EVERY = 15
"""Of the writes and awaits of one schedule, every so many-th is crashed at."""
BY_CHANCE = 3


@pytest.mark.usefixtures("table")
def test_a_crash_at_a_write_or_an_await_ends_as_well_as_none() -> None:
    whole = play_schedule(SCHEDULE, watched=True)
    assert whole.writes > 50
    aimed = [play_schedule(one, watched=True) for one in AIMED]
    assert not [one.violations for one in aimed if one.violations]
    left = awaits().difference(whole.waited, *(one.waited for one in aimed))
    assert set(NEVER) <= {place.text for place in awaits()}
    # Some are reached by chance: what a change of the product delays may make it miss them.
    assert len({place.text for place in left} - set(NEVER)) <= BY_CHANCE
    assert row("crash points", crashed(EVERY), tell=False) == 0


@pytest.mark.usefixtures("table")
def test_on_postgres_a_schedule_ends_as_on_the_twin() -> None:
    assert row("on Postgres too", played_on_postgres(SEEDS[::ON_POSTGRES]), shrink=False) == 0


@pytest.mark.usefixtures("table")
def test_schedules_break_no_rule() -> None:
    assert row("schedules", played(SEEDS, 1), coverage=True) == 0


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_applies(bug: PlantedBug) -> None:
    with planted(bug):
        pass
