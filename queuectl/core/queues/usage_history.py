"""What LocalQueues have used of late, decayed by half-lives: whose turn it is (U1 to U5).

Using an amount x from a to b counts x·(2^-((t-b)/H) - 2^-((t-a)/H)) at time t; b = t while it goes on. That
is a difference of two terms, each of one moment alone, over 2^(t/H): so the sums kept here are of terms, and
whether an interval came in one piece or in many, sooner or later, before or after a restart makes no
difference to them.

2^(t/H) is kept as `factor` times 2^`step`: whole half-lives since 1970 make the step, the rest a factor with
64 binary digits after the point, which is at most 1 + 2^-15 of the last digit too small. Sums are kept by
step, and those of more than HALF_LIVES steps ago no longer count: what decays so long is less than a
millionth of what it was, and nothing older needs to be remembered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.model import PastUse, WorkloadId
from queuectl.core.policy import HALF_LIVES, AdmissionFairSharing, LocalQueueName
from queuectl.core.resources import CPU, Amounts

AttemptKey = tuple[WorkloadId, int]
"""Workload and number of the attempt."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = 1_000_000
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class UsageValue(NamedTuple):
    """Usage over weight: the smaller comes first. All values have the same unit."""

    last: bool
    """Its weight is 0: behind all that have one."""
    amount: int
    """In 2^-32 millionths of a core, byte or device, weighted and rounded down."""


LAST: Final = UsageValue(True, 0)
_VALUE_DIGITS: Final = 32


# --- 2^(t/H) in integers -------------------------------------------------------------------------

_DIGITS: Final = 64
"""Of a factor, after the binary point."""
_GUARD_DIGITS: Final = 96
_EXPONENT_BYTES: Final = 10


def _make_powers() -> tuple[tuple[int, ...], ...]:
    """2^(n/256), 2^(n/256^2), ... for each byte n, with `_GUARD_DIGITS`."""
    powers, root = [], 2 << _GUARD_DIGITS
    for _ in range(_EXPONENT_BYTES):
        roots = [root := math.isqrt(root << _GUARD_DIGITS) for _ in range(8)]
        of_byte = [1 << _GUARD_DIGITS]
        for one in reversed(roots):
            of_byte += [power * one >> _GUARD_DIGITS for power in of_byte]
        powers.append(tuple(of_byte))
    return tuple(powers)


_POWERS: Final = _make_powers()


@lru_cache(maxsize=4096)
def factor(part: int, whole: int) -> int:
    """2^(part/whole) for 0 <= part < whole, times 2^64: not above it, and less than 1 + 2^-15 below.

    A root and a product each lose less than 2^-95 of the value, 170 of them less than 2^-87; the digits cut
    off from the exponent less than 2^-80.
    """
    exponent = (part << 8 * _EXPONENT_BYTES) // whole
    product = 1 << _GUARD_DIGITS
    for byte, power in zip(exponent.to_bytes(_EXPONENT_BYTES), _POWERS, strict=True):
        product = product * power[byte] >> _GUARD_DIGITS
    return product >> (_GUARD_DIGITS - _DIGITS)


# --- sums ----------------------------------------------------------------------------------------


class _Sum:
    """Of one resource in one LocalQueue."""

    __slots__ = ("by_step", "using")

    def __init__(self) -> None:
        self.using = 0
        """What its open attempts hold."""
        self.by_step: dict[int, int] = {}
        """Ends minus starts: amount times factor."""


class _Open(NamedTuple):
    local_queue: LocalQueueName
    cells: Mapping[str, int]
    start: int
    """Microseconds since 1970, as all integer times here."""


class _Account:
    """One LocalQueue's."""

    __slots__ = ("sums", "young")

    def __init__(self) -> None:
        self.sums: dict[str, _Sum] = {}
        self.young: dict[AttemptKey, _Open] = {}
        """Open attempts, oldest first: all that may be younger than a sampling interval."""

    def sum(self, resource: str) -> _Sum:
        found = self.sums.get(resource)
        if found is None:
            found = self.sums[resource] = _Sum()
        return found


