"""Budgets: how many device-hours a user, an account or all may use in a period (Y)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from queuectl.core.model.usage_limits import LimitSubject, LimitTarget
from queuectl.core.model.values import value

HOUR: Final = 3_600_000_000
"""In microseconds: amounts of budgets are base units times microseconds."""


BUDGET_LEVELS: Final = (50, 80, 95, 100)
"""Percent of the hours of a Budget of which notifications tell."""


class BudgetMode(StrEnum):
    """What an admission reserves."""

    SAFE = "Safe"  # its whole run time limit
    METERED = "Metered"  # one hour, and one more hour as long as it runs


class OnExhausted(StrEnum):
    """What is done with a workload for which too little is left (Y4, Y8, Y9)."""

    WAIT = "Wait"  # it waits until enough is left
    LOWER_CLASS = "LowerClass"  # it may run meanwhile, at the priority of a lower class
    REFUSE = "Refuse"  # one that arrives then is not queued; one that waits already goes on waiting


class PeriodKind(StrEnum):
    MONTH = "Month"
    WEEK = "Week"  # from Monday
    DATES = "Dates"  # one period


class Period(NamedTuple):
    """From `begins` to before `ends`, in UTC."""

    begins: datetime
    ends: datetime

    def overlap(self, since: datetime, until: datetime) -> int:
        """Return for how long `since` to `until` is in the period, in microseconds."""
        return max(0, microseconds(min(until, self.ends) - max(since, self.begins)))


@value(frozen=True, slots=True)
class BudgetPeriods:
    kind: PeriodKind
    zone: str = "UTC"
    """Time zone in which months and weeks begin."""
    dates: Period | None = None
    """Of kind Dates."""

    def at(self, when: datetime) -> Period | None:
        """Return the period that `when` is in, else the first one after it; None: there is none."""
        if self.dates is not None:
            return self.dates if when < self.dates.ends else None
        zone = ZoneInfo(self.zone)
        day = when.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None, fold=0)
        if self.kind is PeriodKind.WEEK:
            begins = day - timedelta(days=day.weekday())
            ends = begins + timedelta(days=7)
        else:
            begins = day.replace(day=1)
            ends = (begins + timedelta(days=31)).replace(day=1)
        return Period(*(one.replace(tzinfo=zone).astimezone(UTC) for one in (begins, ends)))

    def pieces(self, since: datetime, until: datetime) -> Iterator[tuple[Period | None, int]]:
        """Cut a time where periods begin: yield each period with the microseconds in it; None: in none."""
        while since < until:
            period = self.at(since)
            if period is None or since < period.begins:
                ends = until if period is None else min(until, period.begins)
                yield None, microseconds(ends - since)
            else:
                ends = min(until, period.ends)
                yield period, microseconds(ends - since)
            since = ends


@value(frozen=True, slots=True, kw_only=True)
class BudgetGrant:
    """What was granted by hand beside the amount of a Budget (Y11)."""

    amount: int
    """In base units times microseconds."""
    at: datetime
    """A time in the period that it is for."""
    subject: str | None
    """None: each."""
    workload: str | None
    """As NAMESPACE/KIND/NAME: what it has used is refunded; None: it is no refund."""
    reason: str


@value(frozen=True, slots=True, kw_only=True)
class Budget:
    name: str
    target: LimitTarget
    subject: LimitSubject
    resource: str
    amount: int
    """Of each subject in each period, without grants, in base units times microseconds."""
    periods: BudgetPeriods
    mode: BudgetMode
    refund_preempted: int = 0
    """Percent of what a preempted attempt has used that is refunded."""
    refund_node_failures: int = 0
    """The same of an attempt that was evicted because its pods failed with a node."""
    on_exhausted: OnExhausted = OnExhausted.WAIT
    lower_class: str | None = None
    """Of LowerClass: name of the WorkloadPriorityClass whose priority has what it does not cover."""
    grants: tuple[BudgetGrant, ...] = ()

    def granted(self, subject: str, period: Period) -> int:
        """Return what was granted to a subject in a period, in base units times microseconds."""
        return sum(
            one.amount
            for one in self.grants
            if one.subject in (None, subject) and period.begins <= one.at < period.ends
        )

    def allowed(self, subject: str, period: Period) -> int:
        """Return what a subject may use in a period, in base units times microseconds."""
        return self.amount + self.granted(subject, period)


class EntryKind(StrEnum):
    """What a row of a budget records."""

    RESERVE = "Reserve"  # at an admission, for as long as it may run
    SETTLE = "Settle"  # at the end of that: what is reserved is free again, what it has used is not
    REFUND = "Refund"  # of what it has used


@value(frozen=True, slots=True, kw_only=True)
class BudgetEntry:
    """One row of a budget: a change of what one subject has reserved and used in one period."""

    kind: EntryKind
    budget: str
    """Name of the Budget."""
    subject: str
    """The user, or the value of the account key; empty: all."""
    resource: str
    period: Period
    workload: str
    attempt: int
    at: datetime
    rate: int
    """What the attempt holds of the resource, in base units."""
    until: datetime | None
    """Until when that is reserved; None: as long as it runs."""
    reserved: int = 0
    """Change of what is reserved, in base units times microseconds."""
    used: int = 0
    """Change of what is used, in base units times microseconds."""


NO_ENTRIES: Final[tuple[BudgetEntry, ...]] = ()


class BudgetSum(NamedTuple):
    """What attempts that are over have used of a budget."""

    budget: str
    subject: str
    resource: str
    period: Period
    used: int


def microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)
