"""What subjects have reserved and used of budgets, as the ledger has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.model.budgets import BudgetEntry, BudgetGrant, BudgetSum, Period
from queuectl.core.model.workload import ObjectRef, StoredWorkload


class BudgetUse(NamedTuple):
    """By the workloads of one namespace. Base units times microseconds."""

    budget: str
    subject: str
    resource: str
    period: Period
    namespace: str | None
    """None: it is not known, or these are hours that run and are no row yet."""
    reserved: int
    used: int


class BudgetRow(NamedTuple):
    """One row of a budget."""

    sequence: int
    """Of the decision that wrote it."""
    entry: BudgetEntry
    ref: ObjectRef | None
    """The workload; None: the ledger does not keep that decision any more."""


class GrantRow(NamedTuple):
    """A grant that an edit of a Budget has added or taken back."""

    sequence: int
    """Of the decision about the edit."""
    at: datetime
    author: str | None
    """None: unknown."""
    grant: BudgetGrant
    amount: int
    """Below 0: it was taken back. Base units times microseconds."""


class BudgetBalances(NamedTuple):
    """As an engine is restored with them."""

    sums: tuple[BudgetSum, ...]
    """What attempts that are over have used."""
    entries: tuple[BudgetEntry, ...]
    """The rows of open attempts, in the order of their decisions."""


class BudgetReadings(Protocol):
    """Of one cluster. Each raises LedgerUnavailable."""

    async def budget_use(self, at: datetime, periods: Mapping[str, Period]) -> list[BudgetUse]:
        """Return what is reserved and used in the periods that `at` is in, and by attempts that run.

        `periods`: the present one of each Budget: hours that run and are no row yet count in it.
        """

    async def budget_rows(self, budget: str, at: datetime, most: int) -> list[BudgetRow]:
        """Return the rows of one budget in those periods, the newest first, at most so many."""

    async def budget_grants(self, budget: str, period: Period) -> list[GrantRow]:
        """Return what was granted of one budget in a period, the newest first."""

    async def budget_balances(
        self, sequence: int, at: datetime, workloads: Iterable[StoredWorkload]
    ) -> BudgetBalances:
        """Return the balances of periods that end after `at`, as of decision `sequence`, after which
        `workloads` were open."""
