"""The ledger in Postgres. One writer per cluster, READ COMMITTED, the fence row in every transaction.

Statements are SQLAlchemy expressions, run as any other. Statements that are compiled once and run by asyncpg
itself would take a sixth to a third less CPU, and would lose what the tables say about names and types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Select, cast, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Plan
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    StoredWorkload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLOCK
from queuectl.ledger.budget_rows import budget_sums, open_budget_entries
from queuectl.ledger.history.past_usage import evictions, past_usage, preemptions
from queuectl.ledger.pool import ledger_call, reading, storing
from queuectl.ledger.rows import Loaded, configs_in_force, effects_due, last_outcomes, open_workloads
from queuectl.ledger.write.plan_rows import Beside, Fold
from queuectl.ledger.write.transaction import Writing
from queuectl.ports.ledger import LedgerPosition, LedgerRefused, LostLeadership

_LOAD_TIMEOUT = 120.0
"""Seconds in which the open workloads that were read become values, on a busy machine too."""


_IDS_KEPT = 10_000
"""Shapes and attributions that are known to be stored, at most: the rest is stored again, which changes
nothing."""


class PostgresLedger:
    """ports.ledger.Ledger over a pool made by `create_pool`, for one cluster."""

    def __init__(
        self,
        pool: AsyncEngine,
        cluster_id: str,
        *,
        beside: Beside | None = None,
        settings: SchedulingConfiguration | None = None,
    ) -> None:
        """`beside`: adds to the payload of decisions. `settings`: how past usage counts."""
        self._pool = pool
        self._cluster = cluster_id
        self._beside = beside
        self._settings = settings or SchedulingConfiguration()
        self._holder = ""
        self._stored = LedgerPosition()
        self._stored_shapes: set[str] = set()
        """Ids of shapes that are known to be stored, with `queued_at` in `_month`."""
        self._stored_attributions: set[str] = set()
        """Ids of those that are known to be stored."""
        self._loaded: Loaded = {}
        """What was loaded last, until something is committed."""
        self._month = (0, 0)
        """Year and month of the last commit, in UTC."""

    @ledger_call
    async def take_epoch(self, holder: str) -> int:
        table = t.leadership
        # Above every epoch that was ever taken, also where the row is new or comes from a backup: an epoch is
        # the time at which it was taken. docs/decisions/0016-ledger-first-and-a-fence.md
        time = cast(func.date_part("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
        fresh = upsert(table).values(
            cluster_id=self._cluster,
            epoch=time,
            sequence=0,
            config_sequence=0,
            batches=0,
            holder=holder,
            taken_at=func.clock_timestamp(),
        )
        raised = fresh.on_conflict_do_update(
            index_elements=[table.c.cluster_id],
            set_={
                "epoch": func.greatest(table.c.epoch + 1, time),
                "holder": holder,
                "taken_at": func.clock_timestamp(),
            },
        ).returning(table.c.epoch)
        async with self._pool.begin() as connection:
            epoch = int((await connection.execute(raised)).scalar_one())
            await connection.execute(
                delete(t.batch).where(t.batch.c.cluster_id == self._cluster, t.batch.c.epoch < epoch)
            )
        self._holder = holder
        return epoch

    @ledger_call
    async def load(self) -> LedgerSnapshot:
        async with reading(self._pool, idle_timeout=_LOAD_TIMEOUT) as connection:
            found = (await connection.execute(_leadership(self._cluster))).one_or_none()
            sequence, now = (found.sequence, found.now) if found else (0, None)
            stored = LedgerPosition(sequence, found.batches if found else 0)
            stored.check(self._stored)
            self._stored = stored
            stopped = found is not None and found.stopped_batch == found.batches
            return LedgerSnapshot(
                sequence=sequence,
                now=now,
                read_up_to=tuple(sorted(found.read_up_to.items())) if stopped else (),
                workloads=tuple(await self._workloads(connection, sequence, now)),
                configs=tuple(await configs_in_force(connection, self._cluster)),
                effects=tuple(await effects_due(connection, self._cluster)),
                past_usage=await past_usage(
                    connection, self._cluster, self._settings.usage_sharing, sequence, now
                ),
                budget_sums=() if now is None else await budget_sums(connection, self._cluster, now),
                budget_entries=await open_budget_entries(connection, self._cluster),
            )

    async def _workloads(
        self, connection: AsyncConnection, sequence: int, now: datetime | None
    ) -> Sequence[StoredWorkload]:
        found, self._loaded = await open_workloads(connection, self._cluster, self._loaded)
        if now is None:
            return found
        since = now - self._settings.preemptions_count_for
        times = await preemptions(connection, self._cluster, sequence, since)
        evicted = await evictions(connection, self._cluster)
        return [_with_evictions(one, times.get(one.id, ()), evicted.get(one.id)) for one in found]

    @ledger_call
    async def now(self) -> datetime:
        # One statement needs no transaction around it: two round trips less for each commit.
        alone = self._pool.execution_options(isolation_level="AUTOCOMMIT")
        async with alone.connect() as connection:
            found: datetime = (await connection.execute(CLOCK, {"p_cluster": self._cluster})).scalar_one()
            return found

    @ledger_call
    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        async with reading(self._pool, idle_timeout=_LOAD_TIMEOUT) as connection:
            found = await last_outcomes(connection, self._cluster, names)
        return [(name, found.get(name)) for name in names]

    @ledger_call
    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        recorded = plan.recorded
        async with self._pool.begin() as connection:
            shapes = self._shapes_in(plan.now)
            writing = Writing(connection, self._cluster, plan.now, shapes, self._stored_attributions)
            fence = await writing.fence(epoch, self._holder, len(recorded))
            if fence is None:
                raise await self._refusal(connection, epoch, plan.now)
            first = fence.sequence - len(recorded) + 1
            LedgerPosition(first - 1, fence.batches - 1).check(self._stored)
            # Only now, with the row locked: a first attempt of this batch may have committed until now.
            known = await writing.begin_batch(batch, epoch, first, fence.batches)
            if known is not None:
                await connection.rollback()
                return known
            fold = Fold(first, plan.now, fence.config_sequence, self._beside)
            fold.add_all(recorded)
            with storing():
                await writing.acknowledge(acknowledged)
                await writing.store(fold, epoch=epoch, cycle=plan.cycle)
                await writing.tell_readers(for_readers, fence.batches)
        self._stored = LedgerPosition(fence.sequence, fence.batches)
        self._loaded = {}
        self._stored_shapes.update(writing.new_shapes)
        self._stored_attributions |= writing.new_attributions
        for ids in (self._stored_shapes, self._stored_attributions):
            if len(ids) > _IDS_KEPT:
                ids.clear()
        return first

    @ledger_call
    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        table = t.leadership
        row = table.c.cluster_id == self._cluster, table.c.epoch == epoch, table.c.holder == self._holder
        stopped = update(table).where(*row).values(read_up_to=dict(read_up_to), stopped_batch=table.c.batches)
        async with self._pool.begin() as connection:
            await connection.execute(stopped)

    def _shapes_in(self, month: datetime) -> set[str]:
        """Return the ids of the shapes that are known to be stored with `queued_at` in this month."""
        month = month.astimezone(UTC)
        if self._month != (month.year, month.month):
            self._month = (month.year, month.month)
            self._stored_shapes.clear()
        return self._stored_shapes

    async def _refusal(self, connection: AsyncConnection, epoch: int, now: datetime) -> Exception:
        """Why the fence refused the transaction."""
        found = (await connection.execute(_leadership(self._cluster))).one_or_none()
        if found is None:
            return LostLeadership(f"the ledger has no leader of cluster {self._cluster}: was it replaced?")
        if (found.epoch, found.holder) != (epoch, self._holder):
            return LostLeadership(f"epoch {epoch} is over: {found.holder} took epoch {found.epoch}")
        return LedgerRefused(f"time ran back: the plan is of {now}, the last commit of {found.now}")


def _with_evictions(
    one: StoredWorkload, preempted_at: tuple[datetime, ...], last: tuple[datetime, WorkloadId | None] | None
) -> StoredWorkload:
    if not preempted_at and last is None:
        return one
    evicted_at, preemptor = last or (None, None)
    return replace(one, preempted_at=preempted_at, preemptor=preemptor, evicted_at=evicted_at)


def _leadership(cluster: str) -> Select[Any]:
    table = t.leadership
    return select(table).where(table.c.cluster_id == cluster)
