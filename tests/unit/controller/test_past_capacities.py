"""How often capacity is stored as history."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.controller.reports import LEAST_SECONDS, MOST_SECONDS, PastCapacities
from queuectl.core.model.capacity import FlavorCapacity

FLAVORS = ("a100", "b200")


def there(flavor: str, nodes: int) -> FlavorCapacity:
    return FlavorCapacity(flavor=flavor, nodes=(("Ready", nodes),))


CHANGES = st.lists(st.tuples(st.floats(0.5, 100), st.integers(0, 2)), min_size=1, max_size=60)
"""Seconds to the next look, and how many nodes there are then."""


@given(changes=CHANGES)
def test_a_row_is_due_at_most_once_in_a_minute_and_the_history_is_never_older_than_that(
    changes: list[tuple[float, int]],
) -> None:
    history, now, rows = PastCapacities(), 0.0, list[tuple[float, FlavorCapacity]]()
    for seconds, nodes in changes:
        now += seconds
        one = there("a100", nodes)
        rows += ((now, row) for row in history.due(now, [one]))
        assert rows[-1][1] == one or now - rows[-1][0] < LEAST_SECONDS, "a change was left out"
    times = [at for at, _ in rows]
    assert times[0] == changes[0][0]
    gaps = [later - at for at, later in pairwise(times)]
    assert all(gap >= LEAST_SECONDS for gap in gaps)


def test_an_hour_of_changes_each_5_seconds_makes_60_rows_of_each_flavor() -> None:
    history = PastCapacities()
    rows = [
        row
        for look in range(720)
        for row in history.due(look * 5.0, [there("a100", look % 7), there("b200", 4)])
    ]
    assert [sum(row.flavor == name for row in rows) for name in FLAVORS] == [60, 1]


@pytest.mark.parametrize(("hours", "due"), [(0, True), (23, False), (MOST_SECONDS / 3600, True)])
def test_a_flavor_that_does_not_change_has_a_row_each_day(hours: float, due: bool) -> None:
    history = PastCapacities()
    if hours:
        history.due(0.0, [there("a100", 1)])
    assert bool(history.due(hours * 3600.0, [there("a100", 1)])) is due


def test_a_flavor_that_is_back_is_due_at_once() -> None:
    history = PastCapacities()
    for now, present in ((0.0, ["a100"]), (5.0, []), (10.0, ["a100"])):
        found = history.due(now, [there(name, 1) for name in present])
        assert [one.flavor for one in found] == present
