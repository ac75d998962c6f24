"""Budgets: how many device-hours users, accounts or all may use in a period (Y1 to Y7).

An admission reserves what the workload may use, in the transaction of its hold; the end of the attempt
settles it. A workload for which too little is left leaves its pending queue until there is enough: the next
head takes its place, under StrictFIFO too. No budget preempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Final

from queuectl.core.decisions import Admit, Decision, Evict, Keep, Release, Retire, Shrink
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.budgets.balances import STEP, Balances, reserve, settle
from queuectl.core.features.budgets.waiters import BudgetWaiter, BudgetWaiters, Needs
from queuectl.core.model.budgets import HOUR, Budget, BudgetEntry, BudgetMode, Period
from queuectl.core.model.events import Event, PolicyGone, PolicyObserved
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.reasons import Code, Limit, Reason, waits_for_victims
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attribution,
    LedgerSnapshot,
    Phase,
    Workload,
    WorkloadId,
)
from queuectl.core.subjects import Place, SubjectRules, subject_of

KIND: Final = "Budget"
LONGEST: Final = timedelta(days=366)
"""The longest run time that a Safe budget reserves: bounds the rows of one admission."""
_TRIES: Final = 24
"""Periods that are looked at for the time at which a workload may have enough."""

Added = dict[tuple[Place, Period], int]
"""In base units times microseconds."""


class Budgets(Feature):
    """Is active while there is a Budget, or an attempt that has reserved of one."""

    events: ClassVar = frozenset({PolicyObserved})
    events_while_active: ClassVar = frozenset({PolicyGone})
    policies: ClassVar = Budget
    decisions_while_active: ClassVar = frozenset({Admit, Keep, Shrink, Release, Retire})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rules: SubjectRules[Budget] = SubjectRules(kernel.directory)
        self.balances = Balances()
        self._waiting = BudgetWaiters()
        self._kept: dict[WorkloadId, Added] = {}
        """What is kept for workloads that wait for their victims (C7)."""
        self._outdated = False
        """Budgets have changed: all that waits is nominated again."""
        self._policy_changed = False
        """Whose budget is whose may have changed."""

    # --- what happens

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case PolicyObserved(value=Budget() as budget):
                self._set(budget.name, budget, affected)
            case PolicyGone(key) if key.kind == KIND:
                self._set(key.name, None, affected)
            case _ if self.active:
                self._rules.forget()
                self._policy_changed = True
            case _:
                pass

    def _set(self, name: str, budget: Budget | None, affected: AffectedObjects) -> None:
        if self._rules.set(name, budget):
            self._outdated = affected.everything = affected.rules = True
            self._note_activity()

    @property
    def _present(self) -> datetime:
        """The latest time that is known."""
        return max(self._kernel.clock, self._kernel.now)

    def _note_activity(self) -> None:
        self.active = bool(self._rules.limits or self.balances.charges)

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        self.balances.restore(snapshot.budget_sums, snapshot.budget_entries)
        self._outdated = True
        self._note_activity()

    def decided(self, decision: Decision, entry: Entry) -> None:
        self._answered(entry.id)
        if isinstance(decision, Admit | Shrink | Release | Retire) and decision.budget:
            for row in decision.budget:
                self.balances.apply(row)
            self._note_activity()

    def changed(self, workload: WorkloadId) -> None:
        entry = self._kernel.entries.get(workload)
        kept = self._claimed(entry) if entry is not None and entry.attempt is None else {}
        before = self._kept.get(workload, {})
        if kept.keys() != before.keys():
            self.balances.changed |= {place for place, _ in before}
            self._kept.pop(workload, None)
            if kept:
                self._kept[workload] = kept

    def _claimed(self, entry: Entry) -> Added:
        """Return what is kept for a workload that waits for its victims: others must not take it."""
        workload = entry.workload
        if not waits_for_victims(entry.reason) or workload is None or entry.cluster_queue is None:
            return {}
        found: Added = {}
        for place in self._places(workload, entry.cluster_queue):
            rate = self._requested(workload, place)
            for period, need in self._needs(entry, place, rate, self._present) if rate else ():
                if period is not None:
                    found[place, period] = need
        return found

    def settle(self) -> None:
        """Queue the workloads for which a budget has enough again."""
        to_route: dict[WorkloadId, Entry] = {}
        if self._outdated or self._policy_changed:
            for waiter in self._waiting.all():
                if self._outdated or not self._applies(waiter):
                    self._waiting.leave(waiter.entry.id)
                    to_route[waiter.entry.id] = waiter.entry
            self.balances.changed |= set(self._waiting.places)
            self._outdated = self._policy_changed = False
        to_route |= {entry.id: entry for entry in self._waiting.due(self._present)}
        while to_route or self.balances.changed:
            places, self.balances.changed = sorted(self.balances.changed), set()
            for place in places:
                if place.limit in self._rules.limits:
                    to_route |= {one.id: one for one in self._waiting.called(place, self._wants, self._left)}
            entries, to_route = to_route, {}
            for workload, entry in entries.items():
                if self._kernel.entries.get(workload) is entry:
                    self._kernel.route(entry)
                    self._kernel.refresh(entry)

    def _applies(self, waiter: BudgetWaiter) -> bool:
        entry = waiter.entry
        if entry.workload is None or entry.cluster_queue is None:
            return False
        return waiter.place in self._places(entry.workload, entry.cluster_queue)

    def _wants(self, waiter: BudgetWaiter) -> Needs:
        """Return the least that its admission now would reserve."""
        workload = waiter.entry.workload
        if workload is None or waiter.place.limit not in self._rules.limits:
            return []
        rate = self._requested(workload, waiter.place, least=True)
        return list(self._needs(waiter.entry, waiter.place, rate, self._present))

    def due_at(self) -> datetime | None:
        return self._waiting.due_at()

    # --- what an admission reserves

    def _places(self, workload: Workload, cluster_queue: str) -> tuple[Place, ...]:
        account = self._kernel.features.account(workload) if self._rules.by_account else ()
        return self._rules.places(Attribution.of(workload, account), cluster_queue)

    def _requested(self, workload: Workload, place: Place, *, least: bool = False) -> int:
        """Return what all pods of a workload request of the budget's resource, in base units.

        `least`: it starts with as few pods as it may (F9).
        """
        resource, total = self._rules.limits[place.limit].resource, 0
        for charge in self._kernel.directory.charges(workload):
            pods = charge.pod_set
            count = pods.min_count if least and pods.min_count is not None else pods.count
            total += dict(charge.requests).get(resource, 0) * count
        return total

    def _until(self, entry: Entry, budget: Budget, now: datetime) -> datetime | None:
        """Return until when an admission at `now` reserves; None: as long as it runs."""
        if budget.mode is BudgetMode.METERED or entry.workload is None:
            return None
        left = self._kernel.features.time_left(entry.workload, entry.past)
        return None if left is None else now + min(max(left, timedelta()), LONGEST)

    def _needs(
        self, entry: Entry, place: Place, rate: int, now: datetime
    ) -> Iterator[tuple[Period | None, int]]:
        """Yield by period what an admission of `rate` at `now` needs; None: for a time in no period."""
        budget = self._rules.limits[place.limit]
        until = self._until(entry, budget, now)
        pieces = budget.periods.pieces(now, now + STEP if until is None else until)
        for period, length in pieces:
            yield period, rate * length
            if until is None:
                return

    def _left(self, place: Place, period: Period) -> int:
        return self.left(place, period, self._present, None)

    def left(self, place: Place, period: Period, now: datetime, workload: WorkloadId | None) -> int:
        """Return what is left of a period for `workload`, in base units times microseconds."""
        kept = sum(one.get((place, period), 0) for other, one in self._kept.items() if other != workload)
        budget = self._rules.limits[place.limit]
        return budget.amount - self.balances.taken(place, budget.resource, period, now) - kept

    def problem(self, workload: Workload) -> Reason | None:
        """Return which Safe budget cannot reserve for a workload that may run for any time (Y6)."""
        name = LocalQueueName(workload.ref.namespace, workload.queue)
        local = self._kernel.directory.local_queues.get(name)
        if local is None:
            return None
        for place in self._places(workload, local.cluster_queue):
            budget = self._rules.limits[place.limit]
            if budget.mode is BudgetMode.SAFE and self._requested(workload, place):
                left = self._kernel.features.time_left(workload, NO_PAST_ATTEMPTS)
                if left is None or left > LONGEST:
                    return _needs_limit(budget)
        return None

    # --- plans

    def begin_plan(self, now: datetime) -> PlannedBudgets:
        return PlannedBudgets(self, now)

    def demands(
        self, entry: Entry, assignment: Assignment, now: datetime
    ) -> Iterator[tuple[Place, int, Needs]]:
        """Yield the budgets of an admission, with what it holds, and what that needs."""
        if entry.workload is None:
            return
        for place in self._places(entry.workload, assignment.cluster_queue):
            rate = _held(assignment, self._rules.limits[place.limit].resource)
            if rate:
                yield place, rate, list(self._needs(entry, place, rate, now))

    def lacking(self, entry: Entry, assignment: Assignment, now: datetime, added: Added) -> Reason | None:
        """Return which budget has too little left for an admission; None: each has enough.

        `added`: what a plan under way reserves beside it.
        """
        for place, rate, needs in self.demands(entry, assignment, now):
            budget = self._rules.limits[place.limit]
            if budget.mode is BudgetMode.SAFE and self._until(entry, budget, now) is None:
                return _needs_limit(budget)
            blocked = self._blocked(entry, place, needs, now, added)
            if blocked is not None:
                until = self._earliest(entry, place, rate, now, added)
                return self._exhausted(place, *blocked, until)
        return None

    def _blocked(
        self,
        entry: Entry,
        place: Place,
        needs: Iterable[tuple[Period | None, int]],
        now: datetime,
        added: Added,
    ) -> tuple[Period | None, int, int] | None:
        """Return the first period with too little left, what is needed in it, and what is left."""
        for period, need in needs:
            if period is None:
                return None, need, 0
            left = self.left(place, period, now, entry.id) - added.get((place, period), 0)
            if need > left:
                return period, need, left
        return None

    def _earliest(
        self, entry: Entry, place: Place, rate: int, now: datetime, added: Added
    ) -> datetime | None:
        """Return when it has enough if nothing else happens; None: not as far as is known."""
        budget, at = self._rules.limits[place.limit], now
        for _ in range(_TRIES):
            needs = self._needs(entry, place, rate, at)
            blocked = self._blocked(entry, place, needs, now, added)
            if blocked is None:
                return at
            period, _, left = blocked
            if period is None:
                following = budget.periods.at(at)
                if following is None or following.begins <= at:
                    return None
                at = following.begins
            elif budget.mode is BudgetMode.SAFE:
                at = period.ends - timedelta(microseconds=max(0, left) // rate)
            else:
                at = period.ends
        return None

    def _exhausted(
        self, place: Place, period: Period | None, need: int, left: int, until: datetime | None
    ) -> Reason:
        budget = self._rules.limits[place.limit]
        most = format_amount(budget.resource, budget.amount // HOUR)
        each = "" if period is None or budget.periods.dates else f" a {budget.periods.kind.lower()}"
        return Reason(
            code=Code.BUDGET_EXHAUSTED,
            resource=budget.resource,
            requested=-(-need // HOUR),
            available=max(0, left) // HOUR,
            short_by=-((left - need) // HOUR),
            until=until,
            limit=Limit.HOURS,
            node=f"{KIND}/{budget.name}",
            detail=f"{subject_of(budget, place)}, at most {most} hours{each}",
        )

    # --- the rows of decisions

    def budget_entries(self, decision: Decision, entry: Entry, now: datetime) -> tuple[BudgetEntry, ...]:
        return tuple(self._rows(decision, entry, now))

    def _rows(self, decision: Decision, entry: Entry, now: datetime) -> Iterator[BudgetEntry]:
        match decision:
            case Admit(attempt, attribution=booked) if booked is not None:
                assignment = attempt.assignment
                for place in self._rules.places(booked, assignment.cluster_queue):
                    budget = self._rules.limits[place.limit]
                    until, rate = self._until(entry, budget, now), _held(assignment, budget.resource)
                    if rate:
                        yield from reserve(budget, place.subject, entry.id, attempt.number, rate, now, until)
            case Shrink(assignment=assignment):
                for place, charge in self.balances.charges.get(entry.id, {}).items():
                    known, rate = self._rules.limits.get(place.limit), _held(assignment, charge.resource)
                    if rate != charge.rate:
                        yield from settle(place, entry.id, charge, known, now)
                    if known is not None and known.resource == charge.resource and 0 < rate != charge.rate:
                        yield from reserve(
                            known, place.subject, entry.id, charge.attempt, rate, now, charge.until
                        )
            case Release() | Retire():
                for place, charge in self.balances.charges.get(entry.id, {}).items():
                    known = self._rules.limits.get(place.limit)
                    yield from settle(place, entry.id, charge, known, now, _refund(known, entry))
            case _:
                pass

    # --- what runs

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Evict it once what was reserved for it is used up: its run time limit was raised since (Y7)."""
        ends = self._ends(entry)
        if ends is None or ends[0] > now or entry.attempt is None:
            return None
        detail = "its run time limit was raised after its admission: the time that is reserved for it is over"
        reason = Reason(code=Code.BUDGET_TIME_EXCEEDED, node=f"{KIND}/{ends[1].limit}", detail=detail)
        return Evict(entry.id, entry.ref, entry.attempt.number, reason)

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        ends = self._ends(entry) if entry.phase is Phase.ADMITTED else None
        return ends[0] if ends is not None else None

    def _ends(self, entry: Entry) -> tuple[datetime, Place] | None:
        charges = self.balances.charges.get(entry.id, {})
        found = [(one.until, place) for place, one in charges.items() if one.until is not None]
        return min(found, default=None)

    # --- what waits

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if not (reason.node or "").startswith(f"{KIND}/") or entry.workload is None:
            return
        name = (reason.node or "").removeprefix(f"{KIND}/")
        places = self._places(entry.workload, entry.cluster_queue or "")
        place = next((one for one in places if one.limit == name), None)
        if place is not None:
            self._waiting.wait(BudgetWaiter(entry, place, reason))

    def _answered(self, workload: WorkloadId) -> None:
        place = self._waiting.answered(workload)
        if place is not None:
            self.balances.changed.add(place)

    def revised(self, workload: WorkloadId) -> None:
        self._waiting.leave(workload)

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        if not eligible or entry.cluster_queue is None:
            self._answered(entry.id)
            self._waiting.leave(entry.id)
            return None
        waiter = self._waiting.of(entry.id)
        if waiter is None:
            return None
        if entry.order[0] != -entry.priority or not self._applies(waiter):
            self._waiting.leave(entry.id)  # it waits for another budget, or in another place
            return None
        return waiter.reason


