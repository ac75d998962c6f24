"""Schedules of the whole system."""

from __future__ import annotations

import pytest

from tests.instruments import ON_POSTGRES, row
from tests.world.command import played
from tests.world.on_postgres import played_on_postgres
from tests.world.planted import BUGS, PlantedBug, planted

SEEDS = range(1, 1_001)


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
