"""Past usage, decayed with a half-life H (rules U1 to U6).

An amount x held from a to b counts x · (2^-((t-b)/H) - 2^-((t-a)/H)) at time t; b = t while it is held. That
is x · (2^(b/H) - 2^(a/H)), divided by 2^(t/H): a difference of two terms, each of one moment. Such terms are
added up here as exact integers. So the result does not depend on how an interval is cut, on the order of the
events, or on a restart, also on another machine: the power comes from `decimal`, of which the specification
defines all digits. The last bit of a float differs between C libraries.

Time is counted in periods of one half-life, from 1970 on: 2^(t/H) is 2^period times a power of 2 below 2.
Terms are added up by period. A sum of more than HALF_LIVES periods ago no longer counts and is dropped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from queuectl.core.model.policy import HALF_LIVES, AdmissionFairSharing
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import UsageAccount, UsageSum, WorkloadId

AttemptKey = tuple[WorkloadId, int]
"""Workload and number of the attempt."""

UsageValue = int | float
"""Usage over weight: an integer, in 2^-32 millionths of a core, byte or device, rounded down; `math.inf` for
weight 0. The smaller comes first."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = 1_000_000
_VALUE_DIGITS: Final = 32
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})

_THIRTY_DIGITS: Final = Context(prec=30)
_LN_2: Final = _THIRTY_DIGITS.ln(2)


@lru_cache(maxsize=4096)
def power_of_2(part: int, whole: int) -> int:
    """2^(part/whole) for 0 <= part < whole, times 2^64 and rounded down.

    The specification of decimal arithmetic defines every digit of a result, that of `exp` too: it is the same
    on all machines; floats of the C library's exp2 need not be. Of the 30 digits 20 are before the point.
    """
    exponent = _THIRTY_DIGITS.multiply(_THIRTY_DIGITS.divide(part, whole), _LN_2)
    return int(_THIRTY_DIGITS.multiply(_THIRTY_DIGITS.exp(exponent), 1 << 64))


def counted_from(admitted_at: datetime, now: datetime) -> datetime:
    """From when a controller that starts counts an open attempt: from its admission, or from now where that
    is to come. One that was found running may be admitted by a clock that was ahead.
    """
    return min(admitted_at, now)


@dataclass(slots=True)
class _OpenAttempt:
    accounts: tuple[UsageAccount, ...]
    amount: int
    """Weighted, as all amounts in UsageHistory."""
    start: int
    """Microseconds since 1970, as all integer times here."""


