"""Verdicts about what admitted workloads do with their devices, and where they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from queuectl.core.model.workload import WorkloadId


class UseVerdict(StrEnum):
    """What a window of samples says of a device, or of all devices of an attempt."""

    BUSY = "Busy"
    SPARSE = "Sparse"
    """It works now and then, as a notebook or a service with few requests does."""
    IDLE = "Idle"
    HANG = "Hang"
    """Its engine is active and its multiprocessors are not, as in a collective that waits for a lost peer."""
    UNKNOWN = "Unknown"
    """Samples are missing. It is never a reason for anything."""
    EXEMPT = "Exempt"
    """Its WorkloadPriorityClass is not judged."""


class UseFinding(NamedTuple):
    """Of one attempt."""

    verdict: UseVerdict
    devices: int
    """It holds quota for so many."""
    idle_devices: int = 0
    """Of these, how many are idle or hang."""
    coverage: float = 0.0
    """The least share of the expected samples that a device has, 0 to 1; 0 if a device has none."""
    engine: float | None = None
    """Mean activity of the engines over the window and the devices, 0 to 1; None: unknown."""
    multiprocessors: float | None = None
    """The same of the streaming multiprocessors, over the shorter window of a hang."""


class DeviceHolder(NamedTuple):
    """An admitted attempt that holds quota for devices."""

    workload: WorkloadId
    attempt: int
    cluster_queue: str
    devices: int
    priority_class: str | None


class RecordedUse(NamedTuple):
    """A verdict for a time. It is stored when it changes; what it was found by is as it was then."""

    workload: WorkloadId
    attempt: int
    since: datetime
    until: datetime | None
    """None: it is the last one of an attempt that is admitted."""
    finding: UseFinding
    wasted: int
    """Seconds of its devices that were idle or hung so far, over all its verdicts."""


class DeviceUse(NamedTuple):
    """The last check, and the verdicts in force."""

    checked_at: datetime | None
    """None: there was no check yet."""
    problem: str | None
    """Why the last check found nothing."""
    verdicts: Sequence[RecordedUse]


class UseReadings(Protocol):
    async def device_use(self) -> DeviceUse:
        """Raises LedgerUnavailable."""


class UseRecords(Protocol):
    """Of one cluster. Both raise LedgerUnavailable."""

    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        """Admitted attempts that hold any of these; a name that ends with `*` stands for all beginning so."""

    async def store(self, findings: Mapping[tuple[WorkloadId, int], UseFinding], problem: str | None) -> None:
        """Store verdicts that changed, by workload and attempt, and end those of all other attempts."""
