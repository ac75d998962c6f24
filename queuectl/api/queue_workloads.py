"""The workloads of one ClusterQueue: the pending queue, and those that hold quota. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from queuectl.core.model import Phase, StoredWorkload, WorkloadId
from queuectl.core.ordering import Place, queue_place
from queuectl.core.reasons import Code, Family
from queuectl.core.resources import FlavorResource

_NOT_IN_LINE: Final = frozenset(
    {
        Code.MISCONFIGURED,
        Code.QUEUE_NOT_FOUND,
        Code.NAMESPACE_NOT_ALLOWED,
        Code.QUANTITY_OUT_OF_RANGE,
        Code.NEGATIVE_REQUEST,
        Code.PRIORITY_NOT_FOUND,
    }
)
"""Workloads with these reasons are ineligible and have no position, as all workloads on hold."""

_FEW: Final = 64
"""Up to this number of changes, each is inserted by itself; for more, the queue is sorted again."""


@dataclass(frozen=True, slots=True)
class QueueWorkloads:
    """Immutable: `moved` makes the next one."""

    order: Sequence[Place] = ()
    """The pending queue: places of its eligible workloads, the first one first."""
    pending: int = 0
    holders: Mapping[WorkloadId, StoredWorkload] = field(default_factory=lambda: MappingProxyType({}))
    """Workloads with an open attempt, terminating ones included."""
    used: Mapping[FlavorResource, int] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.pending or self.holders)

    def position(self, workload: StoredWorkload) -> int | None:
        """From 1; None: it is not in the pending queue."""
        place = _place(workload)
        if place is None:
            return None
        index = bisect_left(self.order, place)
        return index + 1 if index < len(self.order) and self.order[index] == place else None

    def moved(self, left: Collection[StoredWorkload], came: Collection[StoredWorkload]) -> QueueWorkloads:
        """`left`: the workloads that changed, as they were. `came`: as they are."""
        pending = self.pending + _pending(came) - _pending(left)
        order = _order(self.order, left, came)
        if not any(one.attempt for one in left) and not any(one.attempt for one in came):
            return QueueWorkloads(order, pending, self.holders, self.used)
        holders = dict(self.holders)
        for one in left:
            holders.pop(one.id, None)
        holders.update((one.id, one) for one in came if one.attempt is not None)
        return QueueWorkloads(order, pending, MappingProxyType(holders), _used(self.used, left, came))


def _place(workload: StoredWorkload) -> Place | None:
    reason = workload.reason
    if workload.phase is not Phase.PENDING:
        return None
    if reason is not None and (reason.family is Family.HELD or reason.code in _NOT_IN_LINE):
        return None
    return queue_place(workload.priority, workload.created_at, workload.arrival, workload.id)


def _order(
    order: Sequence[Place], left: Collection[StoredWorkload], came: Collection[StoredWorkload]
) -> Sequence[Place]:
    gone = {place for one in left if (place := _place(one)) is not None}
    new = {place for one in came if (place := _place(one)) is not None}
    if gone == new:
        return order
    if len(gone) + len(new) > _FEW:
        return sorted((set(order) - gone) | new)
    result = list(order)
    for place in gone - new:
        del result[bisect_left(result, place)]
    for place in new - gone:
        insort(result, place)
    return result


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
