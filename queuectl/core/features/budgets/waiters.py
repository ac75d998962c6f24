"""Workloads for which too little is left of a budget (Y4, Y5)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from queuectl.core.entries import Entry
from queuectl.core.model.budgets import Period
from queuectl.core.model.workload import WorkloadId
from queuectl.core.queues.backoff import Timers
from queuectl.core.subject_waiters import SubjectWaiters, Waiter
from queuectl.core.subjects import Place

Needs = list[tuple[Period | None, int]]
"""By period, what an admission reserves, in base units times microseconds; None: a time in no period."""

Added = dict[tuple[Place, Period], int]
"""In base units times microseconds."""


class BudgetWant(NamedTuple):
    """What an admission needs."""

    rate: int
    """In base units."""
    lasts: timedelta | None
    """Its run time; None: as long as it runs."""


class Blocked(NamedTuple):
    """The first period with too little left."""

    period: Period | None
    """None: a time in no period."""
    need: int
    """In base units times microseconds."""
    left: int


class Offers(Protocol):
    """What is left of budgets now."""

    def needs(self, place: Place, want: BudgetWant) -> Needs: ...

    def left(self, place: Place, period: Period) -> int: ...

    def next_try(self, place: Place, want: BudgetWant) -> datetime | None:
        """Return a time before which it has too little, if nothing else happens.

        None: it has enough now, or has never as far as is known.
        """


class BudgetWaiters(SubjectWaiters[BudgetWant]):
    """`want` is that of all pods of a workload."""

    def __init__(self) -> None:
        super().__init__()
        self._times: Timers[WorkloadId] = Timers()
        """When each may have enough by time alone, as its reason says."""
        self._tries: Timers[Place] = Timers()
        """When the first at a place may have enough by time alone: others may have ended since its reason."""

    def wait(self, waiter: Waiter[BudgetWant]) -> None:
        super().wait(waiter)
        self._times.set(waiter.entry.id, waiter.reason.until)

    def leave(self, workload: WorkloadId) -> None:
        super().leave(workload)
        self._times.set(workload, None)

    def clear(self) -> list[Entry]:
        self._times, self._tries = Timers(), Timers()
        return super().clear()

    def due_at(self) -> datetime | None:
        """Return when the next may have enough by time alone; None: none may."""
        times = (self._times.earliest, self._tries.earliest)
        return min((when for when in times if when is not None), default=None)

    def due(self, now: datetime) -> tuple[list[Entry], list[Place]]:
        """Return those that may have enough now by time alone, and wait no more; and where others may."""
        entries = []
        for workload in self._times.take(now):
            waiter = self.of(workload)
            assert waiter is not None
            entries.append(waiter.entry)
            self.leave(workload)
        return entries, self._tries.take(now)

    def offer(self, place: Place, offers: Offers) -> Iterator[Entry]:
        """Yield those for which what is left at `place` is enough now, the first in order first."""
        tries: list[datetime] = []

        def refused(want: BudgetWant) -> None:
            if (when := offers.next_try(place, want)) is not None:
                tries.append(when)

        yield from self.called(
            place,
            lambda want: offers.needs(place, want),
            lambda period: -1 if period is None else offers.left(place, period),
            refused,
        )
        self._tries.set(place, min(tries, default=None))
