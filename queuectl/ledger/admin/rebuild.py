"""Restores the open holds from the cluster's objects after the database was lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Admit, Enqueue, Evict
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, Attribution, Observation, Workload
from queuectl.ledger import tables as t
from queuectl.ledger.admin.partitions import add_partitions
from queuectl.ledger.admin.schema import check_schema
from queuectl.ledger.pool import connection_pool, ledger_call, reading
from queuectl.ledger.write.plan_rows import Fold
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ledger.write.transaction import Writing
from queuectl.ports.ledger import LedgerRefused, LostLeadership

_HOLDER: Final = "queuectl rebuild"
_DETAIL: Final = "read from the object after the ledger was lost"
_STOPPED: Final = Reason(code=Code.BYPASS, detail="it was suspended when the ledger was rebuilt")


@dataclass(frozen=True, slots=True)
class Found:
    """An object of the cluster that carries a reserved admission."""

    workload: Workload
    observation: Observation
    cluster_queue: str | None
    """The ClusterQueue of its queue today; its hold is in the ClusterQueue that its admission names."""
    priority: int


async def rebuild(url: str, cluster_id: str, found: Iterable[Found]) -> int:
    """Store the attempts that are open in the cluster; returns how many. Attempts keep their numbers.

    Running workloads hold quota as before. Suspended ones that may have live pods hold it as terminating,
    until the controller has counted their pods. Finished ones hold none. The ledger must be migrated and
    have no open attempt of this cluster: raises LedgerRefused, LedgerUnavailable, SchemaMismatch, or
    LostLeadership if a controller starts at the same time.
    """
    async with connection_pool(url) as pool:
        await check_schema(pool, writing=True)
        return await _rebuild(pool, cluster_id, [one for one in found if _holds(one.observation)])


def _holds(seen: Observation) -> bool:
    if seen.admission is None or seen.over is not None:
        return False
    return not seen.suspended or seen.quiet is not True


@ledger_call
async def _rebuild(pool: AsyncEngine, cluster: str, found: list[Found]) -> int:
    ledger = PostgresLedger(pool, cluster)
    # A rebuild by mistake must not depose the running controller.
    async with reading(pool) as connection:
        await _refuse_in_use(connection, cluster)
    # A former leader that still runs is fenced off before the first read.
    epoch = await ledger.take_epoch(_HOLDER)
    now = await ledger.now()
    async with pool.begin() as connection:
        await add_partitions(connection)
        await _continue_after(connection, cluster, found)
        writing = Writing(connection, cluster, now)
        stopped = [one for one in found if one.observation.suspended]
        rows = 2 * len(found) + len(stopped)
        fence = await writing.fence(epoch, _HOLDER, rows)
        if fence is None:
            raise LostLeadership(
                "a controller took the leadership during the rebuild: stop it, then try again"
            )
        fold = Fold(fence.sequence - rows + 1, now, fence.config_sequence)
        oldest_first = sorted(found, key=lambda one: (one.workload.created_at, one.workload.id))
        for arrival, one in enumerate(oldest_first, start=1):
            _admit(fold, one, arrival)
        for one in stopped:
            fold.add(Evict(one.workload.id, one.workload.ref, _admission(one).number, _STOPPED))
        await writing.store(fold, epoch=epoch, cycle=0)
    return len(found)


async def _continue_after(connection: AsyncConnection, cluster: str, found: list[Found]) -> None:
    """Continue above every sequence number found in the cluster; refuse if the ledger is in use."""
    await _refuse_in_use(connection, cluster)
    known = select(t.leadership.c.sequence).where(t.leadership.c.cluster_id == cluster).with_for_update()
    sequence = (await connection.execute(known)).scalar_one()
    highest = max((_admission(one).sequence for one in found), default=0)
    if sequence == 0 and highest > 0:
        raised = update(t.leadership).where(t.leadership.c.cluster_id == cluster).values(sequence=highest)
        await connection.execute(raised)
    elif highest > sequence:
        raise LedgerRefused(
            f"the cluster has decision {highest}, the ledger only {sequence}: "
            "rebuild needs a new database, or one without decisions on this cluster"
        )


async def _refuse_in_use(connection: AsyncConnection, cluster: str) -> None:
    held = select(func.count()).where(t.attempt.c.cluster_id == cluster, t.attempt.c.open)
    if count := (await connection.execute(held)).scalar_one():
        raise LedgerRefused(f"the ledger has {count} open attempts of cluster {cluster}: nothing to rebuild")


def _admit(fold: Fold, one: Found, arrival: int) -> None:
    attempt = replace(_admission(one), workload=one.workload.id)
    cluster_queue = one.cluster_queue or attempt.assignment.cluster_queue
    fold.add(Enqueue(one.workload, cluster_queue, one.priority, arrival))
    admit = Admit(attempt, one.workload.ref, _DETAIL, attribution=Attribution.of(one.workload))
    fold.add(admit, attempt_sequence=attempt.sequence)


def _admission(one: Found) -> Attempt:
    assert one.observation.admission is not None
    return one.observation.admission
