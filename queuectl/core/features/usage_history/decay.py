"""Past usage of LocalQueues, decayed with a half-life H (rules U1 to U5).

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from queuectl.core.model.policy import HALF_LIVES, AdmissionFairSharing, LocalQueueName
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import UsageSum, WorkloadId

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


@dataclass(slots=True)
class _OpenAttempt:
    local_queue: LocalQueueName
    amount: int
    """Weighted, as all amounts in UsageHistory."""
    start: int
    """Microseconds since 1970, as all integer times here."""


@dataclass(slots=True)
class _QueueUsage:
    """Usage of one LocalQueue."""

    held: int = 0
    """Total of its open attempts."""
    sums: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By period: amounts times `power_of_2`, ends minus starts."""
    recent: dict[AttemptKey, _OpenAttempt] = field(default_factory=dict)
    """Open attempts, oldest first: at least those that started within the last sampling interval."""


class UsageHistory:
    """Past usage of all LocalQueues. Given amounts are totals by resource in base units, over all flavors.

    Events may come in any order. A query is for the time of the last event or later, and changes nothing. It
    reads at most HALF_LIVES + 1 sums, and the recent attempts of the LocalQueue.
    """

    def __init__(self, sharing: AdmissionFairSharing) -> None:
        self._half_life = sharing.half_life * _SECOND
        self._interval = sharing.sampling_interval * _SECOND
        self._weights = dict(sharing.weights)
        self._queues: defaultdict[LocalQueueName, _QueueUsage] = defaultdict(_QueueUsage)
        self._open: dict[AttemptKey, _OpenAttempt] = {}
        self._newest = 0
        """Time of the last event."""
        self._swept = 0
        """Period of the last sweep."""

    # --- events

    def opened(
        self, local_queue: LocalQueueName, attempt: AttemptKey, amounts: Mapping[str, int], at: datetime
    ) -> None:
        """An attempt holds `amounts` from this time on."""
        opened = _OpenAttempt(local_queue, self._weighted(amounts), _microseconds(at))
        queue = self._advance(local_queue, opened.start)
        queue.held += opened.amount
        self._open[attempt] = queue.recent[attempt] = opened
        self._add(queue, -opened.amount, opened.start)

    def resized(self, attempt: AttemptKey, amounts: Mapping[str, int], at: datetime) -> None:
        """An open attempt holds `amounts` instead from this time on. Its start stays the same (U4)."""
        resized, moment = self._open[attempt], _microseconds(at)
        queue = self._advance(resized.local_queue, moment)
        freed = resized.amount - self._weighted(amounts)
        resized.amount -= freed
        queue.held -= freed
        self._add(queue, freed, moment)

    def closed(self, attempt: AttemptKey, at: datetime) -> None:
        """An open attempt holds nothing any more."""
        self.resized(attempt, _NOTHING, at)
        self._queues[self._open.pop(attempt).local_queue].recent.pop(attempt, None)

    # --- what was before

    def add_interval(
        self, local_queue: LocalQueueName, amounts: Mapping[str, int], start: datetime, end: datetime
    ) -> None:
        """A closed attempt held `amounts` from `start` to `end`."""
        queue, amount = self._queues[local_queue], self._weighted(amounts)
        self._add(queue, -amount, _microseconds(start))
        self._add(queue, amount, _microseconds(end))

    def add_decayed(self, local_queue: LocalQueueName, usage: Mapping[str, int], at: datetime) -> None:
        """Its decayed usage was this much larger at that time."""
        self._add(self._queues[local_queue], self._weighted(usage), _microseconds(at))

    def restore(self, sums: Iterable[UsageSum]) -> None:
        """Add the sums of another history with the same half-life and weights."""
        for one in sums:
            self._queues[one.local_queue].sums[one.period] += one.total

    def sums(self, now: datetime) -> tuple[UsageSum, ...]:
        """All that count at `now` or later. Of a history without open attempts."""
        if not self._half_life:
            return ()
        oldest = self._oldest_period(now)
        return tuple(
            UsageSum(local_queue, period, total)
            for local_queue, queue in sorted(self._queues.items())
            for period, total in sorted(queue.sums.items())
            if period >= oldest and total
        )

    def horizon(self, now: datetime) -> datetime:
        """An interval that ended before this time counts neither at `now` nor later."""
        since = self._oldest_period(now) * self._half_life if self._half_life else _microseconds(now)
        return _EPOCH + max(since, _microseconds(datetime.min.replace(tzinfo=UTC))) * _MICROSECOND

    # --- query

    def usage(
        self, local_queue: LocalQueueName, weight: int, now: datetime, adding: Mapping[str, int] = _NOTHING
    ) -> UsageValue:
        """Its usage over `weight` (thousandths), as if `adding` were admitted now as well."""
        return self.growing(local_queue, weight, now)(adding)

    def growing(
        self, local_queue: LocalQueueName, weight: int, now: datetime
    ) -> Callable[[Mapping[str, int]], UsageValue]:
        """Return its usage over `weight` as a function of what else is admitted now."""
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
        if (queue := self._queues.get(local_queue)) is not None:
            total += queue.held * scale
            total += sum(terms << at - oldest for at, terms in queue.sums.items() if at >= oldest)
            for attempt in queue.recent.values():
                if attempt.start > latest:
                    total += attempt.amount * (self._term(attempt.start, oldest) - latest_term)

        def value(adding: Mapping[str, int]) -> UsageValue:
            added = self._weighted(adding) * (scale - latest_term)
            return ((total + added) * 1000 << _VALUE_DIGITS) // (scale * weight)

        return value

    # --- terms

    def _add(self, queue: _QueueUsage, amount: int, moment: int) -> None:
        if self._half_life:
            period, part = divmod(moment, self._half_life)
            queue.sums[period] += amount * power_of_2(part, self._half_life)

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

    def _advance(self, local_queue: LocalQueueName, moment: int) -> _QueueUsage:
        """An event at `moment`: forget what no longer counts."""
        self._newest = max(self._newest, moment)
        if self._half_life and self._newest // self._half_life >= self._swept + HALF_LIVES:
            self._sweep()
        queue = self._queues[local_queue]
        while queue.recent:
            oldest = next(iter(queue.recent))
            if queue.recent[oldest].start > self._newest - self._interval:
                break
            del queue.recent[oldest]
        return queue

    def _sweep(self) -> None:
        """Drop sums that no longer count, and LocalQueues without any and without open attempts."""
        self._swept = self._newest // self._half_life
        for name, queue in list(self._queues.items()):
            for period in [one for one in queue.sums if one < self._swept - HALF_LIVES]:
                del queue.sums[period]
            if not (queue.sums or queue.held or queue.recent):
                del self._queues[name]


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND
