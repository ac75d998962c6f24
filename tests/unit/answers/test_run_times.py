"""Run times are drawn from earlier runs that are alike; those that were evicted count as longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.answers.forecast.samples import (
    LEAST_RUNS,
    Ran,
    RunTimes,
    Survival,
    grouped,
    known_at,
    name_prefix,
    run_of,
)
from queuectl.core.model.workload import (
    NO_OPTIONS,
    ObjectRef,
    PastAttempts,
    Phase,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ports.reader import PastLife, PastLives, PastRun
from tests.builders import GPU, T0, pod_set

NOW = T0 + timedelta(days=10)


def stored(name: str, *, gpus: int = 1, queue: str = "main", submitter: str = "ada") -> StoredWorkload:
    return StoredWorkload(
        id=WorkloadId(f"uid-{name}"),
        ref=ObjectRef("ns", "Job", name, f"uid-{name}"),
        queue=queue,
        cluster_queue="cq",
        priority=0,
        created_at=T0,
        arrival=1,
        phase=Phase.PENDING,
        attempts=0,
        attempt=None,
        reason=None,
        pod_sets=(pod_set(gpus, {GPU: 1}),),
        submitter=submitter,
    )


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def ran(one: StoredWorkload, *seconds: float) -> list[PastLife]:
    """Lives of one run each."""
    return [PastLife(one, after(length), (PastRun(T0, after(length)),)) for length in seconds]


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("train", "train"),
        ("train-7", "train"),
        ("train-big-2026-11-02", "train-big"),
        ("train-big-x7k2p", "train-big"),
        ("sweep.lr-0a1b2c3d4e", "sweep-lr"),
        ("job123", "job"),
        ("7", "7"),
        ("resnet50-eval", "resnet50-eval"),
    ],
)
def test_the_prefix_of_a_name_has_no_numbers_and_random_parts_at_its_end(name: str, prefix: str) -> None:
    assert name_prefix(name) == prefix


def test_runs_that_are_most_alike_tell_the_run_time() -> None:
    lives = [
        *ran(stored("eval-1"), *[60.0] * LEAST_RUNS),
        *ran(stored("train-1"), *[7200.0] * LEAST_RUNS),
        *ran(stored("train-2", gpus=8), *[90_000.0] * LEAST_RUNS),
        *ran(stored("other", queue="else"), *[5.0] * 100),
    ]
    times = RunTimes(grouped(lives, NOW))
    assert times.draw(stored("eval-9"), 0.5) == 60
    assert times.draw(stored("train-9"), 0.5) == 7200
    assert times.draw(stored("train-9", gpus=8), 0.5) == 90_000
    assert times.draw(stored("train-9", submitter="new"), 0.5) == 7200
    assert times.draw(stored("unknown", queue="new"), 0.5) == 5


def test_fewer_runs_than_needed_tell_nothing_and_the_limit_that_was_asked_for_is_the_run_time() -> None:
    few = RunTimes(grouped(ran(stored("train-1"), *[60.0] * (LEAST_RUNS - 1)), NOW))
    limited = replace(stored("train-2"), options=replace(NO_OPTIONS, max_run_seconds=600))
    assert not few.known(stored("train-2"))
    with pytest.raises(KeyError):
        few.draw(stored("train-2"), 0.5)
    assert few.known(limited)
    assert few.draw(limited, 0.5) == 600


def test_no_run_is_longer_than_what_its_limit_leaves() -> None:
    times = RunTimes(grouped(ran(stored("train-1"), *[6000.0] * LEAST_RUNS), NOW))
    limited = replace(stored("train-2"), options=replace(NO_OPTIONS, max_run_seconds=600))
    assert times.draw(limited, 0.5) == 600
    assert times.draw(replace(limited, past=PastAttempts(run_ms=500_000)), 0.5) == 100


def test_a_run_that_was_evicted_counts_as_longer_than_it_was() -> None:
    survival = Survival([Ran(10, ended=True), Ran(20, ended=False), Ran(30, ended=True), Ran(40, ended=True)])
    # Kaplan and Meier: 3/4 are longer than 10; of those half are longer than 30.
    assert survival.quantile(0.25, 0) == 10
    assert survival.quantile(0.26, 0) == 30
    assert survival.quantile(0.62, 0) == 30
    assert survival.quantile(0.63, 0) == 40
    assert survival.quantile(0.49, 20) == 30
    assert survival.quantile(0.51, 20) == 40


FIRST = PastRun(T0, after(130), evicted_at=after(100))


@pytest.mark.parametrize(
    ("life", "found"),
    [
        (PastLife(stored("ended"), after(500), (FIRST, PastRun(after(200), after(500)))), Ran(300, True)),
        (PastLife(stored("goes on"), None, (FIRST, PastRun(after(550), None))), Ran(100, False)),
        (PastLife(stored("goes on for long"), None, (FIRST, PastRun(after(200), None))), Ran(400, False)),
        (PastLife(stored("evicted, then deleted"), after(130), (FIRST,)), Ran(100, False)),
        (PastLife(stored("waits"), None, ()), Ran(0, False)),
    ],
    ids=lambda one: one.workload.ref.name if isinstance(one, PastLife) else "",
)
def test_a_workload_ran_as_long_as_its_run_that_ended_or_longer_than_each_of_its_runs(
    life: PastLife, found: Ran
) -> None:
    assert run_of(life, after(600)) == found


def test_a_workload_counts_once_however_often_it_was_evicted() -> None:
    often = PastLife(stored("train-1"), None, (FIRST, FIRST, FIRST))
    assert grouped([often, PastLife(stored("train-2"), None, ())], NOW)["all"] == [Ran(100, ended=False)]


@given(st.lists(st.floats(1, 1e6), min_size=LEAST_RUNS, max_size=60), st.floats(0, 1e6), st.floats(0, 0.999))
def test_a_run_that_goes_on_ends_later_than_it_has_run(
    lengths: list[float], longer: float, part: float
) -> None:
    times = RunTimes(grouped(ran(stored("train-1"), *lengths), NOW), Random(1))
    drawn = times.draw(stored("train-2"), part, longer)
    assert drawn >= longer
    assert drawn == times.draw(stored("train-2"), part, longer)
    assert drawn <= times.draw(stored("train-2"), (1 + part) / 2, longer)


def test_what_was_known_at_a_time_has_nothing_later() -> None:
    one = replace(stored("train-1"), created_at=after(0))
    new = replace(stored("train-2"), created_at=after(300))
    old = replace(stored("train-3"), created_at=after(0))
    past = PastLives(
        (
            PastLife(one, after(500), (FIRST, PastRun(after(200), after(500)))),
            PastLife(new, None, ()),
            PastLife(old, after(20), (PastRun(after(5), after(20)),)),
        ),
        T0,
        after(600),
    )
    found = known_at(past, after(150), timedelta(seconds=100))
    assert (found.since, found.until) == (after(50), after(150))
    assert known_at(past, after(700), timedelta(seconds=100)).until == after(600)
    assert found.lives == (PastLife(one, None, (FIRST,)),)
    (then,) = known_at(past, after(120), timedelta(seconds=100)).lives[:1]
    assert then.runs == (FIRST._replace(ended_at=None),)
    (then,) = known_at(past, after(90), timedelta(seconds=100)).lives[:1]
    assert then.runs == (PastRun(T0, None),)
