"""Run times, arrivals and ends of pods, drawn from those of the last weeks (A13, A14, A26). Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import takewhile
from random import Random
from statistics import median
from typing import Final, NamedTuple

from queuectl.core.model.workload import StoredWorkload, Workload, WorkloadId
from queuectl.ports.reader import PastLife, PastLives
from queuectl.scenarios.arrivals import milliseconds
from queuectl.scenarios.rebuilt_engine import requested

LEAST_RUNS: Final = 8
"""A group tells of run times if so many of its runs ended that were longer than the time that is known."""
ENOUGH_RUNS: Final = 200
"""A group of so many is taken as it is."""
_ALL: Final = "all"
"""The group of all runs. It is always taken as it is: with LEAST_RUNS it has an answer for all."""
_RANDOM: Final = re.compile("[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9a-f]{8,}")
"""Parts of names that generators make, beside those with digits."""


class Ran(NamedTuple):
    """How long one workload ran."""

    seconds: float
    ended: bool
    """False: longer than that."""


def name_prefix(name: str) -> str:
    """Return `name` without numbers and random parts at its end: `train-big-2026-x7k2p` is `train-big`."""
    first, *others = re.split(r"[-._]", name)
    while others and (_RANDOM.fullmatch(others[-1]) or any(map(str.isdigit, others[-1]))):
        others.pop()
    return "-".join([first, *others]) if others else first.rstrip("0123456789") or first


def groups_of(one: StoredWorkload) -> tuple[Hashable, ...]:
    """Return the groups that a workload belongs to, from the one with the most in common."""
    queue = one.ref.namespace, one.queue
    shape = tuple((pods.count, pods.requests) for pods in one.pod_sets)
    prefix = name_prefix(one.ref.name)
    return (
        ("submitter", queue, prefix, shape, one.submitter),
        ("shape", queue, prefix, shape),
        ("name", queue, prefix),
        ("queue shape", queue, shape),
        ("queue", queue),
        _ALL,
    )


def grouped(lives: Iterable[PastLife], now: datetime) -> dict[Hashable, list[Ran]]:
    """Return the run times of each group. `lives`: as known at `now`."""
    found: dict[Hashable, list[Ran]] = {}
    for life in lives:
        ran = run_of(life, now)
        for group in groups_of(life.workload) if ran.seconds > 0 else ():
            found.setdefault(group, []).append(ran)
    return found


def run_of(life: PastLife, now: datetime) -> Ran:
    """Return its run that ended, else the longest one; 0: it did not run. `life`: as known at `now`."""
    lengths = [((run.stopped_at or now) - run.admitted_at).total_seconds() for run in life.runs]
    if life.ended_in_a_run:
        return Ran(lengths[-1], ended=True)
    return Ran(max(lengths, default=0.0), ended=False)


class RunTimes:
    """The distributions of all groups, made as they are needed."""

    def __init__(self, groups: Mapping[Hashable, Sequence[Ran]], dice: Random | None = None) -> None:
        """With `dice` of smaller groups as many runs are drawn from their runs, some twice, some not at all
        (bootstrap): how the distributions differ between draws shows how little is known of them."""
        self._runs = groups
        self._dice = dice
        self._groups: dict[Hashable, Survival | None] = {}

    def known(self, one: StoredWorkload) -> bool:
        """Return whether `draw` has something to draw from."""
        return self._of(one, 0.0) is not None or one.options.max_run_seconds is not None

    def draw(self, one: StoredWorkload, part: float, longer: float = 0.0) -> float:
        """Return the run time in seconds of which a `part` from 0 to 1 of such runs are shorter.

        `longer`: it is known to run longer than that. At most what its run time limit leaves (L13). Where no
        group has LEAST_RUNS that were longer, the longest runs of the first group with LEAST_RUNS tell how
        others go on; without one, the run time is the limit. Raises KeyError if there is no limit either.
        """
        limit = one.options.max_run_seconds
        most = math.inf if limit is None else max(longer, limit - one.past.run_ms / 1000)
        group = self._of(one, longer)
        if group is not None:
            return min(group.quantile(part, longer), most)
        if longer and (group := self._of(one, 0.0)) is not None:
            return min(group.beyond(part, longer), most)
        if limit is None:
            raise KeyError(one.id)
        return most

    def _of(self, one: StoredWorkload, longer: float) -> Survival | None:
        groups = map(self._group, groups_of(one))
        return next((one for one in groups if one is not None and one.ended(longer) >= LEAST_RUNS), None)

    def _group(self, group: Hashable) -> Survival | None:
        if group not in self._groups:
            runs = self._runs.get(group, ())
            if self._dice is not None and group != _ALL and 0 < len(runs) < ENOUGH_RUNS:
                runs = self._dice.choices(runs, k=len(runs))
            self._groups[group] = Survival(runs) if runs else None
        return self._groups[group]


class Survival:
    """The distribution of the run times of one group."""

    def __init__(self, runs: Iterable[Ran]) -> None:
        ordered = sorted(runs, key=lambda run: (run.seconds, not run.ended))
        self._times: list[float] = []
        """Of the runs that ended, in order."""
        self._left: list[float] = []
        """The part of all runs that is longer than each of them."""
        left = 1.0
        for number, run in enumerate(ordered):
            if run.ended:
                left *= 1 - 1 / (len(ordered) - number)
                self._times.append(run.seconds)
                self._left.append(left)
        self._lengths = [run.seconds for run in ordered]

    def ended(self, longer: float) -> int:
        """Return how many ended after more than so many seconds."""
        return len(self._times) - bisect_right(self._times, longer)

    def quantile(self, part: float, longer: float) -> float:
        """Return the time that a `part` of the runs that are longer than `longer` does not exceed.

        At least one must have ended later than that.
        """
        first = bisect_right(self._times, longer)
        whole = self._left[first - 1] if first else 1.0
        wanted = (1.0 - part) * whole
        at = bisect_left(self._left, -wanted, lo=first, key=lambda left: -left)
        if at < len(self._times):
            return self._times[at]
        return self.beyond(1.0 - wanted / self._left[-1], self._times[-1])

    def beyond(self, part: float, longer: float) -> float:
        """Return the same where no run tells: the longest LEAST_RUNS that ended are taken for a Pareto
        distribution. Its exponent, at least 1, is the estimate of Hill (1975), with censored runs."""
        threshold = self._times[-LEAST_RUNS - 1] if len(self._times) > LEAST_RUNS else self._times[0]
        logarithms = (math.log(length / threshold) for length in self._lengths if length > threshold)
        exponent = self.ended(threshold) / max(sum(logarithms), 1e-3)
        return longer * math.pow(1.0 - part, -1.0 / max(exponent, 1.0))


def known_at(past: PastLives, when: datetime, since: timedelta) -> PastLives:
    """Return what was known at `when`, of this time before it."""

    def then(at: datetime | None) -> datetime | None:
        return at if at is not None and at <= when else None

    earliest = max(past.since, when - since)
    found = []
    for workload, ended_at, runs in past.lives:
        if workload.created_at > when or (ended_at is not None and ended_at < earliest):
            continue
        begun = takewhile(lambda run: run.admitted_at <= when, runs)
        known = tuple(
            run._replace(ended_at=then(run.ended_at), evicted_at=then(run.evicted_at)) for run in begun
        )
        found.append(PastLife(workload, then(ended_at), known))
    return PastLives(tuple(found), earliest, min(past.until, when), past.sequence)


USUAL_SECONDS: Final = 30.0
"""The default grace period of Kubernetes: where too few evictions are known."""
LEAST_ENDINGS: Final = 8
MOST_ENDINGS: Final = 99
"""The last ones count."""


class Endings:
    """The times from the last evictions to the return of their quota."""

    def __init__(self, lives: Iterable[PastLife]) -> None:
        known = (
            (run.ended_at, (run.ended_at - run.evicted_at).total_seconds())
            for life in lives
            for run in life.runs
            if run.evicted_at is not None and run.ended_at is not None
        )
        last = [seconds for _, seconds in nlargest(MOST_ENDINGS, known)]
        self._seconds = sorted(last) if len(last) >= LEAST_ENDINGS else [USUAL_SECONDS]
        self.usual: Final = median(self._seconds)

    def draw(self, part: float) -> float:
        """Return the time that a `part` from 0 to 1 of the evictions did not exceed."""
        return self._seconds[int(part * len(self._seconds))]

    def left(self, part: float, so_far: float) -> float:
        """Return the same of what is left where pods have been ending for so many seconds. Where no eviction
        took longer, half of such pods take as long again."""
        longer = self._seconds[bisect_right(self._seconds, so_far) :]
        return longer[int(part * len(longer))] - so_far if longer else so_far * part / (1.0 - part)


DAY: Final = timedelta(days=1)
_SATURDAY: Final = 5


class Coming(NamedTuple):
    """A workload that is expected, like an earlier one."""

    at: int
    """Milliseconds from now."""
    like: StoredWorkload
    workload: Workload


class Calendar:
    """Which workloads arrived on which of the days before now. A day begins at the time of the day that it is
    now, so that all days are whole."""

    def __init__(
        self, lives: Iterable[PastLife], since: datetime, now: datetime, queues: Collection[str]
    ) -> None:
        """`queues`: names of the ClusterQueues whose arrivals count."""
        came = (life.workload for life in lives if life.workload.cluster_queue in queues)
        self.came = sorted(
            (one for one in came if since <= one.created_at <= now), key=lambda one: (one.created_at, one.id)
        )
        """In order."""
        self._times = [one.created_at for one in self.came]
        self._now = now
        self.days = (now - since) // DAY
        """How many whole days are known."""

    def sample(self, dice: Random) -> list[int]:
        """Return days before now, 1 for the last one: as many as are known, drawn from them (bootstrap)."""
        known = range(1, self.days + 1)
        kinds = [[back for back in known if self._weekend(back) is kind] for kind in (True, False)]
        return [back for kind in kinds if kind for back in dice.choices(kind, k=len(kind))]

    def day(self, number: int, days: Sequence[int], dice: Random) -> Iterator[Coming]:
        """Yield the arrivals of the day `number` from now, from 0: those of one of `days`, for a working day
        of a working day, for one of a weekend of one of a weekend, if there is one."""
        begins = self._now + number * DAY
        alike = [back for back in days if self._weekend(back) is self._weekend(-number)]
        back = dice.choice(alike or days) * DAY
        begun = self._now - back
        first, last = (bisect_left(self._times, time) for time in (begun, begun + DAY))
        for count, one in enumerate(self.came[first:last]):
            at = begins + (one.created_at - begun)
            yield Coming(
                milliseconds((at - self._now).total_seconds()), one, _again(one, f"{number}-{count}", at)
            )

    def _weekend(self, back: int) -> bool:
        return (self._now - back * DAY).weekday() >= _SATURDAY


def _again(one: StoredWorkload, suffix: str, at: datetime) -> Workload:
    identity = WorkloadId(f"coming-{suffix}")
    ref = one.ref._replace(name=f"{one.ref.name}-coming-{suffix}", uid=identity)
    return replace(requested(one), id=identity, ref=ref, created_at=at, hold=False, hold_reason=None)
