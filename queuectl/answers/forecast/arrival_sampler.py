"""Arrivals of the next days, drawn from those of the last weeks a day at a time (A14)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Final, NamedTuple

from queuectl.core.model.workload import StoredWorkload, Workload, WorkloadId
from queuectl.ports.reader import PastLife
from queuectl.scenarios.arrivals import milliseconds
from queuectl.scenarios.rebuilt_engine import requested

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
