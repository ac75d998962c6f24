"""What subjects have reserved and used of budgets, as the ledger has it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.model.budgets import BudgetEntry, Period
from queuectl.core.model.workload import ObjectRef


class BudgetUse(NamedTuple):
    """By the workloads of one namespace. Base units times microseconds."""

    budget: str
    subject: str
    resource: str
    period: Period
    namespace: str | None
    """None: it is not known any more, or these are hours that run and are no row yet."""
    reserved: int
    used: int


class BudgetRow(NamedTuple):
    """One row of a budget."""

    sequence: int
    """Of the decision that wrote it."""
    entry: BudgetEntry
    ref: ObjectRef | None
    """The workload; None: the ledger does not keep that decision any more."""


class BudgetReadings(Protocol):
    """Of one cluster. Both raise LedgerUnavailable."""

    async def budget_use(self, at: datetime) -> list[BudgetUse]:
        """Return what is reserved and used in the periods that `at` is in."""

    async def budget_rows(self, budget: str, at: datetime, most: int) -> list[BudgetRow]:
        """Return the rows of one budget in those periods, the newest first, at most so many."""
