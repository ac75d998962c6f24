"""Statements: what the usage of a month costs, charge by charge, and what the ledger keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from queuectl.ports.periods import Piece
from queuectl.ports.reader import BookedOn, Revision, UsageOfTime


class ChargeKind(StrEnum):
    USAGE = "Usage"
    """What was held."""
    FREE = "Free"
    """A part of what nothing held."""
    LOST = "Lost"
    """The credit for what attempts held that were evicted."""


class StatementLine(NamedTuple):
    """One line of a statement: what is booked on the same, at one rate."""

    kind: ChargeKind
    begins: datetime
    ends: datetime
    booked: BookedOn | None
    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    """Base units times microseconds."""
    price: int | None
    """Millionths of the currency for a unit of `rates.hour_unit`; None: there is no rate."""
    list_price: int | None
    cost: int
    """Millionths of the currency."""
    of_month: str | None = None
    """The closed month that it corrects, such as 2026-10."""
    reason: str | None = None
    """Of a correction."""


class ClosedMonth(NamedTuple):
    """A closed month. Nothing of it changes any more."""

    month: str
    zone: str
    begins: datetime
    ends: datetime
    currency: str
    decimals: int
    account_key: str | None
    """As in RateCard."""
    lines: int
    total: int
    """Sum of the costs of its lines, in millionths."""
    digest: str
    """SHA-256 of its lines, in hexadecimal."""
    closed_at: datetime
    closed_by: str
    """Role of the database."""


class LostHold(NamedTuple):
    """What an attempt held when it was preempted or lost its nodes, since its admission."""

    booked: BookedOn | None
    cluster_queue: str
    flavor: str
    resource: str
    amount: int
    """Base units."""
    begins: datetime
    ends: datetime
    evicted_at: datetime


class BillableMonth(NamedTuple):
    """What the lines of a month are computed from, as of one commit."""

    times: list[UsageOfTime]
    """One for each piece that was asked for."""
    lost: list[LostHold] | None
    """Of attempts that were evicted in it; None: the holds are no longer kept."""
    policies: list[Revision] | None
    """ClusterQueues that were there in it; None: they are no longer kept."""


class StatementReadings(Protocol):
    """Every call raises LedgerUnavailable or SchemaMismatch."""

    async def configuration(self) -> str | None:
        """The configuration of the component in force, as JSON; None: none was recorded."""

    async def usage_since(self) -> datetime | None:
        """From when on usage is rolled up; None: it is not."""

    async def statements(self) -> list[ClosedMonth]:
        """Closed months, the first one first."""

    async def lines(self, month: str) -> list[StatementLine]:
        """Those that are stored with the statement of a month: of an open one, corrections of others."""

    async def corrections(self, month: str) -> list[StatementLine]:
        """Those of a closed month, stored with later ones."""

    async def billable(self, pieces: Sequence[Piece]) -> BillableMonth:
        """`pieces` follow each other. Raises TooMuchHistory."""
