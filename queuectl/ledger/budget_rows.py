"""Rows of budgets, from the ledger to values of the core."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Select, Text, cast, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.budgets import BudgetEntry, BudgetSum, EntryKind, Period
from queuectl.core.model.workload import StoredWorkload, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.pool import FEW_ROWS, stream
from queuectl.ports.budgets import BudgetBalances

_TEXTS: Final = ARRAY(Text)

OF_OPEN_ATTEMPT = exists().where(
    t.attempt.c.cluster_id == t.budget_entry.c.cluster_id,
    t.attempt.c.workload == t.budget_entry.c.workload,
    t.attempt.c.number == t.budget_entry.c.attempt,
    t.attempt.c.open,
)


async def budget_sums(connection: AsyncConnection, cluster: str, at: datetime) -> tuple[BudgetSum, ...]:
    """Return what attempts that are over have used of periods that end after `at`, by budget and subject."""
    query = _sums(cluster, at).where(~OF_OPEN_ATTEMPT).having(func.sum(t.budget_entry.c.used) != 0)
    return tuple(map(_sum, await connection.execute(query)))


async def open_budget_entries(connection: AsyncConnection, cluster: str) -> tuple[BudgetEntry, ...]:
    """Return the rows of open attempts, in the order of their decisions."""
    query = _entries(cluster).where(OF_OPEN_ATTEMPT)
    return tuple([budget_entry(row) async for row in stream(connection, query, at_once=FEW_ROWS)])


async def budgets_at(
    connection: AsyncConnection,
    cluster: str,
    last: int,
    workloads: Iterable[StoredWorkload],
    at: datetime,
) -> BudgetBalances:
    """Return the same two as of decision `last`, after which `workloads` were open."""
    row = t.budget_entry.c
    held = {one.id: one.attempt.number for one in workloads if one.attempt is not None}
    those = func.any(cast(list(held), _TEXTS))
    found = await connection.execute(_entries(cluster).where(row.sequence <= last, row.workload == those))
    entries = [one for one in map(budget_entry, found) if one.attempt == held[WorkloadId(one.workload)]]
    query = _sums(cluster, at).where(row.sequence <= last)
    sums: dict[tuple[str, str, str, Period], int] = {}
    for total in map(_sum, await connection.execute(query)):
        sums[total[:-1]] = total.used
    for one in entries:
        if one.used and one.period.ends > at:
            sums[one.budget, one.subject, one.resource, one.period] -= one.used
    closed = tuple(BudgetSum(*of, used) for of, used in sums.items() if used)
    return BudgetBalances(closed, tuple(entries))


def _entries(cluster: str) -> Select[Any]:
    row = t.budget_entry.c
    return select(t.budget_entry).where(row.cluster_id == cluster).order_by(row.sequence, row.number)


def _sums(cluster: str, at: datetime) -> Select[Any]:
    """What was used of periods that end after `at`, by budget, subject, resource and period."""
    row = t.budget_entry.c
    key = (row.budget, row.subject, row.resource, row.begins_at, row.ends_at)
    total = func.sum(row.used).label("total")
    used = select(*key, total).where(row.cluster_id == cluster, row.ends_at > at, row.used != 0)
    return used.group_by(*key).order_by(*key)


def _sum(row: Row[Any]) -> BudgetSum:
    """From a row of `_sums`."""
    return BudgetSum(
        row.budget, row.subject, row.resource, Period(row.begins_at, row.ends_at), int(row.total)
    )


def budget_entry(row: Row[Any]) -> BudgetEntry:
    """From a row of `budget_entry`."""
    return BudgetEntry(
        kind=EntryKind(row.kind),
        budget=row.budget,
        subject=row.subject,
        resource=row.resource,
        period=Period(row.begins_at, row.ends_at),
        workload=row.workload,
        attempt=row.attempt,
        at=row.at,
        rate=row.rate,
        until=row.until,
        reserved=int(row.reserved),
        used=int(row.used),
    )
