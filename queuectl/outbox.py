"""What notifications need of the ledger: decisions after a sequence, and a cursor for each sink."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from queuectl.ports import DecisionRow


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A decision that rules of notifications may select, with what they need of the history before it."""

    decision: DecisionRow
    queue: str | None
    """The LocalQueue in which the workload was queued then; None: that is no longer stored."""
    waiting_since: datetime | None
    """The end of its former attempt, else its creation; None: that is no longer stored."""


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
    deleted: tuple[int, int] | None = None
    """First and last sequence of what was deleted with old history before `found`; None: nothing was."""


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
