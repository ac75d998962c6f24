"""Interfaces of a driver to the cluster and its Lease, and their errors."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from queuectl.core.decisions import ChildToCheck, PodOwnerToRead, PodsToCount
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.workload import (
    Effect,
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

    def __init__(self, message: str, settled: EffectSettled | None = None) -> None:
        super().__init__(message)
        self.settled = settled
        """What became of an effect that does not need the write; None: it needs it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A Kubernetes Event on a workload's object."""

    ref: ObjectRef
    reason: str
    """Pending, Admitted, NotScheduled, Evicted, StillTerminating or IdleDevices."""
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

    async def withdraw(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        """Give up a start that is denied: from then on it is refused also where a former leader, which stood
        still meanwhile, sends it. Denied; or done, if it has been started by now. Also the object now."""

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        """Suspend it: one patch that tests UID and generation.

        Done also if it is finished or suspended already, or if a later attempt of it runs.
        """

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        """By consistent reads: may the object make pods, or is any of its pods alive?

        `still`: for how many seconds counts have said that it is, without a change of it. After long its
        controller is not waited for.
        `unreachable`: nodes on which pods that are being deleted count as gone (M13).
        """

    async def count_fewer(self, count: PodsToCount, unreachable: Set[str] = frozenset()) -> list[Event]:
        """By consistent reads: are no more than `at_most` pods of an object that runs alive?

        If so, its admission is made to say how many it allows now: a gate in force lets it have no more.
        The events of the end of the count, PodsCounted last; empty: too many pods are alive, count again.
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
