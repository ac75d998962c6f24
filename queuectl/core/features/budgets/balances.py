"""What the subjects of Budgets have reserved and used: the sums of the rows of the ledger (Y2, Y3), their
levels (Y10), and numbers for metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.feature import Number
from queuectl.core.model.budgets import (
    BUDGET_LEVELS,
    Budget,
    BudgetEntry,
    BudgetSum,
    EntryKind,
    OnExhausted,
    Period,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import CPU
from queuectl.core.model.usage_limits import SubjectKind
from queuectl.core.model.workload import Assignment, Phase, WorkloadId
from queuectl.core.subjects import Place, SubjectRules

STEP: Final = timedelta(hours=1)
"""What a Metered budget reserves beyond now for each attempt."""


class BalanceKey(NamedTuple):
    """What is added up: a Budget that is changed to another resource, or other periods, starts anew."""

    place: Place
    resource: str
    period: Period


class SubjectsKey(NamedTuple):
    """What is added up for all subjects of a Budget."""

    budget: str
    resource: str
    period: Period


@dataclass(slots=True)
class BudgetCharge:
    """What an open attempt has reserved of one budget."""

    attempt: int
    resource: str
    since: datetime
    rate: int
    """In base units."""
    until: datetime | None
    """None: it reserves STEP beyond now, as long as it runs."""
    reserved: dict[Period, int] = field(default_factory=dict)
    """By period, in base units times microseconds."""

    def used(self, period: Period, now: datetime) -> int:
        """Return what it has used in a period; after `until`, nothing more."""
        ends = now if self.until is None else min(now, self.until)
        return self.rate * period.overlap(self.since, ends)


class Balances:
    """The sums of the rows of all budgets."""

    def __init__(self) -> None:
        self._used: defaultdict[BalanceKey, int] = defaultdict(int)
        self._reserved: defaultdict[BalanceKey, int] = defaultdict(int)
        self._all_used: defaultdict[SubjectsKey, int] = defaultdict(int)
        self._all_reserved: defaultdict[SubjectsKey, int] = defaultdict(int)
        self.charges: dict[WorkloadId, dict[Place, BudgetCharge]] = {}
        """By workload, those of its open attempt."""
        self.metered: dict[Place, dict[WorkloadId, BudgetCharge]] = {}
        """Those without an end."""
        self.settled: dict[WorkloadId, dict[tuple[Place, Period], int]] = {}
        """What open attempts have used before their charges began: refunds are of all that they have used."""
        self.changed: set[Place] = set()
        """Places that may have more left than before."""

    def restore(self, sums: Iterable[BudgetSum], entries: Iterable[BudgetEntry]) -> None:
        """Start from the rows of the ledger."""
        for known in (self._used, self._reserved, self.charges, self.metered, self.settled):
            known.clear()
        self._all_used.clear()
        self._all_reserved.clear()
        for one in sums:
            self._used[BalanceKey(Place(one.budget, one.subject), one.resource, one.period)] += one.used
            self._all_used[SubjectsKey(one.budget, one.resource, one.period)] += one.used
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: BudgetEntry) -> None:
        """Take a row that the ledger has."""
        place, workload = Place(entry.budget, entry.subject), WorkloadId(entry.workload)
        key = BalanceKey(place, entry.resource, entry.period)
        self._reserved[key] += entry.reserved
        self._used[key] += entry.used
        of_all = SubjectsKey(entry.budget, entry.resource, entry.period)
        self._all_reserved[of_all] += entry.reserved
        self._all_used[of_all] += entry.used
        if entry.kind is EntryKind.RESERVE:
            of_workload = self.charges.setdefault(workload, {})
            charge = of_workload.get(place)
            if charge is None:
                charge = of_workload[place] = BudgetCharge(
                    entry.attempt, entry.resource, entry.at, entry.rate, entry.until
                )
            charge.reserved[entry.period] = entry.reserved
            if entry.until is None:
                self.metered.setdefault(place, {})[workload] = charge
            return
        self.changed.add(place)
        if entry.kind is EntryKind.SETTLE and (known := self.charges.get(workload)) is not None:
            known.pop(place, None)
            if not known:
                del self.charges[workload]
            if (metered := self.metered.get(place)) is not None:
                metered.pop(workload, None)
        if entry.kind is EntryKind.SETTLE and entry.used:
            before = self.settled.setdefault(workload, {})
            before[place, entry.period] = before.get((place, entry.period), 0) + entry.used

    def recorded(self, place: Place, resource: str, period: Period) -> int:
        """Return what is used and reserved of a period by rows, in base units times microseconds."""
        key = BalanceKey(place, resource, period)
        return self._used.get(key, 0) + self._reserved.get(key, 0)

    def taken(self, place: Place, resource: str, period: Period, now: datetime) -> int:
        """Return what is used and reserved of a period, in base units times microseconds."""
        metered = self.metered.get(place, {}).values()
        running = sum(one.used(period, now + STEP) for one in metered if one.resource == resource)
        return self.recorded(place, resource, period) + running

    def totals(self, present: Mapping[str, SubjectsKey], now: datetime) -> dict[str, tuple[int, int]]:
        """Return what all subjects of each Budget have reserved and used, in base units times microseconds.

        `present`: by name of a Budget. One pass over what runs: metrics are read often.
        """
        running = dict.fromkeys(present, 0)
        for place, metered in self.metered.items():
            key = present.get(place.limit)
            if key is not None:
                charges = (one for one in metered.values() if one.resource == key.resource)
                running[place.limit] += sum(one.used(key.period, now) for one in charges)
        return {
            name: (self._all_reserved.get(key, 0), self._all_used.get(key, 0) + running[name])
            for name, key in present.items()
        }

    def sums(self) -> Mapping[BalanceKey, tuple[int, int]]:
        """Return what is reserved and what is used by the rows, where either is not 0."""
        keys = self._reserved.keys() | self._used.keys()
        found = {key: (self._reserved.get(key, 0), self._used.get(key, 0)) for key in keys}
        return {key: both for key, both in found.items() if any(both)}


# --- the rows that a decision writes


def reserve(
    budget: Budget,
    subject: str,
    workload: str,
    attempt: int,
    rate: int,
    now: datetime,
    until: datetime | None,
) -> Iterator[BudgetEntry]:
    """Yield the rows of an admission: by period, what it may use up to `until`.

    Nothing is reserved, and nothing is counted, where no period is.
    """
    found: list[tuple[Period, int]] = []
    if until is None:
        period = budget.periods.at(now)
        found = [(period, 0)] if period is not None else []
    else:
        found = [(period, rate * length) for period, length in budget.periods.pieces(now, until) if period]
        if not found and (period := budget.periods.at(now)) is not None:
            found = [(period, 0)]  # nothing is left of its time: it is to end now
    for period, amount in found:
        yield BudgetEntry(
            kind=EntryKind.RESERVE,
            budget=budget.name,
            subject=subject,
            resource=budget.resource,
            period=period,
            workload=workload,
            attempt=attempt,
            at=now,
            rate=rate,
            until=until,
            reserved=amount,
        )


def settle(
    place: Place,
    workload: str,
    charge: BudgetCharge,
    budget: Budget | None,
    now: datetime,
    refund: int = 0,
    earlier: Mapping[Period, int] = MappingProxyType({}),
) -> Iterator[BudgetEntry]:
    """Yield the rows of the end of a charge: nothing is reserved any more, and what it has used is used.

    `budget`: None: it is gone. `refund`: percent that is refunded of what it has used, and of `earlier`.
    """
    periods = dict.fromkeys(charge.reserved)
    if refund:
        periods |= dict.fromkeys(earlier)
    if charge.until is None and budget is not None:
        periods |= {one: None for one, _ in budget.periods.pieces(charge.since, now) if one is not None}
    for period in periods:
        used = charge.used(period, now)
        entry = BudgetEntry(
            kind=EntryKind.SETTLE,
            budget=place.limit,
            subject=place.subject,
            resource=charge.resource,
            period=period,
            workload=workload,
            attempt=charge.attempt,
            at=now,
            rate=charge.rate,
            until=charge.until,
            reserved=-charge.reserved.get(period, 0),
            used=used,
        )
        yield entry
        if refunded := (used + earlier.get(period, 0)) * refund // 100:
            yield replace(entry, kind=EntryKind.REFUND, reserved=0, used=-refunded)


def held(assignment: Assignment, resource: str) -> int:
    """Return what an assignment holds of a resource in all flavors, in base units."""
    return sum(
        amount * pod_set.count
        for pod_set in assignment.pod_sets
        for name, amount in pod_set.requests
        if name == resource
    )


def refund_percent(budget: Budget | None, entry: Entry) -> int:
    """Return the percent that is refunded of an attempt that ends now."""
    code = entry.reason.code if entry.reason is not None and entry.phase is Phase.EVICTING else None
    if budget is None:
        return 0
    if code is Code.PREEMPTED:
        return budget.refund_preempted
    return budget.refund_node_failures if code is Code.NODE_FAILURES else 0


SECOND: Final = 1_000_000
"""In microseconds."""
_AMOUNT: Final = "What a Budget of one subject gives in its period, in cores, bytes or devices times seconds."
_RESERVED: Final = "What all subjects of a Budget have reserved of its period."
_USED: Final = "What all subjects of a Budget have used of its period."
_LOWERED: Final = "Workloads whose priority a Budget with onExhausted LowerClass lowers."


def numbers(
    budgets: Collection[Budget], balances: Balances, lowered: Mapping[str, int], now: datetime
) -> Iterator[Number]:
    """Yield what each Budget gives, what all its subjects have reserved and used of it, and how many
    workloads it lowers, which is `lowered` by its name.

    Where each user or account has its own amount, no amount stands beside the sums.
    """
    present = dict[str, SubjectsKey]()
    for budget in budgets:
        if (period := budget.periods.at(now)) is not None:
            present[budget.name] = SubjectsKey(budget.name, budget.resource, period)
    totals = balances.totals(present, now)
    for budget in budgets:
        reserved, used = totals.get(budget.name, (0, 0))
        if budget.subject.kind not in (SubjectKind.EACH_USER, SubjectKind.EACH_ACCOUNT):
            key = present.get(budget.name)
            granted = budget.granted(budget.subject.name, key.period) if key is not None else 0
            yield _number("seconds", _AMOUNT, budget, budget.amount + granted)
        yield _number("reserved_seconds", _RESERVED, budget, reserved)
        yield _number("used_seconds", _USED, budget, used)
        if budget.on_exhausted is OnExhausted.LOWER_CLASS:
            many = lowered.get(budget.name, 0)
            yield Number("budget_lowered_workloads", _LOWERED, many, (("budget", budget.name),))


def _number(name: str, text: str, budget: Budget, amount: int) -> Number:
    unit = SECOND * (1000 if budget.resource == CPU else 1)
    return Number(
        f"budget_{name}", text, amount / unit, (("budget", budget.name), ("resource", budget.resource))
    )


_PAUSE: Final = timedelta(minutes=1)
"""At least that between an admission and the look that takes account of it."""


class Levels:
    """What running attempts have used is recorded when it passes a level: rows alone tell of levels."""

    def __init__(self, rules: SubjectRules[Budget], balances: Balances) -> None:
        self._rules = rules
        self._balances = balances
        self.look_at: datetime | None = None
        """None: no attempt runs on a Metered Budget."""
        self.to_record: dict[WorkloadId, None] = {}
        """Workloads whose use so far is to be recorded."""

    def changed(self, now: datetime, *, pause: timedelta = _PAUSE) -> None:
        """What runs, or what it may use, has changed: look again after `pause`."""
        when = now + pause
        self.look_at = when if self.look_at is None else min(self.look_at, when)

    def look(self, now: datetime) -> list[WorkloadId]:
        """Return those whose use so far is to be recorded now, and find out when to look again."""
        if self.look_at is None or self.look_at > now:
            return []
        times, found = list[datetime](), dict[WorkloadId, None]()
        for place in self._balances.metered:
            for when in self._of_place(place, now, found):
                times.append(when)
        self.look_at = min(times, default=None)
        self.to_record |= found
        return list(found)

    def _of_place(self, place: Place, now: datetime, found: dict[WorkloadId, None]) -> Iterator[datetime]:
        """Yield when to look at a place again, or add to `found` those that run there."""
        budget = self._rules.limits.get(place.limit)
        period = budget.periods.at(now) if budget is not None else None
        if budget is None or period is None:
            return
        charges = {
            workload: one
            for workload, one in self._balances.metered[place].items()
            if one.resource == budget.resource and workload not in self.to_record
        }
        recorded = self._balances.recorded(place, budget.resource, period)
        amount, rate = budget.allowed(place.subject, period), sum(one.rate for one in charges.values())
        level = next((one for one in BUDGET_LEVELS if 100 * recorded < one * amount), None)
        if not rate or level is None:
            if rate:
                yield period.ends
            return
        used = sum(one.used(period, now) for one in charges.values())
        missing = level * amount - 100 * (recorded + used)
        if missing <= 0:
            found |= dict.fromkeys(charges)
        else:
            yield min(now + timedelta(microseconds=-(-missing // (100 * rate))), period.ends)
