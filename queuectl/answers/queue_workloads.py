"""The workloads of one ClusterQueue: the pending queue, and those that hold quota. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from queuectl.core.model import Phase, StoredWorkload, WorkloadId
from queuectl.core.queues.line import LinePlace, line_place
from queuectl.core.resources import FlavorResource

_FEW: Final = 64
"""Up to this number of changes, each is inserted by itself; for more, the queue is sorted again."""


@dataclass(frozen=True, slots=True)
class QueueWorkloads:
    """Immutable: `moved` makes the next one."""

    order: Sequence[LinePlace] = ()
    """The pending queue: places of its eligible workloads, the first one first."""
    loses_place: bool = True
    """A pause delays a workload (O6)."""
    pending: int = 0
    holders: Mapping[WorkloadId, StoredWorkload] = field(default_factory=lambda: MappingProxyType({}))
    """Workloads with an open attempt, terminating ones included."""
    used: Mapping[FlavorResource, int] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.pending or self.holders)

    def position(self, workload: StoredWorkload) -> int | None:
        """From 1; None: it is not in the pending queue."""
        place = line_place(workload, loses_place=self.loses_place)
        if place is None:
            return None
        index = bisect_left(self.order, place)
        return index + 1 if index < len(self.order) and self.order[index] == place else None

    def line(self, after: int) -> Iterator[WorkloadId]:
        """The workloads at positions above `after`, in order."""
        for index in range(after, len(self.order)):
            yield WorkloadId(self.order[index][1][-1])

    def moved(self, left: Collection[StoredWorkload], came: Collection[StoredWorkload]) -> QueueWorkloads:
        """`left`: the workloads that changed, as they were. `came`: as they are."""
        pending = self.pending + _pending(came) - _pending(left)
        order = self._reordered(left, came)
        if not any(one.attempt for one in left) and not any(one.attempt for one in came):
            return replace(self, order=order, pending=pending)
        holders = dict(self.holders)
        for one in left:
            holders.pop(one.id, None)
        holders.update((one.id, one) for one in came if one.attempt is not None)
        used = _used(self.used, left, came)
        return replace(self, order=order, pending=pending, holders=MappingProxyType(holders), used=used)

    def _reordered(
        self, left: Collection[StoredWorkload], came: Collection[StoredWorkload]
    ) -> Sequence[LinePlace]:
        gone, new = self._places(left), self._places(came)
        if gone == new:
            return self.order
        if len(gone) + len(new) > _FEW:
            return sorted((set(self.order) - gone) | new)
        result = list(self.order)
        for place in gone - new:
            del result[bisect_left(result, place)]
        for place in new - gone:
            insort(result, place)
        return result

    def _places(self, workloads: Iterable[StoredWorkload]) -> set[LinePlace]:
        found = (line_place(one, loses_place=self.loses_place) for one in workloads)
        return {place for place in found if place is not None}


def _pending(workloads: Collection[StoredWorkload]) -> int:
    return sum(1 for one in workloads if one.phase is Phase.PENDING)


def _used(
    used: Mapping[FlavorResource, int], left: Collection[StoredWorkload], came: Collection[StoredWorkload]
) -> Mapping[FlavorResource, int]:
    result = dict(used)
    for sign, workloads in ((-1, left), (1, came)):
        for one in workloads:
            if one.attempt is not None:
                for cell, amount in one.attempt.assignment.usage().items():
                    result[cell] = result.get(cell, 0) + sign * amount
    return MappingProxyType({cell: amount for cell, amount in result.items() if amount})
