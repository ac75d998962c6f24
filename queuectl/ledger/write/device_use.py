"""Stores verdicts about devices: a row for each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ARRAY, BigInteger, Double, Text, bindparam, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.model.workload import AttemptState, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.codec import cleaned
from queuectl.ledger.pool import ledger_call, reading
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.idle import DeviceHolder, UseFinding

_FOUND: Final = (
    "SELECT * FROM unnest(:workloads, :attempts, :verdicts, :devices, :idle, :coverages, :engines, "
    ":multiprocessors) AS one (workload, attempt, verdict, devices, idle_devices, coverage, engine, "
    "multiprocessors)"
)
_TEXTS, _NUMBERS, _FRACTIONS = ARRAY(Text), ARRAY(BigInteger), ARRAY(Double)
_TYPES: Final[Mapping[str, ARRAY[Any]]] = {
    "workloads": _TEXTS,
    "attempts": _NUMBERS,
    "verdicts": _TEXTS,
    "devices": _NUMBERS,
    "idle": _NUMBERS,
    "coverages": _FRACTIONS,
    "engines": _FRACTIONS,
    "multiprocessors": _FRACTIONS,
}
_COLUMNS: Final = tuple(bindparam(name, type_=kind) for name, kind in _TYPES.items())
_END: Final = text(
    f"WITH found AS ({_FOUND}) UPDATE {SCHEMA}.idle_verdict v SET until = greatest(v.since, :now) "
    "WHERE v.cluster_id = :cluster AND v.until IS NULL AND NOT EXISTS (SELECT FROM found f "
    "WHERE f.workload = v.workload AND f.attempt = v.attempt AND f.verdict = v.verdict "
    "AND f.devices = v.devices AND f.idle_devices = v.idle_devices)"
).bindparams(*_COLUMNS)
"""Verdicts that are not found any more."""
_BEGIN: Final = text(
    f"WITH found AS ({_FOUND}) INSERT INTO {SCHEMA}.idle_verdict (cluster_id, workload, attempt, since, "
    "verdict, devices, idle_devices, coverage, engine, multiprocessors) "
    "SELECT :cluster, workload, attempt, :now, verdict, devices, idle_devices, coverage, engine, "
    f"multiprocessors FROM found f WHERE NOT EXISTS (SELECT FROM {SCHEMA}.idle_verdict v "
    "WHERE v.cluster_id = :cluster AND v.workload = f.workload AND v.until IS NULL) ON CONFLICT DO NOTHING"
).bindparams(*_COLUMNS)


class LedgerDeviceUse:
    """Implements UseRecords for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def holders(self, resources: Sequence[str]) -> list[DeviceHolder]:
        line, attempt, booked = t.hold_line.c, t.attempt.c, t.attribution.c
        named = or_(
            *(
                func.starts_with(line.resource, name[:-1]) if name.endswith("*") else line.resource == name
                for name in resources
            )
        )
        query = (
            select(
                line.workload,
                line.attempt,
                line.cluster_queue,
                func.sum(line.count * line.amount).cast(BigInteger),
                func.max(booked.priority_class),
            )
            .join(
                t.attempt,
                (attempt.cluster_id == line.cluster_id)
                & (attempt.workload == line.workload)
                & (attempt.number == line.attempt)
                & attempt.open,
            )
            .outerjoin(
                t.attribution, (booked.cluster_id == line.cluster_id) & (booked.id == line.attribution)
            )
            .where(
                line.cluster_id == self._cluster,
                line.open,
                line.count * line.amount > 0,
                attempt.state == AttemptState.ADMITTED,
                named,
            )
            .group_by(line.workload, line.attempt, line.cluster_queue)
            .order_by(line.workload)
        )
        async with reading(self._pool) as connection:
            rows = await connection.execute(query)
            return [DeviceHolder(WorkloadId(row[0]), *row[1:]) for row in rows]

    @ledger_call
    async def store(self, findings: Mapping[tuple[WorkloadId, int], UseFinding], problem: str | None) -> None:
        async with self._pool.begin() as connection:
            now = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
            given = {**_columns(findings), "cluster": self._cluster, "now": now}
            for statement in (_END, _BEGIN):
                await connection.execute(statement, given)
            await self._store_check(connection, now, problem)

    async def _store_check(self, connection: AsyncConnection, now: object, problem: str | None) -> None:
        row = {"checked_at": now, "problem": None if problem is None else cleaned(problem)}
        statement = insert(t.idle_check).values(cluster_id=self._cluster, **row)
        await connection.execute(
            statement.on_conflict_do_update(index_elements=[t.idle_check.c.cluster_id], set_=row)
        )


def _columns(findings: Mapping[tuple[WorkloadId, int], UseFinding]) -> dict[str, list[Any]]:
    rows = [(*key, *finding) for key, finding in findings.items()]
    columns = zip(*rows, strict=True) if rows else ([] for _ in _TYPES)
    return {name: list(column) for name, column in zip(_TYPES, columns, strict=True)}
