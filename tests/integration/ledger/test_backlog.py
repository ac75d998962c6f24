"""Roll-ups after a long time without any: of a long history each transaction reads little."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.app import controller
from queuectl.ledger import pool as pools
from queuectl.ledger.admin import partitions
from queuectl.ledger.history import usage_hours
from queuectl.ledger.history.usage_hours import HELD, MOST_PIECES, parameters, roll_up
from queuectl.ledger.pool import UPKEEP, connection_pool, create_pool
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.periods import hours_of
from queuectl.settings import Settings
from tests.integration.ledger.accounting import HOUR, Cluster, booked
from tests.integration.ledger.plans import configure, enqueue, retire
from tests.integration.ledger.test_usage_hours import BERLIN_SPRING as START

LATER = 200_000
"""Holds of the weeks after the first day."""
_FILL = text(
    "INSERT INTO queuectl.hold_line SELECT 'backlog', 'old-' || n, 1, 'cq', 'main', 1, 'a100', 'gpu', 1, "
    "2 * n + 1, at, false, 2 * n + 2, at + interval '1 hour', NULL FROM (SELECT n, "
    "CAST(:start AS timestamptz) + n * interval '8 seconds' AS at FROM generate_series(1, :count) n) line "
    "ORDER BY n"
)


def _pages(plan: dict[str, Any]) -> int:
    pages: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return pages


async def test_the_first_hours_of_a_long_history_are_read_without_the_later_ones(migrated: str) -> None:
    pool = create_pool(migrated, statement_timeout=UPKEEP)
    first = parameters("backlog", hours_of(START, START + MOST_PIECES * HOUR), 0)
    try:
        async with pool.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(_FILL, {"start": START, "count": LATER})
        async with pool.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            await connection.execute(text("VACUUM ANALYZE queuectl.hold_line_closed_default"))
            size = text("SELECT pg_relation_size('queuectl.hold_line_closed_default') / 8192")
            whole = (await connection.execute(size)).scalar_one()
            held = (await connection.execute(HELD, first)).all()
            explain = text(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {HELD.text}")
            plan = (await connection.execute(explain, first)).scalar_one()
    finally:
        await pool.dispose()
    assert len(held) == MOST_PIECES
    assert _pages((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]) < whole / 5


async def test_what_takes_too_long_ends_by_the_limit_of_the_server(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by that of the client, which would say no more than that time is over."""
    slow: TextClause = text("SELECT pg_sleep(20)")
    monkeypatch.setattr(pools, "_ANSWER_TIMEOUT", 1.0)
    pool = create_pool(migrated, statement_timeout=0.3)
    try:
        one = Cluster(pool, "slow")
        await one.commit(START, configure("team-a", 8), enqueue("x"), booked("x", 1, START, "ada"))
        await one.commit(START + timedelta(hours=3), retire("x", 1))
        with monkeypatch.context() as patched:
            patched.setattr(usage_hours, "_STORE_HELD", slow)
            with pytest.raises(LedgerUnavailable, match="57014"):
                await roll_up(pool, "slow", "UTC")
        assert await roll_up(pool, "slow", "UTC") == 3
    finally:
        await pool.dispose()


class _Asked(Exception):
    pass


async def test_the_roll_up_before_months_are_dropped_has_its_long_limit(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def limit(pool: AsyncEngine, cluster: str, zone: str) -> int:
        async with pool.connect() as connection:
            shown = (await connection.execute(text("SHOW statement_timeout"))).scalar_one()
        raise _Asked(cluster, zone, shown)

    monkeypatch.setattr(partitions, "roll_up", limit)
    settings = Settings.model_validate(
        {"controller": {"verifySeconds": 1}, "database": {"url": migrated, "keepMonths": 1}}
    )
    async with connection_pool(migrated) as pool:
        await Cluster(pool, "upkeep").commit(START, configure("team-a", 8))
        with pytest.raises(_Asked) as asked:
            await controller._keep_up(settings, pool)
    assert asked.value.args == ("upkeep", "UTC", "2min")
