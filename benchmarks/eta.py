"""Forecasts of starts on four simulated months: how often 80 % intervals held, and errors beside naive ones.

The naive estimates of the time to the start: position x mean run time / number running; and the median wait
of the last week, less the wait so far. All by ClusterQueue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from statistics import fmean, median
from typing import Final, NamedTuple

from benchmarks.months import DAY, KINDS, START, Class, Month, arrival, at_once
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report
from queuectl.answers.forecast.backtest import held, started
from queuectl.answers.forecast.forecast import WINDOW, Forecast, Interval, Known, Unknown
from queuectl.answers.forecast.samples import known_at
from queuectl.core.model.workload import Phase, StoredWorkload, WorkloadId
from queuectl.ports.reader import PastLife, PastLives

TIMES: Final = 60
"""Times in each month at which something waits."""
EACH: Final = 2
"""Workloads that are forecast at each time, at most."""
FIRST, LAST = 9.0, 26.0
"""Days."""
DEEP: Final = 10_000
_WEEK: Final = timedelta(days=7)
_DRAWS: Final = 19


class Case(NamedTuple):
    """One forecast with what happened. Seconds from the time of the forecast."""

    held: bool
    early: bool
    """It started before the interval."""
    actual: float
    median: float | None
    by_position: float | None
    by_last_week: float | None


def run(scale: int) -> Report:
    """Raises ValueError if nothing waits in a month."""
    report = Report("eta")
    rows: list[tuple[str | float, ...]] = []
    for kind in KINDS:
        cases = list(_cases(kind, max(4, TIMES // scale)))
        if not cases:
            raise ValueError(f"nothing waits in the month {kind}")
        share = sum(case.held for case in cases) / len(cases)
        report.figures.append(Figure(name=f"80 % intervals that held: {kind}", value=share * 100, unit="%"))
        errors = [error / 3600 for error in errors_of(cases)]
        actual = median(case.actual for case in cases) / 3600
        rows.append((kind, len(cases), f"{share:.0%}", f"{actual:.2f}", *(f"{one:.2f}" for one in errors)))
    columns = ("month", "forecasts", "held", "median time to start, h", "median error, h")
    report.details.append(Detail("forecasts", (*columns, "by position, h", "by last week, h"), tuple(rows)))
    report.figures.append(
        Figure(
            name=f"one forecast with {DEEP // scale:,} waiting",
            value=_deep(DEEP // scale),
            unit="CPU s",
            goal=Goal("value", "most", 60),
        )
    )
    return report


def errors_of(cases: list[Case]) -> list[float]:
    """The median errors of the median, by position and by the last week, in seconds."""

    def error(estimates: Iterable[float | None]) -> float:
        pairs = zip(estimates, cases, strict=True)
        found = [abs(estimate - case.actual) for estimate, case in pairs if estimate is not None]
        return median(found) if found else float("nan")

    return [
        error(case.median for case in cases),
        error(case.by_position for case in cases),
        error(case.by_last_week for case in cases),
    ]


def _cases(kind: str, times: int) -> Iterator[Case]:
    month = Month(kind)
    month.run()
    past = at_once(month.ledger.past_lives(since=START))
    dice = Random(kind)
    with bar(kind, times) as advance:
        for number in range(times):
            when, waiting = _busy(month, dice)
            yield from _checked(month, past, when, dice.sample(waiting, min(EACH, len(waiting))))
            advance(number + 1)


def _busy(month: Month, dice: Random) -> tuple[datetime, list[StoredWorkload]]:
    """A time at which workloads wait that came more than a minute before."""
    while True:
        when = START + timedelta(days=dice.uniform(FIRST, LAST))
        waiting = [
            one
            for one in at_once(month.ledger.at(when)).workloads
            if one.phase is Phase.PENDING and when - one.created_at > timedelta(minutes=1)
        ]
        if waiting:
            return when, waiting


def _checked(month: Month, past: PastLives, when: datetime, targets: list[StoredWorkload]) -> Iterator[Case]:
    snapshot, known = at_once(month.ledger.at(when)), known_at(past, when, WINDOW)
    found = Forecast(Known(snapshot, when, known), "a").of([one.id for one in targets], most_draws=_DRAWS)
    assert not isinstance(found, Unknown), found
    for one in targets:
        start = started(past, one.id, when)
        if start is None:
            continue  # not before the end of the month
        actual = (start - when).total_seconds()
        yield case(one, found[one.id], actual, snapshot.workloads, known, when)


def case(
    one: StoredWorkload,
    interval: Interval,
    actual: float,
    workloads: tuple[StoredWorkload, ...],
    known: PastLives,
    when: datetime,
) -> Case:
    """`workloads`, `known`: as of `when`, the time of the forecast."""
    kept = held(interval, actual, actual) is True
    return Case(
        kept,
        not kept and (interval.high is None or actual < interval.high),
        actual,
        interval.median,
        _by_position(one, workloads, known, when),
        _by_last_week(one, known, when),
    )


def _of_last_week(one: StoredWorkload, known: PastLives, when: datetime) -> list[PastLife]:
    return [
        life
        for life in known.lives
        if life.workload.cluster_queue == one.cluster_queue
        and any(run.admitted_at > when - _WEEK for run in life.runs)
    ]


def _by_position(
    one: StoredWorkload, workloads: tuple[StoredWorkload, ...], known: PastLives, when: datetime
) -> float | None:
    own = [other for other in workloads if other.cluster_queue == one.cluster_queue]
    before = (other for other in own if other.phase is Phase.PENDING and other.arrival <= one.arrival)
    lengths = [
        (run.ended_at - run.admitted_at).total_seconds()
        for life in _of_last_week(one, known, when)
        for run in life.runs
        if run.ended_at is not None
    ]
    running = sum(other.attempt is not None for other in own)
    return sum(1 for _ in before) * fmean(lengths) / max(1, running) if lengths else None


def _by_last_week(one: StoredWorkload, known: PastLives, when: datetime) -> float | None:
    waits = [
        (life.runs[0].admitted_at - life.workload.created_at).total_seconds()
        for life in _of_last_week(one, known, when)
    ]
    so_far = (when - one.created_at).total_seconds()
    return max(0.0, median(waits) - so_far) if waits else None


def _deep(waiting: int) -> float:
    """CPU seconds of a forecast for the last of so many, with all that it needs but the reads."""
    month = Month("stationary", days=4)
    flood = Class("flood", "a", "a-ada", 1, 0, 5_000, 0.8)
    end, dice = 3.7 * DAY, Random(1)
    month.add(arrival(flood, number, end + number * 0.01, dice) for number in range(waiting))
    end += waiting * 0.01 + 1
    month.play_until(end)
    when = START + timedelta(seconds=end)
    snapshot, past = at_once(month.ledger.at(when)), at_once(month.ledger.past_lives(since=START))
    last: WorkloadId = max(snapshot.workloads, key=lambda one: one.arrival).id
    begun = time.process_time()
    Forecast(Known(snapshot, when, known_at(past, when, WINDOW)), "a").of([last])
    return time.process_time() - begun


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Makes forecasts in one month."""
    with sampled() as found:
        list(_cases(KINDS[0], max(4, TIMES // scale)))
    return {"forecasts": found}
