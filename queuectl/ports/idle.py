"""Checks of what admitted workloads do with their devices, and what of them is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.model.workload import WorkloadId


class DeviceHolder(NamedTuple):
    """An admitted attempt that holds quota for devices."""

    namespace: str
    workload: WorkloadId
    attempt: int
    cluster_queue: str
    devices: int
    priority_class: str | None


class DeviceCheck(NamedTuple):
    """The last check of all devices."""

    checked_at: datetime | None
    """None: there was no check yet."""
    problem: str | None
    """Why it found nothing."""


class UseReadings(Protocol):
    async def device_check(self) -> DeviceCheck:
        """Raises LedgerUnavailable."""


class UseRecords(Protocol):
    """Of one cluster. Both raise LedgerUnavailable."""

    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        """Admitted attempts that hold any of these; a name that ends with `*` stands for all beginning so."""

    async def store_check(self, problem: str | None, resources: Sequence[str]) -> datetime:
        """Store that all that hold these were checked, and return the time of the ledger, UTC."""
