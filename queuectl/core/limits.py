"""What limits admissions, trials of that, which are rolled back, and what holds quota while a plan is made.

Quota (`core/quota/tree.py`) comes first. Features may limit pods beside it, by an `AdmissionLimit` each.
Admission cycles, preemption searches and claims ask `Limits` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from itertools import chain
from typing import Protocol

from queuectl.core.entries import Entry
from queuectl.core.flavors.pods import KnownPods
from queuectl.core.flavors.queue_flavors import Charge
from queuectl.core.model.pods import Pods, Spots
from queuectl.core.model.policy import ClusterQueue, Preemption, SchedulingConfiguration
from queuectl.core.model.reasons import Reason
from queuectl.core.model.values import value
from queuectl.core.model.workload import Assignment, WorkloadId
from queuectl.core.past_usage import PlannedUsage, turn_of
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree


@value(frozen=True, slots=True)
class Hold:
    """What one workload holds, or would hold."""

    node: QuotaNode
    """Of the ClusterQueue that is charged."""
    cells: Cells
    """Pairs of a cell number and an amount in base units."""
    owner: WorkloadId | None = None
    """None: quota alone is held, such as what a head reserves (C6)."""
    pods: Pods = ()
    """The pods that it would have. Empty for a workload that has an open attempt: its pods are known."""
    spots: Spots | None = None
    """The nodes of its pods, where these are given; None: where they fit."""
    ended: bool = False
    """It is released: its pods that are bound count until they are gone (M9), and no others are expected."""

    @property
    def nodes(self) -> Iterator[str]:
        """The names of the nodes that are given, once for each pod."""
        return (name for name, _ in self.spots or ())


class AdmissionLimit(Protocol):
    """What limits admissions beside quota, by the pods that they have: room on nodes."""

    def __bool__(self) -> bool:
        """Whether it limits anything now."""

    def fits(self, pods: Pods) -> bool:
        """Return whether all these pods fit now."""

    def fits_soon(self, pods: Pods) -> bool:
        """Return whether they fit once those are gone that end already."""

    def why_not(self, pods: Pods) -> Reason:
        """Return why they do not fit."""

    def why_reserved(self, pods: Pods) -> Reason:
        """Return why pods that fitted when they were nominated do not: the room is reserved for others."""

    def largest(self, pods: Pods) -> tuple[int, ...]:
        """Return what the pod takes that takes most, to be compared with others."""

    def place(self, pods: Pods) -> Spots:
        """Return where they would be now."""

    def ways_on(self, pods: Pods, nodes: Iterable[str]) -> Iterator[Spots]:
        """Yield ways in which as many of them as possible may come to be on these nodes."""

    def add(self, owner: WorkloadId, pods: Pods, spots: Spots | None) -> None:
        """Charge the pods of `owner`, whether they fit or not; or undo `remove`, exactly."""

    def remove(self, owner: WorkloadId, *, ended: bool) -> None:
        """Undo `add`, exactly; or try without the pods of a workload that holds quota."""

    def take_grown(self) -> bool:
        """Return whether more may fit than at the last call."""


class Limits:
    """All limits together. Quota is asked first: it is cheaper, and binds more often."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self.others: list[AdmissionLimit] = []
        """Those of active features."""
        self._known_pods = KnownPods()
        self.journal: list[Change] = []
        """The changes of all open trials, in order."""
        self.released: set[WorkloadId] = set()
        """Holders that an open trial releases."""

    def fits(self, hold: Hold) -> bool:
        """Return whether all of `hold` is available now."""
        return self._tree.fits(hold.node, hold.cells) and (not hold.pods or self.have_room(hold.pods))

    # --- pods

    @property
    def limit_pods(self) -> bool:
        """Whether anything but quota is limited."""
        return any(self.others)

    def pods_of(self, charges: Iterable[Charge], assignment: Assignment) -> Pods:
        """Return the pods that an admission has; none where quota alone is limited."""
        return self._known_pods.of(charges, assignment) if self.others and self.limit_pods else ()

    def have_room(self, pods: Pods) -> bool:
        """Return whether nothing but quota may prevent `pods`."""
        return all(limit.fits(pods) for limit in self.others)

    def have_room_soon(self, pods: Pods) -> bool:
        """Return the same, once pods are gone that end already: no victim is needed (M9)."""
        return all(limit.fits_soon(pods) for limit in self.others)

    def lack_room(self, hold: Hold) -> bool:
        """Return whether `hold` is prevented although quota is available."""
        return self._tree.fits(hold.node, hold.cells) and bool(hold.pods) and not self.have_room(hold.pods)

    def why_no_room(self, pods: Pods) -> Reason:
        """Return why `pods`, which have no room, have none."""
        return next(limit.why_not(pods) for limit in self.others if not limit.fits(pods))

    def why_reserved(self, pods: Pods) -> Reason:
        """Return why pods that had room when they were nominated have none: it is reserved for others."""
        short = (limit for limit in self.others if not limit.fits(pods))
        return next(short, self.others[0]).why_reserved(pods)

    def largest(self, pods: Pods) -> tuple[int, ...]:
        """Return what the pod takes that takes most."""
        return max((limit.largest(pods) for limit in self.others), default=())

    def placed(self, hold: Hold) -> Hold:
        """Return `hold` with the nodes that its pods would get now."""
        if not (hold.pods and self.others):
            return hold
        return replace(hold, spots=self.others[0].place(hold.pods))

    def ways_on(self, pods: Pods, nodes: Iterable[str]) -> Iterator[Spots]:
        """Yield ways in which as many of `pods` as possible may come to be on these nodes."""
        return chain.from_iterable(limit.ways_on(pods, nodes) for limit in self.others)

    # --- trials

    def trying(self) -> Trial:
        """Return a trial, the only way to change limits: `with limits.trying() as trial:`. Trials nest."""
        return Trial(self)

    def charge(self, hold: Hold) -> None:
        """For trials: charge `hold`, whether it fits or not."""
        self._tree.add(hold.node, hold.cells)
        if hold.owner is not None:
            for limit in self.others:
                if limit:
                    limit.add(hold.owner, hold.pods, hold.spots)

    def discharge(self, hold: Hold) -> None:
        """For trials: undo `charge`, exactly; or take away what a workload holds."""
        self._tree.remove(hold.node, hold.cells)
        if hold.owner is not None:
            for limit in self.others:
                if limit:
                    limit.remove(hold.owner, ended=hold.ended)


