"""All that is known of one workload that is not over."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from datetime import datetime

from queuectl.core.flavors.queue_flavors import Charge, LastTriedFlavors
from queuectl.core.model import (
    NO_PAST_ATTEMPTS,
    Attempt,
    ObjectRef,
    Observation,
    Phase,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.policy import LocalQueueName
from queuectl.core.quota.tree import Cells
from queuectl.core.reasons import Reason
from queuectl.core.resources import FlavorResource

Order = tuple[int, int, int]
Place = tuple[int, int, int, str]
"""Order, and where that is the same the identity of the workload."""


def order(priority: int, created_at: datetime, arrival: int) -> Order:
    """Smaller goes first: higher priority, then earlier creation, then earlier first sight.

    Kubernetes stamps creation in whole seconds, so first sight decides between workloads of the same second.
    """
    return (-priority, int(created_at.timestamp()), arrival)


Shape = tuple[Charge, ...]
"""What a workload is charged and where it may run: all that a look depends on, but for its queue."""


class Entry:
    """All that is known of one workload that is not over."""

    __slots__ = (
        "arrival",
        "attempt",
        "attempts",
        "cells",
        "cluster_queue",
        "counted",
        "denied",
        "gate",
        "generation",
        "gone",
        "gone_at",
        "group",
        "handed",
        "id",
        "local_queue",
        "observation",
        "order",
        "past",
        "phase",
        "preempted_at",
        "priority",
        "probing",
        "queue",
        "reason",
        "recorded",
        "ref",
        "refused",
        "shape",
        "tried",
        "turn",
        "unsent",
        "workload",
    )

    def __init__(self, workload: WorkloadId, ref: ObjectRef) -> None:  # noqa: PLR0915 (a line per field)
        self.id = workload
        self.ref = ref
        self.workload: Workload | None = None
        """None: the ledger knows it, but its object has not been seen since the start."""
        self.observation: Observation | None = None
        self.phase = Phase.PENDING
        self.attempt: Attempt | None = None
        self.attempts = 0
        self.preempted_at: tuple[datetime, ...] = ()
        """When it was last preempted, oldest first; the last 16 times at most (P11)."""
        self.arrival = 0
        self.priority = 0
        self.queue = ""
        self.local_queue = LocalQueueName(ref.namespace, "")
        """The LocalQueue of that name in its namespace, which need not exist."""
        self.cells: Cells = []
        """What its open attempt holds."""
        self.cluster_queue: str | None = None
        self.order: Place = (0, 0, 0, workload)
        self.shape: Shape = ()
        self.tried: LastTriedFlavors = {}
        """Flavors looked at in the last cycle, if it is to go on from there (F8)."""
        self.turn = 0
        """How many times it has stood in a line: tells its place in a heap from those it had before."""
        self.group: EquivalenceGroup | None = None
        self.gate: Reason | None = None
        """Why it may not even stand in line."""
        self.reason: Reason | None = None
        """As last decided."""
        self.recorded: Hashable = None
        """What the ledger knows of it: changes of this are recorded."""
        self.gone = False
        """Its object is away, or no longer ours."""
        self.gone_at = ""
        """The resourceVersion at which it left, where that is known."""
        self.unsent: Verb | None = None
        """A committed write that is not acknowledged."""
        self.handed = False
        """That write is in the hands of the driver."""
        self.refused = False
        """The object had changed when we tried to start it, or may have: not to be started before a look."""
        self.denied: str | None = None
        """Why the API server would not let us start it as it is; until it is released for that."""
        self.past = NO_PAST_ATTEMPTS
        self.generation: int | None = None
        """Of the object after our last acknowledged write."""
        self.probing = False
        """The driver counts its pods."""
        self.counted = False
        """It did, and nothing was alive."""

    @property
    def current(self) -> bool:
        """Does the observation show the object as our last acknowledged write left it, or later?"""
        seen = self.observation
        return seen is not None and (self.generation is None or seen.generation >= self.generation)


class EquivalenceGroup:
    """Workloads that any look would find equal: of the same shape and priority.

    Changed by its line alone.
    """

    __slots__ = (
        "fresh",
        "heap",
        "key",
        "lacks",
        "line",
        "members",
        "parked",
        "reported",
        "shape",
    )

    def __init__(self, line: PendingQueue, key: Hashable, shape: Shape) -> None:
        self.line = line
        self.key = key
        self.shape = shape
        """Of the first that stood in it: of all, except under StrictFIFO."""
        self.heap: list[tuple[Place, int, Entry]] = []
        self.members: dict[WorkloadId, Entry] = {}
        self.parked: Reason | None = None
        self.lacks: tuple[tuple[FlavorResource, int], ...] = ()
        """What it lacked when it was parked, as its shelves have it."""
        self.reported: Hashable = None
        """Key of the reason its members were last told."""
        self.fresh: dict[WorkloadId, Entry] = {}
        """Members that have not been told."""

    def head(self) -> Entry | None:
        """First in order; forgets those that left."""
        while self.heap:
            _, turn, entry = self.heap[0]
            if entry.group is self and entry.turn == turn:
                return entry
            heapq.heappop(self.heap)
        return None

    def push(self, entry: Entry) -> None:
        # What leaves stays in the heap until it comes up; those that come and go must not make it grow.
        if len(self.heap) > 2 * len(self.members) + 16:
            self.heap = [item for item in self.heap if item[2].group is self and item[2].turn == item[1]]
            heapq.heapify(self.heap)
        heapq.heappush(self.heap, (entry.order, entry.turn, entry))
