"""Reading the ledger: short read-only transactions, each of which sees one committed state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, Select, Text, and_, func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Verdict
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import ConfigKey, LedgerSnapshot, StoredWorkload, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.codec import Parsed
from queuectl.ledger.history.past_lives import last_decision
from queuectl.ledger.history.past_usage import evictions, preemptions
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import ledger_call, reading
from queuectl.ledger.published_facts import facts_after
from queuectl.ledger.read import answers, usage
from queuectl.ledger.rows import (
    configs_in_force,
    decision_row,
    effect_row,
    stored_workload,
    stored_workloads,
    with_attributions,
    workload_columns,
    workloads_with_attempts,
)
from queuectl.ledger.shared_rows import Shapes
from queuectl.ports.history import LIFE
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.periods import Piece
from queuectl.ports.reader import (
    CapacitySum,
    DecisionRow,
    EvictionTimes,
    PastHolds,
    PreemptionRow,
    Reading,
    StartsSpan,
    StoryRows,
    UsageOfTime,
    WorkloadStarts,
)

READ_TIMEOUT: Final = 5.0
"""Timeout in seconds of statements that read the open state, or usage."""
PAGE_TIMEOUT: Final = 2.0
"""Timeout in seconds of statements that read a page of history: any client may cause them."""


class LedgerReadings:
    """ports.reader.Readings over a pool made by `create_pool`, for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster_id: str) -> None:
        self._pool = pool
        self._cluster = cluster_id
        self._shapes = Shapes(cluster_id)
        self._past = LedgerPast(pool, cluster_id, lambda _: DEFAULT_CONFIGURATION)

    @ledger_call
    async def since(self, sequence: int, batch: int = 0) -> Reading:
        async with reading(self._pool, statement_timeout=READ_TIMEOUT) as connection:
            table = t.leadership.c
            query = select(
                *(table.epoch, table.sequence, table.now, table.taken_at, table.batches),
                func.clock_timestamp(),
            )
            found = (await connection.execute(query.where(table.cluster_id == self._cluster))).one_or_none()
            if found is None:
                raise LedgerUnavailable(f"no controller has led cluster {self._cluster} yet")
            epoch, last, committed_at, taken_at, stored, read_at = found
            return Reading(
                sequence=last,
                committed_at=max(committed_at or taken_at, taken_at),
                read_at=read_at,
                epoch=epoch,
                workloads=tuple(await self._workloads(connection, sequence)),
                configs=tuple(await self._configs(connection, sequence)),
                batch=stored,
                for_readers=await facts_after(connection, self._cluster, batch),
            )

    async def _workloads(self, connection: AsyncConnection, after: int) -> Sequence[StoredWorkload]:
        row = t.workload.c
        query = workloads_with_attempts().where(row.cluster_id == self._cluster)
        query = query.where(row.updated_seq > after) if after else query.where(row.open)
        found = await stored_workloads(connection, query.order_by(row.updated_seq), self._shapes)
        ids = [one.id for one in found if one.attempt is not None]
        if not ids:
            return found
        line = t.hold_line.c
        held = and_(line.open, line.workload == func.any(literal(ids, ARRAY(Text)))) if after else line.open
        return await with_attributions(connection, self._cluster, found, held)

    async def _configs(
        self, connection: AsyncConnection, after: int
    ) -> Sequence[tuple[ConfigKey, str | None]]:
        if not after:
            return await configs_in_force(connection, self._cluster)
        row = t.config_revision.c
        query = (
            select(row.kind, row.namespace, row.name, row.spec, row.to_seq)
            .where(row.cluster_id == self._cluster, or_(row.from_seq > after, row.to_seq > after))
            .order_by(row.from_seq)
        )
        newest: dict[ConfigKey, str | None] = {}
        for kind, namespace, name, spec, to_seq in await connection.execute(query):
            newest[ConfigKey(kind, namespace, name)] = spec if to_seq is None else None
        return list(newest.items())

    async def at(self, when: datetime | None) -> LedgerSnapshot:
        """Without past usage, which no reader needs."""
        return await self._past.at(when)

    async def first_capacity(self) -> datetime | None:
        return await self._past.first_capacity()

    @ledger_call
    async def find(
        self, namespace: str, kind: str, name: str, *, ended_by: int | None = None
    ) -> StoredWorkload | None:
        row = t.workload.c
        query = (
            workloads_with_attempts()
            .where(row.cluster_id == self._cluster, row.namespace == namespace, row.kind == kind)
            .where(row.name == name)
            # An expression, so that the index by name is used instead of the one for this order.
            .order_by((row.updated_seq + 0).desc())
            .limit(1)
        )
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            # Open workloads first: they are newer, and in one small table.
            parts = (
                (row.open, ~row.open) if ended_by is None else (and_(~row.open, row.closed_seq <= ended_by),)
            )
            for only in parts:
                if found := await stored_workloads(connection, query.where(only), self._shapes):
                    return found[0]
        return None

    @ledger_call
    async def finished(
        self, *, before: int | None, since: datetime | None, limit: int
    ) -> list[tuple[int, StoredWorkload]]:
        row = t.workload.c
        query = (
            select(*workload_columns())  # they have no open attempt
            .where(row.cluster_id == self._cluster, ~row.open)
            .order_by(row.closed_seq.desc())
            .limit(limit)
        )
        if before is not None:
            query = query.where(row.closed_seq < before)
        if since is not None:
            query = query.where(row.closed_at >= since)
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            rows = (await connection.execute(query)).all()
            await self._shapes.read(connection, {one.shape for one in rows})
            parsed = Parsed()
            return [(one.closed_seq, stored_workload(one, self._shapes, parsed)) for one in rows]

    async def history(self, workload: WorkloadId, *, after: int, limit: int) -> list[DecisionRow]:
        return await self._decisions(t.decision.c.workload == workload, after, limit)

    @ledger_call
    async def story(self, workload: WorkloadId, *, until: int, limit: int) -> StoryRows:
        row, effect = t.decision.c, t.effect.c
        last = (
            select(t.decision)
            .where(row.cluster_id == self._cluster, row.workload == workload, row.sequence <= until)
            .order_by(row.sequence.desc())
            .limit(limit)
        )
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            decisions = [decision_row(one) for one in await connection.execute(last)][::-1]
            # By the sequences of the decisions: no index of closed effects has the workload.
            requested = (
                select(t.effect)
                .where(effect.cluster_id == self._cluster)
                .where(effect.sequence.in_([one.sequence for one in decisions]))
                .order_by(effect.sequence)
            )
            return StoryRows(decisions, [effect_row(one) for one in await connection.execute(requested)])

    @ledger_call
    async def starts(self, spans: Sequence[StartsSpan]) -> list[WorkloadStarts]:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return [await answers.starts(connection, self._cluster, span) for span in spans]

    @ledger_call
    async def preemptions(
        self, *, before: int | None, since: datetime | None, until: datetime | None, limit: int
    ) -> list[PreemptionRow]:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return await answers.preemptions(connection, self._cluster, before, since, until, limit)

    @ledger_call
    async def eviction_times(self, sequence: int, since: datetime) -> dict[WorkloadId, EvictionTimes]:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            preempted = await preemptions(connection, self._cluster, sequence, since)
            evicted = await evictions(connection, self._cluster)
        return {
            one: EvictionTimes(preempted.get(one, ()), *evicted.get(one, (None, None)))
            for one in {**preempted, **evicted}
        }

    @ledger_call
    async def past_holds(self, *, since: datetime, until: datetime) -> PastHolds:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return await answers.past_holds(connection, self._cluster, since, until)

    @ledger_call
    async def usage_zone(self) -> str:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return await usage.usage_zone(connection, self._cluster)

    @ledger_call
    async def usage(self, *, since: datetime, until: datetime) -> UsageOfTime:
        async with reading(self._pool, statement_timeout=READ_TIMEOUT) as connection:
            return await usage.usage(connection, self._cluster, since, until)

    @ledger_call
    async def capacity_trend(self, *, flavor: str, steps: Sequence[Piece]) -> list[tuple[Piece, CapacitySum]]:
        async with reading(self._pool, statement_timeout=READ_TIMEOUT) as connection:
            return await usage.capacity_trend(connection, self._cluster, flavor, steps)

    @ledger_call
    async def decayed_usage(self, *, until: datetime, half_life: int) -> UsageOfTime:
        async with reading(self._pool, statement_timeout=READ_TIMEOUT) as connection:
            return await usage.decayed(connection, self._cluster, until, half_life)

    async def decisions(self, *, after: int, limit: int) -> list[DecisionRow]:
        return await self._decisions(None, after, limit)

    @ledger_call
    async def last_of(self, epoch: int) -> int:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            found = await last_decision(connection, self._cluster, lambda row: row.epoch <= epoch)
            return 0 if found is None else int(found.sequence)

    @ledger_call
    async def recorded(self, workloads: Sequence[WorkloadId]) -> frozenset[WorkloadId]:
        """Those of `workloads` that have any decision."""
        row = t.decision.c
        query = select(row.workload).distinct()
        query = query.where(row.cluster_id == self._cluster, row.workload.in_(workloads))
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return frozenset(map(WorkloadId, (await connection.execute(query)).scalars()))

    @ledger_call
    async def queues_of(self, workloads: Collection[WorkloadId], *, until: int) -> dict[WorkloadId, str]:
        row = t.decision.c
        query = (
            select(row.workload, row.payload["queue"].astext)
            .where(row.cluster_id == self._cluster, row.workload.in_(list(workloads)))
            .where(row.verdict == Verdict.QUEUED.value, row.sequence <= until)
            .order_by(row.workload, row.sequence)  # the last one counts
        )
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return {WorkloadId(one): queue for one, queue in await connection.execute(query)}

    @ledger_call
    async def lives(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[WorkloadId, list[DecisionRow]]:
        row = t.decision.c
        query = _decisions(self._cluster, 0).where(
            row.workload.in_(list(workloads)), row.sequence <= until, row.verdict.in_(list(LIFE))
        )
        found: dict[WorkloadId, list[DecisionRow]] = {}
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            for one in map(decision_row, await connection.execute(query)):
                found.setdefault(WorkloadId(str(one.workload)), []).append(one)
        return found

    @ledger_call
    async def held_by_attempts(
        self, workloads: Collection[WorkloadId], *, until: int
    ) -> dict[int, dict[str, int]]:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return await answers.held_by_attempts(connection, self._cluster, workloads, until)

    @ledger_call
    async def _decisions(self, only: Any, after: int, limit: int) -> list[DecisionRow]:
        query = _decisions(self._cluster, after).limit(limit)
        if only is not None:
            query = query.where(only)
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            return [decision_row(row) for row in await connection.execute(query)]


def _decisions(cluster: str, after: int) -> Select[Any]:
    row = t.decision.c
    return (
        select(t.decision).where(and_(row.cluster_id == cluster, row.sequence > after)).order_by(row.sequence)
    )


@ledger_call
async def installation(pool: AsyncEngine) -> str:
    """Id of this database as a ledger: it stays when the database moves, and differs for each new one."""
    async with reading(pool, statement_timeout=READ_TIMEOUT) as connection:
        return str((await connection.execute(select(t.installation.c.id))).scalar_one())


@ledger_call
async def clusters(pool: AsyncEngine) -> list[str]:
    """Ids of the clusters that this database has ledgers of."""
    async with reading(pool, statement_timeout=READ_TIMEOUT) as connection:
        query = select(t.leadership.c.cluster_id).order_by(t.leadership.c.cluster_id)
        return list((await connection.execute(query)).scalars())