class PastUsage:
    """Past usage of all LocalQueues. Amounts are totals by resource in base units, over all flavors.

    Events may come in any order, and cost the resources they name. Questions are of no time before the last
    event, change nothing, and cost the queue's resources (times HALF_LIVES at most) and those of its attempts
    that are younger than a sampling interval.
    """

    def __init__(self, sharing: AdmissionFairSharing) -> None:
        self._half_life = sharing.half_life * _SECOND
        self._interval = sharing.sampling_interval * _SECOND
        self._weights = dict(sharing.weights)
        self._accounts: dict[LocalQueueName, _Account] = {}
        self._open: dict[AttemptKey, _Open] = {}
        self._newest = 0
        """Time of the last event."""
        self._swept = 0
        """Step at which what no longer counts was last forgotten."""

    # --- events

    def opened(
        self, local_queue: LocalQueueName, attempt: AttemptKey, cells: Mapping[str, int], at: datetime
    ) -> None:
        """An attempt begins to hold `cells`."""
        start = _microseconds(at)
        account = self._advance(local_queue, start)
        cells = {resource: amount for resource, amount in cells.items() if amount}
        self._open[attempt] = account.young[attempt] = _Open(local_queue, cells, start)
        self._count(account, cells, start, -1)
        for resource, amount in cells.items():
            account.sum(resource).using += amount

    def resized(self, attempt: AttemptKey, cells: Mapping[str, int], at: datetime) -> None:
        """An open attempt holds `cells` from then on, no more of anything than before. Its age stays."""
        known = self._open[attempt]
        moment = _microseconds(at)
        account = self._advance(known.local_queue, moment)
        less = {name: amount - cells.get(name, 0) for name, amount in known.cells.items()}
        left = {name: cells[name] for name in known.cells if cells.get(name)}
        self._count(account, less, moment, +1)
        for resource, amount in less.items():
            account.sum(resource).using -= amount
        self._open[attempt] = known._replace(cells=left)
        if attempt in account.young:
            account.young[attempt] = self._open[attempt]

    def closed(self, attempt: AttemptKey, at: datetime) -> None:
        """What it held came back."""
        self.resized(attempt, _NOTHING, at)
        self._accounts[self._open.pop(attempt).local_queue].young.pop(attempt, None)

    # --- what was before

    def used(
        self, local_queue: LocalQueueName, cells: Mapping[str, int], start: datetime, end: datetime
    ) -> None:
        """Something that is over held `cells` from `start` to `end`."""
        account = self._account(local_queue)
        self._count(account, cells, _microseconds(start), -1)
        self._count(account, cells, _microseconds(end), +1)

    def given(self, local_queue: LocalQueueName, decayed: Mapping[str, int], at: datetime) -> None:
        """Its past usage was this much more at that time, wherever it came from."""
        self._count(self._account(local_queue), decayed, _microseconds(at), +1)

    def restore(self, past: Iterable[PastUse]) -> None:
        """Add what `past` of another said."""
        for one in past:
            by_step = self._account(one.local_queue).sum(one.resource).by_step
            by_step[one.step] = by_step.get(one.step, 0) + one.total

    def past(self, now: datetime) -> tuple[PastUse, ...]:
        """All that still counts at `now` or later, with nothing open."""
        if not self._half_life:
            return ()
        first = self._step(now) - HALF_LIVES
        return tuple(
            PastUse(local_queue, resource, step, total)
            for local_queue, account in sorted(self._accounts.items())
            for resource, found in sorted(account.sums.items())
            for step, total in sorted(found.by_step.items())
            if step >= first and total
        )

    def horizon(self, now: datetime) -> datetime:
        """What was over before this counts neither at `now` nor later."""
        since = (self._step(now) - HALF_LIVES) * self._half_life if self._half_life else _microseconds(now)
        return _EPOCH + max(since, _microseconds(datetime.min.replace(tzinfo=UTC))) * _MICROSECOND

    # --- questions

    def of(
        self, local_queue: LocalQueueName, weight: int, now: datetime, adding: Mapping[str, int] = _NOTHING
    ) -> UsageValue:
        """Its usage over `weight` (thousandths), as if `adding` were admitted now as well."""
        if weight <= 0:
            return LAST
        if not self._half_life:
            return UsageValue(False, 0)
        sums, scale = self._sums(local_queue, now, adding)
        total = sum(self._worth(resource) * amount for resource, amount in sums.items())
        return UsageValue(False, (total * 1000 << _VALUE_DIGITS) // (scale * weight))

    def decayed(self, local_queue: LocalQueueName, now: datetime) -> Amounts:
        """Per resource, in base units and rounded down: what it held on average, lately counting most."""
        if not self._half_life:
            return ()
        sums, scale = self._sums(local_queue, now, _NOTHING)
        return tuple((name, amount // scale) for name, amount in sorted(sums.items()) if amount >= scale)

    def _sums(
        self, local_queue: LocalQueueName, now: datetime, adding: Mapping[str, int]
    ) -> tuple[dict[str, int], int]:
        """Usage by resource, and by what all of it is to be divided: exact."""
        moment = max(_microseconds(now), self._newest)
        step, part = divmod(moment, self._half_life)
        first = step - HALF_LIVES
        scale = factor(part, self._half_life) << HALF_LIVES
        late = self._term(moment - self._interval, first)
        sums: dict[str, int] = {}
        account = self._accounts.get(local_queue)
        if account is not None:
            for resource, found in account.sums.items():
                past = sum(total << at - first for at, total in found.by_step.items() if at >= first)
                sums[resource] = found.using * scale + past
            for young in account.young.values():
                if young.start > moment - self._interval:
                    # As if it had begun a sampling interval ago.
                    earlier = self._term(young.start, first) - late
                    for resource, amount in young.cells.items():
                        sums[resource] += amount * earlier
        for resource, amount in adding.items():
            sums[resource] = sums.get(resource, 0) + amount * (scale - late)
        return sums, scale

    def _term(self, moment: int, first: int) -> int:
        """2^(moment/H) where steps are counted from `first`; 0 before that."""
        step, part = divmod(moment, self._half_life)
        return factor(part, self._half_life) << step - first if step >= first else 0

    def _worth(self, resource: str) -> int:
        """Of a base unit, in millionths: a core counts as much as a byte or a device does."""
        weight = self._weights.get(resource, 1000)
        return weight if resource == CPU else 1000 * weight

    # --- keeping

    def _count(self, account: _Account, cells: Mapping[str, int], moment: int, sign: int) -> None:
        if not self._half_life:
            return
        step, part = divmod(moment, self._half_life)
        term = sign * factor(part, self._half_life)
        sums = account.sums
        for resource, amount in cells.items():
            by_step = (sums.get(resource) or account.sum(resource)).by_step
            by_step[step] = by_step.get(step, 0) + amount * term

    def _step(self, at: datetime) -> int:
        return _microseconds(at) // self._half_life

    def _account(self, local_queue: LocalQueueName) -> _Account:
        found = self._accounts.get(local_queue)
        if found is None:
            found = self._accounts[local_queue] = _Account()
        return found

    def _advance(self, local_queue: LocalQueueName, moment: int) -> _Account:
        self._newest = max(self._newest, moment)
        if self._half_life and self._newest // self._half_life >= self._swept + HALF_LIVES:
            self._sweep()
        account = self._account(local_queue)
        while account.young:
            oldest = next(iter(account.young))
            if account.young[oldest].start > self._newest - self._interval:
                break
            del account.young[oldest]
        return account

    def _sweep(self) -> None:
        """Forget what no longer counts, and the queues of which nothing is left."""
        self._swept = self._newest // self._half_life
        for name, account in list(self._accounts.items()):
            for resource, found in list(account.sums.items()):
                found.by_step = {
                    step: total
                    for step, total in found.by_step.items()
                    if total and step >= self._swept - HALF_LIVES
                }
                if not (found.by_step or found.using):
                    del account.sums[resource]
            if not (account.sums or account.young):
                del self._accounts[name]


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND
