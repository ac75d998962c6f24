"""Those that wait: per ClusterQueue a line, in it groups of equivalent workloads, each a heap of its own.

When the head of a group does not fit, the whole group is parked with that reason, and looked at again
only when something that it lacked comes free. So a queue of 10,000 equal jobs costs one look, not 10,000.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from datetime import datetime

from queuectl.core.menus import Charge, Tried
from queuectl.core.model import (
    Assignment,
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
from queuectl.core.quota import Cells, Node, QuotaTree
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
        self.tried: Tried = {}
        """Flavors looked at in the last cycle, if it is to go on from there (F8)."""
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

    def __init__(self, line: Line, key: Hashable, shape: Shape) -> None:
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


class Line:
    """Those that wait in one ClusterQueue."""

    __slots__ = (
        "awake",
        "blocked",
        "by_usage",
        "contending",
        "groups",
        "keeps",
        "name",
        "preemptor",
        "promised",
        "shelves",
        "strict",
        "untold",
        "woken",
    )

    def __init__(self, name: str, *, strict: bool, by_usage: bool = False) -> None:
        self.name = name
        self.strict = strict
        self.by_usage = by_usage
        """LocalQueues take turns by their past usage (U1)."""
        self.groups: dict[Hashable, Group] = {}
        self.awake: dict[Group, None] = {}
        """Groups that are not parked: their heads are to be looked at."""
        self.woken: dict[Group, None] = {}
        """Parked groups to be looked at again, if what came free for them is still there by then (W1)."""
        self.untold: dict[Group, None] = {}
        """Groups with members that have not been told why they wait."""
        self.shelves: dict[FlavorResource, dict[Group, int]] = {}
        """Parked groups by what they lack, each with the amount that would have to be available."""
        self.contending: dict[Group, None] = {}
        """Parked groups to whom it matters too who holds quota, and what is kept for whom (W3)."""
        self.preemptor: Entry | None = None
        """Has preempted, and comes first until it is let go (C7)."""
        self.promised: Assignment | None = None
        """What it has preempted for."""
        self.keeps: frozenset[FlavorResource] = frozenset()
        """Of what its head keeps some back from others, as long as it leads (C6)."""
        self.blocked = False
        """Nobody is looked at: the preemptor's victims are still alive."""

    def add(self, entry: Entry, shape: Shape, place: Place) -> None:
        """Stand in line. Under StrictFIFO all are one group, since the head alone is ever looked at."""
        queue = entry.local_queue if self.by_usage else None
        key = queue if self.strict else (shape, place[0], queue)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(self, key, shape)
            self.awake[group] = None
        former = group.head() if self.strict else None
        if not self.strict:
            shape = group.shape  # the same object for all of them: what was looked up for it is found by that
        entry.group, entry.order, entry.shape, entry.tried = group, place, shape, {}
        entry.turn += 1
        group.push(entry)
        group.members[entry.id] = entry
        if entry.reason is None or entry.reason.key != group.reported:
            self._owe(group, entry)
        if former is not None and place < former.order:
            self._unpark(group)
            self._owe(group, former)
        elif group in self.contending and group.head() is entry:
            self._unpark(group)  # it is older than the head that was looked at: others are newer than it (P2)

    def remove(self, entry: Entry) -> None:
        group = entry.group
        if group is None:
            return
        led = self.strict and group.head() is entry
        if self.preemptor is entry:
            self.preemptor, self.blocked = None, False
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
        partly = any(charge.pod_set.min_count is not None for charge in entry.shape)
        group.parked, group.lacks = reason, tuple(lacking(reason, partly=partly))
        del self.awake[group]
        for cell, amount in group.lacks:
            shelf = self.shelves.setdefault(cell, {})
            shelf[group] = min(amount, shelf.get(group, amount))
        self.tell(entry, reason)

    def tell(self, entry: Entry, reason: Reason) -> None:
        """`entry`, a head, knows why it waits; the rest of its group is to be told the same."""
        group = entry.group
        assert group is not None
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
        """Why the others wait where somebody else alone is looked at (StrictFIFO, or a preemptor)."""
        return Reason(code=Code.WAITING_FOR_HEAD, node=f"ClusterQueue/{self.name}")

    def wake(self, group: Group) -> None:
        """Look at it again."""
        self._unpark(group)

    def call(self, group: Group) -> None:
        """Something came free that it lacked: look at it again, unless others are faster."""
        if group.parked is not None:
            self.woken[group] = None

    def may_fit(self, group: Group, tree: QuotaTree, node: Node) -> bool:
        """Is a look at a parked group due, by what is available? Where heads keep others out it always is."""
        if self.strict or group in self.contending or group.parked is None:
            return True
        for name, amount in group.lacks:  # noqa: SIM110 (whoever waits in a tree is asked this at each end)
            if amount <= tree.available(node, tree.cells[name]):
                return True
        return False

    def wake_all(self) -> None:
        """Look at everybody again, from the first flavor on."""
        for group in self.groups.values():
            self._unpark(group)
            if (head := group.head()) is not None:
                head.tried = {}

    @property
    def halted(self) -> bool:
        """Its head was looked at in vain: under StrictFIFO nobody else is (O4)."""
        return self.strict and len(self.awake) < len(self.groups)

    @property
    def due(self) -> bool:
        """Is there anything to decide here?"""
        looked_at = self.woken or (self.awake and not self.halted)
        return bool((looked_at and not self.blocked) or self.untold)

    def waiting(self) -> Iterator[Entry]:
        """All who stand in line, in no order."""
        for group in self.groups.values():
            yield from group.members.values()

    def _owe(self, group: Group, entry: Entry) -> None:
        if entry is self.preemptor:
            return  # it waits for its victims, whoever comes before it meanwhile
        group.fresh[entry.id] = entry
        self.untold[group] = None

    def _unpark(self, group: Group) -> None:
        self.woken.pop(group, None)
        if group.parked is None:
            return
        for cell, _ in group.lacks:
            if (shelf := self.shelves.get(cell)) is not None:
                shelf.pop(group, None)
                if not shelf:
                    del self.shelves[cell]
        group.parked, group.lacks = None, ()
        self.contending.pop(group, None)
        self.awake[group] = None


_LACKING = (Code.WAITING_FOR_QUOTA, Code.MIN_RUN_TIME_PROTECTED)


def lacking(reason: Reason, *, partly: bool = False) -> Iterator[tuple[FlavorResource, int]]:
    """The cells whose coming free may change this finding, with what would have to be available (W1).

    `partly`: the finding is about all of its pods, and it would do with fewer (F9): with anything.
    """
    for finding in (reason, *reason.others):
        if not (finding.flavor and finding.resource):
            continue
        cell = FlavorResource(finding.flavor, finding.resource)
        if partly and finding.code in (*_LACKING, Code.EXCEEDS_MAX_QUOTA):
            yield cell, 1
        elif finding.code in _LACKING:
            yield cell, finding.requested or 0
