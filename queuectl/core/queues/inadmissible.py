"""Inadmissible workloads, and when their groups are requeued (docs/scheduling.md, C6, C7, W1 to W4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.policy import ClusterQueue, PreemptionPolicy, SchedulingConfiguration
from queuectl.core.preemption.claims import PreemptionClaim, PreemptionClaims
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.queues.requeueing import Timers
from queuectl.core.quota.shares import shares_fairly
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.resources import FlavorResource

Freed = dict[QuotaNode, set[FlavorResource]]
"""Cells of which some became available, by the ClusterQueue that released it."""

Groups = dict[EquivalenceGroup, None]


class Requeuer:
    """Requeues groups of `pending`, and adds to `due` the queues where anything is to be decided."""

    def __init__(
        self,
        directory: Directory,
        pending: Mapping[str, PendingQueue],
        claims: PreemptionClaims,
        due: set[str],
        configuration: SchedulingConfiguration,
    ) -> None:
        self._configuration = configuration
        self._directory = directory
        self._tree = directory.tree
        self._pending = pending
        self._due = due
        self._claims = claims
        self.reserving: set[str] = set()
        """Names of the queues whose heads reserve something (C6); some may not do so any more."""
        self._freed: Freed = {}
        """What became available since groups were last requeued."""
        self._charged: list[Entry] = []
        """Workloads that came to hold quota since then, or hold it at another priority."""
        self._protections: Timers[EquivalenceGroup] = Timers()
        """When the candidates of an inadmissible group are no longer protected (W4)."""

    def requeue(self) -> None:
        """Requeue the groups that the changes since the last call may help (W2, W3)."""
        freed, self._freed = self._freed, {}
        charged, self._charged = self._charged, []
        groups = helped_by(self._tree, self._pending, freed)
        groups |= may_preempt_one_of(self._tree, self._pending, self._directory.queues, charged, self._fair)
        for group in groups:
            self._pending[group.cluster_queue].requeue(group)
            self._due.add(group.cluster_queue)

    def _fair(self, node: QuotaNode) -> bool:
        return shares_fairly(self._tree, node, self._configuration)

    def renominate(self, queue: PendingQueue) -> None:
        """Nominate all of a queue again, also for what a claim of it was made."""
        queue.activate_all()
        self._claims.renominate(queue.name)
        self._due.add(queue.name)

    # --- what happened

    def free(self, node: QuotaNode, cells: Iterable[FlavorResource]) -> None:
        """Some of `cells` became available at a ClusterQueue."""
        self._freed.setdefault(node, set()).update(cells)

    def charge(self, entry: Entry) -> None:
        """`entry` holds quota, or holds it at another priority: others may preempt it now (W3)."""
        self._charged.append(entry)

    def ended(self, entry: Entry) -> None:
        """`entry` holds nothing any more: claims that waited for it alone are granted."""
        self._due.update(self._claims.ended(entry.id))

    def leave(self, entry: Entry) -> None:
        """`entry` leaves its pending queue, and loses what was reserved for it."""
        if entry.group is None:
            return
        queue = self._pending[entry.group.cluster_queue]
        if queue.reserves and entry.group.head() is entry:
            self.reserve(queue, frozenset())
        self.drop_claim(queue, entry)
        queue.remove(entry)
        self._due.add(queue.name)

    # --- what is reserved

    def open_claim(self, claim: PreemptionClaim) -> None:
        """Reserve for a preemptor what its victims leave (C7)."""
        if self._claims.owned_by(claim.cluster_queue, claim.owner):
            self._claims.drop(claim.cluster_queue)
        else:
            self._drop(claim.cluster_queue)
        self._claims.open(claim)
        if not claim.victims:
            self._due.add(claim.cluster_queue)

    def drop_claim(self, queue: PendingQueue, entry: Entry) -> None:
        """End the claim of `entry`, if it has one."""
        if queue.preempted(entry):
            self._drop(queue.name)

    def _drop(self, cluster_queue: str) -> None:
        claim = self._claims.drop(cluster_queue)
        if claim is not None and claim.cells:
            names = self._tree.names
            self.free(self._tree.queue(cluster_queue), (names[cell] for cell, _ in claim.cells))

    def reserve(self, queue: PendingQueue, cells: frozenset[FlavorResource]) -> None:
        """The head of `queue` reserves some of `cells` from now on, and nothing else (C6)."""
        if queue.reserves - cells:
            self.free(self._tree.queue(queue.name), queue.reserves - cells)
        queue.reserves = cells
        (self.reserving.add if cells else self.reserving.discard)(queue.name)

    # --- time

    def protect(self, group: EquivalenceGroup, until: datetime | None) -> None:
        """Nominate `group` again at `until`, when a protection ends; None: no protection is in its way."""
        self._protections.set(group, until)

    @property
    def due_at(self) -> datetime | None:
        return self._protections.earliest

    def time_came(self, now: datetime) -> None:
        for group in self._protections.take(now):
            self._pending[group.cluster_queue].activate(group)
            self._due.add(group.cluster_queue)

    def queued(self, entry: Entry, queue: PendingQueue) -> None:
        """`entry` was added to `queue`."""
        self._due.add(queue.name)
        self._claims.queued(entry.id, queue.name)


def helped_by(tree: QuotaTree, pending: Mapping[str, PendingQueue], freed: Freed) -> Groups:
    """Return the inadmissible groups that may fit now, or find victims now (W2, W3). Changes nothing."""
    found: Groups = {}
    roots: Freed = {}
    for node, cells in freed.items():
        roots.setdefault(tree.root(node), set()).update(cells)
    for root, cells in roots.items():
        for queue in queues_below(root, pending):
            found |= queue.may_preempt
            if queue.by_missing:
                found |= _fitting_now(tree, queue, cells)
    return found


def _fitting_now(tree: QuotaTree, queue: PendingQueue, cells: set[FlavorResource]) -> Groups:
    found: Groups = {}
    node = tree.queue(queue.name)
    for name in cells & queue.by_missing.keys():
        available = tree.available(node, tree.cell(name))
        for group, amount in queue.by_missing[name].items():
            if amount <= available:
                found[group] = None
    return found


def may_preempt_one_of(
    tree: QuotaTree,
    pending: Mapping[str, PendingQueue],
    queues: Mapping[str, ClusterQueue],
    charged: Iterable[Entry],
    fair: Callable[[QuotaNode], bool],
) -> Groups:
    """Return the inadmissible groups that may preempt a workload of `charged`, or one that it exposes (W3).

    `fair`: whether the tree of a queue shares fairly. There any charge may change a share.
    """
    found: Groups = {}
    roots: dict[QuotaNode, None] = {}
    for entry in charged:
        if entry.attempt is None:
            continue
        node = tree.queue(entry.attempt.assignment.cluster_queue)
        queue = pending.get(node.name)
        if queue is not None and queue.may_preempt:
            found |= _before(queue, entry)
        if node.parent is not None and (fair(node) or _borrows(node, entry)):
            roots[tree.root(node)] = None
    for root in roots:
        for queue in queues_below(root, pending):
            policy = queues.get(queue.name)
            if policy is not None and policy.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER:
                found |= queue.may_preempt
    return found


def _borrows(queue: QuotaNode, entry: Entry) -> bool:
    """Return whether any node of the path uses more of a cell of `entry` than its own."""
    return any(node.borrows(cell) for node in queue.path() for cell, _ in entry.cells)


def _before(queue: PendingQueue, entry: Entry) -> Groups:
    """Return the groups of `queue` whose head comes before `entry` by priority or age."""
    found: Groups = {}
    for group in queue.may_preempt:
        head = group.head()
        if head is not None and head.order[:2] < entry.order[:2]:
            found[group] = None
    return found


def forget_missed(tree: QuotaTree, queue: PendingQueue) -> None:
    """Forget requeued groups for which the quota is taken already (W1)."""
    node = tree.queue(queue.name)
    for group in list(queue.requeued):
        if not queue.may_fit(group, tree, node):
            del queue.requeued[group]


def queues_below(root: QuotaNode, pending: Mapping[str, PendingQueue]) -> Iterator[PendingQueue]:
    """Yield the pending queues of all ClusterQueues of a tree."""
    todo = [root]
    while todo:
        at = todo.pop()
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        elif (queue := pending.get(at.name)) is not None:
            yield queue
