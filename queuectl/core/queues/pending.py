"""Pending workloads: per ClusterQueue a queue of groups of equivalent workloads, each group a heap.

When the head of a group does not fit, the whole group becomes inadmissible with that reason, and its head is
nominated again only when something that was missing becomes available. So a queue of 10,000 equal Jobs costs
one nomination, not 10,000.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from queuectl.core.entries import Entry, EquivalenceGroup, Shape
from queuectl.core.model.pods import Pods
from queuectl.core.model.reasons import Code, Family, Reason
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import NO_PAST_ATTEMPTS, PastAttempts, Place
from queuectl.core.past_usage import Turn, turn_of
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim, PreemptionClaims


def queue_place(
    priority: int,
    created_at: datetime,
    arrival: int,
    workload: str,
    *,
    past: PastAttempts = NO_PAST_ATTEMPTS,
    loses_place: bool = False,
) -> Place:
    """Return the sort key of O1, O2, O6 and O9: higher priority, then earlier creation, then earlier first
    sight.

    Kubernetes stamps creation in whole seconds, so first sight decides between workloads of the same second.
    `loses_place`: the end of its pause counts as the creation where it is later.
    """
    created_at = past.ordered_from or created_at
    if loses_place and past.until is not None:
        created_at = max(created_at, past.until)
    return (-priority, int(created_at.timestamp()), arrival, workload)


def waits_since(place: Place) -> datetime:
    """Return since when a workload waits, by its place (O2, O6)."""
    return datetime.fromtimestamp(place[1], UTC)


_MOST_INSERTED: Final = 1000
"""Workloads that are inserted or deleted one by one; for more, the line is sorted again when asked for."""


def _order(entry: Entry) -> Place:
    return entry.order


@dataclass(slots=True, eq=False, repr=False)
class PendingQueue:
    """The pending workloads of one ClusterQueue."""

    name: str
    _claims: PreemptionClaims
    _line: list[Entry] | None = None
    """Its workloads in the order of O1, O2 and O6; None: it is to be sorted when it is asked for."""
    _inserted: int = 0
    """Number of changes of `_line` since it was last asked for."""
    _told: str | None = None
    """The detail that those behind the head were told last, under StrictFIFO."""
    strict: bool = False
    """StrictFIFO: the head alone is nominated."""
    usage_based: bool = False
    """Its LocalQueues are ordered by past usage (U1)."""
    users_by_usage: bool = False
    """So are the users of each (U6)."""
    groups: dict[Hashable, EquivalenceGroup] = field(default_factory=dict)
    active: dict[EquivalenceGroup, None] = field(default_factory=dict)
    """Groups that are not inadmissible: their heads are to be nominated."""
    requeued: dict[EquivalenceGroup, None] = field(default_factory=dict)
    """Inadmissible groups to be nominated again, if what became available for them still is (W1)."""
    unreported: dict[EquivalenceGroup, None] = field(default_factory=dict)
    """Groups with members that the ledger has, and for which no reason has been reported yet."""
    by_missing: dict[FlavorResource, dict[EquivalenceGroup, int]] = field(default_factory=dict)
    """Inadmissible groups by what is missing, with the least amount that would have to be available."""
    may_preempt: dict[EquivalenceGroup, None] = field(default_factory=dict)
    """Inadmissible groups that depend also on which workloads hold quota, and what is reserved (W3)."""
    lacking: dict[EquivalenceGroup, tuple[Pods, ...]] = field(default_factory=dict)
    """Inadmissible groups for whose pods nodes had no room: room for one of these helps (W6)."""
    reserves: frozenset[FlavorResource] = field(default_factory=frozenset)
    """Cells of which its head reserves some, as long as it is the head (C6)."""

    @property
    def order(self) -> tuple[bool, bool, bool]:
        """What of its policy decides the order of its workloads."""
        return self.strict, self.usage_based, self.users_by_usage

    # --- claims

    @property
    def claim(self) -> PreemptionClaim | None:
        """What a workload of this queue has preempted for: that workload comes first (C7)."""
        return self._claims.by_queue.get(self.name)

    @property
    def blocked(self) -> bool:
        """Whether victims of a claim still hold quota. Under StrictFIFO nothing is nominated then (C7)."""
        claim = self.claim
        return claim is not None and claim.state is ClaimState.WAITING

    def preempted(self, entry: Entry) -> bool:
        """Whether `entry` has preempted, and comes first."""
        claim = self.claim
        return claim is not None and claim.owner == entry.id

    # --- members

    def turn(self, entry: Entry) -> Turn:
        """Return whose past usage orders a workload (U1, U6)."""
        return turn_of(entry, by_user=self.users_by_usage)

    def add(self, entry: Entry, shape: Shape, place: Place) -> None:
        """Queue `entry`. Under StrictFIFO all are one group, since the head alone is nominated."""
        turn = self.turn(entry) if self.usage_based else None
        key = turn if self.strict else (shape, place[0], turn)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = EquivalenceGroup(self.name, key, shape)
            self.active[group] = None
            if self.strict:
                self._activate_all_but(group)  # it may come before the head, by past usage (U1)
        former = group.head() if self.strict else None
        if not self.strict:
            shape = group.shape  # one object for all members: what was computed for it is found by identity
        entry.group, entry.order, entry.shape, entry.last_tried = group, place, shape, {}
        entry.heap_version += 1
        group.push(entry)
        group.members[entry.id] = entry
        group.refused |= entry.refused
        if (line := self._line_to_change()) is not None:
            insort(line, entry, key=_order)
        if entry.reason is None or entry.reason.key != group.reported:
            self.mark_unreported(group, entry)
        if former is not None and place < former.order:
            self.activate(group)
            self.mark_unreported(group, former)
        elif group in self.may_preempt and group.head() is entry:
            self.activate(group)  # it is older than the former head: other workloads are newer than it (P2)

    def remove(self, entry: Entry) -> None:
        group = entry.group
        if group is None:
            return
        led = self.strict and group.head() is entry
        entry.group = None
        if (line := self._line_to_change()) is not None:
            del line[bisect_left(line, entry.order, key=_order)]
        del group.members[entry.id]
        self.mark_reported(group, entry)
        if not group.members:
            self.activate(group)
            del self.groups[group.key], self.active[group]
        elif led:
            self.activate(group)

    def entries(self) -> Iterator[Entry]:
        """All pending workloads, in no order."""
        for group in self.groups.values():
            yield from group.members.values()

    def in_order(self) -> Sequence[Entry]:
        """All pending workloads in the order of O1, O2 and O6. Sorted once, then kept in order."""
        if self._line is None:
            self._line = sorted(self.entries(), key=_order)
        self._inserted = 0
        return self._line

    def _line_to_change(self) -> list[Entry] | None:
        """Return what `in_order` has returned; None where so much changed since that it is sorted again."""
        self._inserted += 1
        if self._inserted > _MOST_INSERTED:
            self._line = None
        return self._line

    # --- inadmissible groups

    def mark_inadmissible(self, entry: Entry, reason: Reason) -> None:
        """`entry`, the head of its group, was nominated and not admitted."""
        group = entry.group
        assert group is not None
        self.activate(group)
        if self.strict:
            self._activate_all_but(group)
        partly = any(charge.pod_set.min_count is not None for charge in entry.shape)
        group.inadmissible, group.missing = reason, tuple(missing(reason, partly=partly))
        del self.active[group]
        for cell, amount in group.missing:
            there = self.by_missing.setdefault(cell, {})
            there[group] = min(amount, there.get(group, amount))
        told = self.told(reason)
        if group.reported != told.key:
            group.reported = told.key
            known = (one for one in group.members.values() if one.recorded is not None)
            group.unreported = {one.id: one for one in sorted(known, key=_order)}
            self.unreported[group] = None
        if self.strict and told.detail != self._told:
            self._told = told.detail
            for other in self.groups.values():
                for one in other.members.values() if other is not group else ():
                    self.mark_unreported(other, one)
        self.mark_reported(group, entry)

    def activate(self, group: EquivalenceGroup) -> None:
        """Nominate its head again, whatever was missing."""
        self.requeued.pop(group, None)
        if group.inadmissible is None:
            return
        for cell, _ in group.missing:
            if (there := self.by_missing.get(cell)) is not None:
                there.pop(group, None)
                if not there:
                    del self.by_missing[cell]
        group.inadmissible, group.missing = None, ()
        self.may_preempt.pop(group, None)
        self.lacking.pop(group, None)
        self.active[group] = None

    def _activate_all_but(self, group: EquivalenceGroup) -> None:
        """Under StrictFIFO one group at most is inadmissible, that of the head; others wait for it (C4)."""
        for other in [one for one in self.groups.values() if one is not group and one.inadmissible]:
            self.activate(other)
            if (head := other.head()) is not None:
                self.mark_unreported(other, head)

    def activate_behind(self) -> None:
        """Nominate again what would have preempted, had no claim of another workload been open (C7)."""
        for group in list(self.may_preempt):
            self.activate(group)

    def activate_all(self) -> None:
        """Nominate all groups again, from the first flavor on."""
        for group in self.groups.values():
            self.activate(group)
            if (head := group.head()) is not None:
                head.last_tried = {}

    def requeue(self, group: EquivalenceGroup) -> None:
        """Something that was missing became available: nominate its head again, if it still is by then."""
        if group.inadmissible is not None:
            self.requeued[group] = None

    def forget(self, group: EquivalenceGroup) -> None:
        """What became available for `group` is too little, or taken already: its finding stays.

        Members that were told another reason meanwhile get this one (R2).
        """
        self.requeued.pop(group)
        reason = group.inadmissible
        assert reason is not None
        told = self.told(reason)
        if group.reported == told.key:
            return
        group.reported, head = told.key, group.head()
        for entry in sorted(group.members.values(), key=_order):
            right = reason if entry is head else told
            if entry.reason is None or entry.reason.key != right.key:
                self.mark_unreported(group, entry)

    @property
    def stopped_at_head(self) -> bool:
        """Under StrictFIFO: its head was nominated and not admitted, so no other is nominated (O4)."""
        return self.strict and len(self.active) < len(self.groups)

    @property
    def due(self) -> bool:
        """Whether anything is to be decided here."""
        if self.unreported or self.name in self._claims.helped:
            return True
        claim = self.claim
        if claim is None or claim.state is not ClaimState.WAITING:
            return bool(self.requeued or (self.active and not self.stopped_at_head))
        groups = () if self.strict else chain(self.active, self.requeued)
        return any(claim.owner not in group.members for group in groups)

    # --- reasons

    def waiting_for_head(self) -> Reason:
        """The reason of the others where only one is nominated: the head under StrictFIFO, or a preemptor."""
        found = (group.inadmissible for group in self.groups.values()) if self.strict else ()
        return self._behind(next((reason for reason in found if reason is not None), None))

    def _behind(self, head: Reason | None) -> Reason:
        """`head`: the reason of the head, which those behind it have too if it can never run."""
        detail = None
        if head is not None and head.family is Family.NEVER:
            detail = f"its head can never run with the present configuration: {_brief(head)}"
        return Reason(code=Code.WAITING_FOR_HEAD, node=f"ClusterQueue/{self.name}", detail=detail)

    def told(self, reason: Reason) -> Reason:
        """The reason of the members of an inadmissible group, whose head has `reason`."""
        return self._behind(reason) if self.strict else reason

    def mark_reported(self, group: EquivalenceGroup, entry: Entry) -> None:
        """The reason of `entry` has been reported, or it is not in this queue any more."""
        group.unreported.pop(entry.id, None)
        if not group.unreported:
            self.unreported.pop(group, None)

    def mark_unreported(self, group: EquivalenceGroup, entry: Entry) -> None:
        """The reason of `entry` is to be reported, if the ledger has it."""
        if entry.recorded is None:
            return  # the plan that queues it in the ledger reports its reason, or `note_unreported` follows
        if not self.preempted(entry):  # it waits for its victims, whatever is queued before it meanwhile
            group.unreported[entry.id] = entry
            self.unreported[group] = None


def _brief(reason: Reason) -> str:
    """Return its code, flavor and resource: no number, and nothing about other workloads."""
    what = f"{reason.code} of {reason.resource}" if reason.resource else reason.code
    return f"{what} in flavor {reason.flavor}" if reason.flavor else str(what)


def is_refusal(reason: Reason) -> bool:
    """Return whether a workload that waits with that reason was nominated and not admitted.

    The head of its group was, where it is not the head itself.
    """
    if reason.passed_over:
        return False
    if reason.code is Code.RESOURCE_NOT_COVERED:
        return reason.resource is not None  # without one it is ineligible (G1)
    return reason.code in _REFUSALS


_REFUSALS: Final = frozenset(
    {
        Code.EXCEEDS_MAX_QUOTA,
        Code.NO_MATCHING_FLAVOR,
        Code.NO_NODE_CAN_FIT,
        Code.WAITING_FOR_QUOTA,
        Code.CAPACITY_MISSING,
        Code.NO_NODE_FITS,
        Code.MIN_RUN_TIME_PROTECTED,
    }
)


_MISSING = (Code.WAITING_FOR_QUOTA, Code.MIN_RUN_TIME_PROTECTED)


def missing(reason: Reason, *, partly: bool = False) -> Iterator[tuple[FlavorResource, int]]:
    """Yield the cells that may change this finding when they become available, with the amount needed (W1).

    `partly`: the finding is about all pods of a workload that may start with fewer (F9): any amount counts.
    """
    for finding in (reason, *reason.others):
        if not (finding.flavor and finding.resource):
            continue
        cell = FlavorResource(finding.flavor, finding.resource)
        if partly and finding.code in (*_MISSING, Code.EXCEEDS_MAX_QUOTA):
            yield cell, 1
        elif finding.code in _MISSING:
            yield cell, finding.requested or 0


def wanted(reason: Reason) -> Iterator[FlavorResource]:
    """Yield the cells that its head would use, had they been available, with room on nodes (C6)."""
    for finding in (reason, *reason.others):
        if finding.flavor and finding.resource and finding.code in _WANTED:
            yield FlavorResource(finding.flavor, finding.resource)


_WANTED: Final = (*_MISSING, Code.CAPACITY_MISSING, Code.NO_NODE_FITS)
