"""Crashes of the whole system at every write and await of the write path."""

from __future__ import annotations

import pytest

from tests.instruments import row
from tests.world.aimed import AIMED, NEVER
from tests.world.command import crashed
from tests.world.crash_points import awaits

BY_CHANCE = 3
"""Awaits that are reached by chance: what a change of the product delays may make a run miss them."""


@pytest.mark.usefixtures("table")
def test_a_crash_at_a_write_or_an_await_ends_as_well_as_none() -> None:
    left = set(awaits())
    assert row("crash points", crashed(1, AIMED, left), tell=False) == 0
    assert set(NEVER) <= {place.text for place in awaits()}
    assert len({place.text for place in left} - set(NEVER)) <= BY_CHANCE
