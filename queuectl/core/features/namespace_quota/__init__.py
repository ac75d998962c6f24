"""What the objects in a namespace allow the pods of a workload, and add to them (N1 to N6)."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.namespace_quota.limit_ranges import LimitRanges
from queuectl.core.features.namespace_quota.resource_quotas import CreatedPods, ResourceQuotas
from queuectl.core.features.namespace_quota.room import NamespaceRoom, PlannedRoom
from queuectl.core.model.events import ContextGone, ContextObserved, Event
from queuectl.core.model.pod_limits import LimitRange, NamespaceQuota, namespace_of
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import PodResources
from queuectl.core.model.workload import Attempt, Workload, WorkloadId


class NamespaceLimits(Feature):
    """LimitRanges and ResourceQuotas. Is active from the first of them on."""

    events: ClassVar = frozenset({ContextObserved, ContextGone})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._limit_ranges = LimitRanges()
        self._quotas = ResourceQuotas()
        self._created = CreatedPods(kernel.directory.pods, self._limit_ranges)
        self.room = NamespaceRoom(self._quotas, self._created)
        self._refused: dict[WorkloadId, Reason] = {}
        """Which ResourceQuota had no room for a workload when it was to be admitted (N6)."""

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        if isinstance(event, ContextGone):
            ranges = event.kind is LimitRange and self._limit_ranges.forget(event.name)
            if ranges or (event.kind is NamespaceQuota and self._quotas.forget(event.name)):
                affected.add_namespace_of(event.name)
        elif isinstance(event, ContextObserved):
            match event.value:
                case LimitRange() as limits:
                    self.active, changed = True, self._limit_ranges.observe(limits)
                case NamespaceQuota() as quota:
                    self.active, changed = True, self._quotas.observe(quota)
                    self.room.changed.add(namespace_of(quota.name))
                case _:
                    return
            if changed:
                affected.add_namespace_of(event.value.name)

    # --- pods

    def completed(self, namespace: str, pod: PodResources) -> PodResources:
        return self._limit_ranges.completed(namespace, pod)

    def problem(self, workload: Workload, pods: object, cluster_queue: str) -> Reason | None:
        """Return why the API server would refuse its pods, now or ever (G10, G11)."""
        namespace = workload.ref.namespace
        if self._limit_ranges.exist(namespace):
            for group in self._created.of(workload):
                found = self._limit_ranges.refusal(namespace, group.pod)
                if found is not None:
                    name, why = found
                    detail = f"refuses the pods of podset {group.name}: {why}"
                    return Reason(code=Code.MISCONFIGURED, node=f"LimitRange/{name}", detail=detail)
        if not self._quotas.of(namespace):
            return None
        return self._quotas.refusal(namespace, tuple(self._created.of(workload)))

    # --- what is held

    def charged(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self.room.hold(entry)

    def recharged(self, entry: Entry, attempt: Attempt) -> None:
        self.room.hold(entry)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self.room.drop(entry.id)

    # --- what waits for room

    def begin_plan(self, now: datetime) -> PlannedRoom:
        return PlannedRoom(self.room)

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if reason.code is Code.WAITING_FOR_RESOURCE_QUOTA:
            self._refused[entry.id] = reason

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        reason = self._refused.get(entry.id)
        if eligible and reason is not None:
            self.room.wait(entry)
            return reason
        self._refused.pop(entry.id, None)
        self.room.leave(entry.id, entry.ref.namespace)
        return None

    def revised(self, workload: WorkloadId) -> None:
        self._refused.pop(workload, None)

    def settle(self) -> None:
        """Queue the workloads for which a ResourceQuota has room again."""
        for entry in self.room.woken():
            self._refused.pop(entry.id, None)
            self._kernel.route(entry)
            self._kernel.refresh(entry)