class PlannedBudgets:
    """What a plan under way reserves."""

    def __init__(self, budgets: Budgets, now: datetime) -> None:
        self._budgets = budgets
        self._now = now
        self._added: Added = {}

    def lacking(
        self, entry: Entry, assignment: Assignment, gone: Iterable[WorkloadId], *, observed: bool
    ) -> Reason | None:
        """Return which budget has too little left for an admission now; None: each has enough."""
        return self._budgets.lacking(entry, assignment, self._now, self._added)

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        for place, _, needs in self._budgets.demands(entry, assignment, self._now):
            for period, need in needs:
                if period is not None:
                    self._added[place, period] = self._added.get((place, period), 0) + need

    def preempt(self, entry: Entry, assignment: Assignment) -> None:
        self.admit(entry, assignment)


def _needs_limit(budget: Budget) -> Reason:
    most = LONGEST // timedelta(seconds=1)
    detail = (
        "it reserves run time in advance: set label queuectl.dev/max-exec-time-seconds to at most "
        f"{most}, or ask for a default of the queue"
    )
    return Reason(code=Code.BUDGET_NEEDS_LIMIT, node=f"{KIND}/{budget.name}", detail=detail)


def _held(assignment: Assignment, resource: str) -> int:
    """Return what an assignment holds of a resource in all flavors, in base units."""
    return sum(
        amount * pod_set.count
        for pod_set in assignment.pod_sets
        for name, amount in pod_set.requests
        if name == resource
    )


def _refund(budget: Budget | None, entry: Entry) -> int:
    """Return the percent that is refunded of an attempt that ends now."""
    code = entry.reason.code if entry.reason is not None and entry.phase is Phase.EVICTING else None
    if budget is None:
        return 0
    if code is Code.PREEMPTED:
        return budget.refund_preempted
    return budget.refund_node_failures if code is Code.NODE_FAILURES else 0
