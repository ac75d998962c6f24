"""What nodes were used for, and how long workloads waited for room on them. Times in milliseconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from queuectl.core.decisions import Admit, Decision, Keep, Retire
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.simulation.cluster import Level

ROOM: Final = (Code.CAPACITY_MISSING, Code.NO_NODE_FITS)
"""Reasons of workloads that have quota and no room (M10)."""


@dataclass(slots=True)
class ResourceUse:
    """Of one resource on all nodes: base units times milliseconds."""

    total: int = 0
    unusable: int = 0
    """On nodes that are not ready, or cordoned."""
    unmanaged: int = 0
    """Used by pods of no queue."""
    free: int = 0
    fragmented: int = 0
    """Free while a workload waits because no node fits its pods (`NoNodeFits`)."""

    def add(self, level: Level, time: int, *, fragmented: bool) -> None:
        self.total += level.total * time
        self.unusable += (level.total - level.usable) * time
        self.unmanaged += level.unmanaged * time
        self.free += level.free * time
        self.fragmented += level.free * time if fragmented else 0


@dataclass(slots=True)
class RoomUse:
    """From the start to the last call of `time_came`."""

    resources: dict[str, ResourceUse] = field(default_factory=lambda: defaultdict(ResourceUse))
    waits: dict[WorkloadId, Counter[Code]] = field(default_factory=dict)
    """How long workloads waited for room, by reason."""
    _waiting: dict[WorkloadId, tuple[Code, str | None, int]] = field(default_factory=dict)
    """Reason, resource, and since when."""
    _unfit: Counter[str | None] = field(default_factory=Counter)
    """How many wait because of `NoNodeFits`, by resource."""
    _now: int = 0

    def time_came(self, now: int, levels: Mapping[str, Level]) -> None:
        """`levels`: since the last call."""
        for resource, level in levels.items():
            fragmented = self._unfit[resource] > 0
            self.resources[resource].add(level, now - self._now, fragmented=fragmented)
        self._now = now

    def decided(self, decision: Decision) -> None:
        match decision:
            case Keep():
                self._note(decision.workload, decision.reason)
            case Admit():
                self._note(decision.attempt.workload, None)
            case Retire():
                self._note(decision.workload, None)

    def _note(self, workload: WorkloadId, reason: Reason | None) -> None:
        """Why it waits from now on; None: it does not."""
        self._waited(workload)
        if reason is not None and reason.code in ROOM:
            self._waiting[workload] = reason.code, reason.resource, self._now
            self._unfit[reason.resource] += reason.code is Code.NO_NODE_FITS

    def _waited(self, workload: WorkloadId) -> None:
        before = self._waiting.pop(workload, None)
        if before is not None:
            code, resource, since = before
            self._unfit[resource] -= code is Code.NO_NODE_FITS
            self.waits.setdefault(workload, Counter())[code] += self._now - since

    def close(self) -> None:
        """Nothing more happens."""
        for workload in list(self._waiting):
            self._waited(workload)
