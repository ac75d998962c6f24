"""Rows of budgets of constructed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from queuectl.core.model.budgets import Period
from queuectl.core.model.workload import StoredWorkload
from queuectl.ports.budgets import BudgetBalances, BudgetRow, BudgetUse, GrantRow


class CannedBudgets:
    """Implements BudgetReadings."""

    def __init__(self) -> None:
        self.use: list[BudgetUse] = []
        self.rows: list[BudgetRow] = []
        self.grants: list[GrantRow] = []
        self.balances = BudgetBalances((), ())

    async def budget_use(self, at: datetime, periods: Mapping[str, Period]) -> list[BudgetUse]:
        return list(self.use)

    async def budget_rows(self, budget: str, at: datetime, most: int) -> list[BudgetRow]:
        return [one for one in self.rows if one.entry.budget == budget][:most]

    async def budget_grants(self, budget: str, period: Period) -> list[GrantRow]:
        return list(self.grants)

    async def budget_balances(
        self, sequence: int, at: datetime, workloads: Iterable[StoredWorkload]
    ) -> BudgetBalances:
        return self.balances
