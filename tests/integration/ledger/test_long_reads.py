"""Reads of many rows: other tasks of the event loop have a turn every few rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import insert

from queuectl.ledger import tables as t
from queuectl.ledger.pool import FEW_ROWS, reading
from queuectl.ledger.read import statements, usage
from tests.integration.ledger.edits import World

ROWS = 5_000
AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)


async def store(world: World, number: int) -> None:
    """Lines of a month and attributions, so many of each."""
    line: dict[str, Any] = {"month": "2026-01", "kind": "Usage", "begins_at": AT, "ends_at": LATER}
    line |= {"booked": True, "queue": "q", "cluster_queue": "cq", "flavor": "a100", "resource": "gpu"}
    line |= {"price": 1, "list_price": 1}
    line |= {"account": {"team": {"value": "a"}}, "stored_at": AT, "stored_by": "test", "amount": 10**12}
    booked: dict[str, Any] = {"namespace": "ns", "queue": "main", "account": {}}
    own = {"cluster_id": world.cluster}
    async with world.pool.begin() as connection:
        for first in range(0, number, 5_000):
            part = range(first, min(first + 5_000, number))
            stored = [own | line | {"number": one + 1, "cost": one} for one in part]
            await connection.execute(insert(t.statement_line), stored)
            stored = [own | booked | {"id": f"id{one}"} for one in part]
            await connection.execute(insert(t.attribution), stored)


async def lines(world: World) -> int:
    return len(await statements.LedgerStatements(world.pool, world.cluster).lines("2026-01"))


async def bookings(world: World, number: int = ROWS) -> int:
    async with reading(world.pool) as connection:
        return len(await usage.bookings(connection, world.cluster, [f"id{one}" for one in range(number)]))


@pytest.mark.parametrize(
    ("read", "made"), [(lines, (statements, "StatementLine")), (bookings, (usage, "BookedOn"))]
)
async def test_others_have_a_turn_between_a_few_rows(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[World], Awaitable[int]],
    made: tuple[Any, str],
) -> None:
    await store(world, ROWS)
    rows, at_once, value = [0], [0], getattr(*made)

    def counted(*fields: Any, **named: Any) -> Any:
        rows[0] += 1
        return value(*fields, **named)

    async def other() -> None:
        while True:
            before = rows[0]
            await asyncio.sleep(0)
            at_once.append(rows[0] - before)

    monkeypatch.setattr(*made, counted)
    async with asyncio.TaskGroup() as tasks:
        turns = tasks.create_task(other())
        assert await read(world) == ROWS
        turns.cancel()
    assert rows == [ROWS]
    assert max(at_once) <= FEW_ROWS
