"""What subjects have reserved and used of budgets, and by which rows."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime

from sqlalchemy import and_, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.features.budgets.balances import Balances
from queuectl.core.model.budgets import BUDGET_LEVELS, Budget, BudgetEntry, BudgetGrant, Period
from queuectl.core.model.workload import ConfigKey, ObjectRef, StoredWorkload
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.policy_amounts import BadPolicy
from queuectl.ledger import tables as t
from queuectl.ledger.budget_rows import OF_OPEN_ATTEMPT, budget_entry, budgets_at, open_budget_entries
from queuectl.ledger.pool import FEW_ROWS, ledger_call, reading, stream
from queuectl.ledger.rows import configs_in_force
from queuectl.ports.budgets import BudgetBalances, BudgetRow, BudgetUse, GrantRow
from queuectl.ports.outbox import BudgetLevel

_ROW, _DECISION = t.budget_entry.c, t.decision.c
_PLACE = (_ROW.budget, _ROW.subject, _ROW.resource, _ROW.begins_at, _ROW.ends_at)
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
    async def budget_use(self, at: datetime, periods: Mapping[str, Period]) -> list[BudgetUse]:
        key = (_ROW.budget, _ROW.subject, _ROW.resource, _ROW.begins_at, _ROW.ends_at, _ROW.namespace)
        of_all = and_(_ROW.cluster_id == self._cluster, _ROW.budget.in_(periods))
        present = and_(_ROW.begins_at <= at, _ROW.ends_at > at)
        running = select(*key, func.sum(_ROW.reserved), func.sum(_ROW.used)).where(of_all, OF_OPEN_ATTEMPT)
        # What is over has reserved nothing: rows without use are not read.
        over = select(*key, literal(0), func.sum(_ROW.used)).where(of_all, present, ~OF_OPEN_ATTEMPT)
        queries = [one.group_by(*key).order_by(*key) for one in (over.where(_ROW.used != 0), running)]
        async with reading(self._pool) as connection:
            found = [
                BudgetUse(
                    budget, subject, resource, Period(begins, ends), namespace, int(reserved), int(used)
                )
                for query in queries
                async for budget, subject, resource, begins, ends, namespace, reserved, used in stream(
                    connection, query, at_once=FEW_ROWS
                )
            ]
            entries = await open_budget_entries(connection, self._cluster)
        return [*found, *await asyncio.to_thread(_running, entries, at, periods)]

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
    async def budget_grants(self, budget: str, period: Period) -> list[GrantRow]:
        table = t.config_revision.c
        query = select(table.from_seq, table.from_at, table.author, table.spec).where(
            table.cluster_id == self._cluster, table.kind == "Budget", table.name == budget
        )
        found, before = list[GrantRow](), Counter[BudgetGrant]()
        async with reading(self._pool) as connection:
            rows = (await connection.execute(query.order_by(table.from_seq))).all()
        for sequence, at, author, spec in rows:
            with suppress(BadPolicy):
                policy = parse_policy(ConfigKey("Budget", "", budget), spec)
                given = Counter(policy.grants if isinstance(policy, Budget) else ())
                for sign, changed in ((1, given - before), (-1, before - given)):
                    found += [
                        GrantRow(sequence, at, author, one, sign * one.amount)
                        for one in changed.elements()
                        if period.begins <= one.at < period.ends
                    ]
                before = given
        return found[::-1]

    @ledger_call
    async def budget_balances(
        self, sequence: int, at: datetime, workloads: Iterable[StoredWorkload]
    ) -> BudgetBalances:
        async with reading(self._pool) as connection:
            return await budgets_at(connection, self._cluster, sequence, workloads, at)


async def levels_reached(
    connection: AsyncConnection, cluster: str, after: int, until: int
) -> dict[int, tuple[BudgetLevel, ...]]:
    """Return what decisions above `after` and up to `until` have taken past a level, by their sequence.

    It follows from rows that are never changed, and from the Budgets that are in force.
    """
    recent = and_(_ROW.cluster_id == cluster, _ROW.sequence > after, _ROW.sequence <= until)
    taken = func.sum(_ROW.reserved + _ROW.used)
    query = select(_ROW.sequence, *_PLACE, taken).where(recent).group_by(_ROW.sequence, *_PLACE)
    changes = (await connection.execute(query.order_by(_ROW.sequence.desc(), *_PLACE))).all()
    if not changes:
        return {}
    places = {tuple(place) for _, *place, _ in changes}
    sums = select(*_PLACE, taken).where(_ROW.cluster_id == cluster, _ROW.sequence <= until)
    sums = sums.where(tuple_(*_PLACE).in_(places)).group_by(*_PLACE)
    left = {tuple(place): int(total) for *place, total in await connection.execute(sums)}
    budgets = await _in_force(connection, cluster)
    found = defaultdict[int, list[BudgetLevel]](list)
    for sequence, name, subject, resource, *dates, change in changes:
        place = (name, subject, resource, *dates)
        total = left[place]
        before = left[place] = total - int(change)
        if (budget := budgets.get(name)) is not None and budget.resource == resource:
            allowed = budget.allowed(subject, Period(*dates))
            levels = [one for one in BUDGET_LEVELS if 100 * before < one * allowed <= 100 * total]
            if levels:
                found[sequence].append(BudgetLevel(budget, subject, Period(*dates), levels[-1]))
    return {sequence: tuple(levels) for sequence, levels in found.items()}


async def _in_force(connection: AsyncConnection, cluster: str) -> dict[str, Budget]:
    """Return the Budgets that this version can read, by name."""
    found = {}
    for key, spec in await configs_in_force(connection, cluster):
        with suppress(BadPolicy):
            if key.kind == "Budget" and isinstance(budget := parse_policy(key, spec), Budget):
                found[budget.name] = budget
    return found


def _running(entries: Iterable[BudgetEntry], at: datetime, periods: Mapping[str, Period]) -> list[BudgetUse]:
    """Return what attempts that run on Metered budgets have used in their present period."""
    balances = Balances()
    balances.restore((), entries)
    return [
        BudgetUse(*place, charge.resource, period, None, 0, charge.used(period, at))
        for charges in balances.charges.values()
        for place, charge in charges.items()
        if charge.until is None and (period := periods.get(place.limit)) is not None
    ]
