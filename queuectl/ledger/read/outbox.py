"""What notifications need of the ledger: decisions, a cursor for each sink, expected starts that are told,
and the lock of the one process that sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Row,
    ScalarSelect,
    Select,
    Text,
    and_,
    cast,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import FAMILIES, Family
from queuectl.core.model.workload import ObjectRef, Phase, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.codec import clean
from queuectl.ledger.pool import ledger_call, reading, translated
from queuectl.ledger.read.budgets import levels_reached
from queuectl.ledger.read.queries import PAGE_TIMEOUT, READ_TIMEOUT
from queuectl.ledger.rows import decision_row
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.outbox import Cursor, Deleted, Occurrence, Occurrences, ToldStart

_MAX_ERROR: Final = 500
"""Characters of an error that are stored."""
_LOCK_SECONDS: Final = 5.0
"""Between two tries to get the lock, and between two checks that it is still held."""
_NEVER: Final = [code.value for code, family in FAMILIES.items() if family is Family.NEVER]
_D: Final = t.decision.c
_C: Final = t.notification_cursor.c


class PostgresOutbox:
    """ports.outbox.Outbox over a pool made by `create_pool`, for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster_id: str) -> None:
        self._pool = pool
        self._cluster = cluster_id

    @ledger_call
    async def occurrences(self, after: int, limit: int) -> Occurrences:
        async with reading(self._pool, statement_timeout=PAGE_TIMEOUT) as connection:
            query = select(t.leadership.c.sequence, t.leadership.c.epoch, func.clock_timestamp())
            query = query.where(t.leadership.c.cluster_id == self._cluster)
            head, epoch, now = (await connection.execute(query)).one_or_none() or (0, 0, None)
            if now is None:
                raise LedgerUnavailable(f"no controller has led cluster {self._cluster} yet")
            if head <= after:
                return Occurrences(found=[], until=after, head=max(head, after), read_at=now)
            following = (await connection.execute(_first_after(self._cluster, after))).one_or_none()
            first, epoch = following or (head + 1, epoch)
            until = min(head, first - 1 + limit)
            rows = (await connection.execute(candidates(self._cluster, after, until))).all()
            known = await self._before(connection, rows)
            levels = await levels_reached(connection, self._cluster, after, until)
            return Occurrences(
                found=[
                    Occurrence(decision_row(row), *known[row.sequence], levels.get(row.sequence, ()))
                    for row in rows
                ],
                until=until,
                head=head,
                read_at=now,
                deleted=Deleted(epoch, after + 1, first - 1) if first > after + 1 else None,
            )

    async def _before(
        self, connection: AsyncConnection, rows: Sequence[Row[Any]]
    ) -> dict[int, tuple[Any, Any, Any, Any]]:
        """By sequence: the LocalQueue at that time, since when the workload waited, submitter and labels."""
        if not rows:
            return {}
        query = earlier(self._cluster, [row.sequence for row in rows])
        found = {}
        for sequence, queue, submitter, created, released, labels in await connection.execute(query):
            found[sequence] = (queue, released or created, submitter, labels or {})
        return found

    @ledger_call
    async def cursor(self, sink: str) -> Cursor:
        head = select(literal(self._cluster), literal(sink), t.leadership.c.sequence, literal(0), literal(0))
        new = insert(t.notification_cursor).from_select(
            ["cluster_id", "sink", "sequence", "sent", "failures"],
            head.where(t.leadership.c.cluster_id == self._cluster),
        )
        query = select(t.notification_cursor).where(_C.cluster_id == self._cluster, _C.sink == sink)
        async with self._pool.begin() as connection:
            await connection.execute(new.on_conflict_do_nothing())
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise LedgerUnavailable(f"no controller has led cluster {self._cluster} yet")
        return _cursor(row)

    @ledger_call
    async def state(self) -> tuple[int, datetime, list[Cursor]]:
        """The sequence of the last decision, the time, and all cursors by name."""
        head = select(t.leadership.c.sequence).where(t.leadership.c.cluster_id == self._cluster)
        clock = select(func.clock_timestamp())
        query = select(t.notification_cursor).where(_C.cluster_id == self._cluster).order_by(_C.sink)
        async with reading(self._pool, statement_timeout=READ_TIMEOUT) as connection:
            last: int = (await connection.execute(head)).scalar() or 0
            now: datetime = (await connection.execute(clock)).scalar_one()
            return last, now, [_cursor(row) for row in await connection.execute(query)]

    @ledger_call
    async def advance(self, cursor: Cursor, to: int, sent: int) -> bool:
        values: dict[str, Any] = {"sequence": to, "failures": 0, "error": None, "next_try": None}
        if sent:
            values |= {"sent": _C.sent + sent, "sent_at": func.clock_timestamp()}
        return await self._update(cursor, values)

    @ledger_call
    async def failed(self, cursor: Cursor, failures: int, error: str, seconds: float) -> None:
        due = func.clock_timestamp() + timedelta(seconds=seconds)
        values = {"failures": failures, "error": clean(error)[:_MAX_ERROR], "next_try": due}
        await self._update(cursor, values)

    async def _update(self, cursor: Cursor, values: dict[str, Any]) -> bool:
        query = (
            update(t.notification_cursor)
            .where(_C.cluster_id == self._cluster, _C.sink == cursor.sink, _C.sequence == cursor.sequence)
            .values(values)
        )
        async with self._pool.begin() as connection:
            return (await connection.execute(query)).rowcount == 1

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[AsyncConnection]:
        """Wait for the lock of the process that sends; it is held for the duration of the block.

        Yields its connection for `hold`. Raises LedgerUnavailable.
        """
        key = func.hashtextextended(f"queuectl-notifications/{self._cluster}", 0)
        async with _closing(self._pool) as connection:
            while True:
                if await _asked(connection, select(func.pg_try_advisory_lock(key))):
                    break
                await asyncio.sleep(_LOCK_SECONDS)
            yield connection

    async def hold(self, connection: AsyncConnection) -> None:
        """Run until the lock is lost. Raises LedgerUnavailable."""
        while True:
            await asyncio.sleep(_LOCK_SECONDS)
            await _asked(connection, select(literal(1)))


