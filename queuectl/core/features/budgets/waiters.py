"""Workloads for which too little is left of a budget (Y4, Y5)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from queuectl.core.entries import Entry
from queuectl.core.model.budgets import Period
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.core.queues.backoff import Timers
from queuectl.core.subjects import Place

Needs = list[tuple[Period | None, int]]
"""By period, what an admission reserves, in base units times microseconds; None: a time in no period."""

_Item = tuple[tuple[object, ...], WorkloadId]
"""Order and workload."""


class BudgetWant(NamedTuple):
    """What an admission needs."""

    rate: int
    """In base units."""
    lasts: timedelta | None
    """Its run time; None: as long as it runs."""


class BudgetWaiter(NamedTuple):
    entry: Entry
    place: Place
    want: BudgetWant
    """Of all its pods."""
    reason: Reason


class Offers(Protocol):
    """What is left of budgets now."""

    def needs(self, place: Place, want: BudgetWant) -> Needs: ...

    def left(self, place: Place, period: Period) -> int: ...

    def next_try(self, place: Place, want: BudgetWant) -> datetime | None:
        """Return a time before which it has too little, if nothing else happens.

        None: it has enough now, or has never as far as is known.
        """


class BudgetWaiters:
    """Each waits for the budget that it was refused by."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, BudgetWaiter] = {}
        self._lines: dict[Place, dict[BudgetWant, list[_Item]]] = {}
        """By place and want: heaps of (order, workload) pairs; those that wait no more are skipped."""
        self._times: Timers[WorkloadId] = Timers()
        """When each may have enough by time alone, as its reason says."""
        self._tries: Timers[Place] = Timers()
        """When the first at a place may have enough by time alone: others may have ended since its reason."""
        self._called: dict[WorkloadId, BudgetWaiter] = {}
        """Queued again, and not nominated since: what they need is not offered to others meanwhile."""

    def of(self, workload: WorkloadId) -> BudgetWaiter | None:
        """Return what it waits for; None: nothing."""
        return self._waiting.get(workload)

    def all(self) -> list[BudgetWaiter]:
        return list(self._waiting.values())

    @property
    def places(self) -> Iterable[Place]:
        """Where any waits."""
        return self._lines.keys()

    def wait(self, waiter: BudgetWaiter) -> None:
        workload = waiter.entry.id
        self._waiting[workload] = waiter
        self._times.set(workload, waiter.reason.until)
        line = self._lines.setdefault(waiter.place, {}).setdefault(waiter.want, [])
        if len(line) > 2 * len(self._waiting) + 16:  # churn must not make it grow
            line[:] = [item for item in line if self._waits_in(item, waiter.place, waiter.want)]
            heapq.heapify(line)
        heapq.heappush(line, (waiter.entry.order, workload))

    def _waits_in(self, item: _Item, place: Place, want: BudgetWant) -> bool:
        waiter = self._waiting.get(item[1])
        return waiter is not None and (waiter.entry.order, waiter.place, waiter.want) == (
            item[0],
            place,
            want,
        )

    def leave(self, workload: WorkloadId) -> None:
        """It does not wait any more."""
        if self._waiting.pop(workload, None) is not None:
            self._times.set(workload, None)

    def answered(self, workload: WorkloadId) -> Place | None:
        """It was nominated, or left. Return the place that may be offered to others now."""
        waiter = self._called.pop(workload, None)
        return waiter.place if waiter is not None else None

    def clear(self) -> list[Entry]:
        """Let none wait any more. Return those that did."""
        entries = [waiter.entry for waiter in self._waiting.values()]
        self._times, self._tries = Timers(), Timers()
        for known in (self._waiting, self._lines, self._called):
            known.clear()
        return entries

    def due_at(self) -> datetime | None:
        """Return when the next may have enough by time alone; None: none may."""
        times = (self._times.earliest, self._tries.earliest)
        return min((when for when in times if when is not None), default=None)

    def due(self, now: datetime) -> tuple[list[Entry], list[Place]]:
        """Return those that may have enough now by time alone, and wait no more; and where others may."""
        entries = []
        for workload in self._times.take(now):
            entries.append(self._waiting[workload].entry)
            self.leave(workload)
        return entries, self._tries.take(now)

    def called(self, place: Place, offers: Offers) -> Iterator[Entry]:
        """Yield those for which what is left at `place` is enough now, the first in order first."""
        lines = self._lines.get(place)
        if lines is None:
            return
        offered: Counter[Period] = Counter()
        for waiter in self._called.values():
            if waiter.place == place:
                _add(offered, offers.needs(place, waiter.want))
        heads = [(line[0], want) for want in list(lines) if (line := self._line(place, want))]
        heapq.heapify(heads)
        tries: list[datetime] = []
        while heads:
            (_, workload), want = heads[0]
            needs = offers.needs(place, want)
            if not all(
                period is not None and need + offered[period] <= offers.left(place, period)
                for period, need in needs
            ):
                heapq.heappop(heads)
                if (when := offers.next_try(place, want)) is not None:
                    tries.append(when)
                continue
            _add(offered, needs)
            waiter = self._called[workload] = self._waiting[workload]
            self.leave(workload)
            yield waiter.entry
            if line := self._line(place, want):
                heapq.heapreplace(heads, (line[0], want))
            else:
                heapq.heappop(heads)
        self._tries.set(place, min(tries, default=None))
        if not lines:
            del self._lines[place]

    def _line(self, place: Place, want: BudgetWant) -> list[_Item]:
        """Return those that want so much at a place, a heap with the first in order first."""
        line = self._lines[place][want]
        while line and not self._waits_in(line[0], place, want):
            heapq.heappop(line)
        if not line:
            del self._lines[place][want]
        return line


def _add(offered: Counter[Period], needs: Needs) -> None:
    for period, need in needs:
        if period is not None:
            offered[period] += need