class _Kind(Enum):
    ADDED = auto()
    REMOVED = auto()
    RELEASED = auto()


Change = tuple[Hold, _Kind]


class Trial:
    """What is tried on limits. It is rolled back at the end of its `with` block, in any case (C5)."""

    __slots__ = ("_journal", "_limits", "_start")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._journal = limits.journal
        self._start = len(limits.journal)

    def __enter__(self) -> Trial:
        return self

    def add(self, hold: Hold) -> None:
        """Charge `hold`, whether it fits or not."""
        self._limits.charge(hold)
        self._journal.append((hold, _Kind.ADDED))

    def remove(self, hold: Hold) -> None:
        """Take away `hold`, which was added, or is what a workload holds."""
        self._limits.discharge(hold)
        self._journal.append((hold, _Kind.REMOVED))

    def release(self, hold: Hold) -> None:
        """Take away what a workload holds, which then counts as released: it is no candidate of a search."""
        owner, released = hold.owner, self._limits.released
        if owner is None or owner in released:
            self.remove(hold)
            return
        self._limits.discharge(hold)
        released.add(owner)
        self._journal.append((hold, _Kind.RELEASED))

    def keep(self) -> None:
        """What was tried so far stays for the outer trial, which rolls it back at its own end."""
        self._start = len(self._journal)

    def roll_back(self, *_: object) -> None:
        """Undo what was tried so far and not kept, the last change first."""
        journal, limits = self._journal, self._limits
        while len(journal) > self._start:
            hold, kind = journal.pop()
            if kind is _Kind.ADDED:
                limits.discharge(hold)
                continue
            limits.charge(hold)
            if kind is _Kind.RELEASED and hold.owner is not None:
                limits.released.discard(hold.owner)

    __exit__ = roll_back


def held_by(tree: QuotaTree, entry: Entry) -> Hold:
    """Return what `entry`, which has an open attempt, holds."""
    assert entry.attempt is not None
    return Hold(tree.queue(entry.attempt.assignment.cluster_queue), entry.cells, entry.id)


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The workloads that hold quota while a plan is made, with what the plan changes."""

    tree: QuotaTree
    """Borrowing and shares are read from it."""
    limits: Limits
    """What is tried is tried on them."""
    queues: Mapping[str, ClusterQueue]
    entries: Mapping[WorkloadId, Entry]
    holders: Mapping[str, Mapping[WorkloadId, Entry]]
    """Entries with an open attempt, by the ClusterQueue that is charged."""
    configuration: SchedulingConfiguration
    now: datetime
    past_usage: PlannedUsage | None = None
    """None: nothing is ordered by past usage (U1)."""
    set_aside: Set[str] = frozenset()
    """Holders about which nothing is decided, or whose pods do not end in time: they are no candidates."""

    @property
    def released(self) -> Set[WorkloadId]:
        """Holders that the plan releases, or that are tried without."""
        return self.limits.released

    @contextmanager
    def without(self, victims: Iterable[Entry]) -> Iterator[None]:
        """Try without `victims`, as if they were released."""
        with self.limits.trying() as trial:
            for victim in victims:
                trial.release(held_by(self.tree, victim))
            yield

    def placed(self, hold: Hold, *, without: Collection[Entry]) -> Hold:
        """Return `hold` with the nodes that its pods get once the workloads of `without` are gone."""
        if not hold.pods:
            return hold
        with self.without(without):
            return self.limits.placed(hold)

    def usage_of_members(self, node: QuotaNode) -> PlannedUsage | None:
        """Return the past usage that orders the members of the tree of `node`; None: it does not (U7)."""
        return self.past_usage if self.tree.root(node).sharing.by_past_usage else None

    def rules(self, node: QuotaNode) -> Preemption:
        queue = self.queues.get(node.name)
        return queue.preemption if queue is not None else Preemption()

    def admit(self, entry: Entry, assignment: Assignment) -> None:
        """The plan admits `entry`: count that as usage (U4)."""
        if self.past_usage is not None:
            node = self.tree.queue(assignment.cluster_queue)
            self.past_usage.admit(turn_of(entry, by_user=True), assignment.resources(), node.path())

    def holding(self, node: QuotaNode) -> Iterable[Entry]:
        """Return the entries that hold quota of a ClusterQueue."""
        found = self.holders.get(node.name)
        if not found:
            return ()
        if not (self.released or self.set_aside):
            return found.values()
        out = self.released | self.set_aside
        return [entry for entry in found.values() if entry.id not in out]
