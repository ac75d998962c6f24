"""Starts that sinks of notifications know of, in Postgres."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Select, Text, and_, delete, exists, func, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.model.workload import ObjectRef, Phase, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.pool import ledger_call
from queuectl.ports.outbox import ToldStart

_T: Final = t.told_start.c
_W: Final = t.workload_open.c
_KEY: Final = [_T.cluster_id, _T.sink, _T.workload]


class PostgresToldStarts:
    """ports.outbox.ToldStarts over a pool made by `create_pool`, for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster_id: str) -> None:
        self._pool = pool
        self._cluster = cluster_id

    @ledger_call
    async def waiting(
        self, sink: str, namespaces: Collection[str], queues: Collection[str], limit: int
    ) -> tuple[datetime, list[ToldStart]]:
        query = _waiting(self._cluster, sink).limit(limit)
        for column, names in ((_W.namespace, namespaces), (_W.queue, queues)):
            if names:
                query = query.where(column == func.any(literal(sorted(names), ARRAY(Text))))
        async with self._pool.begin() as connection:
            now: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
            return now, [_known(sink, row) for row in await connection.execute(query)]

    @ledger_call
    async def found(self, known: ToldStart, start: datetime | None) -> None:
        await self._store(replace(known, start=start if known.start is None else known.start))

    @ledger_call
    async def moved(self, known: ToldStart, start: datetime, at: datetime) -> ToldStart:
        moved = replace(known, moved=start, moved_at=at)
        await self._store(moved)
        return moved

    @ledger_call
    async def accepted(self, known: ToldStart) -> None:
        await self._store(replace(known, start=known.moved, told=known.told + 1, moved=None, moved_at=None))

    @ledger_call
    async def forget(self) -> None:
        pending = exists().where(
            _W.cluster_id == _T.cluster_id, _W.id == _T.workload, _W.phase == Phase.PENDING.value
        )
        async with self._pool.begin() as connection:
            await connection.execute(delete(t.told_start).where(_T.cluster_id == self._cluster, ~pending))

    async def _store(self, known: ToldStart) -> None:
        values = {
            "start": known.start,
            "told": known.told,
            "moved": known.moved,
            "moved_at": known.moved_at,
            "asked_at": func.clock_timestamp(),
        }
        new = insert(t.told_start).values(
            cluster_id=self._cluster, sink=known.sink, workload=known.workload, **values
        )
        async with self._pool.begin() as connection:
            await connection.execute(new.on_conflict_do_update(index_elements=_KEY, set_=values))


def _waiting(cluster: str, sink: str) -> Select[Any]:
    mine = and_(_T.cluster_id == _W.cluster_id, _T.workload == _W.id, _T.sink == sink)
    return (
        select(
            *(_W.id, _W.namespace, _W.kind, _W.name, _W.uid, _W.queue),
            *(_T.start, func.coalesce(_T.told, 0).label("told"), _T.moved, _T.moved_at),
        )
        .select_from(t.workload_open.outerjoin(t.told_start, mine))
        .where(_W.cluster_id == cluster, _W.phase == Phase.PENDING.value)
        .order_by(_T.moved.is_(None), _T.asked_at.nulls_first(), _W.arrival, _W.id)
    )


def _known(sink: str, row: Row[Any]) -> ToldStart:
    return ToldStart(
        sink=sink,
        workload=WorkloadId(row.id),
        ref=ObjectRef(row.namespace, row.kind, row.name, row.uid),
        queue=row.queue,
        start=row.start,
        told=row.told,
        moved=row.moved,
        moved_at=row.moved_at,
    )
