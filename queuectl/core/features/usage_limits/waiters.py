"""Workloads that wait for UsageLimits (X5, X6)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from queuectl.core.entries import Entry, Shape
from queuectl.core.model.usage_limits import Dimension
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subjects import Place, SubjectWaiters, Waiter

Want = tuple[Dimension, int]
"""What a workload lacks: it is queued again when so much is left."""


class Alike(NamedTuple):
    """Waiters of which all would be nominated alike."""

    cluster_queue: str
    place: Place
    priority: int
    shape: Shape


class LimitWaiters(SubjectWaiters[Want]):
    def __init__(self) -> None:
        super().__init__()
        self.of_flavors: dict[WorkloadId, Waiter[Want]] = {}
        """Those that wait for a limit of a flavor."""
        self._alike: dict[str, dict[Alike, list[tuple[tuple[object, ...], WorkloadId]]]] = {}
        """By ClusterQueue: orders and workloads, sorted."""
        self._alike_of: dict[WorkloadId, Alike] = {}

    def wait(self, waiter: Waiter[Want]) -> None:
        entry = waiter.entry
        self.leave(entry.id)
        super().wait(waiter)
        if waiter.want[0].flavor is not None:
            self.of_flavors[entry.id] = waiter
        alike = Alike(entry.cluster_queue or "", waiter.place, entry.priority, entry.shape)
        self._alike_of[entry.id] = alike
        line = self._alike.setdefault(alike.cluster_queue, {}).setdefault(alike, [])
        insort(line, (waiter.order, entry.id))

    def leave(self, workload: WorkloadId) -> None:
        waiter = self.of(workload)
        if waiter is None:
            return
        alike = self._alike_of.pop(workload)
        lines = self._alike[alike.cluster_queue]
        line = lines[alike]
        del line[bisect_left(line, (waiter.order, workload))]
        if not line:
            del lines[alike]
        if not lines:
            del self._alike[alike.cluster_queue]
        super().leave(workload)
        self.of_flavors.pop(workload, None)

    @property
    def cluster_queues(self) -> list[str]:
        """Those of the waiters."""
        return list(self._alike)

    def alike(self, cluster_queue: str) -> Iterable[Alike]:
        """Those of a ClusterQueue."""
        return self._alike[cluster_queue]

    def first(self, alike: Alike) -> Entry | None:
        """Return the first in order of these: it may preempt what others may. None: none waits any more."""
        line = self._alike.get(alike.cluster_queue, {}).get(alike)
        waiter = self.of(line[0][1]) if line else None
        return waiter.entry if waiter is not None else None

    def clear(self) -> list[Entry]:
        self.of_flavors.clear()
        self._alike.clear()
        self._alike_of.clear()
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
