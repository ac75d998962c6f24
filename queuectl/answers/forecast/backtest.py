"""How often forecasts held: made again for past times, from what was known then, and compared (A17)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Final

from queuectl.answers.forecast.forecast import DRAWS, Forecast, Interval, Unknown
from queuectl.core.model.workload import StoredWorkload, WorkloadId
from queuectl.ports.reader import PastLives

LOOKED_BACK: Final = timedelta(days=14)
SETTLED: Final = timedelta(hours=6)
"""Forecasts of later times are not checked: most of them have no result yet."""
TIMES: Final = 16
"""How many past times are checked."""
TARGETS: Final = 3
"""How many workloads of each, at most."""
PRECISION: Final = 0.001
"""Seconds: draws are played in whole milliseconds, and all may agree on one."""
LEAST_CHECKED: Final = 20
"""Fewer checks tell nothing."""


def past_times(now: datetime, earliest: datetime, seed: int) -> Iterator[datetime]:
    """Yield TIMES times at random up to SETTLED before `now`, none before `earliest`."""
    first, last = max(earliest, now - LOOKED_BACK), now - SETTLED
    dice = Random(f"times/{seed}")
    for _ in range(TIMES if first < last else 0):
        yield first + dice.random() * (last - first)


def targets_of(waiting: Iterable[StoredWorkload], seed: int) -> list[WorkloadId]:
    """Return some of them at random."""
    ids = [one.id for one in waiting]
    return Random(f"targets/{seed}").sample(ids, min(TARGETS, len(ids)))


def started(past: PastLives, workload: WorkloadId, when: datetime) -> datetime | None:
    """Return its first admission after `when`; None: it has not started since."""
    runs = (run for life in past.lives if life.workload.id == workload for run in life.runs)
    return min((run.admitted_at for run in runs if run.admitted_at > when), default=None)


def held(found: Interval, seconds: float | None, so_far: float) -> bool | None:
    """Return whether a start was in the interval of 80 %. `seconds`: from the forecast to the start; None: it
    has not started for `so_far` seconds. None: that is not known yet."""
    low = found.after if found.low is None else found.low
    assert low is not None, "an interval without a low end has a time that it is after"
    low -= PRECISION
    if seconds is None:
        if found.high is not None and so_far > found.high + PRECISION:
            return False
        return True if found.high is None and so_far > low else None
    return low <= seconds and (found.high is None or seconds <= found.high + PRECISION)


def check(
    forecast: Forecast, targets: Iterable[WorkloadId], when: datetime, past: PastLives, now: datetime
) -> list[bool]:
    """Return whether the interval of each target held, if that is known at `now`, as `past` is.

    One without a high end does not count: it would nearly always hold.
    """
    found = forecast.of(list(targets), most_draws=DRAWS[0])
    if isinstance(found, Unknown):
        return []
    results = []
    for workload, one in found.items():
        start = started(past, workload, when)
        if one.high is None:
            continue
        if start is None and any(life.workload.id == workload and life.ended_at for life in past.lives):
            continue  # it was deleted while it waited
        seconds = None if start is None else (start - when).total_seconds()
        if (result := held(one, seconds, (now - when).total_seconds())) is not None:
            results.append(result)
    return results
