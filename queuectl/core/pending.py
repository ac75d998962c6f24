"""Those that wait: per ClusterQueue a line, in it groups of equivalent workloads, each a heap of its own.

When the head of a group does not fit, the whole group is parked with that reason, and looked at again
only when something that it lacked comes free. So a queue of 10,000 equal jobs costs one look, not 10,000.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator

from queuectl.core.model import (
    Attempt,
    ObjectRef,
    Observation,
    Phase,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.ordering import Order
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import FlavorResource


class Entry:
    """All that is known of one workload that is not over."""

    __slots__ = (
        "arrival",
        "attempt",
        "attempts",
        "cluster_queue",
        "counted",
        "gate",
        "generation",
        "gone",
        "group",
        "handed",
        "id",
        "observation",
        "order",
        "phase",
        "priority",
        "probing",
        "queue",
        "reason",
        "recorded",
        "ref",
        "refused",
        "shape",
        "unsent",
        "workload",
    )

    def __init__(self, workload: WorkloadId, ref: ObjectRef) -> None:
        self.id = workload
        self.ref = ref
        self.workload: Workload | None = None
        """None: the ledger knows it, but its object has not been seen since the start."""
        self.observation: Observation | None = None
        self.phase = Phase.PENDING
        self.attempt: Attempt | None = None
        self.attempts = 0
        self.arrival = 0
        self.priority = 0
        self.queue = ""
        self.cluster_queue: str | None = None
        self.order: Order = (0, 0, 0)
        self.shape: Hashable = None
        self.group: Group | None = None
        self.gate: Reason | None = None
        """Why it may not even stand in line."""
        self.reason: Reason | None = None
        """As last decided."""
        self.recorded: Hashable = None
        """What the ledger knows of it: changes of this are recorded."""
        self.gone = False
        """Its object is away, or no longer ours."""
        self.unsent: Verb | None = None
        """A committed write that is not acknowledged."""
        self.handed = False
        """That write is in the hands of the driver."""
        self.refused = False
        """The object had changed when we tried to start it."""
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


class Group:
    """Workloads that any look would find equal: of the same shape and priority."""

    __slots__ = ("fresh", "heap", "key", "line", "members", "parked", "reported")

    def __init__(self, line: Line, key: Hashable) -> None:
        self.line = line
        self.key = key
        self.heap: list[tuple[Order, Entry]] = []
        self.members: dict[WorkloadId, Entry] = {}
        self.parked: Reason | None = None
        self.reported: Hashable = None
        """Key of the reason its members were last told."""
        self.fresh: dict[WorkloadId, Entry] = {}
        """Members that have not been told."""

    def head(self) -> Entry | None:
        """First in order; forgets those that left."""
        while self.heap:
            order, entry = self.heap[0]
            if entry.group is self and entry.order == order:
                return entry
            heapq.heappop(self.heap)
        return None

    @property
    def runnable(self) -> bool:
        return self.parked is None and bool(self.members)


class Line:
    """Those that wait in one ClusterQueue."""

    __slots__ = ("groups", "name", "strict")

    def __init__(self, name: str, *, strict: bool) -> None:
        self.name = name
        self.strict = strict
        self.groups: dict[Hashable, Group] = {}

    def add(self, entry: Entry, shape: Hashable, order: Order) -> None:
        """Stand in line. Under StrictFIFO all are one group, since the head alone is ever looked at."""
        key = None if self.strict else (shape, order[0])
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(self, key)
        former = group.head() if self.strict else None
        entry.group, entry.order = group, order
        heapq.heappush(group.heap, (order, entry))
        group.members[entry.id] = entry
        if entry.reason is None or entry.reason.key != group.reported:
            group.fresh[entry.id] = entry
        if former is not None and order < former.order:
            group.parked = None
            group.fresh[former.id] = former

    def remove(self, entry: Entry) -> None:
        group = entry.group
        if group is None:
            return
        led = self.strict and group.head() is entry
        entry.group = None
        del group.members[entry.id]
        group.fresh.pop(entry.id, None)
        if led:
            group.parked = None
        if not group.members:
            del self.groups[group.key]

    def park(self, entry: Entry, reason: Reason) -> None:
        """`entry` was looked at and kept: so is its group."""
        group = entry.group
        assert group is not None
        group.parked = reason
        told = self.behind() if self.strict else reason
        if group.reported != told.key:
            group.reported = told.key
            group.fresh = dict(group.members)
        group.fresh.pop(entry.id, None)

    def behind(self) -> Reason:
        """Why the others wait where the head alone is looked at (StrictFIFO)."""
        return Reason(code=Code.WAITING_FOR_HEAD, node=f"ClusterQueue/{self.name}")

    def wake(self, freed: frozenset[FlavorResource]) -> bool:
        """Look again at the groups that lack something of `freed`. Returns whether there are any."""
        woken = False
        for group in self.groups.values():
            if group.parked is not None and not freed.isdisjoint(lacking(group.parked)):
                group.parked = None
                woken = True
        return woken

    def wake_all(self) -> None:
        for group in self.groups.values():
            group.parked = None

    @property
    def due(self) -> bool:
        """Is there anything to decide here?"""
        return any(group.runnable or group.fresh for group in self.groups.values())

    def waiting(self) -> Iterator[Entry]:
        """All who stand in line, in no order."""
        for group in self.groups.values():
            yield from group.members.values()


def lacking(reason: Reason) -> Iterator[FlavorResource]:
    """The cells whose coming free may change this finding."""
    for finding in (reason, *reason.others):
        if finding.code is Code.WAITING_FOR_QUOTA and finding.flavor and finding.resource:
            yield FlavorResource(finding.flavor, finding.resource)
