"""Those that wait: per ClusterQueue a line, in it groups of equivalent workloads, each a heap of its own.

When the head of a group does not fit, the whole group is parked with that reason, and looked at again
only when something that it lacked comes free. So a queue of 10,000 equal jobs costs one look, not 10,000.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator

from queuectl.core.flavors import Charge
from queuectl.core.model import (
    Attempt,
    LocalQueueName,
    ObjectRef,
    Observation,
    Phase,
    Verb,
    Workload,
    WorkloadId,
)
from queuectl.core.ordering import Place
from queuectl.core.past import NOTHING
from queuectl.core.quota import Cells
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import FlavorResource

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
        "priority",
        "probing",
        "queue",
        "reason",
        "recorded",
        "ref",
        "refused",
        "shape",
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
        self.turn = 0
        """How many times it has stood in a line: tells its place in a heap from those it had before."""
        self.group: Group | None = None
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
        self.past = NOTHING
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
    """Workloads that any look would find equal: of the same shape and priority.

    Changed by its line alone.
    """

    __slots__ = ("fresh", "heap", "key", "line", "members", "parked", "reported")

    def __init__(self, line: Line, key: Hashable) -> None:
        self.line = line
        self.key = key
        self.heap: list[tuple[Place, int, Entry]] = []
        self.members: dict[WorkloadId, Entry] = {}
        self.parked: Reason | None = None
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


class Line:
    """Those that wait in one ClusterQueue."""

    __slots__ = ("awake", "groups", "name", "parked_for", "strict", "untold")

    def __init__(self, name: str, *, strict: bool) -> None:
        self.name = name
        self.strict = strict
        self.groups: dict[Hashable, Group] = {}
        self.awake: dict[Group, None] = {}
        """Groups that are not parked: their heads are to be looked at."""
        self.untold: dict[Group, None] = {}
        """Groups with members that have not been told why they wait."""
        self.parked_for: dict[FlavorResource, dict[Group, None]] = {}
        """Parked groups by what they lack."""

    def add(self, entry: Entry, shape: Shape, place: Place) -> None:
        """Stand in line. Under StrictFIFO all are one group, since the head alone is ever looked at."""
        key = None if self.strict else (shape, place[0])
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(self, key)
            self.awake[group] = None
        former = group.head() if self.strict else None
        entry.group, entry.order, entry.shape = group, place, shape
        entry.turn += 1
        group.push(entry)
        group.members[entry.id] = entry
        if entry.reason is None or entry.reason.key != group.reported:
            self._owe(group, entry)
        if former is not None and place < former.order:
            self._unpark(group)
            self._owe(group, former)

    def remove(self, entry: Entry) -> None:
        group = entry.group
        if group is None:
            return
        led = self.strict and group.head() is entry
        entry.group = None
        del group.members[entry.id]
        self.told(group, entry)
        if not group.members:
            self._unpark(group)
            del self.groups[group.key], self.awake[group]
        elif led:
            self._unpark(group)

    def park(self, entry: Entry, reason: Reason) -> None:
        """`entry`, a head, was looked at and kept: so is its group."""
        group = entry.group
        assert group is not None
        self._unpark(group)
        group.parked = reason
        del self.awake[group]
        for cell in lacking(reason):
            self.parked_for.setdefault(cell, {})[group] = None
        told = self.behind() if self.strict else reason
        if group.reported != told.key:
            group.reported = told.key
            group.fresh = {e.id: e for e in sorted(group.members.values(), key=lambda e: e.order)}
            self.untold[group] = None
        self.told(group, entry)

    def told(self, group: Group, entry: Entry) -> None:
        """`entry` knows why it waits, or is not in this line any more."""
        group.fresh.pop(entry.id, None)
        if not group.fresh:
            self.untold.pop(group, None)

    def behind(self) -> Reason:
        """Why the others wait where the head alone is looked at (StrictFIFO)."""
        return Reason(code=Code.WAITING_FOR_HEAD, node=f"ClusterQueue/{self.name}")

    def lacking(self, freed: Iterable[FlavorResource]) -> dict[Group, None]:
        """The parked groups that lack something of `freed`."""
        found: dict[Group, None] = {}
        for cell in freed:
            found |= self.parked_for.get(cell, {})
        return found

    def wake(self, freed: Iterable[FlavorResource]) -> bool:
        """Look again at the groups that lack something of `freed`. Returns whether there are any."""
        woken = self.lacking(freed)
        for group in woken:
            self._unpark(group)
        return bool(woken)

    def wake_all(self) -> None:
        for group in self.groups.values():
            self._unpark(group)

    @property
    def due(self) -> bool:
        """Is there anything to decide here?"""
        return bool(self.awake or self.untold)

    def waiting(self) -> Iterator[Entry]:
        """All who stand in line, in no order."""
        for group in self.groups.values():
            yield from group.members.values()

    def _owe(self, group: Group, entry: Entry) -> None:
        group.fresh[entry.id] = entry
        self.untold[group] = None

    def _unpark(self, group: Group) -> None:
        if group.parked is None:
            return
        for cell in lacking(group.parked):
            if (groups := self.parked_for.get(cell)) is not None:
                groups.pop(group, None)
                if not groups:
                    del self.parked_for[cell]
        group.parked = None
        self.awake[group] = None


def lacking(reason: Reason) -> Iterator[FlavorResource]:
    """The cells whose coming free may change this finding."""
    for finding in (reason, *reason.others):
        if finding.code is Code.WAITING_FOR_QUOTA and finding.flavor and finding.resource:
            yield FlavorResource(finding.flavor, finding.resource)
