"""The controller's record of one workload that is not over, and groups of equivalent pending workloads."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, NamedTuple

from queuectl.core.flavors.queue_flavors import Charge, LastTriedFlavors
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import (
    NO_OPTIONS,
    NO_PAST_ATTEMPTS,
    Attempt,
    Attribution,
    ForcedRelease,
    ObjectRef,
    Observation,
    PastAttempts,
    Phase,
    Place,
    PodSet,
    UserOptions,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.pod_numbers import NOT_RESIZED, Resized
from queuectl.core.quota.tree import Cells

NOT_READ: Final = sys.maxsize
"""A generation that no object has: of a kind that cannot be read since the ledger was loaded, what was
observed before may be older than the ledger."""

Shape = tuple[Charge, ...]
"""All that a nomination depends on, but for the queue: what a workload is charged, and where it may run."""

NO_LOCAL_QUEUE = LocalQueueName("", "")
RECENT = 6
"""Events and decisions that an entry keeps for its story."""


class WorkloadEvent(NamedTuple):
    """An event or a decision of one workload. It is put into words only where its story is printed."""

    at: datetime
    what: str
    detail: object


def story(remarks: Iterable[WorkloadEvent]) -> str:
    """Return the last events and decisions of a workload, a line each, oldest first; times in UTC."""
    remarks = tuple(remarks)
    width = max((len(remark.what) for remark in remarks), default=0)
    lines = [
        f"{at:%Y-%m-%dT%H:%M:%SZ}  {what:<{width}}  {_words(detail)}".rstrip() for at, what, detail in remarks
    ]
    return "\n".join(lines) or "no event or decision is remembered"


def _words(detail: object) -> str:
    match detail:
        case Observation():
            state = detail.finished or ("suspended" if detail.suspended else "running")
            return f"{state}, generation {detail.generation}, resourceVersion {detail.resource_version}"
        case Reason():
            return detail.message
        case int():
            return f"attempt {detail}"
        case _:
            return "" if detail is None else str(detail)


class Stray(NamedTuple):
    """A child that runs and that no owner holds quota for (K3)."""

    detail: str
    stop: bool


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """The record of one workload that is not over: what was observed, what was decided, what is due."""

    FORK_COPIES: ClassVar = ("group",)
    """See `copies`."""
    id: WorkloadId
    ref: ObjectRef
    workload: Workload | None = None
    """None: the ledger has it, but its object has not been observed since the start of the controller."""
    observation: Observation | None = None
    marked_before: ForcedRelease | None = None
    """The release mark of its object when its open attempt was admitted: it releases nothing (L28)."""
    phase: Phase = Phase.PENDING
    recent: tuple[WorkloadEvent, ...] = ()
    """The last events and decisions, oldest first; RECENT at most."""
    attempt: Attempt | None = None
    attribution: Attribution | None = None
    """What its last attempt is booked on; None: unknown."""
    attempts: int = 0
    preempted_at: tuple[datetime, ...] = ()
    """When it was preempted, oldest first; the last 16 times at most (P11)."""
    evicted_at: datetime | None = None
    """When its open attempt was evicted; None: it is not."""
    arrival: int = 0
    priority: int = 0
    queue: str = ""
    local_queue: LocalQueueName = NO_LOCAL_QUEUE
    """The LocalQueue that it names, which need not exist."""
    cells: Cells = field(default_factory=list)
    """What its open attempt uses."""
    cluster_queue: str | None = None
    order: Place = (0, 0, 0, "")
    shape: Shape = ()
    last_tried: LastTriedFlavors = field(default_factory=dict)
    """Where the next nomination goes on among the flavors (F8)."""
    heap_version: int = 0
    """Counts how often it was added to a pending queue: older items in heaps are void."""
    group: EquivalenceGroup | None = None
    """None: it is in no pending queue."""
    ineligible: Reason | None = None
    """Why it may not be queued (section G)."""
    reason: Reason | None = None
    """As last decided."""
    refused: bool = False
    """It was nominated and not admitted by an earlier process, and has not been nominated by this one."""
    recorded: Hashable = None
    """What the ledger has of it: a change of this is recorded (L3)."""
    recorded_pods: tuple[PodSet, ...] = ()
    """The podsets that the ledger has of it, and a change of these."""
    recorded_options: UserOptions = NO_OPTIONS
    """The options that the ledger has of it, and a change of these while it waits."""
    gone_at: str | None = None
    """The resourceVersion at which its object went; empty: unknown; None: it is there."""
    unacknowledged: Verb | None = None
    """A committed write that is not acknowledged."""
    dispatched: bool = False
    """The driver has that write."""
    start_refused: bool = False
    """The object had changed when its start was sent, or may have: it is judged again before a start."""
    start_denied: str | None = None
    """Why the API server denies the start; until the workload is released for that."""
    past: PastAttempts = NO_PAST_ATTEMPTS
    held_known: bool = False
    """What its pods take is counted as its object, its attempt, policy and context are now."""
    generation: int | None = None
    """Of the object after our last acknowledged write; None: not known. `NOT_READ`: none counts."""
    stray: Stray | None = None
    """Why it is charged although it is a child; None: it is none, or its owner holds quota for it."""
    counting_pods: bool = False
    """The driver counts its pods."""
    count_void: bool = False
    """It ran since that count began: what the count finds is no proof that no pod is alive."""
    bound: int = 0
    """How many pods of it are known to be bound to nodes, without those that count as gone (M13)."""
    loose_pods: bool = False
    """Pods with its label have no controller: its object may have let them go, and they may run on."""
    pods_gone: bool = False
    """The driver counted, and none was alive."""
    resized: Resized = NOT_RESIZED
    """What is known of edits of its numbers of pods while it runs."""

    @property
    def gone(self) -> bool:
        """Whether its object is deleted, or has lost our label."""
        return self.gone_at is not None

    @property
    def current(self) -> bool:
        """Whether the observation shows the object as our last acknowledged write left it, or later."""
        seen = self.observation
        return seen is not None and (self.generation is None or seen.generation >= self.generation)

    @property
    def ruled_by(self) -> str | None:
        """The ClusterQueue whose rules apply: the one that its open attempt is charged to, or it waits in."""
        return self.attempt.assignment.cluster_queue if self.attempt is not None else self.cluster_queue

    @property
    def runs(self) -> bool:
        """Whether the observation shows the object as its start left it, or later."""
        seen = self.observation
        return seen is not None and not seen.suspended and self.current and self.unacknowledged is None

    def remember(self, at: datetime, what: str, detail: object) -> None:
        """Add an event or a decision to its story."""
        self.recent = (*self.recent[1 - RECENT :], WorkloadEvent(at, what, detail))


@dataclass(slots=True, eq=False, repr=False)
class EquivalenceGroup:
    """Pending workloads of one shape and priority: one nomination holds for all. Its queue changes it."""

    cluster_queue: str
    key: Hashable
    shape: Shape
    """Of its first member; of all members, except under StrictFIFO."""
    heap: list[tuple[Place, int, Entry]] = field(default_factory=list)
    members: dict[WorkloadId, Entry] = field(default_factory=dict)
    inadmissible: Reason | None = None
    """Why its head was not admitted; None: the head is to be nominated."""
    missing: tuple[tuple[FlavorResource, int], ...] = ()
    """What was not available when it became inadmissible."""
    refused: bool = False
    """A member was refused by an earlier process, and none has been nominated by this one (C12)."""
    reported: Hashable = None
    """Key of the reason that was last reported for its members."""
    unreported: dict[WorkloadId, Entry] = field(default_factory=dict)
    """Members for which it is still to be reported."""

    def head(self) -> Entry | None:
        """Return the first in order; removes void items from the heap."""
        while self.heap:
            _, version, entry = self.heap[0]
            if entry.group is self and entry.heap_version == version:
                return entry
            heapq.heappop(self.heap)
        return None

    def nominated(self) -> None:
        """This process has nominated its head."""
        if self.refused:
            self.refused = False
            for member in self.members.values():
                member.refused = False

    def push(self, entry: Entry) -> None:
        # An item of a workload that left stays until it comes up. Churn must not make the heap grow.
        if len(self.heap) > 2 * len(self.members) + 16:
            self.heap = [
                item for item in self.heap if item[2].group is self and item[2].heap_version == item[1]
            ]
            heapq.heapify(self.heap)
        heapq.heappush(self.heap, (entry.order, entry.heap_version, entry))
