"""A plan under way: what it decides, charges and releases, and which heads it nominates (C5, C9, C10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice

from queuectl.core.cycle.cycle import CycleOutcome, Cycles
from queuectl.core.cycle.cycle_pass import Preempting
from queuectl.core.cycle.nomination import Nominator
from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.decisions import (
    Admit,
    Amend,
    ChildToCheck,
    Configure,
    Decision,
    Enqueue,
    Evaluation,
    Evict,
    Keep,
    Plan,
    PodOwnerToRead,
    PodsToCount,
    Release,
    Retire,
    subject,
)
from queuectl.core.due import runs_unasked
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.feature import Features, StartCheck
from queuectl.core.flavors.assignment import AssignmentResult, adopt
from queuectl.core.lifecycle import (
    Adopt,
    Probe,
    Resend,
    Step,
    accounted,
    charged_to,
    forgotten,
    next_number,
    steered_by,
    to_be_queued,
    with_budget,
)
from queuectl.core.limits import Hold, Trial
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, AttemptState, Attribution, WorkloadId
from queuectl.core.past_usage import PlannedUsage
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.search import Snapshot, Target
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.inadmissible import Freed, Groups, by_root, helped_by, queues_below
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState
from queuectl.core.transitions import check_transitions


@dataclass(slots=True, kw_only=True)
class PlanHeads:
    """Which heads a plan nominates, and why."""

    queues: list[PendingQueue]
    """Those in which anything is to be decided."""
    requeued: Groups
    """Inadmissible groups that what the plan makes available may help (W2)."""
    claims: list[PreemptionClaim]
    """Those that still wait for victims."""
    granted: list[PreemptionClaim]
    """Those that do not."""
    helped: set[str]
    """ClusterQueues of which the preemptor may fit before its victims are gone (C13)."""
    heads: list[QueueHeads]


class PlanDraft:
    def __init__(self, state: EngineState, now: datetime, budget: int, trial: Trial) -> None:
        """`budget`: of the whole plan, in units of work. `trial`: charges and releases of the plan are tried
        in it."""
        self._state = state
        self.now = now
        self.budget = budget
        self.decisions: list[Decision] = []
        self.probes: list[PodsToCount] = []
        self.due: list[tuple[Entry, Step]] = []
        """What is due without a cycle, and taken by this plan."""
        self.more = False
        """Something is left for a later plan."""
        self.left: list[str] = []
        """Roots of trees with heads that the budget did not reach."""
        self.work = 0
        self._queued: set[WorkloadId] = set()
        """Workloads that the ledger has, once the plan is committed."""
        self.trial = trial
        self.checks: list[StartCheck] = []
        self.snapshot = Snapshot(
            tree=state.tree,
            limits=state.limits,
            queues=state.directory.queues,
            entries=state.entries,
            holders=state.holders,
            configuration=state.configuration,
            now=now,
        )
        self.snapshot.set_aside = state.frozen
        if (features := state.features).active:
            self.checks = features.begin_plan(now)
            self.snapshot.set_aside = state.frozen | features.set_aside
            if (usage := features.usage) is not None:
                self.snapshot.past_usage = PlannedUsage(usage, state.directory.local_queues, now)
        self.chances = Chances(state.directory, state.configuration, self.snapshot.holding)
        self.moved: set[WorkloadId] = set()
        """Workloads that the plan admits, or retires."""
        self.freed: Freed = {}
        """By ClusterQueue, the cells that the plan makes available for good."""
        self.deferred: set[QuotaNode] = set()
        """Roots of trees that decide nothing else in this plan: a workload that is released and pending again
        may be the first in order for what it releases, but it is queued when the plan is applied (C9)."""

    def charge(self, entry: Entry, found: AssignmentResult) -> None:
        """The plan adopts `entry`."""
        self.moved.add(entry.id)
        self.snapshot.admit(entry, found.assignment)
        for check in self.checks:
            check.admit(entry, found.assignment)
        self.trial.add(Hold(self._state.tree.queue(found.assignment.cluster_queue), found.cells))

    def release(self, entry: Entry, *, pending_again: bool) -> None:
        """The plan releases what `entry` holds."""
        if not pending_again:
            self.moved.add(entry.id)
        if entry.attempt is None:
            return
        for check in self.checks:
            check.release(entry)
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

    # --- 1. what is due without a cycle

    def take_due(self, turn: Set[str]) -> None:
        """Take what is due without a cycle: at most half of the budget urgent steps, and half requests (C10).

        `turn`: roots of trees where nothing may be decided now that would set them apart.
        """
        state = self._state
        share = max(1, self.budget // 2)

        def waits(entry: Entry, step: Step) -> bool:
            return isinstance(step, Evict | Amend | Release) and state.root(entry) in turn

        for entry, step in state.due_steps.urgent.values():
            if turn and waits(entry, step):
                self.more = True
            elif len(self.due) < share:
                self.due.append((entry, step))
            else:  # what it ends or uses would be decided about without knowing
                self.more = True
                if entry.attempt is not None or isinstance(step, Adopt) or runs_unasked(entry):
                    self.defer(entry)
        requests = state.due_steps.requests(share)
        if turn:
            requests = [item for item in requests if not waits(*item)]
        self.more |= len(requests) < state.due_steps.requested
        self.due += requests
        self.work += len(self.due)
        configs = state.unrecorded_configs()
        self.decisions += [Configure(key, spec, state.authors.get(key)) for key, spec in configs]
        for entry, step in self.due:
            self._take(entry, step)

    def _take(self, entry: Entry, step: Step) -> None:
        if isinstance(step, Probe):
            assert entry.attempt is not None
            number = entry.attempt.number
            self.probes.append(PodsToCount(entry.id, entry.ref, number, step.at_most, step.generation))
        elif isinstance(step, Adopt):
            self.decisions += self._adopt(entry, step)
        elif not isinstance(step, Resend):
            self.decisions.append(step)
            if isinstance(step, Release | Retire):
                self.release(entry, pending_again=isinstance(step, Release))
            elif isinstance(step, Evict | Amend) or (isinstance(step, Enqueue) and runs_unasked(entry)):
                self.defer(entry)

    def _adopt(self, entry: Entry, step: Adopt) -> Iterator[Decision]:
        """Charge what runs already: by an admission that was lost, else by the last one, whose flavors its
        pods still have, else as it would be charged today (L4).

        An open attempt has ended before another one was started: its quota is released (L30).
        """
        state = self._state
        assert entry.workload is not None
        marked = forgotten(entry)
        if entry.attempt is not None:
            assert marked is not None
            why = f"its object has attempt {marked.number}, which the ledger does not have"
            yield Release(entry.id, entry.ref, entry.attempt.number, why)
            self.release(entry, pending_again=True)
        directory = state.directory
        charged = marked.assignment if marked is not None else steered_by(entry, directory)
        if charged is not None:
            found = AssignmentResult(charged, state.tree.numbered(charged.usage()))
        else:
            assert entry.cluster_queue is not None
            found = adopt(directory.queue_flavors(entry.cluster_queue), directory.charges(entry.workload))
        attempt = replace(_attempt(entry, found, self.now), debt=True)
        if marked is not None:
            number = marked.number if marked.number > entry.attempts else attempt.number
            attempt = replace(attempt, number=number, admitted_at=marked.admitted_at)
        if entry.attempt is None and (unrecorded := to_be_queued(entry, state.directory)) is not None:
            yield unrecorded
        self.charge(entry, found)
        yield Admit(attempt, entry.ref, step.detail, attribution=_attribution(entry, state.features))
        if step.stop is not None:
            yield Evict(entry.id, entry.ref, attempt.number, step.stop)

    # --- 2. which heads are nominated

    def heads(self) -> PlanHeads:
        """Return the heads of the queues where anything is due, and of those in the same trees that reserve
        quota (C6)."""
        claims, granted = self._claims()
        of_granted = {claim.cluster_queue for claim in granted}
        helped = self._helped(claims) if claims else set()
        requeued = self._requeued() if self.freed else {}
        queues = self._due_queues(requeued, of_granted | helped)
        heads = list(self._heads_of(queues, requeued, of_granted))
        return PlanHeads(
            queues=queues, requeued=requeued, claims=claims, granted=granted, helped=helped, heads=heads
        )

    def _claims(self) -> tuple[list[PreemptionClaim], list[PreemptionClaim]]:
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

    def _helped(self, waiting: Iterable[PreemptionClaim]) -> set[str]:
        """Return the ClusterQueues of `waiting` of which the preemptor may fit now (C13)."""
        tree, known = self._state.tree, self._state.claims.helped
        roots = {tree.root(node) for node in self.freed}
        found: set[str] = set()
        for claim in waiting:
            name, node = claim.cluster_queue, tree.queue(claim.cluster_queue)
            if name in known or (tree.root(node) in roots and tree.fits(node, list(claim.cells))):
                found.add(name)
        return found

    def _requeued(self) -> Groups:
        """Return the inadmissible groups that what the plan makes available may help (W2)."""
        state = self._state
        groups: Groups = {}
        for root, cells in by_root(state.tree, self.freed).items():
            if root not in self.deferred:
                groups |= helped_by(state.tree, queues_below(root, state.pending), cells)
        return groups

    def _due_queues(self, requeued: Groups, granted: Set[str]) -> list[PendingQueue]:
        """Return the pending queues in which something is to be decided, but for those of deferred trees."""
        state, tree = self._state, self._state.tree
        names = state.due_queues | {group.cluster_queue for group in requeued} | granted
        return [
            state.pending[name]
            for name in sorted(names)
            if name in state.pending and tree.root(tree.queue(name)) not in self.deferred
        ]

    def _heads_of(
        self, queues: Iterable[PendingQueue], requeued: Groups, granted: Set[str]
    ) -> Iterator[QueueHeads]:
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

    # --- 3. to 5.: the cycles

    @property
    def _cycle_budget(self) -> int:
        return max(self.budget - len(self.due), self.budget // 4, 1)

    def run(self, plan_heads: PlanHeads, limit: int | None) -> CycleOutcome:
        """Run cycles, at most `limit` (None: no limit), and return what they come to."""
        state = self._state
        cycles = Cycles(
            self.snapshot,
            self.trial,
            Nominator(self.snapshot, state.directory, state.claims),
            plan_heads.claims,
            self.checks,
            self._cycle_budget,
            limit,
            state.left,
            granted=plan_heads.granted,
            helped=plan_heads.helped,
        )
        return cycles.run(plan_heads.heads)

    def add(self, outcome: CycleOutcome) -> None:
        """Add what the cycles came to. A workload that the ledger does not have yet is queued before."""
        decisions: list[Decision] = [
            Admit(
                _attempt(entry, found, self.now),
                entry.ref,
                created_at=entry.workload.created_at if entry.workload else None,
                attribution=_attribution(entry, self._state.features),
            )
            for entry, found in outcome.admitted
        ]
        for one in outcome.preempting:
            decisions += [_evict(target, one) for target in one.evicted]
            decisions.append(replace(_keep(one.entry, one.reason), claim=one.claim))
        decisions += [replace(_keep(one, reason), claim=claim) for one, reason, claim in outcome.waiting]
        # Heads that were nominated get their reason in any case: it makes their groups inadmissible.
        decisions += [_keep(*found) for found in outcome.refused.values()]
        decisions += [_keep(*found) for found in outcome.unfinished]
        decisions += [_keep(*found, Evaluation(must_wait=True)) for found in outcome.must_wait]
        self._queued = {entry.id for entry, _ in self.due}
        first = [
            step
            for decision in decisions
            if isinstance(decision, Admit | Keep)
            and isinstance(step := self._state.due_steps.get(subject(decision)), Enqueue)
            and step.workload.id not in self._queued
        ]
        self._queued |= {step.workload.id for step in first}
        self.decisions += [*first, *decisions]
        self.left = outcome.left
        self.work += outcome.work + outcome.searched

    # --- 6. reasons for what no cycle reached

    def report(self, plan_heads: PlanHeads, outcome: CycleOutcome) -> None:
        """Report the reasons of other workloads that the ledger has, as far as the budget of cycles goes."""
        state = self._state
        fresh = [entry for entry, step in self.due if isinstance(step, Enqueue) and entry.recorded is None]
        others = chain(
            unreported(plan_heads, state.pending, outcome, self._by_group(fresh)),
            _ineligible(chain(state.unreported.values(), fresh), self.moved),
        )
        known = (one for one in others if one[0].id in self._queued or not self._to_be_queued(one[0]))
        reported = list(islice(known, max(0, self._cycle_budget - outcome.work)))
        self.decisions += [_keep(entry, reason) for entry, reason in reported]
        self.work += len(reported)
        self.more |= bool(outcome.left or self.deferred) or next(known, None) is not None

    def _by_group(self, entries: Iterable[Entry]) -> dict[EquivalenceGroup, list[Entry]]:
        """Return those of `entries` that are in pending queues of which this plan decides."""
        tree, groups = self._state.tree, dict[EquivalenceGroup, list[Entry]]()
        for entry in entries:
            group = entry.group
            if group is not None and tree.root(tree.queue(group.cluster_queue)) not in self.deferred:
                groups.setdefault(group, []).append(entry)
        return groups

    def _to_be_queued(self, entry: Entry) -> bool:
        """Return whether the ledger does not have `entry` as it is now (L3)."""
        return isinstance(self._state.due_steps.get(entry.id), Enqueue)

    def plan(self, version: int, cycle: int) -> Plan:
        """Return the plan for a version of the state. Raises IllegalTransition."""
        state, now = self._state, self.now
        decided = tuple(
            accounted(one, state.entries, state.directory, state.features, now) for one in self.decisions
        )
        checks: list[ChildToCheck | PodOwnerToRead] = []
        if state.features.active:
            decided = tuple(with_budget(one, state.entries, state.features, now) for one in decided)
            checks = state.features.checks()
        check_transitions(decided, state.entries)
        return Plan(
            version=version,
            cycle=cycle,
            now=now,
            decisions=decided,
            probes=tuple(self.probes),
            checks=tuple(checks),
            more=self.more,
            work=self.work,
            apart=frozenset(str(root) for root in self.deferred),
            left=tuple(self.left),
        )


def admissions_turn(state: EngineState) -> frozenset[str]:
    """Return the roots of trees that were set apart by the last plan, and where a queue is due (C11)."""
    return state.apart & {state.root_of_queue(name) for name in state.due_queues}


def unreported(
    plan_heads: PlanHeads,
    pending: Mapping[str, PendingQueue],
    outcome: CycleOutcome,
    fresh: Mapping[EquivalenceGroup, Sequence[Entry]],
) -> Iterator[tuple[Entry, Reason]]:
    """Yield the workloads, other than refused heads, whose reason is to be reported, group by group (R2).

    `fresh`: those that the ledger has once the plan is committed.
    """
    requeued = plan_heads.requeued
    moved = {entry.id for entry, _ in outcome.admitted} | {one.entry.id for one in outcome.preempting}
    moved |= {entry.id for entry, _ in outcome.must_wait}
    preempting = {one.claim.cluster_queue: one.claim for one in outcome.preempting}
    with_requeued = {group.cluster_queue for group in requeued}
    groups = dict.fromkeys(outcome.refused)
    for queue in plan_heads.queues:
        groups |= queue.unreported
    groups |= dict.fromkeys(fresh)
    for group in groups:
        queue = pending[group.cluster_queue]
        known = None if group in requeued or group in queue.requeued else group.inadmissible
        head, reason, _ = outcome.refused.get(group, (None, known, None))
        at_head = queue.stopped_at_head and not queue.requeued and queue.name not in with_requeued
        claim = preempting.get(queue.name, queue.claim if queue.blocked else None)
        behind = claim is not None and (queue.strict or claim.owner in group.members)
        if reason is None and (behind or at_head):
            for entry in chain(group.unreported.values(), fresh.get(group, ())):
                if entry.id not in moved and not queue.preempted(entry):
                    yield entry, queue.waiting_for_head()
            continue
        if reason is None:
            continue  # it will be nominated
        shown = queue.told(reason)
        for entry in _unreported(group, shown, fresh.get(group, ())):
            if entry is not head and entry.id not in moved:
                yield entry, shown


def _unreported(group: EquivalenceGroup, reason: Reason, fresh: Sequence[Entry]) -> Iterable[Entry]:
    if group.reported == reason.key:
        return chain(group.unreported.values(), fresh)
    return sorted(group.members.values(), key=lambda entry: entry.order)


def _keep(entry: Entry, reason: Reason, evaluation: Evaluation | None = None) -> Keep:
    recorded = entry.reason is None or entry.reason.key != reason.key
    return Keep(entry.id, entry.ref, reason, recorded, evaluation=evaluation)


def _evict(target: Target, one: Preempting) -> Evict:
    victim, cause = target
    assert victim.attempt is not None
    reason = Reason(code=Code.PREEMPTED, cause=cause, by=str(one.entry.ref))
    shares = one.shares.get(victim.id)
    return Evict(victim.id, victim.ref, victim.attempt.number, reason, one.entry.id, shares=shares)


def _ineligible(entries: Iterable[Entry], moved: Set[WorkloadId]) -> Iterator[tuple[Entry, Reason]]:
    for entry in entries:
        if entry.ineligible is not None and entry.id not in moved:
            yield entry, entry.ineligible


def _attribution(entry: Entry, features: Features) -> Attribution | None:
    workload = entry.workload
    if workload is None:
        return None
    return Attribution.of(workload, features.account(workload) if features.active else ())


def _attempt(entry: Entry, found: AssignmentResult, now: datetime) -> Attempt:
    return Attempt(
        workload=entry.id,
        number=next_number(entry),
        state=AttemptState.ADMITTED,
        assignment=found.assignment,
        admitted_at=now,
    )
