"""What users let a workload wait for before its first start (V1 to V4).

While it waits it is in no pending queue, so it blocks no other workload, also not under StrictFIFO.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from queuectl.core.decisions import Decision, Retire
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.start_conditions.dependencies import Dependencies, RunningArrays
from queuectl.core.model.events import Event, OutcomesRead, WorkloadObserved
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import WorkloadId


class ConditionalStarts(Feature):
    """Is active from the first workload with a condition on."""

    events: ClassVar = frozenset({WorkloadObserved, OutcomesRead})
    decisions_while_active: ClassVar = frozenset({Retire})
    workloads_with: ClassVar = "start"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._to_route: dict[WorkloadId, None] = {}
        """Workloads that may not wait any more, or have to wait from now on."""
        self._dependencies = Dependencies(kernel.entries, self._to_route)
        self._arrays = RunningArrays(self._to_route)

    # --- what happens

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        match event:
            case OutcomesRead(outcomes):
                self._dependencies.read(outcomes)
            case WorkloadObserved() if not self.active:
                self.active = True
                for entry in self._kernel.entries.values():
                    self._dependencies.enter(entry)
            case _:
                pass

    def entered(self, workload: WorkloadId) -> None:
        self._dependencies.enter(self._kernel.entries[workload])

    def changed(self, workload: WorkloadId) -> None:
        entry = self._kernel.entries.get(workload)
        if entry is None:
            self._dependencies.drop(workload)
            self._arrays.leave(workload)
        elif entry.attempt is not None and entry.workload is not None:
            self._arrays.hold(entry, entry.workload.start)

    def decided(self, decision: Decision, entry: Entry) -> None:
        if isinstance(decision, Retire):
            self._dependencies.ended(entry.ref, decision.outcome)

    def settle(self) -> None:
        while self._to_route:
            routed = list(self._to_route)
            self._to_route.clear()
            for workload in routed:
                if (entry := self._kernel.entries.get(workload)) is not None and entry.attempt is None:
                    self._kernel.route(entry)
                    self._kernel.refresh(entry)

    # --- what the driver reads from the ledger

    def unread(self, most: int) -> list[NamedWorkload]:
        """Return names of workloads that are over, if they ever were: the driver reads how they ended and
        passes OutcomesRead."""
        return self._dependencies.unread(most)

    # --- what waits

    def waits(self, entry: Entry, *, eligible: bool) -> Reason | None:
        conditions = entry.workload.start if entry.workload is not None else None
        if conditions is None or not eligible:
            self._dependencies.leave(entry.id)
            if entry.attempt is None:
                self._arrays.leave(entry.id)
            return None
        reason = None
        if not entry.attempts:
            reason = self._dependencies.waits(entry, conditions.after)
            begin = conditions.begin_at
            if reason is None and begin is not None and begin > self._kernel.clock:
                reason = Reason(code=Code.WAITING_FOR_BEGIN_TIME, until=begin)
        if reason is not None:
            self._arrays.leave(entry.id)
            return reason
        return self._arrays.waits(entry, conditions)

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        """Return when it may start."""
        if entry.workload is None or entry.workload.start is None or entry.attempts:
            return None
        return entry.workload.start.begin_at