@dataclass(slots=True)
class _AccountUsage:
    """Usage of one account."""

    held: int = 0
    """Total of its open attempts."""
    sums: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By period: amounts times `power_of_2`, ends minus starts."""
    recent: dict[AttemptKey, _OpenAttempt] = field(default_factory=dict)
    """Open attempts, oldest first: at least those that started within the last sampling interval."""


class UsageHistory:
    """Past usage of all accounts. Given amounts are totals by resource in base units, over all flavors.

    Events may come in any order. A query is for the time of the last event or later, and changes nothing. It
    reads at most HALF_LIVES + 1 sums, and the recent attempts, of each account that it is about.
    """

    def __init__(self, sharing: AdmissionFairSharing) -> None:
        self._half_life = sharing.half_life * _SECOND
        self._interval = sharing.sampling_interval * _SECOND
        self._weights = dict(sharing.weights)
        self._used: defaultdict[UsageAccount, _AccountUsage] = defaultdict(_AccountUsage)
        self._open: dict[AttemptKey, _OpenAttempt] = {}
        self._newest = 0
        """Time of the last event."""
        self._swept = 0
        """Period of the last sweep."""

    # --- events

    def opened(
        self,
        accounts: Iterable[UsageAccount],
        attempt: AttemptKey,
        amounts: Mapping[str, int],
        at: datetime,
        *,
        found: bool = False,
    ) -> None:
        """An attempt holds `amounts` from this time on, which counts for each of `accounts`. `found`: it was
        found running, and counts as if it began then (U5)."""
        opened = _OpenAttempt(tuple(accounts), self._weighted(amounts), _microseconds(at))
        self._open[attempt] = opened
        for used in self._advance(opened.accounts, opened.start):
            used.held += opened.amount
            if not found:
                used.recent[attempt] = opened
            self._add(used, -opened.amount, opened.start)

    def resized(self, attempt: AttemptKey, amounts: Mapping[str, int], at: datetime) -> None:
        """An open attempt holds `amounts` instead from this time on. Its start stays the same (U4)."""
        resized, moment = self._open[attempt], _microseconds(at)
        freed = resized.amount - self._weighted(amounts)
        resized.amount -= freed
        for used in self._advance(resized.accounts, moment):
            used.held -= freed
            self._add(used, freed, moment)

    def closed(self, attempt: AttemptKey, at: datetime) -> None:
        """An open attempt holds nothing any more."""
        self.resized(attempt, _NOTHING, at)
        for account in self._open.pop(attempt).accounts:
            self._used[account].recent.pop(attempt, None)

    # --- what was before

    def add_interval(
        self, accounts: Iterable[UsageAccount], amounts: Mapping[str, int], start: datetime, end: datetime
    ) -> None:
        """A closed attempt held `amounts` from `start` to `end`."""
        amount = self._weighted(amounts)
        for account in accounts:
            self._add(self._used[account], -amount, _microseconds(start))
            self._add(self._used[account], amount, _microseconds(end))

    def add_decayed(self, account: UsageAccount, usage: Mapping[str, int], at: datetime) -> None:
        """Its decayed usage was this much larger at that time."""
        self._add(self._used[account], self._weighted(usage), _microseconds(at))

    def restore(self, sums: Iterable[UsageSum]) -> None:
        """Add the sums of another history with the same half-life and weights."""
        for one in sums:
            self._used[one.account].sums[one.period] += one.total

    def sums(self, now: datetime) -> tuple[UsageSum, ...]:
        """All that count at `now` or later. Of a history without open attempts."""
        if not self._half_life:
            return ()
        oldest = self._oldest_period(now)
        return tuple(
            UsageSum(account, period, total)
            for account, used in sorted(self._used.items())
            for period, total in sorted(used.sums.items())
            if period >= oldest and total
        )

    def horizon(self, now: datetime) -> datetime:
        """An interval that ended before this time counts neither at `now` nor later."""
        since = self._oldest_period(now) * self._half_life if self._half_life else _microseconds(now)
        return _EPOCH + max(since, _microseconds(datetime.min.replace(tzinfo=UTC))) * _MICROSECOND

    # --- query

    def usage(
        self, account: UsageAccount, weight: int, now: datetime, adding: Mapping[str, int] = _NOTHING
    ) -> UsageValue:
        """Its usage over `weight` (thousandths), as if `adding` were admitted now as well."""
        return self.growing((account,), weight, now)(adding)

    def growing(
        self, accounts: Iterable[UsageAccount], weight: int, now: datetime
    ) -> Callable[[Mapping[str, int]], UsageValue]:
        """Return their usage together over `weight` as a function of what else is admitted now."""
        if weight <= 0:
            return lambda adding: math.inf
        if not self._half_life:
            return lambda adding: 0
        moment = max(_microseconds(now), self._newest)
        period, part = divmod(moment, self._half_life)
        oldest = period - HALF_LIVES
        scale = power_of_2(part, self._half_life) << HALF_LIVES
        # What started later than this counts as if it had started then (U4).
        latest = moment - self._interval
        latest_term = self._term(latest, oldest)
        total = 0
        for used in filter(None, map(self._used.get, accounts)):
            total += used.held * scale
            total += sum(terms << at - oldest for at, terms in used.sums.items() if at >= oldest)
            for attempt in used.recent.values():
                if attempt.start > latest:
                    total += attempt.amount * (self._term(attempt.start, oldest) - latest_term)

        def value(adding: Mapping[str, int]) -> UsageValue:
            added = self._weighted(adding) * (scale - latest_term)
            return ((total + added) * 1000 << _VALUE_DIGITS) // (scale * weight)

        return value

    # --- terms

    def _add(self, used: _AccountUsage, amount: int, moment: int) -> None:
        if self._half_life:
            period, part = divmod(moment, self._half_life)
            used.sums[period] += amount * power_of_2(part, self._half_life)

    def _term(self, moment: int, oldest: int) -> int:
        """2^(moment/H), with periods counted from `oldest`; 0 before that."""
        period, part = divmod(moment, self._half_life)
        return power_of_2(part, self._half_life) << period - oldest if period >= oldest else 0

    def _weighted(self, amounts: Mapping[str, int]) -> int:
        """In millionths of a core, byte or device, which count the same unless weights say otherwise (U2)."""
        total = 0
        for resource, amount in amounts.items():
            thousandths = amount if resource == CPU else 1000 * amount
            total += thousandths * self._weights.get(resource, 1000)
        return total

    def _oldest_period(self, now: datetime) -> int:
        """The first that counts at `now`."""
        return _microseconds(now) // self._half_life - HALF_LIVES

    # --- forgetting

    def _advance(self, accounts: Iterable[UsageAccount], moment: int) -> Iterator[_AccountUsage]:
        """Yield the usage of `accounts`, for an event at `moment`, without what no longer counts."""
        self._newest = max(self._newest, moment)
        if self._half_life and self._newest // self._half_life >= self._swept + HALF_LIVES:
            self._sweep()
        for account in accounts:
            used = self._used[account]
            while used.recent:
                oldest = next(iter(used.recent))
                if used.recent[oldest].start > self._newest - self._interval:
                    break
                del used.recent[oldest]
            yield used

    def _sweep(self) -> None:
        """Drop sums that no longer count, and accounts without any and without open attempts."""
        self._swept = self._newest // self._half_life
        for account, used in list(self._used.items()):
            for period in [one for one in used.sums if one < self._swept - HALF_LIVES]:
                del used.sums[period]
            if not (used.sums or used.held or used.recent):
                del self._used[account]


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND
