"""The pods of victims take as long to end as those of the last evictions did."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuectl.answers.forecast.samples import LEAST_ENDINGS, MOST_ENDINGS, USUAL_SECONDS, Endings
from queuectl.ports.reader import PastLife, PastRun
from tests.unit.answers.test_run_times import after, stored


def evicted(*seconds: float) -> list[PastLife]:
    """One eviction each, in the order of their ends; the pods took so many seconds to end."""
    starts = [after(10_000 * number) for number in range(len(seconds))]
    runs = [
        PastRun(start, start + timedelta(seconds=60 + length), start + timedelta(seconds=60))
        for start, length in zip(starts, seconds, strict=True)
    ]
    return [PastLife(stored(f"train-{number}"), None, (run,)) for number, run in enumerate(runs)]


@pytest.mark.parametrize(
    ("lives", "seconds"),
    [
        (evicted(*[5.0] * (LEAST_ENDINGS - 1)), USUAL_SECONDS),
        (evicted(*[5.0] * LEAST_ENDINGS), 5),
        (evicted(*[1.0, 2.0, 3.0, 4.0, 70.0] * 3), 3),
        (evicted(*[90.0] * MOST_ENDINGS, *[7.0] * MOST_ENDINGS), 7),
        ([PastLife(stored("ran"), after(9), (PastRun(after(0), after(9)),))] * 20, USUAL_SECONDS),
    ],
    ids=["too few", "just enough", "the median", "the last ones", "ends without an eviction"],
)
def test_the_pods_of_victims_take_the_median_of_the_last_evictions(
    lives: list[PastLife], seconds: float
) -> None:
    assert Endings(lives).usual == seconds


def test_an_eviction_that_goes_on_does_not_count() -> None:
    going_on = [PastLife(stored("slow"), None, (PastRun(after(0), None, after(60)),))] * LEAST_ENDINGS
    assert Endings(going_on).usual == USUAL_SECONDS


@pytest.mark.parametrize(
    ("part", "so_far", "left"),
    [
        (0.0, 0, 5),
        (0.5, 0, 6),
        (0.99, 0, 7),
        (0.0, 2, 3),
        (0.5, 5.5, 1.5),
        (0.49, 5.5, 0.5),
        (0.5, 8, 8),
        (0.9, 8, 72),
    ],
)
def test_pods_that_are_ending_go_on_as_those_that_took_longer_did(
    part: float, so_far: float, left: float
) -> None:
    """As long again, at the median, where none took longer."""
    endings = Endings(evicted(*[5.0, 6.0, 7.0] * LEAST_ENDINGS))
    assert endings.left(part, so_far) == pytest.approx(left)
    assert so_far or endings.draw(part) == left
