"""The verdicts about devices that are in force."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.model.workload import WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.pool import FEW_ROWS, ledger_call, reading, stream
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.idle import DeviceUse, RecordedUse, UseFinding, UseVerdict

_IN_FORCE: Final = text(
    "SELECT now.workload, now.attempt, now.since, now.verdict, now.devices, now.idle_devices, now.coverage, "
    "now.engine, now.multiprocessors, CAST(floor(sum(old.idle_devices * extract(epoch FROM "
    "greatest(old.since, coalesce(old.until, c.checked_at)) - old.since))) AS bigint) "
    f"FROM {SCHEMA}.idle_verdict now JOIN {SCHEMA}.idle_check c USING (cluster_id) "
    f"JOIN {SCHEMA}.idle_verdict old USING (cluster_id, workload, attempt) "
    "WHERE cluster_id = :cluster AND now.until IS NULL "
    "GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1"
)


class LedgerDeviceUseReadings:
    """Implements UseReadings for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def device_use(self) -> DeviceUse:
        check = t.idle_check.c
        last = select(check.checked_at, check.problem).where(check.cluster_id == self._cluster)
        async with reading(self._pool) as connection:
            found = (await connection.execute(last)).one_or_none()
            rows = stream(connection, _IN_FORCE, {"cluster": self._cluster}, FEW_ROWS)
            verdicts = [_recorded(*row) async for row in rows]
        if found is None:
            return DeviceUse(None, None, [])
        return DeviceUse(found.checked_at, found.problem, verdicts)


def _recorded(workload: str, attempt: int, since: object, verdict: str, *rest: object) -> RecordedUse:
    *values, wasted = rest
    finding = UseFinding(UseVerdict(verdict), *values)  # type: ignore[arg-type]
    return RecordedUse(WorkloadId(workload), attempt, since, None, finding, wasted)  # type: ignore[arg-type]
