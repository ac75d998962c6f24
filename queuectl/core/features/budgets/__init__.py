"""Budgets: how many device-hours users, accounts or all may use in a period (Y1 to Y7).

An admission reserves what the workload may use, in the transaction of its hold; the end of the attempt
settles it. A workload for which too little is left leaves its pending queue until there is enough: the next
head takes its place, under StrictFIFO too. No budget preempts. A Budget may also let it run at the priority
of a lower class meanwhile (Y8), or not queue what arrives then (Y9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from queuectl.core.decisions import Admit, Amend, Decision, Evict, Keep, Release, Retire, Shrink
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel, Number
from queuectl.core.features.budgets.balances import (
    STEP,
    Balances,
    BudgetCharge,
    Levels,
    held,
    numbers,
    refund_percent,
    reserve,
    settle,
)
from queuectl.core.features.budgets.over_budget import (
    KIND,
    LONGEST,
    OverBudget,
    budget_of,
    lowered_by,
    needs_limit,
    with_mark,
)
from queuectl.core.features.budgets.waiters import Added, Blocked, BudgetWaiters, BudgetWant, PlannedBudgets
from queuectl.core.model.budgets import HOUR, Budget, BudgetEntry, BudgetMode, OnExhausted, Period
from queuectl.core.model.events import Event, PolicyGone, PolicyObserved
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import Code, Limit, Reason, waits_for_victims
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attribution,
    LedgerSnapshot,
    PastAttempts,
    Phase,
    Workload,
    WorkloadId,
)
from queuectl.core.queues.backoff import TO_REQUEUE
from queuectl.core.subjects import Place, SubjectRules, Waiter, subject_of

_TRIES: Final = 24
"""Periods that are looked at for the time at which a workload may have enough."""


class Budgets(Feature):
    """Is active while there is a Budget, or an attempt or a workload that one has reserved for or lowered."""

    events: ClassVar = frozenset({PolicyObserved})
    events_while_active: ClassVar = frozenset({PolicyGone})
    policies: ClassVar = Budget
    decisions_while_active: ClassVar = frozenset({Admit, Amend, Keep, Shrink, Release, Retire})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rules: SubjectRules[Budget] = SubjectRules(kernel.directory)
        self.balances = Balances()
        self._over = OverBudget(self._rules, kernel.directory)
        self._waiting = BudgetWaiters()
        self._levels = Levels(self._rules, self.balances)
        self._kept: dict[WorkloadId, Added] = {}
        """What is kept for workloads that wait for their victims (C7)."""
        self._lowered: set[WorkloadId] = set()
        """Those whose priority a Budget lowers, or has lowered."""
        self._unsettled: dict[WorkloadId, None] = {}
        """Those that arrive, and those that are lowered and wait for nothing: what a Budget has for them is
        looked at when all is known."""
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
            self._levels.changed(self._kernel.latest, pause=timedelta())
            self._note_activity()

    def _note_activity(self) -> None:
        self.active = bool(self._rules.limits or self.balances.charges or self._lowered)

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        self.balances.restore(snapshot.budget_sums, snapshot.budget_entries)
        self._lowered = {one for one, entry in entries.items() if lowered_by(entry.past) is not None}
        self._outdated = True
        self._levels.changed(self._kernel.latest, pause=timedelta())
        self._note_activity()

    def decided(self, decision: Decision, entry: Entry) -> None:
        self._waiting.answered(entry.id, self.balances.changed)
        if isinstance(decision, Amend):
            self._forget_lifted(entry)
        if isinstance(decision, Admit | Amend | Shrink | Release | Retire) and decision.budget:
            for row in decision.budget:
                self.balances.apply(row)
            self._levels.changed(self._kernel.latest)
            self._note_activity()
        if isinstance(decision, Amend | Release | Retire):
            self._levels.to_record.pop(entry.id, None)
        if isinstance(decision, Release | Retire):
            self.balances.settled.pop(entry.id, None)

    def _forget_lifted(self, entry: Entry) -> None:
        if entry.id in self._lowered and lowered_by(entry.past) is None:
            self._lowered.discard(entry.id)
            self._note_activity()

    def changed(self, workload: WorkloadId) -> None:
        entry = self._kernel.entries.get(workload)
        if entry is None:
            self._lowered.discard(workload)
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
        for place in self._over.charged(entry.past, self._places(workload, entry.cluster_queue)):
            want = self._want(entry, place, self._requested(workload, place))
            for period, need in self.needs(place, want, self._kernel.latest) if want.rate else ():
                if period is not None:
                    found[place, period] = need
        return found

    def settle(self) -> None:
        """Queue the workloads for which a budget has enough again, at their own priority."""
        to_route = self._outlived() if self._outdated or self._policy_changed else {}
        self._outdated = self._policy_changed = False
        for workload in self._levels.look(self._kernel.latest):
            self._kernel.refresh(self._kernel.entries[workload])
        claiming: dict[WorkloadId, None] = {}
        due, places_due = self._waiting.due(self._kernel.latest)
        to_route |= {entry.id: entry for entry in due}
        self.balances.changed |= set(places_due)
        while to_route or self.balances.changed or (self._unsettled and self._kernel.synced):
            places, self.balances.changed = sorted(self.balances.changed), set()
            offers = PlannedBudgets(self, self._kernel.latest)
            for place in places:
                if place.limit in self._rules.limits:
                    to_route |= {one.id: one for one in self._waiting.offer(place, offers)}
            entries, to_route = to_route, {}
            for workload, entry in entries.items():
                if self._kernel.entries.get(workload) is entry:
                    self._route(entry)
            if self._kernel.synced:
                claiming |= self._look_at_unsettled(offers)
        self._unsettled |= claiming

    def _outlived(self) -> dict[WorkloadId, Entry]:
        """Budgets, or whose budget is whose, may have changed. Return those that do not wait any more."""
        to_route: dict[WorkloadId, Entry] = {}
        if self._outdated:
            to_route = {entry.id: entry for entry in self._waiting.clear()}
        else:
            for waiter in self._waiting.all():
                if not self._applies(waiter):
                    self._waiting.leave(waiter.entry.id)
                    to_route[waiter.entry.id] = waiter.entry
            self.balances.changed |= set(self._waiting.places)
        for workload in sorted(self._lowered):
            entry = self._kernel.entries.get(workload)
            if entry is not None and entry.attempt is not None:
                self._kernel.refresh(entry)
        return to_route

    def _route(self, entry: Entry) -> None:
        self._kernel.route(entry)
        self._kernel.refresh(entry)

    def _applies(self, waiter: Waiter[BudgetWant]) -> bool:
        entry, place, want = waiter.entry, waiter.place, waiter.want
        if entry.workload is None or entry.cluster_queue is None:
            return False
        if place not in self._places(entry.workload, entry.cluster_queue):
            return False
        if self._over.lowering(place.limit) != (
            lowered_by(entry.past) if self._over.lowers(place.limit) else None
        ):
            return False
        return want == self._want(entry, place, self._requested(entry.workload, place))

    def due_at(self) -> datetime | None:
        times = (self._waiting.due_at(), self._levels.look_at)
        return min((when for when in times if when is not None), default=None)

    # --- what an admission reserves

    def limits_class(self, booked: Attribution, cluster_queue: str) -> bool:
        return self._rules.at_class(booked, cluster_queue)

    def _places(self, workload: Workload, cluster_queue: str) -> tuple[Place, ...]:
        return self._rules.would_count(workload, cluster_queue, self._kernel.features.account)

    def _requested(self, workload: Workload, place: Place) -> int:
        """Return what all pods of a workload request of the budget's resource, in base units."""
        resource, total = self._rules.limits[place.limit].resource, 0
        for charge in self._kernel.directory.pods.charges(workload):
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
        taken = self.balances.taken(place, budget.resource, period, now)
        return budget.allowed(place.subject, period) - taken

    def kept(self, place: Place, period: Period, workload: WorkloadId | None) -> int:
        """Return what is kept of a period for others than `workload`, in base units times microseconds."""
        return sum(one.get((place, period), 0) for other, one in self._kept.items() if other != workload)

    def problem(self, workload: Workload, pods: object, cluster_queue: str) -> Reason | None:
        """Return which Safe budget cannot reserve for a workload that may run for any time (Y6)."""
        for place in self._places(workload, cluster_queue):
            budget = self._rules.limits[place.limit]
            if budget.mode is BudgetMode.SAFE and self._requested(workload, place):
                left = self._kernel.features.time_left(workload, NO_PAST_ATTEMPTS)
                if left is None or left > LONGEST:
                    return needs_limit(budget)
        return None

    # --- plans

    def begin_plan(self, now: datetime) -> PlannedBudgets:
        return PlannedBudgets(self, max(now, self._kernel.latest))  # the clock may have been set back

    def demands(self, entry: Entry, assignment: Assignment) -> Iterator[tuple[Place, BudgetWant, BudgetWant]]:
        """Yield the budgets of an admission, with what each must have left, and what it reserves.

        All its pods count, also where it may start with fewer (F9).
        """
        if entry.workload is None:
            return
        for place in self._over.charged(entry.past, self._places(entry.workload, assignment.cluster_queue)):
            rate = held(assignment, self._rules.limits[place.limit].resource)
            if rate:
                whole = self._requested(entry.workload, place)
                yield place, self._want(entry, place, whole), self._want(entry, place, rate)

    def lacking(self, entry: Entry, assignment: Assignment, planned: PlannedBudgets) -> Reason | None:
        """Return which budget has too little left for an admission; None: each has enough."""
        waiter = self._waiting.of(entry.id) if lowered_by(entry.past) is not None else None
        if waiter is not None and planned.will_cover(waiter.place, waiter.want, entry.id):
            return waiter.reason  # it is raised, and charged, once this plan is committed
        demands = self.demands(entry, assignment)
        for place, want, _ in sorted(demands, key=lambda one: self._over.lowers(one[0].limit)):
            budget = self._rules.limits[place.limit]
            if budget.mode is BudgetMode.SAFE and want.lasts is None:
                return needs_limit(budget)
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
        allowed = budget.amount if period is None else budget.allowed(place.subject, period)
        most = format_amount(budget.resource, allowed // HOUR)
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
            detail=f"{subject_of(budget, place)}, at most {most} hours{each}{self._over.remedy(budget)}",
        )

    # --- the rows of decisions

    def budget_entries(self, decision: Decision, entry: Entry, now: datetime) -> tuple[BudgetEntry, ...]:
        return tuple(self._rows(decision, entry, now))

    def _rows(self, decision: Decision, entry: Entry, now: datetime) -> Iterator[BudgetEntry]:
        match decision:
            case Admit(attempt, attribution=booked) if booked is not None:
                assignment = attempt.assignment
                for place in self._over.charged(
                    entry.past, self._rules.places(booked, assignment.cluster_queue)
                ):
                    budget = self._rules.limits[place.limit]
                    lasts, rate = self._lasts(entry, budget), held(assignment, budget.resource)
                    until = None if lasts is None else now + lasts
                    if rate:
                        yield from reserve(budget, place.subject, entry.id, attempt.number, rate, now, until)
            case Amend() if self.records_use(entry):
                yield from self._begin_again(entry, None, now)
            case Shrink(assignment=assignment):
                yield from self._begin_again(entry, assignment, now)
            case Release() | Retire():
                for place, charge in self.balances.charges.get(entry.id, {}).items():
                    yield from self._settle(place, charge, entry, now)
            case _:
                pass

    def _begin_again(
        self, entry: Entry, assignment: Assignment | None, now: datetime
    ) -> Iterator[BudgetEntry]:
        """Yield rows that settle what was used so far, and reserve what `assignment` may use from now on.

        None: what is held now, on Metered budgets.
        """
        for place, charge in self.balances.charges.get(entry.id, {}).items():
            known = self._rules.limits.get(place.limit)
            same = known if known is not None and known.resource == charge.resource else None
            rate = charge.rate if assignment is None else held(assignment, charge.resource)
            begins = same is not None and charge.until is None if assignment is None else rate != charge.rate
            if begins:
                yield from settle(place, entry.id, charge, known, now)
            if begins and rate and same is not None:
                yield from reserve(same, place.subject, entry.id, charge.attempt, rate, now, charge.until)

    def _settle(
        self, place: Place, charge: BudgetCharge, entry: Entry, now: datetime
    ) -> Iterator[BudgetEntry]:
        """Yield the rows of the end of an attempt at one place."""
        known, before = self._rules.limits.get(place.limit), self.balances.settled.get(entry.id, {})
        earlier = {period: used for (there, period), used in before.items() if there == place}
        return settle(place, entry.id, charge, known, now, refund_percent(known, entry), earlier)

    def settled(self, entry: Entry, now: datetime) -> Iterator[tuple[Place, Period, int]]:
        """Yield what the end of its open attempt makes available again, in base units times microseconds."""
        for place, charge in self.balances.charges.get(entry.id, {}).items():
            for row in self._settle(place, charge, entry, now):
                yield place, row.period, -(row.reserved + row.used)

    # --- what runs

    def records_use(self, entry: Entry) -> bool:
        return entry.id in self._levels.to_record

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

    def numbers(self) -> Iterable[Number]:
        known = (lowered_by(self._kernel.entries[one].past) for one in self._lowered)
        lowered = Counter(budget_of(one) for one in known if one is not None)
        return numbers(self._rules.limits.values(), self.balances, lowered, self._kernel.latest)

    # --- what waits

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if not (reason.node or "").startswith(f"{KIND}/") or entry.workload is None:
            return
        name = (reason.node or "").removeprefix(f"{KIND}/")
        places = self._places(entry.workload, entry.cluster_queue or "")
        place = next((one for one in places if one.limit == name), None)
        if place is not None:
            lowering = self._over.lowering(place.limit)
            if lowering is not None:
                entry.past = with_mark(entry.past, lowering)
                self._lowered.add(entry.id)
            want = self._want(entry, place, self._requested(entry.workload, place))
            self._waiting.wait(Waiter(entry, place, want, reason, self._own_order(entry)))

    def _own_order(self, entry: Entry) -> tuple[object, ...]:
        """Return its place in the order at its own priority: those that a Budget lowers go by it too."""
        own = self._kernel.directory.priority(entry.workload) if entry.workload is not None else 0
        return (-own if isinstance(own, int) else entry.order[0], *entry.order[1:])

    def revised(self, workload: WorkloadId) -> None:
        self._waiting.leave(workload)

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        if not eligible or entry.cluster_queue is None:
            self._waiting.answered(entry.id, self.balances.changed)
            self._waiting.leave(entry.id)
            return None
        waiter, lowered = self._waiting.of(entry.id), lowered_by(entry.past)
        if waiter is not None and (waiter.order != self._own_order(entry) or not self._applies(waiter)):
            self._waiting.leave(entry.id)  # it waits for another budget, or in another place
            waiter = None
        if waiter is not None:
            return None if lowered is not None and self._over.lowers(waiter.place.limit) else waiter.reason
        if lowered is not None or (self._over.refuses and entry.recorded is None):
            self._unsettled[entry.id] = None
        return None

    # --- what is done beside waiting

    def noted(self, past: PastAttempts, entry: Entry, now: datetime) -> PastAttempts:
        return self._over.of_attempt(past)

    def _look_at_unsettled(self, offers: PlannedBudgets) -> dict[WorkloadId, None]:
        """Lift what is covered, let the others wait for that, and refuse what arrives and is not.

        Return those that wait for their victims, which is to go on (C7): they are looked at again later.
        """
        workloads, self._unsettled = self._unsettled, {}
        claiming: dict[WorkloadId, None] = {}
        for workload in workloads:
            entry = self._kernel.entries.get(workload)
            if entry is None or entry.attempt is not None or entry.workload is None:
                continue
            lowered = lowered_by(entry.past)
            if lowered is None:
                self._arrive(entry)
            elif waits_for_victims(entry.reason):
                claiming[workload] = None
            elif (waiter := self._not_covered(entry, lowered, offers)) is not None:
                self._waiting.wait(waiter)
            else:
                entry.past = with_mark(entry.past, None)
                self._forget_lifted(entry)
                self._route(entry)
        return claiming

    def _not_covered(
        self, entry: Entry, lowered: LoweredPriority, offers: PlannedBudgets
    ) -> Waiter[BudgetWant] | None:
        """Return what a workload that is lowered waits for; None: its Budget covers or lowers it no more."""
        name = budget_of(lowered)
        if entry.workload is None or self._over.lowering(name) != lowered:
            return None
        for place in self._places(entry.workload, entry.cluster_queue or ""):
            want = self._want(entry, place, self._requested(entry.workload, place))
            if place.limit != name or not want.rate:
                continue
            blocked = offers.blocked(place, want, offers.now, entry.id)
            if blocked is not None:
                reason = self._exhausted(place, blocked, self._earliest(entry.id, place, want, offers))
                return Waiter(entry, place, want, reason, self._own_order(entry))
        return None

    def _arrive(self, entry: Entry) -> None:
        """Refuse it if a Budget says so that has too little left for it alone (Y9)."""
        seen = entry.observation
        if entry.workload is None or entry.recorded is not None or seen is None or not seen.suspended:
            return
        offers = PlannedBudgets(self, max(self._kernel.latest, entry.workload.created_at))
        for place in self._places(entry.workload, entry.cluster_queue or ""):
            budget = self._rules.limits[place.limit]
            want = self._want(entry, place, self._requested(entry.workload, place))
            if budget.on_exhausted is not OnExhausted.REFUSE or not want.rate:
                continue
            blocked = offers.blocked(place, want, offers.now, entry.id)
            if blocked is not None:
                reason = self._exhausted(place, blocked, None)
                detail = f"too little was left when it was created: {reason.detail}; {TO_REQUEUE}"
                barred = replace(reason, code=Code.DEACTIVATED, detail=detail)
                entry.past = replace(entry.past, barred=barred)
                self._route(entry)
                return
