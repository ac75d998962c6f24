from __future__ import annotations

import math
from dataclasses import replace

import pytest

from queuectl.scenarios.arrivals import (
    Arrival,
    Distribution,
    Template,
    arrivals,
    exponential,
    lognormal,
    uniform,
)
from tests.builders import T0, workload

TEMPLATE = Template(
    shape=workload("train", gpus=4),
    spacing=exponential(60),
    run=lognormal(600, 1),
    seed=7,
)


def drawn(template: Template, until: float | None = 36_000) -> list[Arrival]:
    return list(arrivals(template, T0, until=until))


def test_the_same_seed_gives_the_same_work() -> None:
    assert drawn(TEMPLATE) == drawn(TEMPLATE)
    assert drawn(TEMPLATE) != drawn(replace(TEMPLATE, seed=8))


def test_this_seed_gives_exactly_these_times() -> None:
    """With all versions of Python and on all machines: results of scenarios are stored and compared."""
    first = drawn(TEMPLATE)[:3]
    assert [(one.at, one.run) for one in first] == [(12416, 728152), (187588, 1800440), (273988, 138363)]


def test_another_name_has_a_stream_of_its_own() -> None:
    other = drawn(replace(TEMPLATE, shape=workload("other")))
    assert [one.at for one in other] != [one.at for one in drawn(TEMPLATE)]


def test_run_times_stay_when_arrivals_come_more_often() -> None:
    often = drawn(replace(TEMPLATE, spacing=exponential(30), count=100))
    seldom = drawn(replace(TEMPLATE, count=100))
    assert [one.run for one in often] == [one.run for one in seldom]


def test_constant_arrivals_begin_at_from_and_end_before_to() -> None:
    found = drawn(replace(TEMPLATE, spacing=10.0, first=5, last=35), until=None)
    assert [one.at for one in found] == [5_000, 15_000, 25_000]
    assert [one.workload.ref.name for one in found] == ["train-1", "train-2", "train-3"]
    assert all((one.workload.created_at - T0).total_seconds() * 1000 == one.at for one in found)


def test_random_arrivals_keep_their_rate() -> None:
    found = drawn(TEMPLATE, until=600_000)
    assert len(found) == pytest.approx(10_000, rel=0.03)
    runs = sorted(one.run or 0 for one in found)
    assert runs[len(runs) // 2] == pytest.approx(600_000, rel=0.05)


def test_a_count_limits_arrivals() -> None:
    assert len(drawn(replace(TEMPLATE, count=3), until=None)) == 3


@pytest.mark.parametrize(
    ("distribution", "median"),
    [
        (uniform(10, 30), 20),
        (exponential(60), 60 * math.log(2)),
        (lognormal(600, 2), 600),
    ],
)
def test_half_of_all_values_lie_below_the_median(distribution: Distribution, median: float) -> None:
    assert distribution(0.5) == pytest.approx(median)
    values = [distribution(part / 100) for part in range(100)]
    assert values == sorted(values)
    assert values[0] >= 0
