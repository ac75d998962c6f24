"""Workloads that wait for UsageLimits, and which of them are queued again when one has room (X5, X6)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Reason
from queuectl.core.model.usage_limits import Dimension
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subjects import Place

Want = tuple[Dimension, int]
"""What a workload lacks: it is queued again when so much is left."""


class Waiter(NamedTuple):
    entry: Entry
    place: Place
    want: Want
    reason: Reason


class LimitWaiters:
    """Workloads that a limit kept from being admitted. Each waits for the limit that it was refused by."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, Waiter] = {}
        self._lines: dict[Place, dict[Want, list[tuple[object, WorkloadId]]]] = {}
        """By place and want: heaps of (order, workload) pairs; those that wait no more are skipped."""
        self.of_flavors: dict[WorkloadId, Waiter] = {}
        """Those that wait for a limit of a flavor."""
        self._called: dict[WorkloadId, Waiter] = {}
        """Queued again, and not nominated since: what they want is not offered to others meanwhile."""

    def of(self, workload: WorkloadId) -> Waiter | None:
        """Return what it waits for; None: nothing."""
        return self._waiting.get(workload)

    def wait(self, waiter: Waiter) -> None:
        workload = waiter.entry.id
        self._waiting[workload] = waiter
        if waiter.want[0].flavor is not None:
            self.of_flavors[workload] = waiter
        line = self._lines.setdefault(waiter.place, {}).setdefault(waiter.want, [])
        if len(line) > 2 * len(self._waiting) + 16:  # churn must not make it grow
            line[:] = [item for item in line if self._waits_in(item[1], waiter)]
            heapq.heapify(line)
        heapq.heappush(line, (waiter.entry.order, workload))

    def _waits_in(self, workload: WorkloadId, waiter: Waiter) -> bool:
        known = self._waiting.get(workload)
        return known is not None and (known.place, known.want) == (waiter.place, waiter.want)

    def leave(self, workload: WorkloadId) -> None:
        """It does not wait for a limit any more."""
        self._waiting.pop(workload, None)
        self.of_flavors.pop(workload, None)

    def answered(self, workload: WorkloadId) -> Place | None:
        """It was nominated, or left. Return the place that may be offered to others now."""
        waiter = self._called.pop(workload, None)
        return waiter.place if waiter is not None else None

    def all(self) -> list[Entry]:
        """Let none wait any more. Return those that did."""
        entries = [waiter.entry for waiter in self._waiting.values()]
        for known in (self._waiting, self.of_flavors, self._lines, self._called):
            known.clear()
        return entries

    def called(self, place: Place, left: Callable[[Place, Dimension], int]) -> Iterator[Entry]:
        """Yield those that may be nominated now, with what is left at `place`, the first in order first."""
        lines = self._lines.get(place)
        if lines is None:
            return
        offered: Counter[Dimension] = Counter()
        for waiter in self._called.values():
            if waiter.place == place:
                offered[waiter.want[0]] += waiter.want[1]
        while (found := self._first(lines, place, left, offered)) is not None:
            self.leave(found.entry.id)
            self._called[found.entry.id] = found
            offered[found.want[0]] += found.want[1]
            yield found.entry
        if not lines:
            del self._lines[place]

    def _first(
        self,
        lines: dict[Want, list[tuple[object, WorkloadId]]],
        place: Place,
        left: Callable[[Place, Dimension], int],
        offered: Counter[Dimension],
    ) -> Waiter | None:
        """Return the first in order that what is left is enough for."""
        first: tuple[object, Waiter] | None = None
        for want, line in list(lines.items()):
            while line and (
                (waiter := self._waiting.get(line[0][1])) is None
                or (waiter.place, waiter.want) != (place, want)
            ):
                heapq.heappop(line)
            if not line:
                del lines[want]
                continue
            dimension, amount = want
            enough = amount + offered[dimension] <= left(place, dimension)
            if enough and (first is None or line[0] < (first[0], first[1].entry.id)):
                first = (line[0][0], self._waiting[line[0][1]])
        return first[1] if first is not None else None


class PendingCounts:
    """The eligible workloads of each place whose limit has a number of pending ones, in order of arrival."""

    def __init__(self) -> None:
        self._lines: dict[Place, list[tuple[int, WorkloadId]]] = {}
        self._places: dict[WorkloadId, tuple[int, tuple[Place, ...]]] = {}
        """Arrival and places of each."""

    def enter(self, entry: Entry, places: tuple[Place, ...], most: Callable[[Place], int]) -> set[WorkloadId]:
        """Count a workload. Return those that are above a limit from now on."""
        if self._places.get(entry.id) == (entry.arrival, places):
            return set()
        below = self.leave(entry.id, most)
        self._places[entry.id] = (entry.arrival, places)
        above = set()
        for place in places:
            line = self._lines.setdefault(place, [])
            insort(line, (entry.arrival, entry.id))
            if len(line) > (count := most(place)):
                above.add(line[count][1])
        return below | (above - {entry.id})

    def leave(self, workload: WorkloadId, most: Callable[[Place], int]) -> set[WorkloadId]:
        """Count it no more. Return those that may not be above a limit any more."""
        arrival, places = self._places.pop(workload, (0, ()))
        below = set()
        for place in places:
            line = self._lines[place]
            rank, count = bisect_left(line, (arrival, workload)), most(place)
            if rank < count < len(line):
                below.add(line[count][1])
            del line[rank]
            if not line:
                del self._lines[place]
        return below

    def above(self, workload: WorkloadId, most: Callable[[Place], int]) -> Place | None:
        """Return the first place where too many others arrived before it; None: there is none."""
        arrival, places = self._places[workload]
        item = (arrival, workload)
        return next((one for one in places if bisect_left(self._lines[one], item) >= most(one)), None)

    def count(self, place: Place) -> int:
        """Return how many count at a place."""
        return len(self._lines.get(place, ()))

    def all(self) -> list[WorkloadId]:
        """Return the workloads that count."""
        return list(self._places)

    def clear(self) -> None:
        self._lines.clear()
        self._places.clear()
