"""Monthly partitions of history: created ahead of time, dropped after the retention time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.ledger.history.usage_hours import roll_up, rolled
from queuectl.ledger.pool import ledger_call
from queuectl.ledger.read.queries import clusters
from queuectl.ledger.tables import HISTORY, SCHEMA

MONTHS_AHEAD: Final = 3
_LEAF: Final = re.compile(r"_(\d{4})_(\d{2})$")


@ledger_call
async def ensure_partitions(pool: AsyncEngine, months_ahead: int = MONTHS_AHEAD) -> list[str]:
    """Create the partitions of this month and the next ones; returns the names of new ones.

    Rows without a partition go to the default one: none is lost, but they can no longer be dropped by month.
    """
    async with pool.begin() as connection:
        return await add_partitions(connection, months_ahead)


async def add_partitions(connection: AsyncConnection, months_ahead: int = MONTHS_AHEAD) -> list[str]:
    now: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
    there = set(await _leaves(connection))
    made = []
    for parent in HISTORY.values():
        for month in range(now.year * 12 + now.month - 1, now.year * 12 + now.month + months_ahead):
            name = f"{parent}_{month // 12:04}_{month % 12 + 1:02}"
            if name in there:
                continue
            await connection.execute(
                text(
                    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{name} PARTITION OF {SCHEMA}.{parent} "
                    f"FOR VALUES FROM ('{_first_day(month)}') TO ('{_first_day(month + 1)}')"
                )
            )
            made.append(name)
    return made


@ledger_call
async def drop_history(pool: AsyncEngine, keep_months: int, rolling: AsyncEngine | None = None) -> list[str]:
    """Drop months of history that ended over `keep_months` months ago; returns the partitions' names.

    Usage is rolled up before, and a month with an hour that is not stays. With the months go revisions of
    policy and podsets that nothing refers to any more, and rows of budgets whose periods ended before. Open
    workloads, attempts and holds, and the policy in force, are not history and stay, however old. `rolling`:
    a pool for the roll-ups, whose statements may take longer than those for which the writer waits.
    """
    if keep_months < 1:
        raise ValueError(f"history is kept for at least 1 month, not {keep_months}")
    rolled_until = [await _roll_up(rolling or pool, cluster) for cluster in await clusters(pool)]
    async with pool.begin() as connection:
        now: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        oldest = now.year * 12 + now.month - 1 - keep_months
        oldest = min(
            [oldest, *(when.year * 12 + when.month - 1 for when in rolled_until if when is not None)]
        )
        dropped = []
        for name in await _leaves(connection):
            match = _LEAF.search(name)
            if match and int(match[1]) * 12 + int(match[2]) - 1 < oldest:
                await connection.execute(text(f"DROP TABLE {SCHEMA}.{name}"))
                dropped.append(name)
    if dropped:
        # After the commit: a statement that takes too long here does not keep the months.
        async with pool.begin() as connection:
            await connection.execute(_ENDED_REVISIONS)
        async with pool.begin() as connection:
            await connection.execute(_UNUSED_SHAPES, {"before": _begins(oldest)})
        async with pool.begin() as connection:
            await connection.execute(_ENDED_BUDGETS, {"before": _begins(oldest)})
        async with pool.begin() as connection:
            await connection.execute(_ENDED_IDLE_TIMES)
    return dropped


async def _roll_up(pool: AsyncEngine, cluster: str) -> datetime | None:
    """Roll up usage, and return up to when it is; None: the cluster has no decision."""
    async with pool.connect() as connection:
        state = await rolled(connection, cluster)
    await roll_up(pool, cluster, "UTC" if state is None else state.zone)
    async with pool.connect() as connection:
        state = await rolled(connection, cluster)
    return None if state is None else state.until.astimezone(UTC)


_ENDED_REVISIONS: Final = text(
    f"DELETE FROM {SCHEMA}.config_revision USING {SCHEMA}.leadership, LATERAL ("
    f"SELECT min(sequence) AS first FROM {SCHEMA}.decision "
    "WHERE decision.cluster_id = leadership.cluster_id) kept "
    "WHERE config_revision.cluster_id = leadership.cluster_id "
    "AND to_seq < coalesce(kept.first, leadership.sequence + 1)"
)
"""Revisions that had ended when the first decision that is kept was stored."""

_UNUSED_SHAPES: Final = text(
    f"DELETE FROM {SCHEMA}.shape USING (SELECT cluster_id, id FROM {SCHEMA}.shape one "
    "WHERE queued_at < CAST(:before AS timestamptz) AND NOT EXISTS ("
    f"SELECT FROM {SCHEMA}.workload WHERE workload.cluster_id = one.cluster_id AND workload.shape = one.id) "
    "FOR UPDATE SKIP LOCKED) unused "
    "WHERE shape.cluster_id = unused.cluster_id AND shape.id = unused.id"
)
"""Podsets with which nothing was queued in the months that are kept. It waits for no lock, and the writer for
those of this statement: a row that the writer needs again is stored again."""

_ENDED_BUDGETS: Final = text(
    f"DELETE FROM {SCHEMA}.budget_entry one WHERE NOT EXISTS ("
    f"SELECT FROM {SCHEMA}.budget_entry other WHERE other.cluster_id = one.cluster_id "
    "AND other.workload = one.workload AND other.attempt = one.attempt "
    "AND (other.ends_at > CAST(:before AS timestamptz) OR other.at >= CAST(:before AS timestamptz))) "
    f"AND NOT EXISTS (SELECT FROM {SCHEMA}.attempt WHERE attempt.cluster_id = one.cluster_id "
    "AND attempt.workload = one.workload AND attempt.number = one.attempt AND attempt.open)"
)
"""Rows of attempts that ended before the months that are kept, in periods that ended before: all rows of an
attempt or none, as `verify` compares them. No balance of a later time has them."""

_ENDED_IDLE_TIMES: Final = text(
    f"DELETE FROM {SCHEMA}.idle_time one WHERE NOT EXISTS ("
    f"SELECT FROM {SCHEMA}.attempt WHERE attempt.cluster_id = one.cluster_id "
    "AND attempt.workload = one.workload AND attempt.number = one.attempt)"
)
"""Of attempts that are not kept."""


async def used_defaults(connection: AsyncConnection) -> list[str]:
    """Default partitions that have rows."""
    used = []
    for parent in HISTORY.values():
        name = f"{parent}_default"
        rows = await connection.execute(text(f"SELECT EXISTS (SELECT FROM {SCHEMA}.{name})"))
        if rows.scalar_one():
            used.append(name)
    return used


async def _leaves(connection: AsyncConnection) -> list[str]:
    rows = await connection.execute(
        text(
            "SELECT relname FROM pg_class WHERE relnamespace = CAST(:schema AS regnamespace) "
            "AND relispartition AND relkind = 'r' ORDER BY relname"
        ),
        {"schema": SCHEMA},
    )
    return list(rows.scalars())


def _begins(month: int) -> datetime:
    """Return when a month begins."""
    return datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)


def _first_day(month: int) -> str:
    return f"{month // 12:04}-{month % 12 + 1:02}-01 00:00:00+00"
