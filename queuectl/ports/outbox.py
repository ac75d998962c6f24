"""What notifications need of the ledger: decisions after a sequence, and a cursor for each sink."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.model.budgets import Budget, Period
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.ports.reader import DecisionRow


class BudgetLevel(NamedTuple):
    """A decision has taken what a subject of a Budget has reserved and used past one of BUDGET_LEVELS."""

    budget: Budget
    """As it is now."""
    subject: str
    """The user, or the value of the account key; empty: all."""
    period: Period
    percent: int
    """The highest one."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A decision that rules of notifications may select, with what they need of the history before it."""

    decision: DecisionRow
    queue: str | None
    """The LocalQueue in which the workload was queued then; None: that is no longer stored."""
    waiting_since: datetime | None
    """The end of its former attempt, else its creation; None: that is no longer stored."""
    submitter: str | None = None
    """None: unknown, or no longer stored."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the workload, as of its last enqueue."""
    budgets: tuple[BudgetLevel, ...] = ()
    """One of each Budget and period at most."""


class Deleted(NamedTuple):
    """Decisions that were deleted with old history."""

    epoch: int
    """Of the first decision after them; if there is none, of the ledger."""
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrences:
    """Part of the history after a sequence."""

    found: list[Occurrence]
    """Oldest first."""
    until: int
    """Sequence up to which this is all."""
    head: int
    """Sequence of the last decision in the ledger."""
    read_at: datetime
    """By the clock of the ledger."""
    deleted: Deleted | None = None
    """What was deleted with old history before `found`; None: nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Up to where a sink was told, and how that goes."""

    sink: str
    sequence: int
    """Of the last decision about which all is told."""
    sent: int = 0
    """Messages that it has accepted."""
    sent_at: datetime | None = None
    failures: int = 0
    """In a row."""
    error: str | None = None
    """Of the last failure."""
    next_try: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStart:
    """What a sink knows of the start of one pending workload."""

    sink: str
    workload: WorkloadId
    ref: ObjectRef
    queue: str
    start: datetime | None = None
    """When it is expected to start, as told last, or as found first; None: no forecast had a median yet."""
    told: int = 0
    """Messages that the sink has accepted about it."""
    moved: datetime | None = None
    """When it is expected to start as the next message tells; None: there is nothing to tell."""
    moved_at: datetime | None = None
    """The time of that forecast."""


class ToldStarts(Protocol):
    """Starts that sinks know of. Raises LedgerUnavailable."""

    async def waiting(
        self, sink: str, namespaces: Collection[str], queues: Collection[str], limit: int
    ) -> tuple[datetime, list[ToldStart]]:
        """The time, and pending workloads: those with something to tell, then those asked longest ago.

        `namespaces`, `queues`: only workloads in these; empty: in any.
        """

    async def found(self, known: ToldStart, start: datetime | None) -> None:
        """A forecast moved nothing. `start`: what is known from now on, if nothing was."""

    async def moved(self, known: ToldStart, start: datetime, at: datetime) -> ToldStart:
        """Store what is to be told, before it is sent."""

    async def accepted(self, known: ToldStart) -> None:
        """The sink has accepted the message about `known.moved`."""

    async def forget(self) -> None:
        """Forget workloads that are not pending any more."""


class Outbox(Protocol):
    """Decisions and cursors of one cluster, for sinks. Raises LedgerUnavailable."""

    async def occurrences(self, after: int, limit: int) -> Occurrences:
        """Of the first `limit` decisions above `after`, those that rules may select."""

    async def cursor(self, sink: str) -> Cursor:
        """That of a sink; a new one is told of what is decided from now on."""

    async def advance(self, cursor: Cursor, to: int, sent: int) -> bool:
        """Move a cursor after `sent` messages; False, and nothing stored, if it is not there any more."""

    async def failed(self, cursor: Cursor, failures: int, error: str, seconds: float) -> None:
        """Store why a message failed, and that it is sent again in so many seconds."""
