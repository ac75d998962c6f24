"""Reading history for answers, each by an index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Select, event
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.model.reasons import Code, Reason
from queuectl.ledger.read import answers
from queuectl.ports.reader import PastHolds, StartsSpan, TooMuchHistory
from tests.integration.ledger.plans import (
    GPU,
    PREEMPTED,
    admit,
    configure,
    enqueue,
    evict,
    release,
    retire,
    shrink,
    wid,
)
from tests.integration.ledger.test_postgres_ledger import Book
from tests.integration.ledger.test_postgres_ledger import book as book


async def started(book: Book, name: str) -> int:
    return await book.write(enqueue(name), admit(name, now=await book.now()))


async def test_starts_are_those_of_the_queue_between_two_decisions(book: Book) -> None:
    first = await started(book, "a")
    await started(book, "b")
    last = await started(book, "c")
    times = [row.now for row in await book.readings.decisions(after=0, limit=10) if row.verdict == "Admitted"]
    spans = [
        StartsSpan("team-a", 0, last + 2),
        StartsSpan("team-a", first + 1, last + 1),
        StartsSpan("team-a", last + 1, last + 2),
        StartsSpan("team-b", 0, last + 2),
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


async def test_starts_are_read_by_their_index(pool: AsyncEngine) -> None:
    shown = await plan_of(pool, answers.starts_in("c", StartsSpan("team-a", 3, 9)))
    conditions = [line for line in shown.splitlines() if "Index Cond" in line]
    assert conditions
    assert all("clusterQueue" in line and "sequence" in line for line in conditions), shown
    assert "Sort  (cost" not in shown, shown


async def test_what_was_held_is_read_with_the_policy_of_that_time(book: Book) -> None:
    await book.write(configure("team-a", 8, cohort="all"), configure("local", 8, kind="LocalQueue"))
    await started(book, "a")
    await started(book, "b")
    middle = await book.now()
    await book.write(shrink("b", workers=1), retire("a", 1), configure("team-a", 8, cohort="other"))
    last = await book.now()
    await book.write(retire("b", 1))
    end = await book.now()

    def held(found: PastHolds) -> list[tuple[str, int, bool]]:
        return sorted((one.resource, one.amount, one.end is None) for one in found.holds)

    early = await book.readings.past_holds(since=datetime(2020, 1, 1, tzinfo=UTC), until=middle)
    late = await book.readings.past_holds(since=last, until=end)
    gpus = sum(one.amount for one in early.holds if one.resource == GPU)
    assert gpus == 16, held(early)
    assert sum(one.amount for one in late.holds if one.resource == GPU) == 4, held(late)
    assert [(one.key.name, '"all"' in one.spec) for one in early.revisions] == [("team-a", True)]
    assert [(one.key.name, '"other"' in one.spec) for one in late.revisions] == [("team-a", True)]
    first = (await book.readings.decisions(after=0, limit=1))[0].now
    assert early.first == late.first == first
    nothing = await book.readings.past_holds(since=end + timedelta(days=1), until=end + timedelta(days=2))
    assert nothing.holds == []


async def test_more_rows_than_one_answer_may_cost_are_refused(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_HELD", 2)
    await started(book, "a")
    await started(book, "b")
    with pytest.raises(TooMuchHistory):
        await book.readings.past_holds(since=datetime(2020, 1, 1, tzinfo=UTC), until=await book.now())


async def test_ended_holds_are_read_by_their_index(pool: AsyncEngine) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    shown = await plan_of(pool, answers.ended_holds("c", 9, at, at))
    conditions = [line for line in shown.splitlines() if "Index Cond" in line]
    assert conditions
    assert all("to_seq" in line for line in conditions), shown


async def test_a_preemption_lost_what_its_attempt_held_each_size_for_its_time(book: Book) -> None:
    await started(book, "a")
    sequences = [await book.write(shrink("a", workers=1)), await book.write(evict("a"))]
    released = await book.write(release("a"))
    rows = {row.sequence: row.now for row in await book.readings.decisions(after=0, limit=100)}
    [found] = await book.readings.preemptions(before=None, since=None, until=None, limit=10)
    times = [rows[sequences[0] - 1], *(rows[one] for one in (*sequences, released))]
    spans = zip((8, 4, 4), pairwise(times), strict=True)
    held = [gpus * ((ends - begins) // timedelta(microseconds=1)) for gpus, (begins, ends) in spans]
    assert {cell.resource: amount for cell, amount in found.held.items()}[GPU] == sum(held[:2]) > 0
    attempts = await book.readings.held_by_attempts([wid("a")], until=released)
    assert attempts[released][GPU] == sum(held)


async def test_what_many_attempts_held_takes_as_many_queries_as_what_one_held(
    book: Book, pool: AsyncEngine
) -> None:
    sent: list[str] = []
    event.listen(pool.sync_engine, "before_cursor_execute", lambda *call: sent.append(call[2]))

    async def queries(*names: str) -> tuple[int, int]:
        sent.clear()
        held = await book.readings.held_by_attempts([wid(name) for name in names], until=10**6)
        of_ends = len(sent)
        found = await book.readings.preemptions(before=None, since=None, until=None, limit=len(names))
        assert len(held) == len(found) == len(names)
        return of_ends, len(sent) - of_ends

    names = ("a", "b", "c", "d", "e")
    counts: list[tuple[int, int]] = []
    for name in names:
        await started(book, name)
        await book.write(evict(name), release(name))
        counts.append(await queries(*names[: len(counts) + 1]))
    assert counts == [counts[0]] * len(names)


async def test_preemptions_are_read_newest_first_with_the_attempts_that_they_ended(book: Book) -> None:
    await started(book, "a")
    first = await book.write(evict("a"))
    await book.write(release("a"))
    again = await book.write(admit("a", 2, now=await book.now(), gpus=3))
    second = await book.write(evict("a", 2))
    await started(book, "b")
    await book.write(evict("b", reason=Reason(code=Code.USER_HOLD)))
    rows = {row.sequence: row for row in await book.readings.decisions(after=0, limit=100)}
    found = await book.readings.preemptions(before=None, since=None, until=None, limit=10)
    assert [one.decision for one in found] == [rows[second], rows[first]]
    newest, oldest = found
    assert newest.admitted_at is not None
    assert newest.admitted_at.isoformat() == rows[again].payload["admittedAt"]
    assert oldest.admitted_at is not None
    assert newest.cluster_queue == "team-a"
    for given, names in (
        ({"before": second}, [first]),
        ({"since": rows[second].now}, [second]),
        ({"until": rows[second].now}, [first]),
    ):
        asked: dict[str, Any] = {"before": None, "since": None, "until": None, **given}
        some = await book.readings.preemptions(**asked, limit=10)
        assert [one.decision.sequence for one in some] == names
    last = await book.readings.preemptions(before=None, since=None, until=None, limit=1)
    assert [one.decision.sequence for one in last] == [second]


async def test_preemptions_are_read_by_their_index(pool: AsyncEngine) -> None:
    shown = await plan_of(pool, answers.preempted("c", 9, None, None, 10))
    scans = [line for line in shown.splitlines() if "Index Scan" in line]
    assert scans
    assert "Filter" not in shown, shown
    assert "Sort  (cost" not in shown, shown
