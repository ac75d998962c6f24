"""What a workload's attempts leave behind: how long it ran, how often it came to nothing, why it is kept out.

Rules L17 to L20 of docs/scheduling.md. The ledger keeps it, so all of it outlives a restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from queuectl.core.model import PastAttempts
from queuectl.core.policy import RequeuingStrategy
from queuectl.core.reasons import Code, Reason

MAX_RUN = "queuectl.dev/max-exec-time-seconds"
"""The label that users write, for messages."""
_AGAIN = 'set queuectl.dev/hold to "true" and take it away to queue it again'
_SECOND = timedelta(seconds=1)


def ran(past: PastAttempts, admitted_at: datetime, now: datetime) -> PastAttempts:
    """After an attempt that ends now (L17)."""
    run = max(timedelta(), now - admitted_at) // timedelta(milliseconds=1)
    return replace(past, run_ms=past.run_ms + run, barred=None, until=None)


def run_ends(past: PastAttempts, limit: int, admitted_at: datetime) -> datetime:
    """When an attempt has run for what is left of `limit` seconds (L13)."""
    return admitted_at + timedelta(milliseconds=limit * 1000 - past.run_ms)


def failed(past: PastAttempts, now: datetime, rules: RequeuingStrategy, why: str) -> PastAttempts:
    """After a start that came to nothing, `why` in words (L18)."""
    count = past.failures + 1
    if rules.limit is not None and count > rules.limit:
        detail = f"{count} starts came to nothing, at most {rules.limit} may: {why}; {_AGAIN}"
        barred = Reason(code=Code.DEACTIVATED, detail=detail)
        return replace(past, failures=count, barred=barred, until=None)
    # Beyond 2^31 times its base any pause is cut to the most there may be.
    seconds = min(rules.base_seconds << min(count - 1, 31), rules.most_seconds)
    until = now + timedelta(seconds=seconds)
    if until.microsecond:
        until = until.replace(microsecond=0) + _SECOND  # as it is told
    detail = f"until {until:%Y-%m-%dT%H:%M:%SZ}: {why}"
    return replace(past, failures=count, barred=Reason(code=Code.BACKING_OFF, detail=detail), until=until)


def kept_out(past: PastAttempts, limit: int | None, now: datetime) -> Reason | None:
    """Why one that waits may not stand in line, `limit` being the seconds that it may run (L19)."""
    if limit is not None and past.run_ms >= limit * 1000:
        detail = f"it has run for the {limit} s that label {MAX_RUN} allows: raise that, or {_AGAIN}"
        return Reason(code=Code.DEACTIVATED, detail=detail)
    if past.until is not None and past.until <= now:
        return None
    return past.barred


def tried_anew(past: PastAttempts) -> PastAttempts:
    """Its user has edited it: what it came to before says nothing of it (L20)."""
    return replace(past, failures=0, barred=None, until=None)


K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._times: dict[K, datetime] = {}
        self._heap: list[tuple[datetime, int, K]] = []
        self._pushed = 0
        """Breaks ties: keys need no order of their own."""

    def set(self, key: K, when: datetime | None) -> None:
        """Take the place of what was set for `key`; None: nothing is due any more."""
        if when is None:
            self._times.pop(key, None)
        elif self._times.get(key) != when:
            self._times[key] = when
            self._push(when, key)

    def get(self, key: K) -> datetime | None:
        return self._times.get(key)

    @property
    def earliest(self) -> datetime | None:
        while self._heap and self._void():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: datetime) -> list[K]:
        """The keys whose time has come, in the order of their times; nothing is set for them any more."""
        taken = []
        while (earliest := self.earliest) is not None and earliest <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._times[key]
            taken.append(key)
        return taken

    def _push(self, when: datetime, key: K) -> None:
        # What was replaced stays in the heap until it comes up; changing minds must not make it grow.
        if len(self._heap) > 2 * len(self._times) + 16:
            self._heap = [(at, number, one) for number, (one, at) in enumerate(self._times.items())]
            heapq.heapify(self._heap)
            self._pushed = len(self._heap)
        else:
            self._pushed += 1
            heapq.heappush(self._heap, (when, self._pushed, key))

    def _void(self) -> bool:
        when, _, key = self._heap[0]
        return self._times.get(key) != when
