"""What is left of budgets while a plan is made, and workloads for which that is too little (Y4, Y5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.budgets import Period
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import Assignment, WorkloadId
from queuectl.core.queues.backoff import Timers
from queuectl.core.subjects import Place, SubjectWaiters, Waiter

if TYPE_CHECKING:
    from queuectl.core.features.budgets import Budgets

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

    def offer(self, place: Place, offers: PlannedBudgets) -> Iterator[Entry]:
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


class PlannedBudgets:
    """What is left of budgets at one time, and what a plan under way reserves."""

    def __init__(self, budgets: Budgets, now: datetime) -> None:
        self._budgets = budgets
        self.now = now
        self._added: Added = {}
        self._left: Added = {}
        """What the rows leave, as far as it was asked for."""
        self._freed: Added = {}
        """What the plan settles: others may have it once it is committed."""
        self._needs: dict[tuple[Place, BudgetWant], Needs] = {}

    def needs(self, place: Place, want: BudgetWant) -> Needs:
        """Return what an admission now reserves."""
        known = self._needs.get((place, want))
        if known is None:
            known = self._needs[place, want] = list(self._budgets.needs(place, want, self.now))
        return known

    def left(self, place: Place, period: Period, workload: WorkloadId | None = None) -> int:
        """Return what is left of a period for `workload`, in base units times microseconds."""
        key = (place, period)
        known = self._left.get(key)
        if known is None:
            known = self._left[key] = self._budgets.left(place, period, self.now)
        return known - self._budgets.kept(place, period, workload) - self._added.get(key, 0)

    def blocked(
        self, place: Place, want: BudgetWant, at: datetime, workload: WorkloadId | None = None
    ) -> Blocked | None:
        """Return what is in the way of an admission at `at`; None: nothing is."""
        for period, need in (
            self.needs(place, want) if at == self.now else self._budgets.needs(place, want, at)
        ):
            left = 0 if period is None else self.left(place, period, workload)
            if period is None or need > left:
                return Blocked(period, need, left)
        return None

    def next_try(self, place: Place, want: BudgetWant) -> datetime | None:
        """Return a time before which it has too little, if nothing else happens.

        None: it has enough now, or has never as far as is known.
        """
        blocked = self.blocked(place, want, self.now)
        return None if blocked is None else self._budgets.next_try(place, want, self.now, blocked)

    def lacking(
        self, entry: Entry, assignment: Assignment, gone: Iterable[WorkloadId], *, observed: bool
    ) -> Reason | None:
        """Return which budget has too little left for an admission now; None: each has enough."""
        return self._budgets.lacking(entry, assignment, self)

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        for place, _, reserved in self._budgets.demands(entry, assignment):
            for period, need in self.needs(place, reserved):
                if period is not None:
                    self._added[place, period] = self._added.get((place, period), 0) + need

    def preempt(self, entry: Entry, assignment: Assignment) -> None:
        self.admit(entry, assignment)

    def release(self, entry: Entry) -> None:
        for place, period, amount in self._budgets.settled(entry, self.now):
            self._freed[place, period] = self._freed.get((place, period), 0) + amount

    def will_cover(self, place: Place, want: BudgetWant, workload: WorkloadId) -> bool:
        """Return whether enough is left for a workload with what the plan settles."""
        return bool(self._freed) and all(
            period is not None
            and need <= self.left(place, period, workload) + self._freed.get((place, period), 0)
            for period, need in self.needs(place, want)
        )
