"""Which attempts hold devices, and the last check of what these do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Numeric, cast, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.model.resources import MAX_AMOUNT
from queuectl.core.model.workload import AttemptState, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.codec import cleaned
from queuectl.ledger.pool import ledger_call, reading
from queuectl.ports.idle import DeviceCheck, DeviceHolder


class LedgerDeviceUse:
    """Implements UseRecords and UseReadings for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        line, attempt, booked, workload = t.hold_line.c, t.attempt.c, t.attribution.c, t.workload_open.c
        named = or_(
            *(
                func.starts_with(line.resource, name[:-1]) if name.endswith("*") else line.resource == name
                for name in resources
            )
        )
        query = (
            select(
                workload.namespace,
                line.workload,
                line.attempt,
                line.cluster_queue,
                func.least(func.sum(cast(line.count, Numeric) * line.amount), MAX_AMOUNT).cast(BigInteger),
                func.max(booked.priority_class),
            )
            .join(
                t.attempt,
                (attempt.cluster_id == line.cluster_id)
                & (attempt.workload == line.workload)
                & (attempt.number == line.attempt)
                & attempt.open,
            )
            .join(
                t.workload_open,
                (workload.cluster_id == line.cluster_id) & (workload.id == line.workload),
            )
            .outerjoin(
                t.attribution, (booked.cluster_id == line.cluster_id) & (booked.id == line.attribution)
            )
            .where(
                line.cluster_id == self._cluster,
                line.open,
                line.count > 0,
                line.amount > 0,
                attempt.state == AttemptState.ADMITTED,
                named,
            )
            .group_by(workload.namespace, line.workload, line.attempt, line.cluster_queue)
            .order_by(line.workload)
        )
        async with reading(self._pool) as connection:
            rows = await connection.execute(query)
            return [DeviceHolder(row[0], WorkloadId(row[1]), *row[2:]) for row in rows]

    @ledger_call
    async def store_check(self, problem: str | None, resources: Sequence[str]) -> datetime:
        row = {
            "checked_at": func.clock_timestamp(),
            "problem": None if problem is None else cleaned(problem),
            "resources": list(resources),
        }
        statement = insert(t.idle_check).values(cluster_id=self._cluster, **row)
        stored = statement.on_conflict_do_update(index_elements=[t.idle_check.c.cluster_id], set_=row)
        async with self._pool.begin() as connection:
            found = await connection.execute(stored.returning(t.idle_check.c.checked_at))
            return found.scalar_one()  # type: ignore[no-any-return]

    @ledger_call
    async def device_check(self) -> DeviceCheck:
        check = t.idle_check.c
        last = select(check.checked_at, check.problem).where(check.cluster_id == self._cluster)
        async with reading(self._pool) as connection:
            found = (await connection.execute(last)).one_or_none()
        return DeviceCheck(None, None) if found is None else DeviceCheck(*found)
