"""Interfaces of a driver to ledger, cluster, Lease and reviews, and the errors they raise."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.decisions import ChildToCheck, Plan, PodOwnerToRead
from queuectl.core.events import (
    EffectSettled,
    Event,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model import (
    NOTHING_FOR_READERS,
    Effect,
    EffectKey,
    ForReaders,
    LedgerSnapshot,
    ObjectRef,
)
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport


class KindState(NamedTuple):
    """What is known of one kind of job in the cluster."""

    installed: bool | None
    """None: not known."""
    served: tuple[str, ...]
    """Versions of a custom kind; empty if they are not known."""
    problem: str | None
    """Why its objects cannot be read; None: they can, as far as is known."""


class LostLeadership(Exception):
    """A newer epoch is in the ledger: this process must stop deciding."""


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


class ClusterUnavailable(Exception):
    """The API server can't be reached, or asks to try again later. Safe to repeat."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the server asks to wait."""


class WriteDenied(ClusterUnavailable):
    """The API server refuses this one write, because of another policy or a missing right, for example.

    Nothing was changed. Repeating it may help once that has been corrected.
    """


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


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes Event on a workload's object."""

    ref: ObjectRef
    reason: str
    """Pending, Admitted, NotScheduled, Evicted or StillTerminating."""
    message: str
    warning: bool = False
    key: str = ""
    """Distinguishes it from others with the same reason, such as a sequence; empty: the message does."""
    at: datetime | None = None
    """When it was decided; None: when it is sent."""


class Cluster(Protocol):
    """Writes to Kubernetes. All calls may raise ClusterUnavailable and may be repeated."""

    async def start(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        """Start it: one patch that tests UID, generation and queue. If refused, also the object now."""

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        """Suspend it: one patch that tests UID and generation.

        Done also if it is finished or suspended already, or if a later attempt of it runs.
        """

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        counts: int = 0,
        unreachable: Set[str] = frozenset(),
        at_most: int | None = None,
    ) -> bool:
        """By consistent reads: may the object make pods, or is any of its pods alive?

        `at_most`: of an object that runs, are more than so many pods alive?

        `counts`: how many before this one said that it is. After many, its controller is not waited for.
        `unreachable`: nodes on which pods that are being deleted count as gone (M13).
        """

    async def check(self, child: ChildToCheck | PodOwnerToRead) -> list[Event]:
        """By consistent reads: a child and its family as they are now, then its owners as OwnerRead."""

    async def announce(self, notice: Notice) -> None:
        """Best effort: raises only ClusterUnavailable."""

    async def publish_local_queue(self, report: LocalQueueReport) -> None:
        """Write the status of a LocalQueue. A queue that is gone is no error."""

    async def publish_cluster_queue(self, report: ClusterQueueReport) -> None:
        """Write the status of a ClusterQueue. A queue that is gone is no error."""


class Lease(Protocol):
    """Decides which process should lead. Which writes count is decided by the epoch, not by the lease."""

    async def acquire(self) -> None:
        """Wait until it is ours. Raises ForeignLedger."""

    async def lost(self) -> None:
        """Return when it is no longer ours: all work must stop, then `release`."""

    async def release(self) -> None:
        """All work has stopped: give it up if it is still ours."""


# --- callers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token, as the cluster identifies it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Access(NamedTuple):
    """Something that RBAC may allow on our group; empty: any namespace, any name."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""


class Reviews(Protocol):
    """The cluster's reviews of tokens and access. Raises ClusterUnavailable if there is no answer."""

    async def who(self, token: str, audiences: Sequence[str]) -> User | None:
        """The user of a token that is meant for one of `audiences`; None: the token is not valid."""

    async def may(self, user: User, access: Access) -> bool: ...


# --- observing --------------------------------------------------------------------------------------

_OBSERVED = "/observe"


def observed_twin(cluster_id: str) -> str:
    """Id under which the ledger keeps the decisions of an observer, apart from all real holds."""
    return cluster_id + _OBSERVED


def is_observed(cluster_id: str) -> bool:
    return cluster_id.endswith(_OBSERVED)
