"""When something becomes due by time alone: for each key at most one time, the earliest first."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from datetime import datetime
from typing import Generic, TypeVar

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
