"""What is left of budgets while one plan is made, and what that plan reserves and settles."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from queuectl.core.entries import Entry
from queuectl.core.features.budgets.waiters import Added, Blocked, BudgetWant, Needs
from queuectl.core.model.budgets import Period
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import Assignment, WorkloadId
from queuectl.core.subjects import Place

if TYPE_CHECKING:
    from queuectl.core.features.budgets import Budgets


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
