"""Workloads that wait until the ResourceQuotas of their namespaces have room for their pods (N6)."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.namespace_quota.room import NamespaceRoom, PlannedRoom
from queuectl.core.model.events import ContextObserved, Event
from queuectl.core.model.pod_limits import NamespaceQuota, namespace_of
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, WorkloadId


class NamespaceQuotas(Feature):
    """Is active from the first ResourceQuota on."""

    events: ClassVar = frozenset({ContextObserved})

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._room = NamespaceRoom(kernel.directory.pods)
        self._refused: dict[WorkloadId, Reason] = {}
        """Which ResourceQuota had no room for a workload when it was to be admitted (N6)."""

    def observe(self, event: Event) -> None:
        if isinstance(event, ContextObserved) and isinstance(event.value, NamespaceQuota):
            self.active = True
            self._room.changed.add(namespace_of(event.value.name))

    # --- what is held

    def charged(self, entry: Entry, attempt: Attempt) -> None:
        self._room.hold(entry)

    def recharged(self, entry: Entry, attempt: Attempt) -> None:
        self._room.hold(entry)

    def released(self, entry: Entry, attempt: Attempt, now: datetime) -> None:
        self._room.drop(entry.id)

    # --- what waits

    def start_check(self) -> PlannedRoom:
        return PlannedRoom(self._room)

    def must_wait(self, entry: Entry, reason: Reason) -> None:
        if reason.code is Code.WAITING_FOR_RESOURCE_QUOTA:
            self._refused[entry.id] = reason

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        reason = self._refused.get(entry.id)
        if eligible and reason is not None:
            self._room.wait(entry)
            return reason
        self._forget(entry.id, entry.ref.namespace)
        return None

    def _forget(self, workload: WorkloadId, namespace: str) -> None:
        self._refused.pop(workload, None)
        self._room.leave(workload, namespace)

    def revised(self, workload: WorkloadId) -> None:
        self._refused.pop(workload, None)

    def settle(self) -> None:
        """Queue the workloads for which a ResourceQuota has room again."""
        for entry in self._room.woken():
            self._refused.pop(entry.id, None)
            self._kernel.route(entry)
            self._kernel.refresh(entry)
