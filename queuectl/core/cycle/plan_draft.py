"""What a plan under way charges and releases, and which heads it nominates. (C5, C9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime

from queuectl.core.cycle.cycle import CycleOutcome
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.decisions import Amend, Evict, Release
from queuectl.core.due import runs_unasked
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.feature import UsageValue
from queuectl.core.features.namespace_quota.room import PlannedRoom
from queuectl.core.flavors.assignment import AssignmentResult
from queuectl.core.lifecycle import Adopt, Step, charged_to
from queuectl.core.limits import Hold, Trial
from queuectl.core.model.policy import NORMAL_WEIGHT, LocalQueueName
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import WorkloadId
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.search import Snapshot
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.inadmissible import Freed, Groups, by_root, helped_by, queues_below
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState


class PlanDraft:
    def __init__(self, state: EngineState, now: datetime, trial: Trial) -> None:
        """`trial`: charges and releases of the plan are tried in it."""
        self._state = state
        state.nodes.settle()
        self.trial = trial
        self.room = PlannedRoom(state.room)
        self.snapshot = Snapshot(
            tree=state.tree,
            limits=state.limits,
            room=state.nodes,
            queues=state.directory.queues,
            entries=state.entries,
            holders=state.holders,
            configuration=state.configuration,
            now=now,
        )
        self.snapshot.set_aside = state.frozen | state.features.set_aside
        self.snapshot.past_usage = self._past_usage(now)
        self.chances = Chances(state.directory, state.configuration, self.snapshot.holding)
        self.moved: set[WorkloadId] = set()
        """Workloads that the plan admits, or retires."""
        self.freed: Freed = {}
        """By ClusterQueue, the cells that the plan makes available for good."""
        self.deferred: set[QuotaNode] = set()
        """Roots of trees that decide nothing else in this plan: a workload that is released and pending again
        may be the first in order for what it releases, but it is queued when the plan is applied (C9)."""

    def _past_usage(self, now: datetime) -> Callable[[LocalQueueName], UsageValue] | None:
        """Return past usage by LocalQueue, with what the plan admits; None: it does not count (U1)."""
        usage, queues = self._state.features.usage, self._state.directory.local_queues
        if usage is None:
            return None
        admitted = self.snapshot.admitted_usage

        def usage_of(name: LocalQueueName) -> UsageValue:
            queue = queues.get(name)
            weight = queue.weight if queue is not None else NORMAL_WEIGHT
            return usage.growing(name, weight, now)(admitted.get(name, {}))

        return usage_of

    def charge(self, entry: Entry, found: AssignmentResult) -> None:
        """The plan adopts `entry`."""
        self.moved.add(entry.id)
        self.snapshot.admit(entry, found.assignment)
        self.room.admit(entry, found.assignment)
        self.trial.add(Hold(self._state.tree.queue(found.assignment.cluster_queue), found.cells))

    def release(self, entry: Entry, *, pending_again: bool) -> None:
        """The plan releases what `entry` holds."""
        if not pending_again:
            self.moved.add(entry.id)
        if entry.attempt is None:
            return
        tree = self._state.tree
        node = tree.queue(entry.attempt.assignment.cluster_queue)
        self.trial.release(Hold(node, entry.cells, entry.id, ended=True))
        if pending_again:
            self.deferred.add(tree.root(node))
        else:
            self.freed.setdefault(node, set()).update(tree.names[cell] for cell, _ in entry.cells)

    def defer(self, entry: Entry) -> None:
        """What `entry` uses, or whether it may be preempted, is not known before the next plan."""
        tree = self._state.tree
        for name in {entry.cluster_queue, charged_to(entry)}:
            if name is not None:
                self.deferred.add(tree.root(tree.queue(name)))

    def claims(self) -> tuple[list[PreemptionClaim], list[PreemptionClaim]]:
        """Return the claims that still wait for victims, and those that do not."""
        waiting: list[PreemptionClaim] = []
        granted: list[PreemptionClaim] = []
        for claim in self._state.claims:
            left = claim.without(self.snapshot.released)
            if left.victims:
                waiting.append(left)
            else:
                granted.append(left)
        return waiting, granted

    def helped(self, waiting: Iterable[PreemptionClaim]) -> set[str]:
        """Return the ClusterQueues of `waiting` of which the preemptor may fit now (C13)."""
        tree, known = self._state.tree, self._state.claims.helped
        roots = {tree.root(node) for node in self.freed}
        found: set[str] = set()
        for claim in waiting:
            name, node = claim.cluster_queue, tree.queue(claim.cluster_queue)
            if name in known or (tree.root(node) in roots and tree.fits(node, list(claim.cells))):
                found.add(name)
        return found

    # --- which heads are nominated

    def requeued(self) -> Groups:
        """Return the inadmissible groups that what the plan makes available may help (W2)."""
        state = self._state
        groups: Groups = {}
        for root, cells in by_root(state.tree, self.freed).items():
            if root not in self.deferred:
                groups |= helped_by(state.tree, queues_below(root, state.pending), cells)
        return groups

    def due_queues(self, requeued: Groups, granted: Set[str]) -> list[PendingQueue]:
        """Return the pending queues in which something is to be decided, but for those of deferred trees."""
        state, tree = self._state, self._state.tree
        names = state.due_queues | {group.cluster_queue for group in requeued} | granted
        return [
            state.pending[name]
            for name in sorted(names)
            if name in state.pending and tree.root(tree.queue(name)) not in self.deferred
        ]

    def heads(
        self, queues: Iterable[PendingQueue], requeued: Groups, granted: Set[str]
    ) -> Iterator[QueueHeads]:
        """Yield the heads of `queues`, and of those in the same trees that reserve quota (C6)."""
        state, tree = self._state, self._state.tree
        roots: set[QuotaNode] = set()
        names: set[str] = set()
        added: dict[str, list[EquivalenceGroup]] = {}
        for group in requeued:
            if group not in state.pending[group.cluster_queue].requeued:
                added.setdefault(group.cluster_queue, []).append(group)
        for queue in queues:
            groups = [*queue.requeued, *added.get(queue.name, ())]
            if groups or not queue.stopped_at_head:
                groups += queue.active
            elif queue.reserves and queue.claim is None:
                continue  # it is due for its reports alone
            heads = self._heads(queue, groups, waits=queue.blocked and queue.name not in granted)
            names.add(queue.name)
            roots.add(tree.root(tree.queue(queue.name)))
            yield heads
        for name in sorted(state.requeuer.reserving - names):
            reserving = state.pending.get(name)
            if reserving is None or reserving.blocked or not reserving.reserves:
                continue
            if tree.root(tree.queue(name)) in roots:
                heads = self._heads(reserving, reserving.groups.values())
                heads.reserving_only = True
                yield heads

    def _heads(
        self, queue: PendingQueue, groups: Iterable[EquivalenceGroup], *, waits: bool = False
    ) -> QueueHeads:
        """`waits`: its preemptor waits for victims."""
        claim = queue.claim
        preemptor = self._state.entries[claim.owner] if claim is not None else None
        return QueueHeads(queue, groups, self.chances, preemptor, self.snapshot.past_usage, waits=waits)


@dataclass(slots=True)
class Taken:
    """The steps of one plan, in order."""

    steps: list[tuple[Entry, Step]] = field(default_factory=list)
    more: bool = False
    """Some that are due are left for a later plan."""

    @property
    def workloads(self) -> Set[WorkloadId]:
        return {entry.id for entry, _ in self.steps}


def admissions_turn(state: EngineState) -> frozenset[str]:
    """Return the roots of trees that were set apart by the last plan, and where a queue is due (C11)."""
    if not state.apart:
        return frozenset()
    return state.apart & {state.root_of_queue(name) for name in state.due_queues}


def take_due(state: EngineState, draft: PlanDraft, budget: int, turn: Set[str]) -> Taken:
    """Return what a plan of that budget takes: at most half of it urgent steps, and half requests (C10).

    `turn`: roots of trees where nothing may be decided now that would set them apart.
    """
    share = max(1, budget // 2)
    taken = Taken()

    def waits(entry: Entry, step: Step) -> bool:
        return bool(turn) and isinstance(step, Evict | Amend | Release) and state.root(entry) in turn

    for entry, step in state.due_steps.urgent.values():
        if waits(entry, step):
            taken.more = True
        elif len(taken.steps) < share:
            taken.steps.append((entry, step))
        else:  # what it ends or uses would be decided about without knowing
            taken.more = True
            if entry.attempt is not None or isinstance(step, Adopt) or runs_unasked(entry):
                draft.defer(entry)
    requests = [item for item in state.due_steps.requests(share) if not waits(*item)]
    taken.more |= len(requests) < state.due_steps.requested
    taken.steps += requests
    return taken


def unreported(
    queues: Iterable[PendingQueue],
    pending: Mapping[str, PendingQueue],
    outcome: CycleOutcome,
    requeued: Groups,
) -> Iterator[tuple[Entry, Reason]]:
    """Yield the workloads, other than refused heads, whose reason is to be reported, group by group (R2)."""
    moved = {entry.id for entry, _ in outcome.admitted} | {one.entry.id for one in outcome.preempting}
    moved |= {entry.id for entry, _ in outcome.no_room}
    preempting = {one.claim.cluster_queue: one.claim for one in outcome.preempting}
    with_requeued = {group.cluster_queue for group in requeued}
    groups = dict.fromkeys(outcome.refused)
    for queue in queues:
        groups |= queue.unreported
    for group in groups:
        queue = pending[group.cluster_queue]
        known = None if group in requeued or group in queue.requeued else group.inadmissible
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        at_head = queue.stopped_at_head and not queue.requeued and queue.name not in with_requeued
        claim = preempting.get(queue.name, queue.claim if queue.blocked else None)
        behind = claim is not None and (queue.strict or claim.owner in group.members)
        if reason is None and (behind or at_head):
            for entry in group.unreported.values():
                if entry.id not in moved and not queue.preempted(entry):
                    yield entry, queue.waiting_for_head()
            continue
        if reason is None:
            continue  # it will be nominated
        shown = queue.told(reason)
        for entry in _unreported(group, shown):
            if entry is not head and entry.id not in moved:
                yield entry, shown


def _unreported(group: EquivalenceGroup, reason: Reason) -> Iterable[Entry]:
    if group.reported == reason.key:
        return group.unreported.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
