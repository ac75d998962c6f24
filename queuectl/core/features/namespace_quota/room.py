"""Room in ResourceQuotas: what their namespaces have left for pods that do not exist yet (N6).

What workloads hold is compared beside what a ResourceQuota says is used, because pods of an admitted workload
are created after its start. Pods of others that come at the same time are not known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from queuectl.core.entries import Entry
from queuectl.core.features.namespace_quota.resource_quotas import (
    CreatedPods,
    ResourceQuotas,
    demand,
    matches,
)
from queuectl.core.model.pod_limits import HardLimit
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.workload import Assignment, Workload, WorkloadId

Place = tuple[str, str]
"""Name of a ResourceQuota, and key of one of its limits."""
Demand = dict[Place, int]
"""In base units; entries of 0 are left out."""


class NamespaceRoom:
    """What workloads hold of the ResourceQuotas of their namespaces, and which workloads wait for room."""

    def __init__(self, quotas: ResourceQuotas, pods: CreatedPods) -> None:
        self._quotas = quotas
        self._pods = pods
        self._held: dict[WorkloadId, tuple[str, Demand]] = {}
        self._sums: dict[str, Demand] = {}
        self._waiting: dict[str, dict[WorkloadId, tuple[Entry, Demand]]] = {}
        self._lines: dict[str, dict[tuple[tuple[Place, int], ...], list[tuple[object, WorkloadId]]]] = {}
        """By namespace and demand: heaps of (order, workload) pairs; those that wait no more are skipped."""
        self.changed: set[str] = set()
        """Namespaces in which more may fit than before."""

    # --- what is held

    def hold(self, entry: Entry) -> None:
        """`entry` has an open attempt, or its counts changed."""
        assert entry.attempt is not None
        namespace = entry.ref.namespace
        if entry.id not in self._held and not self._quotas.of(namespace):
            return
        found = self.of(entry.workload, entry.attempt.assignment) if entry.workload is not None else {}
        if self._held.get(entry.id) != (namespace, found):
            self.drop(entry.id)
            self._held[entry.id] = (namespace, found)
            _add(self._sums.setdefault(namespace, {}), found)

    def drop(self, workload: WorkloadId) -> None:
        """It holds nothing any more."""
        known = self._held.pop(workload, None)
        if known is not None:
            namespace, found = known
            _add(self._sums[namespace], {place: -amount for place, amount in found.items()})
            self.changed.add(namespace)

    def of(self, workload: Workload, assignment: Assignment | None = None) -> Demand:
        """Return what the pods of a workload use, with the counts of `assignment` or the least counts."""
        namespace = workload.ref.namespace
        quotas = self._quotas.of(namespace)
        if not quotas:
            return {}
        groups = list(self._pods.of(workload))
        if assignment is not None:
            counts = {one.name: one.count for one in assignment.pod_sets}
            groups = [replace(group, count=counts.get(group.name, 0)) for group in groups]
        found: Demand = {}
        for quota in quotas:
            counted = [group for group in groups if matches(quota.scopes, group.pod)]
            _add(found, {(quota.name, limit.key): demand(limit, counted) for limit in quota.limits})
        return found

    def lacking(
        self,
        workload: Workload,
        added: Mapping[Place, int],
        gone: Iterable[WorkloadId] = (),
        *,
        observed: bool = True,
    ) -> Reason | None:
        """Return which ResourceQuota has no room for a workload now; None: each has.

        `added`: what others are to hold beside it. `gone`: workloads that are to end before it starts.
        `observed`: False: only what workloads hold counts, not what the ResourceQuota says is used.
        """
        namespace = workload.ref.namespace
        quotas = self._quotas.of(namespace)
        if not quotas:
            return None
        asked, sums, ended = self.of(workload), self._sums.get(namespace, {}), Demand()
        for one in gone:
            where, found = self._held.get(one, ("", {}))
            _add(ended, found if where == namespace else {})
        for quota in quotas:
            for limit in quota.limits:
                place = (quota.name, limit.key)
                used = max(limit.used if observed else 0, sums.get(place, 0))
                left = limit.hard - max(0, used - ended.get(place, 0)) - added.get(place, 0)
                if asked.get(place, 0) > left:
                    return _reason(quota.name, limit, asked[place], left)
        return None

    # --- which workloads wait

    def wait(self, entry: Entry) -> None:
        assert entry.workload is not None
        namespace, found = entry.ref.namespace, self.of(entry.workload)
        there = self._waiting.setdefault(namespace, {})
        if entry.id in there:
            return
        there[entry.id] = (entry, found)
        line = self._lines.setdefault(namespace, {}).setdefault(tuple(sorted(found.items())), [])
        if len(line) > 2 * len(there) + 16:  # churn must not make it grow
            line[:] = [item for item in line if item[1] in there]
            heapq.heapify(line)
        heapq.heappush(line, (entry.order, entry.id))

    def leave(self, workload: WorkloadId, namespace: str) -> None:
        there = self._waiting.get(namespace)
        if there is not None and there.pop(workload, None) is not None and not there:
            del self._waiting[namespace], self._lines[namespace]

    def woken(self) -> Iterator[Entry]:
        """Yield those that fit together into what is left now, the first in order first."""
        changed, self.changed = self.changed, set()
        for namespace in sorted(changed & self._waiting.keys()):
            yield from list(self._fitting(namespace))

    def _fitting(self, namespace: str) -> Iterator[Entry]:
        there, added = self._waiting[namespace], Demand()
        heads = [(line[0], key) for key, line in self._lines[namespace].items() if line]
        heapq.heapify(heads)
        while heads:
            (_, workload), key = heapq.heappop(heads)
            line = self._lines[namespace][key]
            known = there.get(workload)
            if known is not None:
                entry, found = known
                assert entry.workload is not None
                if self.lacking(entry.workload, added) is not None:
                    continue  # nor is there room for the others of this demand
                _add(added, found)
                yield entry
            heapq.heappop(line)
            if line:
                heapq.heappush(heads, (line[0], key))


class PlannedRoom:
    """Room beside what a plan under way admits."""

    def __init__(self, room: NamespaceRoom) -> None:
        self._room = room
        self._added: Demand = {}

    def lacking(
        self, entry: Entry, assignment: Assignment, gone: Iterable[WorkloadId], *, observed: bool
    ) -> Reason | None:
        """See `NamespaceRoom.lacking`."""
        if entry.workload is None:
            return None
        return self._room.lacking(entry.workload, self._added, gone, observed=observed)

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        if entry.workload is not None:
            _add(self._added, self._room.of(entry.workload, assignment))

    def release(self, entry: Entry) -> None:
        """What ends is seen once the plan is committed."""

    def preempt(self, entry: Entry, assignment: Assignment) -> None:
        """It is compared again when its victims are gone."""


def _add(total: Demand, more: Mapping[Place, int]) -> None:
    for place, amount in more.items():
        left = total.get(place, 0) + amount
        if left:
            total[place] = left
        else:
            total.pop(place, None)


def _reason(quota: str, limit: HardLimit, asked: int, left: int) -> Reason:
    return Reason(
        code=Code.WAITING_FOR_RESOURCE_QUOTA,
        resource=limit.resource,
        requested=asked,
        available=max(0, left),
        short_by=asked - left,
        limit=Limit.HARD,
        node=f"ResourceQuota/{quota}",
        detail=f"spec.hard[{limit.key}]",
    )