@contextlib.asynccontextmanager
async def _closing(pool: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection outside of transactions; it is closed, not given back: its locks end with it."""
    try:
        connection = await pool.execution_options(isolation_level="AUTOCOMMIT").connect()
    except Exception as error:
        raise translated(error) or error from error
    try:
        yield connection
    finally:
        await connection.invalidate()
        await connection.close()


async def _asked(connection: AsyncConnection, query: Select[Any]) -> Any:
    try:
        return (await connection.execute(query)).scalar_one()
    except Exception as error:
        raise translated(error) or error from error


def candidates(cluster: str, after: int, until: int) -> Select[Any]:
    """Decisions above `after` and up to `until` that rules may select."""
    never = and_(_D.verdict == Verdict.PENDING.value, _D.reason["code"].astext.in_(_NEVER))
    noticed = and_(_D.verdict == Verdict.AMENDED.value, _D.payload["past"]["use"].has_key("notice"))
    entry = t.budget_entry.c
    of_budget = exists().where(entry.cluster_id == _D.cluster_id, entry.sequence == _D.sequence)
    verdicts = [Verdict.ADMITTED.value, Verdict.EVICTED.value, Verdict.RETIRED.value]
    return (
        select(t.decision)
        .where(_D.cluster_id == cluster, _D.sequence > after, _D.sequence <= until)
        .where(or_(_D.verdict.in_(verdicts), never, noticed, of_budget))
        .order_by(_D.sequence)
    )


def earlier(cluster: str, sequences: Sequence[int]) -> Select[Any]:
    """Of each decision: its sequence, and of its workload before it the queue, submitter, creation and last
    release; and its labels."""
    row = t.workload.c
    labels = (
        select(row.labels)
        .where(row.cluster_id == _D.cluster_id, row.id == _D.workload)
        .where(row.namespace == _D.namespace, row.kind == _D.kind, row.name == _D.name)  # by their index
        .order_by(row.queued_seq.desc())
        .limit(1)
        .correlate(t.decision)
        .scalar_subquery()
    )
    return (
        select(
            _D.sequence,
            _last(Verdict.QUEUED, t.decision.alias("queued"), lambda row: row.payload["queue"].astext),
            _last(Verdict.QUEUED, t.decision.alias("sent"), lambda row: row.payload["submitter"].astext),
            _last(
                Verdict.QUEUED,
                t.decision.alias("created"),
                lambda row: cast(row.payload["createdAt"].astext, _D.now.type),
            ),
            _last(Verdict.RELEASED, t.decision.alias("released"), lambda row: row.now),
            labels,
        )
        .where(_D.cluster_id == cluster, _D.sequence.in_(list(sequences)))
        .order_by(_D.sequence)
    )


def _last(verdict: Verdict, of: Any, value: Any) -> ScalarSelect[Any]:
    """A value of the last such decision on the same workload before it."""
    row = of.c
    return (
        select(value(row))
        .where(row.cluster_id == _D.cluster_id, row.workload == _D.workload, row.sequence < _D.sequence)
        .where(row.verdict == verdict.value)
        .order_by(row.sequence.desc())
        .limit(1)
        .correlate(t.decision)
        .scalar_subquery()
    )


def _first_after(cluster: str, after: int) -> Select[Any]:
    query = select(_D.sequence, _D.epoch).where(_D.cluster_id == cluster, _D.sequence > after)
    return query.order_by(_D.sequence).limit(1)


def _cursor(row: Row[Any]) -> Cursor:
    return Cursor(
        sink=row.sink,
        sequence=row.sequence,
        sent=row.sent,
        sent_at=row.sent_at,
        failures=row.failures,
        error=row.error,
        next_try=row.next_try,
    )


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
