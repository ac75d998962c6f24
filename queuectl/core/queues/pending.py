"""Those that wait: per ClusterQueue a line, in it groups of equivalent workloads, each a heap of its own.

When the head of a group does not fit, the whole group is parked with that reason, and looked at again
only when something that it lacked comes free. So a queue of 10,000 equal jobs costs one look, not 10,000.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from queuectl.core.entries import Entry, EquivalenceGroup, Place, Shape
from queuectl.core.model import (
    Assignment,
)
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import FlavorResource


class PendingQueue:
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
        self.groups: dict[Hashable, EquivalenceGroup] = {}
        self.awake: dict[EquivalenceGroup, None] = {}
        """Groups that are not parked: their heads are to be looked at."""
        self.woken: dict[EquivalenceGroup, None] = {}
        """Parked groups to be looked at again, if what came free for them is still there by then (W1)."""
        self.untold: dict[EquivalenceGroup, None] = {}
        """Groups with members that have not been told why they wait."""
        self.shelves: dict[FlavorResource, dict[EquivalenceGroup, int]] = {}
        """Parked groups by what they lack, each with the amount that would have to be available."""
        self.contending: dict[EquivalenceGroup, None] = {}
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
            group = self.groups[key] = EquivalenceGroup(self, key, shape)
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

    def told(self, group: EquivalenceGroup, entry: Entry) -> None:
        """`entry` knows why it waits, or is not in this line any more."""
        group.fresh.pop(entry.id, None)
        if not group.fresh:
            self.untold.pop(group, None)

    def behind(self) -> Reason:
        """Why the others wait where somebody else alone is looked at (StrictFIFO, or a preemptor)."""
        return Reason(code=Code.WAITING_FOR_HEAD, node=f"ClusterQueue/{self.name}")

    def wake(self, group: EquivalenceGroup) -> None:
        """Look at it again."""
        self._unpark(group)

    def call(self, group: EquivalenceGroup) -> None:
        """Something came free that it lacked: look at it again, unless others are faster."""
        if group.parked is not None:
            self.woken[group] = None

    def may_fit(self, group: EquivalenceGroup, tree: QuotaTree, node: QuotaNode) -> bool:
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

    def _owe(self, group: EquivalenceGroup, entry: Entry) -> None:
        if entry is self.preemptor:
            return  # it waits for its victims, whoever comes before it meanwhile
        group.fresh[entry.id] = entry
        self.untold[group] = None

    def _unpark(self, group: EquivalenceGroup) -> None:
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
