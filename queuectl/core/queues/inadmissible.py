"""Inadmissible workloads, and when their groups are requeued (docs/scheduling.md, C6, C7, W1 to W4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import datetime

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.limits import AdmissionLimit
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import HeadCanNeverRun, PreemptionPolicy
from queuectl.core.model.reasons import waits_for_victims
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim, PreemptionClaims
from queuectl.core.queues.backoff import Timers
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode, QuotaTree

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
    ) -> None:
        self._directory = directory
        self._tree = directory.tree
        self._pending = pending
        self._due = due
        self._claims = claims
        self.reserving: set[str] = set()
        """Names of the queues whose heads reserve something (C6); some may not do so any more."""
        self._lacking: set[str] = set()
        """Names of the queues with groups for whose pods nodes had no room; some may have none any more."""
        self._preempting: set[str] = set()
        """Names of the queues with groups that may preempt; some may have none any more."""
        self.renominated: set[str] = set()
        """Names of the queues with `PassOver` of which all was nominated again: others may never run (C4)."""
        self._room_left = False
        """Claims ended that reserved room on nodes, which other trees may use now."""
        self._freed: Freed = {}
        """What became available since groups were last requeued."""
        self.charged: list[Entry] = []
        """Workloads that came to hold quota since then, or hold it at another priority: others may preempt
        them now (W3)."""
        self.protections: Timers[EquivalenceGroup] = Timers()
        """When an inadmissible group is nominated again by time alone: its candidates are no longer
        protected, or its head may take another flavor (W4)."""

    def requeue(self) -> None:
        """Requeue the groups that the changes since the last call may help (W2, W3)."""
        groups: Groups = {}
        if self._freed:
            freed, self._freed = self._freed, {}
            roots = {self._tree.root(node) for node in freed}
            # Preemptors in these trees may fit before their victims are gone (C13).
            self._help(one for one in self._claims.waiting if self._tree.root_of(one.cluster_queue) in roots)
            groups |= helped_by(self._tree, self._pending, freed)
        charged, self.charged = self.charged, []
        if charged and self._preempting:
            groups |= self._may_preempt_one_of(charged)
        for group in groups:
            self._pending[group.cluster_queue].requeue(group)
            self._due.add(group.cluster_queue)

    def _help(self, claims: Iterable[PreemptionClaim]) -> None:
        names = [one.cluster_queue for one in claims]
        self._claims.helped.update(names)
        self._due.update(names)

    def forget_preemptors(self) -> None:
        """Forget that preemptors may fit whose quota is not available, or taken already."""
        for name in list(self._claims.helped):
            claim = self._claims.by_queue.get(name)
            if claim is not None and not self._tree.fits(self._tree.queue(name), list(claim.cells)):
                self._claims.helped.discard(name)

    def _may_preempt_one_of(self, charged: Iterable[Entry]) -> Groups:
        """Return the groups that may preempt a workload of `charged`, or one that it exposes (W3)."""
        found: Groups = {}
        roots: set[QuotaNode] = set()
        changed: set[QuotaNode] = set()
        for entry in charged:
            if entry.attempt is None:
                continue
            node = self._tree.queue(entry.attempt.assignment.cluster_queue)
            changed.add(self._tree.root(node))
            pending = self._pending.get(node.name)
            if pending is not None and pending.may_preempt:
                found |= _before(pending, entry)
            # With fair sharing any charge may change a share.
            if node.parent is not None and (self._tree.shares_fairly(node) or _borrows(node, entry)):
                roots.add(self._tree.root(node))
        for name in sorted(self._preempting) if changed else ():
            queue = self._pending.get(name)
            if queue is None or not queue.may_preempt:
                self._preempting.discard(name)
                continue
            root = self._tree.root_of(name)
            if root in roots and self._reclaims(name):
                found |= queue.may_preempt
            if root in changed:
                found |= self._with_other_ways(queue)
        return found

    def _reclaims(self, name: str) -> bool:
        """Return whether a ClusterQueue may preempt workloads of others."""
        policy = self._directory.queues.get(name)
        return policy is not None and policy.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER

    def _with_other_ways(self, queue: PendingQueue) -> Groups:
        """Return the groups of which one podset may take another flavor, and leave one to the others (F5)."""
        groups = {group: None for group in queue.may_preempt if len(group.shape) > 1}
        if not groups or queue.name not in self._directory.queues:
            return {}
        flavors = self._directory.queue_flavors(queue.name)
        return groups if any(len(options) > 1 for options in flavors.groups) else {}

    def may_preempt(self, queue: PendingQueue, group: EquivalenceGroup) -> None:
        """`group`, which became inadmissible, depends also on which workloads hold quota (W3)."""
        queue.may_preempt[group] = None
        self._preempting.add(queue.name)

    def lack_room(self, queue: PendingQueue, group: EquivalenceGroup, pods: tuple[Pods, ...]) -> None:
        """Nodes had no room for `group`, which became inadmissible: room for one of `pods` helps it (W6)."""
        queue.lacking[group] = pods
        self._lacking.add(queue.name)

    def room_changed(self, limit: AdmissionLimit) -> None:
        """Requeue the groups that are helped if pods have more room, or less of it is reserved (W6)."""
        left, self._room_left = self._room_left, False
        preemptors = [one for one in self._claims.waiting if one.pods]
        if not (self._lacking or preemptors):
            return
        if not (limit.take_grown() or left):
            return
        self._help(preemptors)
        known: dict[Pods, bool] = {}

        def fits(pods: Pods) -> bool:
            if pods not in known:
                known[pods] = limit.fits(pods)
            return known[pods]

        for name in sorted(self._lacking):
            queue = self._pending.get(name)
            if queue is None or not queue.lacking:
                self._lacking.discard(name)
                continue
            for group, each in queue.lacking.items():
                if group in queue.may_preempt or any(map(fits, each)):
                    queue.requeue(group)
                    self._due.add(name)

    def renominate(self, queue: PendingQueue) -> None:
        """Nominate all of a queue again, its preemptor first; nothing is reserved for that any more."""
        queue.activate_all()
        claim = self.drop_claim(queue.name)
        if claim is not None:
            self._claims.open(replace(claim, cells=(), pods=(), assignment=None))
        self._due.add(queue.name)
        policy = self._directory.queues.get(queue.name)
        if policy is not None and policy.head_can_never_run is HeadCanNeverRun.PASS_OVER:
            self.renominated.add(queue.name)

    # --- what happened

    def free(self, node: QuotaNode, cells: Iterable[FlavorResource]) -> None:
        """Some of `cells` became available at a ClusterQueue."""
        self._freed.setdefault(node, set()).update(cells)

    def ended(self, entry: Entry) -> None:
        """`entry` holds nothing any more: claims that waited for it alone are granted."""
        self._due.update(self._claims.ended(entry.id))

    def give_up(self, victim: WorkloadId) -> None:
        """The pods of `victim` do not end in time: claims that wait for it end (C14)."""
        self._claims.expect_no_more(victim)
        for name in self._claims.waiting_for(victim):
            self.drop_claim(name)
            self._due.add(name)

    def leave(self, entry: Entry) -> None:
        """`entry` leaves its pending queue, and loses what was reserved for it."""
        group = entry.group
        if group is None:
            return
        queue = self._pending[group.cluster_queue]
        if queue.reserves and group.head() is entry:
            self.reserve(queue, frozenset())
        self.drop_claim(queue.name, of=entry.id)
        queue.remove(entry)
        if not group.members:
            self.protections.set(group, None)
        self._due.add(queue.name)

    # --- what is reserved

    def open_claim(self, claim: PreemptionClaim) -> None:
        """Reserve for a preemptor what its victims leave (C7)."""
        self.drop_claim(claim.cluster_queue, next=claim)
        self._claims.open(claim)
        if not claim.victims:
            self._due.add(claim.cluster_queue)

    def drop_claim(
        self, cluster_queue: str, *, of: WorkloadId | None = None, next: PreemptionClaim | None = None
    ) -> PreemptionClaim | None:
        """End a claim, if there is one: what it reserved becomes available, but for what `next` reserves.
        `of`: only that of this workload."""
        claim, names = self._claims.by_queue.get(cluster_queue), self._tree.names
        if claim is None or of not in (None, claim.owner):
            return None
        self._claims.drop(claim)
        kept, pods = (dict(next.cells), next.pods) if next is not None else ({}, ())
        self._room_left |= bool(claim.pods) and claim.pods != pods
        freed = [names[cell] for cell, amount in claim.cells if kept.get(cell, 0) < amount]
        if freed:
            self.free(self._tree.queue(cluster_queue), freed)
        if next is None and (queue := self._pending.get(cluster_queue)) is not None:
            queue.activate_behind()
        return claim

    def reserve(self, queue: PendingQueue, cells: frozenset[FlavorResource]) -> None:
        """The head of `queue` reserves some of `cells` from now on, and nothing else (C6)."""
        if queue.reserves - cells:
            self.free(self._tree.queue(queue.name), queue.reserves - cells)
        queue.reserves = cells
        (self.reserving.add if cells else self.reserving.discard)(queue.name)

    # --- time

    def time_came(self, now: datetime) -> None:
        for group in self.protections.take(now):
            self._pending[group.cluster_queue].activate(group)
            self._due.add(group.cluster_queue)

    def queued(self, entry: Entry, queue: PendingQueue) -> None:
        """`entry` was added to `queue`."""
        self._due.add(queue.name)
        group = entry.group
        if group is not None and group in self.protections.times and group.head() is entry:
            queue.activate(group)  # it has waited for longer than the former head: it may take more flavors
        if entry.id in self._claims.expected and (entry.reason is None or waits_for_victims(entry.reason)):
            self._claims.expected_is_queued(entry.id, queue.name)


def helped_by(tree: QuotaTree, pending: Mapping[str, PendingQueue], freed: Freed) -> Groups:
    """Return the inadmissible groups that `freed` may help to fit, or to victims (W2, W3)."""
    of_tree: dict[QuotaNode, set[FlavorResource]] = {}
    for node, cells in freed.items():
        of_tree.setdefault(tree.root(node), set()).update(cells)
    found: Groups = {}
    for root, cells in of_tree.items():
        for queue in queues_below(root, pending):
            found |= queue.may_preempt
            if queue.by_missing:
                found |= _fitting_now(tree, queue, cells)
    return found


def _fitting_now(tree: QuotaTree, queue: PendingQueue, cells: Set[FlavorResource]) -> Groups:
    found: Groups = {}
    node = tree.queue(queue.name)
    for name in cells & queue.by_missing.keys():
        available = tree.available(node, tree.cell(name))
        for group, amount in queue.by_missing[name].items():
            if amount <= available:
                found[group] = None
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


def queues_below(root: QuotaNode, pending: Mapping[str, PendingQueue]) -> Iterator[PendingQueue]:
    """Yield the pending queues of all ClusterQueues of a tree."""
    for node in root.queues():
        if (queue := pending.get(node.name)) is not None:
            yield queue
