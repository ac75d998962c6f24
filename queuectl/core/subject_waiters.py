"""Workloads that wait for a UsageLimit or a Budget: which are queued again when it has room (X5, Y4)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from queuectl.core.entries import Entry
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.core.subjects import Place

W = TypeVar("W", bound=Hashable)
"""What a workload needs."""
K = TypeVar("K", bound=Hashable)
"""What is counted, of which each need takes amounts."""
_Item = tuple[tuple[object, ...], WorkloadId]
"""Order and workload."""


class Waiter(NamedTuple, Generic[W]):
    entry: Entry
    place: Place
    want: W
    reason: Reason
    order: tuple[object, ...]
    """The first is queued again first."""


class SubjectWaiters(Generic[W]):
    """Each waits for the rule that it was refused by."""

    def __init__(self) -> None:
        self._waiting: dict[WorkloadId, Waiter[W]] = {}
        self._lines: dict[Place, dict[W, list[_Item]]] = {}
        """By place and want: heaps of (order, workload) pairs; those that wait no more are skipped."""
        self._called: dict[WorkloadId, Place] = {}
        """Queued again, and not nominated since: what they want is not offered to others meanwhile."""
        self._offered: dict[Place, dict[WorkloadId, W]] = {}
        """What is offered to them."""

    def of(self, workload: WorkloadId) -> Waiter[W] | None:
        """Return what it waits for; None: nothing."""
        return self._waiting.get(workload)

    def all(self) -> list[Waiter[W]]:
        return list(self._waiting.values())

    @property
    def places(self) -> Iterable[Place]:
        """Where any waits."""
        return self._lines.keys()

    def wait(self, waiter: Waiter[W]) -> None:
        workload = waiter.entry.id
        self._waiting[workload] = waiter
        line = self._lines.setdefault(waiter.place, {}).setdefault(waiter.want, [])
        if len(line) > 2 * len(self._waiting) + 16:  # churn must not make it grow
            line[:] = [item for item in line if self._waits_in(item, waiter.place, waiter.want)]
            heapq.heapify(line)
        heapq.heappush(line, (waiter.order, workload))

    def _waits_in(self, item: _Item, place: Place, want: W) -> bool:
        waiter = self._waiting.get(item[1])
        return waiter is not None and (waiter.order, waiter.place, waiter.want) == (item[0], place, want)

    def leave(self, workload: WorkloadId) -> None:
        """It does not wait any more."""
        self._waiting.pop(workload, None)

    def knows(self, workload: WorkloadId) -> bool:
        """Return whether it waits, or was queued again and not nominated since."""
        return workload in self._waiting or workload in self._called

    def answered(self, workload: WorkloadId, changed: set[Place]) -> None:
        """It was nominated, or left. Add the place that may be offered to others now to `changed`."""
        place = self._called.pop(workload, None)
        if place is not None:
            changed.add(place)
            del self._offered[place][workload]
            if not self._offered[place]:
                del self._offered[place]

    def clear(self) -> list[Entry]:
        """Let none wait any more. Return those that did."""
        entries = [waiter.entry for waiter in self._waiting.values()]
        self._waiting.clear()
        self._lines.clear()
        self._called.clear()
        self._offered.clear()
        return entries

    def called(
        self,
        place: Place,
        needs: Callable[[W], Iterable[tuple[K, int]]],
        left: Callable[[K], int],
        refused: Callable[[W], None] = lambda want: None,
    ) -> Iterator[Entry]:
        """Yield those for which what is left at `place` is enough now, the first in order first.

        `refused`: is passed each want that it is not enough for. A want is looked at once, and once more for
        each workload that is yielded: tenants choose what they request, and no two may want the same.
        """
        lines = self._lines.get(place)
        if lines is None:
            return
        offered: Counter[K] = Counter()
        for want in self._offered.get(place, {}).values():
            _add(offered, needs(want))
        heads = [(line[0], want) for want in list(lines) if (line := self._line(place, want))]
        heapq.heapify(heads)
        while heads:
            (_, workload), want = heads[0]
            needed = list(needs(want))
            if any(amount + offered[key] > left(key) for key, amount in needed):
                heapq.heappop(heads)
                refused(want)
                continue
            _add(offered, needed)
            entry = self._waiting[workload].entry
            self.leave(workload)
            self._called[workload] = place
            self._offered.setdefault(place, {})[workload] = want
            yield entry
            if line := self._line(place, want):
                heapq.heapreplace(heads, (line[0], want))
            else:
                heapq.heappop(heads)
        if not lines:
            del self._lines[place]

    def _line(self, place: Place, want: W) -> list[_Item]:
        """Return those that want so much at a place, a heap with the first in order first."""
        line = self._lines[place][want]
        while line and not self._waits_in(line[0], place, want):
            heapq.heappop(line)
        if not line:
            del self._lines[place][want]
        return line


def _add(offered: Counter[K], needs: Iterable[tuple[K, int]]) -> None:
    for key, amount in needs:
        offered[key] += amount
