"""Compares sums with what they are made of: roll-ups of usage with the holds that are kept, and the rows of
budgets with the times that they are about, attempt by attempt (Y3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import ARRAY, Select, Text, TextClause, cast, exists, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.budgets import BudgetEntry, EntryKind, Period
from queuectl.core.model.device_use import IDLE_OF
from queuectl.ledger import tables as t
from queuectl.ledger.budget_rows import OF_OPEN_ATTEMPT, budget_entry
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.history.usage_hours import (
    HELD,
    MOST_PIECES,
    SUMS,
    UsageSums,
    decided_before,
    kept_from,
    parameters,
    rolled,
)
from queuectl.ledger.pool import stream
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.periods import border_to, pieces

_UTC: Final = ZoneInfo("UTC")
_MOST: Final = 100
"""Findings."""
_ROUNDED: Final = 2
"""Shares of idle devices are rounded in each piece of an hour."""
_DIFFERENCES: Final = text(
    "WITH held (begins, ends, cluster_queue, attribution, flavor, resource, amount) AS ("
    f"{HELD.text}), found (begins, cluster_queue, attribution, flavor, resource, amount) AS ("
    "SELECT date_trunc('hour', begins_at, 'UTC'), cluster_queue, attribution, flavor, resource, sum(amount) "
    f"FROM {SCHEMA}.usage_hour WHERE cluster_id = :cluster AND begins_at >= :since AND begins_at < :until "
    "GROUP BY 1, 2, 3, 4, 5) "
    "SELECT begins, cluster_queue, attribution, flavor, resource, found.amount, held.amount "
    "FROM held FULL JOIN found USING (begins, cluster_queue, attribution, flavor, resource) "
    "WHERE abs(coalesce(found.amount, 0) - coalesce(held.amount, 0)) > CASE "
    f"WHEN starts_with(resource, '{IDLE_OF}') THEN {_ROUNDED} ELSE 0 END ORDER BY 1, 2, 3, 4, 5 LIMIT 100"
)


def _sums(sums: UsageSums) -> TextClause:
    """The times whose sum is not that of their parts."""
    return text(
        "SELECT * FROM (SELECT begins_at, sum(amount) AS stored, ("
        f"SELECT sum(amount) FROM {sums.parts.fullname} part WHERE part.cluster_id = :cluster "
        "AND part.begins_at >= whole.begins_at AND part.begins_at < whole.ends_at) AS parts "
        f"FROM {sums.table.fullname} whole WHERE cluster_id = :cluster AND ends_at > :since "
        "GROUP BY begins_at, ends_at) compared WHERE stored IS DISTINCT FROM parts ORDER BY 1 LIMIT 100"
    )


async def compare_usage(
    connection: AsyncConnection, cluster: str, since: datetime | None
) -> tuple[list[LedgerFinding], datetime | None]:
    """Return the differences in hours of UTC from `since` on, and up to when all hours were compared.

    `since`: None for all that holds are kept of. Without roll-ups there is nothing to compare.
    """
    state = await rolled(connection, cluster)
    kept = await kept_from(connection, cluster, _UTC)
    if state is None or kept is None:
        return [], since
    begins = max(state.since, kept, *([since] if since is not None else []))
    until, findings = border_to(state.until, _UTC), list[LedgerFinding]()
    while begins < until and len(findings) < _MOST:
        some = pieces(begins, until, _UTC)[:MOST_PIECES]
        if not some:
            break
        after = await decided_before(connection, cluster, begins)
        for hour, queue, attribution, flavor, resource, stored, held in await connection.execute(
            _DIFFERENCES, parameters(cluster, some, after)
        ):
            name = f"ClusterQueue {queue}, {flavor}/{resource}, {hour.isoformat()}, booked on {attribution}"
            numbers = (
                f"stored are {int(stored or 0)}, holds sum to {int(held or 0)} (base units x microseconds)"
            )
            findings.append(LedgerFinding("UsageHours", name, numbers))
        begins = some[-1].ends
    for sums in SUMS:
        name = sums.table.name.removeprefix("usage_")
        for when, total, parts in await connection.execute(
            _sums(sums), {"cluster": cluster, "since": since or state.since}
        ):
            numbers = f"is {total}, its parts sum to {parts} (base units x microseconds)"
            findings.append(LedgerFinding("UsageSums", f"the {name} from {when.isoformat()}", numbers))
    return findings, begins


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
