"""Workloads that wait for UsageLimits (X5, X6)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from queuectl.core.entries import Entry
from queuectl.core.model.usage_limits import Dimension
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subject_waiters import SubjectWaiters, Waiter
from queuectl.core.subjects import Place

Want = tuple[Dimension, int]
"""What a workload lacks: it is queued again when so much is left."""


class LimitWaiters(SubjectWaiters[Want]):
    def __init__(self) -> None:
        super().__init__()
        self.of_flavors: dict[WorkloadId, Waiter[Want]] = {}
        """Those that wait for a limit of a flavor."""

    def wait(self, waiter: Waiter[Want]) -> None:
        super().wait(waiter)
        if waiter.want[0].flavor is not None:
            self.of_flavors[waiter.entry.id] = waiter

    def leave(self, workload: WorkloadId) -> None:
        super().leave(workload)
        self.of_flavors.pop(workload, None)

    def clear(self) -> list[Entry]:
        self.of_flavors.clear()
        return super().clear()


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
