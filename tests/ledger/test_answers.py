"""Reading history for answers: the same from memory and from Postgres, and each by an index."""

from __future__ import annotations

import pytest
from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.ledger import answers
from queuectl.ports import StartsSpan
from tests.ledger.plans import PREEMPTED, admit, enqueue, evict, release
from tests.ledger.test_conformance import Book
from tests.ledger.test_conformance import book as book


async def started(book: Book, name: str) -> int:
    return await book.write(enqueue(name), admit(name, now=await book.now()))


async def test_starts_are_those_of_the_queue_between_two_decisions(book: Book) -> None:
    first = await started(book, "a")
    await started(book, "b")
    last = await started(book, "c")
    times = [row.now for row in await book.readings.decisions(after=0, limit=10) if row.verdict == "Admitted"]
    spans = [
        StartsSpan("team-a", 0, None),
        StartsSpan("team-a", first + 1, last + 1),
        StartsSpan("team-a", last + 1, None),
        StartsSpan("team-b", 0, None),
    ]
    found = await book.readings.starts(spans)
    assert found == [(3, times[2]), (1, times[1]), (0, None), (0, None)]
    await book.write(evict("a", reason=PREEMPTED), release("a"))
    assert await book.readings.starts(spans) == found


async def plan_of(pool: AsyncEngine, query: Select[tuple[object, ...]]) -> str:
    """By the indexes alone: a table of a test is so small that it would be read whole."""
    compiled = query.compile(dialect=pool.dialect, compile_kwargs={"literal_binds": True})
    async with pool.connect() as connection:
        await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        await connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        lines = (await connection.exec_driver_sql(f"EXPLAIN {compiled}".replace("%", "%%"))).scalars()
        return "\n".join(lines)


@pytest.mark.parametrize("before", [None, 9])
async def test_starts_are_read_by_their_index(pool: AsyncEngine, before: int | None) -> None:
    shown = await plan_of(pool, answers.starts_in("c", StartsSpan("team-a", 3, before)))
    conditions = [line for line in shown.splitlines() if "Index Cond" in line]
    assert conditions
    assert all("clusterQueue" in line and "sequence" in line for line in conditions), shown
    assert "Sort  (cost" not in shown, shown
