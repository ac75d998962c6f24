"""Workloads for which too little is left of a budget (Y4, Y5)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.budgets import Period
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subjects import Place

Needs = list[tuple[Period | None, int]]
"""By period, what an admission reserves, in base units times microseconds; None: a time in no period."""


class BudgetWaiter(NamedTuple):
    entry: Entry
    place: Place
    reason: Reason


class BudgetWaiters:
    """Each waits for the budget that it was refused by."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, BudgetWaiter] = {}
        self._of_place: dict[Place, dict[WorkloadId, BudgetWaiter]] = {}
        self._times: list[tuple[datetime, WorkloadId]] = []
        """Heap of when those that wait may have enough by time alone; those that wait no more are skipped."""
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
        return self._of_place.keys()

    def wait(self, waiter: BudgetWaiter) -> None:
        workload = waiter.entry.id
        self.leave(workload)
        self._waiting[workload] = waiter
        self._of_place.setdefault(waiter.place, {})[workload] = waiter
        if waiter.reason.until is not None:
            if len(self._times) > 2 * len(self._waiting) + 16:  # churn must not make it grow
                self._times = [item for item in self._times if self._is_due(*item)]
                heapq.heapify(self._times)
            heapq.heappush(self._times, (waiter.reason.until, workload))

    def _is_due(self, when: datetime, workload: WorkloadId) -> bool:
        waiter = self._waiting.get(workload)
        return waiter is not None and waiter.reason.until == when

    def leave(self, workload: WorkloadId) -> None:
        """It does not wait any more."""
        waiter = self._waiting.pop(workload, None)
        if waiter is not None:
            of_place = self._of_place[waiter.place]
            del of_place[workload]
            if not of_place:
                del self._of_place[waiter.place]

    def answered(self, workload: WorkloadId) -> Place | None:
        """It was nominated, or left. Return the place that may be offered to others now."""
        waiter = self._called.pop(workload, None)
        return waiter.place if waiter is not None else None

    def due_at(self) -> datetime | None:
        """Return when the next may have enough by time alone; None: none may."""
        return self._times[0][0] if self._times else None

    def due(self, now: datetime) -> Iterator[Entry]:
        """Yield those that may have enough now by time alone: they wait no more."""
        while self._times and self._times[0][0] <= now:
            when, workload = heapq.heappop(self._times)
            if self._is_due(when, workload):
                yield self._waiting[workload].entry
                self.leave(workload)

    def called(
        self, place: Place, needs: Callable[[BudgetWaiter], Needs], left: Callable[[Place, Period], int]
    ) -> Iterator[Entry]:
        """Yield those for which what is left at `place` is enough now, the first in order first."""
        waiting = self._of_place.get(place)
        if waiting is None:
            return
        offered: dict[Period, int] = {}

        def offer(found: Needs) -> None:
            for period, amount in found:
                if period is not None:
                    offered[period] = offered.get(period, 0) + amount

        for waiter in self._called.values():
            if waiter.place == place:
                offer(needs(waiter))
        for waiter in sorted(waiting.values(), key=lambda one: (one.entry.order, one.entry.id)):
            found = needs(waiter)
            if all(
                period is not None and amount + offered.get(period, 0) <= left(place, period)
                for period, amount in found
            ):
                offer(found)
                self.leave(waiter.entry.id)
                self._called[waiter.entry.id] = waiter
                yield waiter.entry
