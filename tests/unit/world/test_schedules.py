"""A few schedules of the whole system. Many more: `python -m tests.world`."""

from __future__ import annotations

import pytest

from tests.world.schedule import schedule
from tests.world.world import play_schedule


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_schedule_breaks_no_rule(seed: int) -> None:
    assert play_schedule(schedule(seed)).violations == []


@pytest.mark.acceptance
def test_the_same_seed_gives_the_same_bytes_of_history() -> None:
    first, second = (play_schedule(schedule(9)) for _ in range(2))
    assert first.story == second.story
    assert (first.digest, first.callbacks, first.seconds) == (second.digest, second.callbacks, second.seconds)
    assert play_schedule(schedule(10)).digest != first.digest
