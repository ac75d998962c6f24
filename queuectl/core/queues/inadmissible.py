"""Whom to look at again, and what is kept for whom meanwhile (docs/scheduling.md, C6, C7, W1 to W4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from queuectl.core.decisions import Claim
from queuectl.core.directory import Directory
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.model import WorkloadId
from queuectl.core.policy import ClusterQueue, PreemptionPolicy, SchedulingConfiguration
from queuectl.core.preemption.claims import Claims, OpenClaim
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.queues.requeueing import Timers
from queuectl.core.quota.shares import shares_fairly
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.resources import FlavorResource

Freed = dict[QuotaNode, set[FlavorResource]]
"""What came free, by the ClusterQueue that gave it back."""


def helped(tree: QuotaTree, lines: Mapping[str, PendingQueue], freed: Freed) -> dict[EquivalenceGroup, None]:
    """Parked groups that might fit now, or find victims now; the state is left as it is (W1, W3)."""
    found: dict[EquivalenceGroup, None] = {}
    roots: Freed = {}
    for node, cells in freed.items():
        roots.setdefault(tree.root(node), set()).update(cells)
    for root, cells in roots.items():
        for line in lines_below(root, lines):
            found |= line.contending
            if line.shelves:
                found |= _helped(tree, line, cells)
    return found


def prune(tree: QuotaTree, line: PendingQueue) -> None:
    """Whom others were faster than is not looked at (W1)."""
    node = tree.queue(line.name)
    for group in list(line.woken):
        if not line.may_fit(group, tree, node):
            del line.woken[group]


def _helped(tree: QuotaTree, line: PendingQueue, cells: set[FlavorResource]) -> dict[EquivalenceGroup, None]:
    found: dict[EquivalenceGroup, None] = {}
    node = tree.queue(line.name)
    for name in cells & line.shelves.keys():
        available = tree.available(node, tree.cell(name))
        for group, amount in line.shelves[name].items():
            if amount <= available:
                found[group] = None
    return found


def lines_below(root: QuotaNode, lines: Mapping[str, PendingQueue]) -> Iterator[PendingQueue]:
    """Of all ClusterQueues of a tree."""
    todo = [root]
    while todo:
        at = todo.pop()
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        elif (line := lines.get(at.name)) is not None:
            yield line


def tempted(
    tree: QuotaTree,
    lines: Mapping[str, PendingQueue],
    queues: Mapping[str, ClusterQueue],
    charged: Iterable[Entry],
    fair: Callable[[QuotaNode], bool],
) -> dict[EquivalenceGroup, None]:
    """Parked groups that might preempt one of those that have come to hold quota, or for whom it changed who
    borrows (W3). `fair`: does the tree of a queue share fairly? There any charge may move a share."""
    found: dict[EquivalenceGroup, None] = {}
    roots: dict[QuotaNode, None] = {}
    for entry in charged:
        if entry.attempt is None:
            continue
        node = tree.queue(entry.attempt.assignment.cluster_queue)
        line = lines.get(node.name)
        if line is not None and line.contending:
            found |= _above(line, entry)
        if node.parent is not None and (fair(node) or _borrows(node, entry)):
            roots[tree.root(node)] = None
    for root in roots:
        for line in lines_below(root, lines):
            queue = queues.get(line.name)
            if queue is not None and queue.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
                found |= line.contending
    return found


def _borrows(queue: QuotaNode, entry: Entry) -> bool:
    """Does any node on the way up use more than is its own of what `entry` holds?"""
    return any(node.borrows(cell) for node in queue.path() for cell, _ in entry.cells)


def _above(line: PendingQueue, entry: Entry) -> dict[EquivalenceGroup, None]:
    """Groups of the same queue whose head comes before `entry` in priority, or is older."""
    found: dict[EquivalenceGroup, None] = {}
    for group in line.contending:
        head = group.head()
        if head is not None and head.order[:2] < entry.order[:2]:
            found[group] = None
    return found


class Requeuer:
    """Wakes groups of `lines`, and notes in `due` the names of lines in which something is to be decided."""

    def __init__(
        self,
        directory: Directory,
        lines: Mapping[str, PendingQueue],
        due: set[str],
        settings: SchedulingConfiguration,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._tree = directory.tree
        self._lines = lines
        self._due = due
        self.claims = Claims()
        self.keeping: set[str] = set()
        """Names of the lines whose heads keep something back (C6); some may not do so any more."""
        self._freed: Freed = {}
        """What came free since somebody was last woken for it."""
        self._charged: list[Entry] = []
        """Those that have come to hold quota since then, or hold it at another priority."""
        self._protections: Timers[EquivalenceGroup] = Timers()
        """When those whom a parked group might preempt are protected no longer (W4)."""
        self._preemptors: set[str] = set()
        """Those for whom somebody was being evicted when this process started, as evictions name them."""

    def wake(self) -> None:
        """Those whom what came free can help, and those who could take from who came to hold quota."""
        freed, self._freed = self._freed, {}
        charged, self._charged = self._charged, []
        woken = helped(self._tree, self._lines, freed)
        woken |= tempted(self._tree, self._lines, self._directory.queues, charged, self._fair)
        for group in woken:
            group.line.call(group)
            self._due.add(group.line.name)

    def _fair(self, node: QuotaNode) -> bool:
        return shares_fairly(self._tree, node, self._settings)

    def _wake(self, group: EquivalenceGroup) -> None:
        group.line.wake(group)
        self._due.add(group.line.name)

    def rethink(self, line: PendingQueue) -> None:
        """Look at everybody in it again, and at what its preemptor claims."""
        line.wake_all()
        if line.preemptor is not None:
            self.claims.drop(line.preemptor.id)
            line.blocked, line.promised = False, None
        self._due.add(line.name)

    # --- what happened

    def free(self, node: QuotaNode, cells: Iterable[FlavorResource]) -> None:
        """Some of `cells` came free at a ClusterQueue."""
        self._freed.setdefault(node, set()).update(cells)

    def charge(self, entry: Entry) -> None:
        """It holds quota, or another priority than before: others may take its place now (W3)."""
        self._charged.append(entry)

    def ended(self, entry: Entry) -> None:
        """It holds nothing any more: who waited for that alone is looked at."""
        for claim in self.claims.gone(entry.id):
            if claim.owner.group is not None:
                claim.owner.group.line.blocked = False
                self._due.add(claim.owner.group.line.name)

    def leave(self, entry: Entry) -> None:
        """It leaves its line, and with it what was kept for it."""
        if entry.group is None:
            return
        line = entry.group.line
        if line.keeps and entry.group.head() is entry:
            self.keep_back(line, frozenset())
        self.drop_claim(entry)
        line.remove(entry)
        self._due.add(line.name)

    # --- what is kept

    def open_claim(self, entry: Entry, claim: Claim, entries: Mapping[WorkloadId, Entry]) -> None:
        """Nobody else gets what `entry`'s victims leave; nobody behind it is looked at meanwhile (C7)."""
        assert entry.group is not None
        line = entry.group.line
        if line.preemptor is not None and line.preemptor is not entry:
            self.drop_claim(line.preemptor)
        line.preemptor, line.promised = entry, claim.assignment
        victims = {
            victim.workload: holder
            for victim in claim.victims
            if (holder := entries.get(victim.workload)) is not None
            and holder.attempt is not None
            and holder.attempt.number == victim.attempt
        }
        line.blocked = bool(victims)
        if victims:
            node = self._tree.queue(claim.cluster_queue)
            self.claims.open(OpenClaim(entry, node, list(claim.cells), victims))
        else:
            self._due.add(line.name)

    def drop_claim(self, entry: Entry) -> None:
        claim = self.claims.drop(entry.id)
        if claim is not None:
            self.free(claim.node, (self._tree.names[cell] for cell, _ in claim.cells))

    def keep_back(self, line: PendingQueue, cells: frozenset[FlavorResource]) -> None:
        """What its head keeps back from others from now on (C6)."""
        if line.keeps - cells:
            self.free(self._tree.queue(line.name), line.keeps - cells)
        line.keeps = cells
        (self.keeping.add if cells else self.keeping.discard)(line.name)

    # --- what time and a restart bring

    def protect(self, group: EquivalenceGroup, until: datetime | None) -> None:
        """Look at it again then."""
        self._protections.set(group, until)

    @property
    def due_at(self) -> datetime | None:
        return self._protections.earliest

    def time_came(self, now: datetime) -> None:
        for group in self._protections.take(now):
            self._wake(group)

    def expect(self, preemptor: str) -> None:
        """Somebody is being evicted for it: it comes first in its line when it is seen (C7)."""
        self._preemptors.add(preemptor)

    def stands(self, entry: Entry, line: PendingQueue) -> None:
        """It has come to stand in `line`."""
        self._due.add(line.name)
        if self._preemptors and line.preemptor is None and str(entry.ref) in self._preemptors:
            self._preemptors.discard(str(entry.ref))
            line.preemptor, line.promised = entry, None
