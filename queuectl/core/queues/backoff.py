"""Requeueing: run time, failed starts, backoff and deactivation (docs/scheduling.md, L17 to L20).

The ledger stores PastAttempts, so they survive a restart.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from queuectl.core.model.policy import RequeuingStrategy
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import PastAttempts, WorkloadId

TO_REQUEUE = 'to queue the workload again, set queuectl.dev/hold to "true" and then remove it'
_SECOND = timedelta(seconds=1)


def ran(past: PastAttempts, admitted_at: datetime, now: datetime) -> PastAttempts:
    """Return `past` after an attempt that was admitted at `admitted_at` and ends at `now` (L17)."""
    run = max(timedelta(), now - admitted_at) // timedelta(milliseconds=1)
    run_ms = past.run_ms + run
    return replace(
        past,
        run_ms=run_ms,
        barred=None,
        until=None,
        bound_at=None,
        unready_at=None,
        held_back=0,
        part_at=None,
    )


def failed(
    past: PastAttempts, workload: WorkloadId, now: datetime, rules: RequeuingStrategy, why: str
) -> PastAttempts:
    """Return `past` after a failed start: BackingOff, or Deactivated beyond the limit (L18).

    `why` is the cause of the failure in words, for the reason.
    """
    count = past.failures + 1
    if rules.limit is not None and count > rules.limit:
        detail = f"{count} consecutive starts failed, the limit is {rules.limit}: {why}; {TO_REQUEUE}"
        barred = Reason(code=Code.DEACTIVATED, detail=detail)
        return replace(past, failures=count, barred=barred, until=None)
    # The exponent is bounded to keep the integer small; the longest backoff applies long before.
    seconds = min(rules.base_seconds << min(count - 1, 31), rules.most_seconds)
    until = now + timedelta(seconds=seconds + _jitter(workload, count, seconds, rules.jitter_percent))
    if until.microsecond:
        until = until.replace(microsecond=0) + _SECOND  # whole seconds, as in the message
    barred = Reason(code=Code.BACKING_OFF, until=until, detail=why)
    return replace(past, failures=count, barred=barred, until=until)


def _jitter(workload: WorkloadId, count: int, seconds: int, percent: int) -> float:
    """Return up to `percent` of `seconds`: the same each time it is computed, and spread over workloads."""
    share = zlib.crc32(f"{workload}/{count}".encode()) / 2**32
    return seconds * percent * share / 100


def kept_out(past: PastAttempts, now: datetime) -> Reason | None:
    """Return why a pending workload is ineligible because of its past attempts, or None (L19)."""
    if past.until is not None and past.until <= now:
        return None
    return past.barred


def tried_anew(past: PastAttempts) -> PastAttempts:
    """Return `past` after an edit of the workload by its user: failures and backoff are reset (L20)."""
    return replace(past, failures=0, barred=None, until=None)


K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """One time per key, with the earliest first."""

    def __init__(self) -> None:
        self.times: dict[K, datetime] = {}
        self._heap: list[tuple[datetime, int, K]] = []
        self._pushed = 0
        """Breaks ties in the heap, so that keys need not be ordered."""

    def set(self, key: K, when: datetime | None) -> None:
        """Set or replace the time of `key`; None removes it."""
        if when is None:
            self.times.pop(key, None)
        elif self.times.get(key) != when:
            self.times[key] = when
            self._push(when, key)

    @property
    def earliest(self) -> datetime | None:
        """The earliest time of all keys, or None."""
        while self._heap and self._first_is_replaced():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime) -> list[K]:
        """Remove and return the keys with a time up to `now`, in order of time."""
        due = []
        while (earliest := self.earliest) is not None and earliest <= now:
            _, _, key = heapq.heappop(self._heap)
            del self.times[key]
            due.append(key)
        return due

    def _push(self, when: datetime, key: K) -> None:
        # A replaced time stays in the heap until it is popped. A rebuild keeps the heap from growing.
        if len(self._heap) > 2 * len(self.times) + 16:
            self._heap = [(at, number, one) for number, (one, at) in enumerate(self.times.items())]
            heapq.heapify(self._heap)
            self._pushed = len(self._heap)
        else:
            self._pushed += 1
            heapq.heappush(self._heap, (when, self._pushed, key))

    def _first_is_replaced(self) -> bool:
        when, _, key = self._heap[0]
        return self.times.get(key) != when
