"""The last check of what devices do."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.ledger import tables as t
from queuectl.ledger.pool import ledger_call, reading
from queuectl.ports.idle import DeviceCheck


class LedgerDeviceUseReadings:
    """Implements UseReadings for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def device_check(self) -> DeviceCheck:
        check = t.idle_check.c
        last = select(check.checked_at, check.problem).where(check.cluster_id == self._cluster)
        async with reading(self._pool) as connection:
            found = (await connection.execute(last)).one_or_none()
        return DeviceCheck(None, None) if found is None else DeviceCheck(*found)
