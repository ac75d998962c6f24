"""What the subjects of Budgets have reserved and used: the sums of the rows of the ledger (Y2, Y3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.budgets import Budget, BudgetEntry, BudgetSum, EntryKind, Period
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Assignment, Phase, WorkloadId
from queuectl.core.subjects import Place

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
            yield _refund(entry, refunded)


def _refund(entry: BudgetEntry, amount: int) -> BudgetEntry:
    return BudgetEntry(
        kind=EntryKind.REFUND,
        budget=entry.budget,
        subject=entry.subject,
        resource=entry.resource,
        period=entry.period,
        workload=entry.workload,
        attempt=entry.attempt,
        at=entry.at,
        rate=entry.rate,
        until=entry.until,
        used=-amount,
    )


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
