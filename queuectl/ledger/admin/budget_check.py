"""Compares the rows of budgets with the times that they are about, attempt by attempt (Y3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from sqlalchemy import ARRAY, Select, Text, cast, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.budgets import BudgetEntry, EntryKind, Period
from queuectl.ledger import tables as t
from queuectl.ledger.budget_rows import OF_OPEN_ATTEMPT, budget_entry
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.pool import stream

_MOST: Final = 100
"""Findings."""
_UNIT: Final = "(base units x microseconds)"
_ROW: Final = t.budget_entry.c


async def compare_budgets(
    connection: AsyncConnection, cluster: str, after: int, running: Collection[str]
) -> tuple[list[LedgerFinding], frozenset[str]]:
    """Return the findings, and the workloads with an open attempt that has rows.

    Only attempts that are open, have a row after decision `after`, or are of `running`: the workloads that
    the run before has returned.
    """
    findings, still = list[LedgerFinding](), set[str]()
    rows: list[BudgetEntry] = []
    is_open = False
    async for row in stream(connection, _rows(cluster, after, running)):
        if rows and (rows[0].workload, rows[0].attempt) != (row.workload, row.attempt):
            findings += _of_attempt(rows, is_open)
            rows = []
            if len(findings) >= _MOST:
                return findings[:_MOST], frozenset(still)
        rows.append(budget_entry(row))
        is_open = row.is_open
        if is_open:
            still.add(row.workload)
    if rows:
        findings += _of_attempt(rows, is_open)
    return findings[:_MOST], frozenset(still)


def _rows(cluster: str, after: int, running: Collection[str]) -> Select[Any]:
    query = select(t.budget_entry, OF_OPEN_ATTEMPT.label("is_open")).where(_ROW.cluster_id == cluster)
    if after:
        newer = t.budget_entry.alias().c
        has_newer = exists().where(
            newer.cluster_id == cluster,
            newer.workload == _ROW.workload,
            newer.attempt == _ROW.attempt,
            newer.sequence > after,
        )
        those = _ROW.workload == func.any(cast(list(running), ARRAY(Text)))
        query = query.where(or_(has_newer, those, OF_OPEN_ATTEMPT))
    return query.order_by(_ROW.workload, _ROW.attempt, _ROW.budget, _ROW.subject, _ROW.sequence, _ROW.number)


def _of_attempt(rows: list[BudgetEntry], is_open: bool) -> Iterator[LedgerFinding]:
    for (budget, subject), found in groupby(rows, lambda one: (one.budget, one.subject)):
        yield from _of_budget(f"Budget {budget}, {subject or 'all'}", list(found), is_open)


def _of_budget(name: str, rows: list[BudgetEntry], is_open: bool) -> Iterator[LedgerFinding]:
    """Yield what is wrong with the rows of one attempt in one budget, in the order of its decisions."""
    attempt = f"attempt {rows[0].attempt} of {rows[0].workload}"
    since: datetime | None = None
    """Of the last Reserve."""
    reserved, used = Counter[Period](), Counter[Period]()
    for row in rows:
        if row.kind is EntryKind.RESERVE:
            since = row.at
        stored, expected = _amounts(row, since, used[row.period])
        if stored != expected:
            numbers = f"{attempt}: {row.kind} of {stored}, by its times {expected}"
            yield LedgerFinding("BudgetUsed", _in(name, row.period), f"{numbers} {_UNIT}")
        reserved[row.period] += row.reserved
        used[row.period] += row.used
    if is_open:
        return
    if rows[-1].kind is EntryKind.RESERVE:
        yield LedgerFinding("BudgetReserved", name, f"{attempt} is over, and not settled")
    for period, amount in reserved.items():
        if amount:
            detail = f"{attempt} is over, and has still reserved {amount} {_UNIT}"
            yield LedgerFinding("BudgetReserved", _in(name, period), detail)


def _amounts(row: BudgetEntry, since: datetime | None, used: int) -> tuple[int, int]:
    """Return the amount that a row has, and that it must have. `used`: before it, in its period."""
    match row.kind:
        case EntryKind.RESERVE:
            return row.reserved, 0 if row.until is None else row.rate * row.period.overlap(row.at, row.until)
        case EntryKind.SETTLE:
            ends = row.at if row.until is None else min(row.at, row.until)
            return row.used, 0 if since is None else row.rate * row.period.overlap(since, ends)
        case EntryKind.REFUND:
            return -row.used, min(-row.used, used)


def _in(name: str, period: Period) -> str:
    return f"{name}, from {period.begins.isoformat()}"
