"""What subjects have reserved and used of budgets, and by which rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.features.budgets.balances import Balances
from queuectl.core.model.budgets import Period
from queuectl.core.model.workload import ObjectRef, StoredWorkload
from queuectl.ledger import tables as t
from queuectl.ledger.budget_rows import budget_entry, budgets_at, open_budget_entries
from queuectl.ledger.pool import ledger_call, reading
from queuectl.ports.budgets import BudgetBalances, BudgetRow, BudgetUse

_ROW, _DECISION = t.budget_entry.c, t.decision.c
_WITH_DECISIONS = t.budget_entry.outerjoin(
    t.decision,
    and_(
        _DECISION.cluster_id == _ROW.cluster_id,
        _DECISION.sequence == _ROW.sequence,
        _DECISION.now == _ROW.at,  # decisions are stored by month
    ),
)


class LedgerBudgetReadings:
    """Implements BudgetReadings for one cluster."""

    def __init__(self, pool: AsyncEngine, cluster: str) -> None:
        self._pool = pool
        self._cluster = cluster

    @ledger_call
    async def budget_use(self, at: datetime) -> list[BudgetUse]:
        key = (_ROW.budget, _ROW.subject, _ROW.resource, _ROW.begins_at, _ROW.ends_at, _DECISION.namespace)
        query = (
            select(*key, func.sum(_ROW.reserved), func.sum(_ROW.used))
            .select_from(_WITH_DECISIONS)
            .where(_ROW.cluster_id == self._cluster, _ROW.begins_at <= at, _ROW.ends_at > at)
            .group_by(*key)
            .order_by(*key)
        )
        async with reading(self._pool) as connection:
            found = [
                BudgetUse(
                    budget, subject, resource, Period(begins, ends), namespace, int(reserved), int(used)
                )
                for budget, subject, resource, begins, ends, namespace, reserved, used in (
                    await connection.execute(query)
                )
            ]
            running = Balances()
            running.restore((), await open_budget_entries(connection, self._cluster))
        periods = {(one.budget, one.subject, one.resource): one.period for one in found}
        for charges in running.charges.values():
            for place, charge in charges.items():
                key_of = (place.limit, place.subject, charge.resource)
                if charge.until is None and (period := periods.get(key_of)) is not None:
                    found.append(BudgetUse(*key_of, period, None, 0, charge.used(period, at)))
        return found

    @ledger_call
    async def budget_rows(self, budget: str, at: datetime, most: int) -> list[BudgetRow]:
        names = [_DECISION[name].label(f"of_{name}") for name in ("namespace", "kind", "name", "uid")]
        query = (
            select(*t.budget_entry.c, *names)
            .select_from(_WITH_DECISIONS)
            .where(_ROW.cluster_id == self._cluster, _ROW.budget == budget)
            .where(_ROW.begins_at <= at, _ROW.ends_at > at)
            .order_by(_ROW.sequence.desc(), _ROW.number.desc())
            .limit(most)
        )
        async with reading(self._pool) as connection:
            rows = (await connection.execute(query)).all()
        return [
            BudgetRow(
                row.sequence,
                budget_entry(row),
                None
                if row.of_uid is None
                else ObjectRef(row.of_namespace, row.of_kind, row.of_name, row.of_uid),
            )
            for row in rows
        ]

    @ledger_call
    async def budget_balances(
        self, sequence: int, at: datetime, workloads: Iterable[StoredWorkload]
    ) -> BudgetBalances:
        async with reading(self._pool) as connection:
            return await budgets_at(connection, self._cluster, sequence, workloads, ends_after=at)
