"""Budgets: how many device-hours users, accounts or all may use in a period (Y1 to Y7).

An admission reserves what the workload may use, in the transaction of its hold; the end of the attempt
settles it. A workload for which too little is left leaves its pending queue until there is enough: the next
head takes its place, under StrictFIFO too. No budget preempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Final, NamedTuple

from queuectl.core.decisions import Admit, Decision, Evict, Keep, Release, Retire, Shrink
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel, Number
from queuectl.core.features.budgets.balances import STEP, Balances, SubjectsKey, reserve, settle
from queuectl.core.features.budgets.waiters import BudgetWaiters, BudgetWant, Needs
from queuectl.core.model.budgets import HOUR, Budget, BudgetEntry, BudgetMode, Period
from queuectl.core.model.events import Event, PolicyGone, PolicyObserved
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.reasons import Code, Limit, Reason, waits_for_victims
from queuectl.core.model.resources import CPU, format_amount
from queuectl.core.model.usage_limits import SubjectKind
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attribution,
    LedgerSnapshot,
    Phase,
    Workload,
    WorkloadId,
)
from queuectl.core.subject_waiters import Waiter
from queuectl.core.subjects import Place, SubjectRules, subject_of

KIND: Final = "Budget"
SECOND: Final = 1_000_000
"""In microseconds."""
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
            want = self._want(entry, place, self._requested(workload, place))
            for period, need in self.needs(place, want, self._present) if want.rate else ():
                if period is not None:
                    found[place, period] = need
        return found

    def settle(self) -> None:
        """Queue the workloads for which a budget has enough again."""
        to_route: dict[WorkloadId, Entry] = {}
        if self._outdated:
            to_route = {entry.id: entry for entry in self._waiting.clear()}
        elif self._policy_changed:
            for waiter in self._waiting.all():
                if not self._applies(waiter):
                    self._waiting.leave(waiter.entry.id)
                    to_route[waiter.entry.id] = waiter.entry
            self.balances.changed |= set(self._waiting.places)
        self._outdated = self._policy_changed = False
        due, places_due = self._waiting.due(self._present)
        to_route |= {entry.id: entry for entry in due}
        self.balances.changed |= set(places_due)
        while to_route or self.balances.changed:
            places, self.balances.changed = sorted(self.balances.changed), set()
            offers = PlannedBudgets(self, self._present)
            for place in places:
                if place.limit in self._rules.limits:
                    to_route |= {one.id: one for one in self._waiting.offer(place, offers)}
            entries, to_route = to_route, {}
            for workload, entry in entries.items():
                if self._kernel.entries.get(workload) is entry:
                    self._kernel.route(entry)
                    self._kernel.refresh(entry)

    def _applies(self, waiter: Waiter[BudgetWant]) -> bool:
        entry, place, want = waiter.entry, waiter.place, waiter.want
        if entry.workload is None or entry.cluster_queue is None:
            return False
        if place not in self._places(entry.workload, entry.cluster_queue):
            return False
        return want == self._want(entry, place, self._requested(entry.workload, place))

    def due_at(self) -> datetime | None:
        return self._waiting.due_at()

    # --- what an admission reserves

    def _places(self, workload: Workload, cluster_queue: str) -> tuple[Place, ...]:
        account = self._kernel.features.account(workload) if self._rules.by_account else ()
        return self._rules.places(Attribution.of(workload, account), cluster_queue)

    def _requested(self, workload: Workload, place: Place) -> int:
        """Return what all pods of a workload request of the budget's resource, in base units."""
        resource, total = self._rules.limits[place.limit].resource, 0
        for charge in self._kernel.directory.charges(workload):
            total += dict(charge.requests).get(resource, 0) * charge.pod_set.count
        return total

    def _lasts(self, entry: Entry, budget: Budget) -> timedelta | None:
        """Return for how long an admission reserves; None: as long as it runs."""
        if budget.mode is BudgetMode.METERED or entry.workload is None:
            return None
        left = self._kernel.features.time_left(entry.workload, entry.past)
        return None if left is None else min(max(left, timedelta()), LONGEST)

    def _want(self, entry: Entry, place: Place, rate: int) -> BudgetWant:
        return BudgetWant(rate, self._lasts(entry, self._rules.limits[place.limit]))

    def needs(self, place: Place, want: BudgetWant, now: datetime) -> Iterator[tuple[Period | None, int]]:
        """Yield by period what an admission at `now` needs; None: for a time in no period."""
        periods = self._rules.limits[place.limit].periods
        for period, length in periods.pieces(now, now + (STEP if want.lasts is None else want.lasts)):
            yield period, want.rate * length
            if want.lasts is None:
                return

    def left(self, place: Place, period: Period, now: datetime) -> int:
        """Return what is not taken of a period, in base units times microseconds."""
        budget = self._rules.limits[place.limit]
        return budget.amount - self.balances.taken(place, budget.resource, period, now)

    def kept(self, place: Place, period: Period, workload: WorkloadId | None) -> int:
        """Return what is kept of a period for others than `workload`, in base units times microseconds."""
        return sum(one.get((place, period), 0) for other, one in self._kept.items() if other != workload)

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
        return PlannedBudgets(self, max(now, self._present))  # the clock may have been set back

    def demands(self, entry: Entry, assignment: Assignment) -> Iterator[tuple[Place, BudgetWant, BudgetWant]]:
        """Yield the budgets of an admission, with what each must have left, and what it reserves.

        All its pods count, also where it may start with fewer (F9).
        """
        if entry.workload is None:
            return
        for place in self._places(entry.workload, assignment.cluster_queue):
            rate = _held(assignment, self._rules.limits[place.limit].resource)
            if rate:
                whole = self._requested(entry.workload, place)
                yield place, self._want(entry, place, whole), self._want(entry, place, rate)

    def lacking(self, entry: Entry, assignment: Assignment, planned: PlannedBudgets) -> Reason | None:
        """Return which budget has too little left for an admission; None: each has enough."""
        for place, want, _ in self.demands(entry, assignment):
            budget = self._rules.limits[place.limit]
            if budget.mode is BudgetMode.SAFE and want.lasts is None:
                return _needs_limit(budget)
            blocked = planned.blocked(place, want, planned.now, entry.id)
            if blocked is not None:
                return self._exhausted(place, blocked, self._earliest(entry.id, place, want, planned))
        return None

    def _earliest(
        self, workload: WorkloadId, place: Place, want: BudgetWant, planned: PlannedBudgets
    ) -> datetime | None:
        """Return when it has enough if nothing else happens; None: not as far as is known."""
        at = planned.now
        for _ in range(_TRIES):
            blocked = planned.blocked(place, want, at, workload)
            if blocked is None:
                return at
            following = self.next_try(place, want, at, blocked)
            if following is None:
                return None
            at = following
        return None

    def next_try(self, place: Place, want: BudgetWant, at: datetime, blocked: Blocked) -> datetime | None:
        """Return the first time after `at` at which `blocked` may not be in the way; None: there is none."""
        budget, period = self._rules.limits[place.limit], blocked.period
        if period is None:
            following = budget.periods.at(at)
            return following.begins if following is not None and following.begins > at else None
        if budget.mode is BudgetMode.SAFE:
            return period.ends - timedelta(microseconds=max(0, blocked.left) // want.rate)
        return period.ends

    def _exhausted(self, place: Place, blocked: Blocked, until: datetime | None) -> Reason:
        budget, (period, need, left) = self._rules.limits[place.limit], blocked
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
                    lasts, rate = self._lasts(entry, budget), _held(assignment, budget.resource)
                    until = None if lasts is None else now + lasts
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
        limits = self._rules.limits
        found = [
            (one.until, place)
            for place, one in charges.items()
            if one.until is not None and place.limit in limits
        ]
        return min(found, default=None)

    def numbers(self) -> Iterator[Number]:
        """Yield what each Budget gives, and what all its subjects have reserved and used of it.

        Where each user or account has its own amount, no amount stands beside the sums.
        """
        now, present = self._present, dict[str, SubjectsKey]()
        for budget in self._rules.limits.values():
            if (period := budget.periods.at(now)) is not None:
                present[budget.name] = SubjectsKey(budget.name, budget.resource, period)
        totals = self.balances.totals(present, now)
        for budget in self._rules.limits.values():
            reserved, used = totals.get(budget.name, (0, 0))
            if budget.subject.kind not in (SubjectKind.EACH_USER, SubjectKind.EACH_ACCOUNT):
                yield _number("seconds", _AMOUNT, budget, budget.amount)
            yield _number("reserved_seconds", _RESERVED, budget, reserved)
            yield _number("used_seconds", _USED, budget, used)

    # --- what waits

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if not (reason.node or "").startswith(f"{KIND}/") or entry.workload is None:
            return
        name = (reason.node or "").removeprefix(f"{KIND}/")
        places = self._places(entry.workload, entry.cluster_queue or "")
        place = next((one for one in places if one.limit == name), None)
        if place is not None:
            want = self._want(entry, place, self._requested(entry.workload, place))
            self._waiting.wait(Waiter(entry, place, want, reason))

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


class Blocked(NamedTuple):
    """The first period with too little left."""

    period: Period | None
    """None: a time in no period."""
    need: int
    """In base units times microseconds."""
    left: int


_AMOUNT: Final = "What a Budget of one subject gives in its period, in cores, bytes or devices times seconds."
_RESERVED: Final = "What all subjects of a Budget have reserved of its period."
_USED: Final = "What all subjects of a Budget have used of its period."


def _number(name: str, text: str, budget: Budget, amount: int) -> Number:
    unit = SECOND * (1000 if budget.resource == CPU else 1)
    return Number(
        f"budget_{name}", text, amount / unit, (("budget", budget.name), ("resource", budget.resource))
    )


class PlannedBudgets:
    """What is left of budgets at one time, and what a plan under way reserves."""

    def __init__(self, budgets: Budgets, now: datetime) -> None:
        self._budgets = budgets
        self.now = now
        self._added: Added = {}
        self._left: Added = {}
        """What the rows leave, as far as it was asked for."""
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
