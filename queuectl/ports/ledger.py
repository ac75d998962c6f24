"""Interface of a driver to the ledger, and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.decisions import Plan
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    NOTHING_FOR_READERS,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    WorkloadOutcome,
)


class LostLeadership(Exception):
    """A newer epoch is in the ledger: this process must stop deciding."""


class LedgerPosition(NamedTuple):
    """How much a ledger has, or is known to have."""

    decision: int = 0
    """Sequence of the last one."""
    transactions: int = 0

    def check(self, known: LedgerPosition) -> None:
        """Raises LostLeadership if the ledger has less than is known to be stored."""
        if self.decision < known.decision or self.transactions < known.transactions:
            raise LostLeadership(
                f"the ledger is at decision {self.decision}, transaction {self.transactions}, this process "
                f"has stored decision {known.decision}, transaction {known.transactions}: the database was "
                "restored from a backup, or is a replica that lacks the last transactions"
            )


class LedgerUnavailable(Exception):
    """The ledger can't be reached, or asks to try again.

    Whether the last commit is stored is not known: committing the same batch again finds out.
    """


class LedgerUnfit(LedgerUnavailable):
    """The database answers, but can't serve as a ledger: waiting does not help."""


class PlanFailed(LedgerUnavailable):
    """The plan can't be stored: a value that no row can hold, a limit, a timeout, a trigger, a missing right.

    Nothing of it is stored, by no earlier try of the same batch either.
    """

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state
        """The SQLSTATE."""


class LedgerRefused(Exception):
    """The ledger's own constraints refuse a plan: memory and ledger disagree. Nothing was stored."""


class SchemaMismatch(Exception):
    """The database has no schema, or one of a version that this program does not support."""


class ForeignLedger(Exception):
    """The cluster is led from another database: each of the two would admit to the whole quota."""


class NotStored(Exception):
    """The ledger has nothing of that time."""

    def __init__(self, when: datetime, earliest: datetime) -> None:
        super().__init__(
            f"the ledger has no decision of {when.isoformat()} or before: its first one is of "
            f"{earliest.isoformat()}"
        )


class Ledger(Protocol):
    """Stores decisions. One instance serves one cluster."""

    async def take_epoch(self, holder: str) -> int:
        """Raise the epoch: from now on only writes that carry it count. Returns it."""

    async def load(self) -> LedgerSnapshot:
        """The open state, read in one transaction."""

    async def now(self) -> datetime:
        """The database's clock, UTC; never before the last committed time."""

    async def outcomes(
        self, names: Sequence[NamedWorkload]
    ) -> Sequence[tuple[NamedWorkload, WorkloadOutcome | None]]:
        """How the workload of each name that ended last ended; None: none of this name is over."""

    async def commit(
        self,
        plan: Plan,
        acknowledged: Sequence[EffectKey],
        *,
        epoch: int,
        batch: str,
        for_readers: ForReaders = NOTHING_FOR_READERS,
    ) -> int:
        """Store recorded decisions, their holds and effects, and acknowledgements, in one transaction.

        Returns the sequence number of the first recorded decision (the next free one if there is none).
        Repeating the same `batch` stores nothing twice and returns the same number.
        Raises LostLeadership, LedgerRefused or LedgerUnavailable.
        """

    async def hand_over(self, epoch: int, read_up_to: Mapping[str, int]) -> None:
        """The leader of this epoch has stopped: store up to which resourceVersion it has read each kind.

        Void once anything is committed, and where another has taken the epoch. Raises LedgerUnavailable.
        """


_OBSERVED = "/observe"


def observed_twin(cluster_id: str) -> str:
    """Id under which the ledger keeps the decisions of an observer, apart from all real holds."""
    return cluster_id + _OBSERVED


def is_observed(cluster_id: str) -> bool:
    return cluster_id.endswith(_OBSERVED)
