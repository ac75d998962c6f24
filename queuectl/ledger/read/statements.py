"""Statements and their lines, and what those of a month are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.ledger import tables as t
from queuectl.ledger.codec import dump
from queuectl.ledger.history.past_lives import first_and_last
from queuectl.ledger.history.usage_hours import decided_before, rolled
from queuectl.ledger.pool import FEW_ROWS, LONG_READ, ledger_call, reading, stream
from queuectl.ledger.read.answers import AttemptDecision, HeldLine, held_until, revisions_in
from queuectl.ledger.read.usage import bookings, usage
from queuectl.ports.periods import Piece
from queuectl.ports.reader import BookedOn
from queuectl.ports.statements import BillableMonth, ChargeKind, ClosedMonth, LostHold, StatementLine

_LOST_BY: Final = (Code.PREEMPTED, Code.NODE_FAILURES)
_AT_ONCE: Final = 500
"""Attempts whose hold lines are read together."""


class LedgerStatements:
    """Implements StatementReadings for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def configuration(self) -> str | None:
        row = t.config_revision.c
        query = select(row.spec).where(
            row.cluster_id == self._cluster, row.kind == "Configuration", row.to_seq.is_(None)
        )
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            found: str | None = (await connection.execute(query)).scalar_one_or_none()
        return found

    @ledger_call
    async def usage_since(self) -> datetime | None:
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            state = await rolled(connection, self._cluster)
        return state and state.since

    @ledger_call
    async def statements(self) -> list[ClosedMonth]:
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            return await closed_months(connection, self._cluster)

    @ledger_call
    async def lines(self, month: str) -> list[StatementLine]:
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            return await lines_of(connection, self._cluster, t.statement_line.c.month == month)

    @ledger_call
    async def corrections(self, month: str) -> list[StatementLine]:
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            return await lines_of(connection, self._cluster, t.statement_line.c.of_month == month)

    @ledger_call
    async def billable(self, pieces: Sequence[Piece]) -> BillableMonth:
        since, until = pieces[0].begins, pieces[-1].ends
        async with reading(self._pool, statement_timeout=LONG_READ) as connection:
            times = [await usage(connection, self._cluster, *piece) for piece in pieces]
            found = await revisions_in(connection, self._cluster, since, until)
            revisions = [one for one in found if one.key.kind == "ClusterQueue"]
            if not await _is_kept(connection, self._cluster, since):
                return BillableMonth(times, None, None)
            return BillableMonth(times, await self._lost(connection, since, until), revisions)

    async def _lost(self, connection: AsyncConnection, since: datetime, until: datetime) -> list[LostHold]:
        first = await decided_before(connection, self._cluster, since)
        row = t.decision.c
        query = select(row.sequence, row.workload, row.attempt, row.verdict, row.now).where(
            row.cluster_id == self._cluster,
            *(row.sequence >= first, row.now >= since, row.now < until),
            *(row.verdict == Verdict.EVICTED, row.reason["code"].astext.in_(_LOST_BY)),
        )
        evicted = [AttemptDecision(*one) async for one in stream(connection, query, at_once=FEW_ROWS)]
        held: list[tuple[datetime, HeldLine]] = []
        for start in range(0, len(evicted), _AT_ONCE):
            some = {one.sequence: one.now for one in evicted[start : start + _AT_ONCE]}
            of = await held_until(connection, self._cluster, evicted[start : start + _AT_ONCE])
            held += [(some[sequence], line) for sequence, lines in of.items() for line in lines]
        booked = await bookings(connection, self._cluster, {line.attribution for _, line in held})
        return [
            LostHold(booked.get(line.attribution), line.cluster_queue, *line[2:], evicted_at)
            for evicted_at, line in sorted(held)
        ]


async def _is_kept(connection: AsyncConnection, cluster: str, since: datetime) -> bool:
    """Whether all holds and policies from then on are kept."""
    first, _ = await first_and_last(connection, cluster)
    return first is not None and (first.sequence == 1 or bool(first.now <= since))


async def closed_months(connection: AsyncConnection, cluster: str) -> list[ClosedMonth]:
    """The first one first."""
    row = t.statement.c
    columns: tuple[Any, ...] = (
        *(row.month, row.zone, row.begins_at, row.ends_at),
        *(row.currency, row.decimals, row.rate_card["account"].astext),
        *(row.lines, row.total, row.digest, row.closed_at, row.closed_by),
    )
    query = select(*columns).where(row.cluster_id == cluster).order_by(row.month)
    return [ClosedMonth(*found)._replace(total=int(found.total)) for found in await connection.execute(query)]


async def lines_of(connection: AsyncConnection, cluster: str, which: Any) -> list[StatementLine]:
    row = t.statement_line.c
    query = select(t.statement_line).where(row.cluster_id == cluster, which).order_by(row.month, row.number)
    return [_line(one) async for one in stream(connection, query, at_once=FEW_ROWS)]


def _line(row: Any) -> StatementLine:
    names = (row.namespace, row.queue, row.submitter, row.user_name, row.priority_class)
    return StatementLine(
        kind=ChargeKind(row.kind),
        begins=row.begins_at,
        ends=row.ends_at,
        booked=BookedOn(*names, row.account) if row.booked else None,
        cluster_queue=row.cluster_queue,
        flavor=row.flavor,
        resource=row.resource,
        amount=int(row.amount),
        price=_whole(row.price),
        list_price=_whole(row.list_price),
        cost=int(row.cost),
        of_month=row.of_month,
        reason=row.reason,
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def digest_of(lines: Iterable[StatementLine]) -> str:
    """SHA-256 of lines in their order, in hexadecimal."""
    found = sha256()
    for line in lines:
        values = [*line[:1], line.begins.isoformat(), line.ends.isoformat(), *line[3:]]
        found.update(dump(values).encode() + b"\n")
    return found.hexdigest()
