"""Forecasts: the ranks of the draws, days that come again, and intervals that hold in a simulated month."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Final

import pytest

from benchmarks.months import DAY, KINDS, START, Month, at_once
from queuectl.answers.forecast import backtest
from queuectl.answers.forecast.forecast import (
    DRAWS,
    WINDOW,
    Forecast,
    Interval,
    Known,
    Unknown,
    interval,
    obstacle,
    queues_together,
)
from queuectl.answers.forecast.forward import Forward
from queuectl.answers.forecast.samples import Calendar, RunTimes, known_at
from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.policy import Node
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.workload import ConfigKey, LedgerSnapshot, Phase, StoredWorkload, UserOptions
from queuectl.ports.reader import PastLife
from queuectl.scenarios.arrivals import Arrival, milliseconds
from tests.builders import T0
from tests.doubles.invariants import violations
from tests.unit.answers.test_run_times import stored

HOUR = 3_600_000
"""Milliseconds."""


def test_the_interval_is_between_the_ranks_of_a_tenth_and_nine_tenths_of_the_draws() -> None:
    draws = [(number * HOUR, 100 * HOUR) for number in range(1, 20)]
    assert interval(draws[:9]) == Interval(3600, 5 * 3600, 9 * 3600, None, 9)
    assert interval(draws) == Interval(2 * 3600, 10 * 3600, 18 * 3600, None, 19)


def test_a_draw_that_ended_before_the_start_tells_only_that_it_is_later() -> None:
    starts = [(number * HOUR, 100 * HOUR) for number in range(1, 7)]
    assert interval([*starts, *[(None, 50 * HOUR)] * 3]) == Interval(3600, 5 * 3600, None, 50 * 3600, 9)
    assert interval([*starts, *[(None, 2 * HOUR)] * 3]) == Interval(3600, None, None, 2 * 3600, 9)
    assert interval([(None, 0)] * 9) == Interval(None, None, None, 0, 9)


def test_a_day_comes_again_as_a_working_day_or_as_a_day_of_a_weekend() -> None:
    """T0 is a Tuesday; one workload arrives on each day, at noon, named by it."""
    now = T0 + timedelta(days=14)
    lives = [
        PastLife(replace(stored(f"d{n}"), created_at=T0 + timedelta(days=n, hours=12)), None, ())
        for n in range(14)
    ]
    calendar = Calendar(lives, T0, now, {"cq"})
    assert calendar.days == 14
    for seed in range(20):
        dice = Random(seed)
        days = calendar.sample(dice)
        assert len(days) == 14
        for number in range(7):
            (one,) = calendar.day(number, days, dice)
            comes = now + timedelta(milliseconds=one.at)
            assert comes == now + timedelta(days=number, hours=12) == one.workload.created_at
            assert (comes.weekday() >= 5) is (one.like.created_at.weekday() >= 5)
            assert one.workload.id != one.like.id


@cache
def month() -> Month:
    played = Month("few long jobs", days=24)
    played.run()
    return played


def state(days: float) -> tuple[LedgerSnapshot, datetime]:
    when = START + timedelta(days=days)
    return at_once(month().ledger.at(when)), when


def forecast(days: float, most_work: int = 60_000) -> Forecast:
    snapshot, when = state(days)
    past = at_once(month().ledger.past_lives(since=START))
    return Forecast(Known(snapshot, when, known_at(past, when, WINDOW)), "a", most_work)


@cache
def busy() -> float:
    """Days to the first time after two weeks at which five workloads wait."""
    times = (14 + hours / 24 for hours in range(8 * 24))
    return next(days for days in times if sum(map(_waits, state(days)[0].workloads)) >= 5)


def _waits(one: StoredWorkload) -> bool:
    return obstacle(one) is None


def waiting(found: Forecast, most: int = 3) -> list[StoredWorkload]:
    assert len(found.waiting) > most
    return found.waiting[:most]


def test_the_same_state_has_the_same_forecast_whatever_was_asked_before() -> None:
    first, second = forecast(busy()), forecast(busy())
    one, *others = (workload.id for workload in waiting(first))
    second.of(others, most_draws=9)
    found = first.of([one], most_draws=9)
    assert isinstance(found, dict)
    assert found == second.of([one], most_draws=9)
    assert found[one].draws == DRAWS[0]
    assert found[one].low is not None


def test_a_forecast_changes_nothing_of_the_state() -> None:
    found = forecast(busy())
    before = found._engine.fork().decide(START + timedelta(days=busy())).decisions
    found.of([waiting(found)[0].id], most_draws=9)
    assert found._engine.decide(START + timedelta(days=busy())).decisions == before
    assert violations(found._engine) == []


def test_the_reasons_of_a_rebuilt_engine_are_found_once_for_all_draws() -> None:
    found = forecast(busy())
    now = START + timedelta(days=busy())
    assert len(found.waiting) >= 5
    assert found._engine.decide(now).decisions == ()


def test_work_is_bounded_and_a_cut_draw_says_how_far_it_came() -> None:
    found = forecast(busy(), most_work=9 * 5)
    last = found.waiting[-1].id
    interval = found.of([last])
    assert isinstance(interval, dict)
    assert interval[last].median is None
    assert interval[last].after is not None


def test_a_history_of_less_than_a_day_is_too_thin() -> None:
    assert forecast(0.6).of([]) == Unknown("the history is shorter than a day")


def test_a_history_with_few_runs_is_too_thin() -> None:
    snapshot, when = state(busy())
    past = known_at(at_once(month().ledger.past_lives(since=START)), when, WINDOW)
    thin = past._replace(lives=tuple(life._replace(runs=()) for life in past.lives))
    assert Forecast(Known(snapshot, when, thin), "a").of([]) == Unknown(
        "fewer than 8 runs have ended in its cohort tree"
    )


def test_what_ended_after_the_past_was_read_does_not_count_as_having_run_until_now() -> None:
    """A run that went on when the past was read counts as longer than it was then (A13)."""
    snapshot, when = state(busy())
    past = at_once(month().ledger.past_lives(since=START))
    read = known_at(past, when - timedelta(days=2), WINDOW)
    found = Forecast(Known(snapshot, when, known_at(read, when, WINDOW)), "a")
    ran = {
        life.workload.id: max(
            ((run.stopped_at or past.until) - run.admitted_at).total_seconds() for run in life.runs
        )
        for life in past.lives
        if life.runs
    }
    known = {id: seconds for id, seconds in found._ran.items() if seconds}
    assert len(known) >= 8
    assert all(seconds <= ran[id] for id, seconds in known.items())
    assert sorted(one.seconds for one in found._runs["all"]) == sorted(known.values())


def preempting() -> tuple[float, StoredWorkload]:
    """Days to 10 s after a preemption, while others wait too, and the preemptor."""
    lives = at_once(month().ledger.past_lives(since=START)).lives
    for at in sorted(run.evicted_at for life in lives for run in life.runs if run.evicted_at is not None):
        days = (at + timedelta(seconds=10) - START) / timedelta(days=1)
        there = state(days)[0].workloads if days > 2 else ()
        awaiting = {one.preemptor for one in there if one.phase is Phase.EVICTING}
        waits = [one for one in there if one.phase is Phase.PENDING]
        if len(waits) > 2 and (found := next((one for one in waits if one.id in awaiting), None)):
            return days, found
    raise AssertionError("no preemptor waits")


def test_the_preemptor_starts_when_the_pods_of_its_victims_have_ended() -> None:
    """They take 30 s in this month."""
    days, first = preempting()
    found = forecast(days).of([first.id], most_draws=9)
    assert isinstance(found, dict)
    assert found[first.id] == Interval(20, 20, 20, None, 9)


GPUS: Final = "nvidia.com/gpu"


def on_nodes(gpus: int, others: int = 0) -> Forecast:
    """The same where quota is for all, but nodes limit: one for each workload that runs, which has its pods
    there; `others`: how many of these workloads are of another tree."""
    snapshot, when = state(busy())
    past = known_at(at_once(month().ledger.past_lives(since=START)), when, WINDOW)
    configs = []
    for key, spec in snapshot.configs:
        text = spec.replace('"16"', '"1000"').replace(": 16", ": 1000").replace(":16", ":1000")
        if key.kind == "ResourceFlavor":
            text = json.dumps({**json.loads(spec), "nodes": {"mode": "Enforce"}})
        configs.append((key, text))
    running = [one for one in snapshot.workloads if one.phase is Phase.ADMITTED]
    nodes = []
    for number, one in enumerate(running):
        pods = PodsOnNode(one.ref.namespace, None if number < others else one.id, ((GPUS, 1),), 8)
        node = Node(f"n{number}", (), ((GPUS, gpus), ("pods", 110)))
        nodes.append(NodeFacts(name=f"n{number}", node=node, pods=(pods,)))
    there = tuple(one for one in snapshot.workloads if one not in running[:others])
    limited = replace(snapshot, configs=tuple(configs), nodes=tuple(nodes), workloads=there)
    return Forecast(Known(limited, when, past), "a")


def test_a_workload_waits_for_pods_to_leave_nodes_as_long_as_their_runs_last() -> None:
    assert len(on_nodes(8).waiting) >= 5
    first = on_nodes(8).waiting[0].id
    room, full = [on_nodes(gpus).of([first], most_draws=9) for gpus in (16, 8)]
    assert isinstance(room, dict)
    assert isinstance(full, dict)
    assert room[first] == Interval(0, 0, 0, None, 9)
    low, median, high, _, _ = full[first]
    assert low is not None
    assert median is not None
    assert 60 < low < median
    assert high is None or high > median


def test_pods_of_another_tree_stay_on_their_nodes() -> None:
    running = sum(one.phase is Phase.ADMITTED for one in state(busy())[0].workloads)
    found = on_nodes(8, others=running)
    first = found.waiting[0].id
    none = found.of([first], most_draws=9)
    assert isinstance(none, dict)
    assert none[first].median is None


def test_pods_of_a_workload_that_started_in_a_draw_leave_their_nodes_too() -> None:
    running = sum(one.phase is Phase.ADMITTED for one in state(busy())[0].workloads)
    found = on_nodes(8, others=running - 1)
    first, second, third = [one.id for one in found.waiting[:3]]
    starts = found.of([first, second, third], most_draws=9)
    assert isinstance(starts, dict)
    medians = [one.median for one in starts.values()]
    assert None not in medians
    assert medians == sorted(medians, key=lambda one: one or 0)
    assert len(set(medians)) == 3


def test_only_workloads_of_the_tree_are_played() -> None:
    snapshot, when = state(busy())
    past = known_at(at_once(month().ledger.past_lives(since=START)), when, WINDOW)
    specs = dict(snapshot.configs)
    spec = json.loads(specs[ConfigKey("ClusterQueue", "", "a")])
    del spec["cohortName"]
    configs = (*snapshot.configs, (ConfigKey("ClusterQueue", "", "alone"), json.dumps(spec)))
    alone = Forecast(Known(replace(snapshot, configs=configs), when, past), "alone")
    assert alone.queues == {"alone"}
    assert alone.waiting == []
    assert (
        {one.cluster_queue for one in forecast(busy()).waiting} <= forecast(busy()).queues == {"a", "b", "c"}
    )


def test_what_does_not_wait_has_no_forecast() -> None:
    runs = next(one for one in state(busy())[0].workloads if one.phase is Phase.ADMITTED)
    assert runs.attempt is not None
    assert obstacle(runs) == f"it started at {runs.attempt.admitted_at.isoformat()}"
    assert obstacle(replace(stored("one"), phase=Phase.DELETED)) == "it has ended"


@pytest.mark.parametrize(
    ("found", "seconds", "so_far", "result"),
    [
        (Interval(10, 20, 30, None, 9), 15, 99, True),
        (Interval(10, 20, 30, None, 9), 9, 99, False),
        (Interval(10, 10, 10, None, 9), 10.0004, 99, True),
        (Interval(10, 10, 10, None, 9), 9.9996, 99, True),
        (Interval(10, 20, 30, None, 9), 31, 99, False),
        (Interval(10, 20, 30, None, 9), None, 29, None),
        (Interval(10, 20, 30, None, 9), None, 31, False),
        (Interval(10, 20, None, 25, 9), 1e9, 2e9, True),
        (Interval(10, 20, None, 25, 9), None, 30, True),
        (Interval(None, None, None, 25, 9), 24, 99, False),
    ],
)
def test_whether_an_interval_held(
    found: Interval, seconds: float | None, so_far: float, result: bool | None
) -> None:
    assert backtest.held(found, seconds, so_far) is result


class Told(Forecast):
    """A forecast that knows what comes: its draws have the run times and the arrivals of a month."""

    def __init__(self, basis: Known, played: Month) -> None:
        super().__init__(basis, "a")
        self._works = {one.workload.id: one for one in played.work}

    def _know(self, play: Forward, one: StoredWorkload, times: RunTimes, dice: Random) -> None:
        run, ran = self._works[one.id].run, 0.0
        assert run is not None
        if one.attempt is not None:
            ran = (self._basis.now - one.attempt.admitted_at).total_seconds()
        play.know(one, run, max(1, run - milliseconds(ran)), self._due)

    def _day(self, times: RunTimes, days: Sequence[int], dice: Random, number: int) -> Iterator[Arrival]:
        now = milliseconds((self._basis.now - START).total_seconds())
        for one in self._works.values():
            if one.at > now and (one.at - now) // milliseconds(DAY) == number:
                yield replace(one, at=one.at - now)


@pytest.mark.acceptance
@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_that_is_told_what_comes_is_what_happens(kind: str) -> None:
    played = Month(kind, days=4)
    played.run()
    past = at_once(played.ledger.past_lives(since=START))
    first = {life.workload.id: life.runs[0].admitted_at for life in past.lives if life.runs}
    dice, checked = Random(kind), 0
    for _ in range(99):
        # After a change of policy, which no draw knows of.
        when = START + timedelta(milliseconds=dice.randrange(2 * 86_400_000 + 1, 3 * 86_400_000))
        snapshot = at_once(played.ledger.at(when))
        waits = [
            one.id for one in snapshot.workloads if _waits(one) and one.attempts == 0 and one.id in first
        ]
        if not waits:
            continue
        found = Told(Known(snapshot, when, known_at(past, when, WINDOW)), played)
        found._draw(0, waits)
        starts = found._draws[0].starts
        told = {one: when + timedelta(milliseconds=starts[one]) for one in waits}
        assert told == {one: first[one] for one in waits}
        if (checked := checked + 1) == 4:
            break
    assert checked == 4, "too rarely does anything wait"


@pytest.mark.acceptance
def test_intervals_hold_about_as_often_as_they_say() -> None:
    """A small seeded sample; `python -m benchmarks --only eta` has four whole months."""
    past = at_once(month().ledger.past_lives(since=START))
    end = START + timedelta(seconds=24 * DAY)
    results: Counter[bool] = Counter()
    for number in range(20):
        when = START + timedelta(days=12 + 0.52 * number)
        found = Forecast(Known(at_once(month().ledger.at(when)), when, known_at(past, when, WINDOW)), "a")
        targets = backtest.targets_of(found.waiting, number)
        results.update(backtest.check(found, targets, when, past, end) if targets else ())
    assert results.total() >= 15
    assert 0.55 <= results[True] / results.total() <= 0.98


def _in(name: str, cluster_queue: str, **options: object) -> StoredWorkload:
    return replace(stored(name), cluster_queue=cluster_queue, options=UserOptions(**options))  # type: ignore[arg-type]


def test_a_forecast_plays_the_trees_on_which_starts_depend() -> None:
    """`x` waits for `y`, `y` for `z`; the UsageLimit of class `high` counts in trees d and e."""
    configs: dict[tuple[str, str], dict[str, object]] = {
        **{("ClusterQueue", name): {} for name in "abcdefg"},
        ("ClusterQueue", "c"): {"cohortName": "all"},
        ("ClusterQueue", "f"): {"cohortName": "all"},
        ("UsageLimit", "few"): {
            "target": {"kind": "WorkloadPriorityClass", "name": "high"},
            "subject": {"kind": "All"},
            "running": 1,
        },
    }

    def after(name: str) -> StartConditions:
        return StartConditions(after=(AfterWorkload(AfterOutcome.ANY, "Job", name),))

    workloads = [
        _in("x", "a", start=after("y")),
        _in("y", "b", start=after("z")),
        _in("z", "c"),
        *(_in(f"high-{queue}", queue, priority_class="high") for queue in "de"),
    ]
    snapshot = LedgerSnapshot(
        sequence=1,
        now=START,
        workloads=tuple(workloads),
        configs=tuple(
            (ConfigKey(kind, "", name), json.dumps(spec)) for (kind, name), spec in configs.items()
        ),
    )
    played = {name: "".join(sorted(queues_together(snapshot, name))) for name in "abcdefg"}
    assert played == {"a": "abcf", "b": "bcf", "c": "cf", "d": "de", "e": "de", "f": "cf", "g": "g"}
