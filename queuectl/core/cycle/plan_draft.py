"""A plan under way: what it decides, charges and releases, and which heads it nominates (C5, C9, C10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice

from queuectl.core.cycle.cycle import ClaimsByRoot, CycleOutcome, Cycles, PlanHeads, keep
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
    Evict,
    Keep,
    Plan,
    PodOwnerToRead,
    PodsToCount,
    Release,
    Retire,
    subject,
)
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.feature import StartCheck
from queuectl.core.flavors.assignment import AssignmentResult, adopt
from queuectl.core.lifecycle import (
    Adopt,
    Probe,
    Step,
    accounted,
    charged_to,
    forgotten,
    next_number,
    steered_by,
    to_be_queued,
    with_budget,
)
from queuectl.core.limits import Hold, Snapshot, Trial
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Attempt, AttemptState, Attribution, WorkloadId
from queuectl.core.past_usage import PlannedUsage
from queuectl.core.preemption.claims import ClaimState, PreemptionClaim
from queuectl.core.preemption.search import Target
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.inadmissible import Freed, Groups, helped_by
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.state import EngineState, runs_unasked
from queuectl.core.transitions import check_transitions


class PlanDraft:
    def __init__(self, state: EngineState, now: datetime, budget: int, trial: Trial) -> None:
        """`budget`: of the whole plan, in units of work. `trial`: charges and releases of the plan are tried
        in it."""
        self._state = state
        self.now = now
        self.budget = self.cycle_budget = budget
        """The second: what is left for cycles and reasons once `take_due` was called."""
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
        self.chances = Chances(state.directory, self.snapshot.holding)
        self.moved: set[WorkloadId] = set()
        """Workloads that the plan admits or retires, or that preempt or must wait: they do not get the
        reasons of their groups."""
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
                self.deferred.add(tree.root_of(name))

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
        self.cycle_budget = max(self.budget - len(self.due), self.budget // 4, 1)
        if state.due_configs:
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
        else:
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
            found = adopt(
                directory.queue_flavors(entry.cluster_queue), directory.pods.charges(entry.workload)
            )
        admit = self._admit(entry, found)
        attempt = replace(admit.attempt, debt=True)
        if marked is not None:
            number = marked.number if marked.number > entry.attempts else attempt.number
            attempt = replace(attempt, number=number, admitted_at=marked.admitted_at)
        if entry.attempt is None and (unrecorded := to_be_queued(entry, state.directory)) is not None:
            yield unrecorded
        self.charge(entry, found)
        yield replace(admit, attempt=attempt, detail=step.detail, created_at=None)
        if step.stop is not None:
            yield Evict(entry.id, entry.ref, attempt.number, step.stop)

    # --- 2. which heads are nominated

    def heads(self) -> PlanHeads:
        """Return the heads of the queues where anything is due, and of those in the same trees that reserve
        quota (C6)."""
        state, tree = self._state, self._state.tree
        claims: ClaimsByRoot = {}
        granted: ClaimsByRoot = {}
        for claim in state.claims.by_queue.values():
            if claim.state is not ClaimState.FIRST:
                left = claim.without(self.snapshot.released)
                there = claims if left.victims else granted
                there.setdefault(tree.root_of(claim.cluster_queue), []).append(left)
        of_granted = {claim.cluster_queue for claim in chain.from_iterable(granted.values())}
        helped = self._helped(chain.from_iterable(claims.values())) if claims else set()
        requeued: Groups = {}
        if self.freed:
            freed = {node: them for node, them in self.freed.items() if tree.root(node) not in self.deferred}
            requeued = helped_by(tree, state.pending, freed)
        names = state.due_queues | {group.cluster_queue for group in requeued} | of_granted | helped
        queues = [
            state.pending[name]
            for name in sorted(names)
            if name in state.pending and tree.root_of(name) not in self.deferred
        ]
        heads = list(self._heads_of(queues, requeued, of_granted))
        return PlanHeads(
            queues=queues, requeued=requeued, claims=claims, granted=granted, helped=helped, heads=heads
        )

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

    def _heads_of(
        self, queues: Iterable[PendingQueue], requeued: Groups, granted: Set[str]
    ) -> Iterator[QueueHeads]:
        state, tree = self._state, self._state.tree
        roots: set[QuotaNode] = set()
        names: set[str] = set()
        added: dict[str, list[EquivalenceGroup]] = {}
        plan = state.entries, self.chances, self.snapshot.past_usage
        for group in requeued:
            if group not in state.pending[group.cluster_queue].requeued:
                added.setdefault(group.cluster_queue, []).append(group)
        for queue in queues:
            groups = [*queue.requeued, *added.get(queue.name, ())]
            if groups or not queue.stopped_at_head:
                groups += queue.active
            elif queue.reserves and queue.claim is None:
                continue  # it is due for its reports alone
            names.add(queue.name)
            roots.add(tree.root_of(queue.name))
            yield QueueHeads(*plan, queue, groups, waits=queue.blocked and queue.name not in granted)
        for name in sorted(state.requeuer.reserving - names):
            reserving = state.pending.get(name)
            if reserving is None or reserving.blocked or not reserving.reserves:
                continue
            if tree.root_of(name) in roots:
                heads = QueueHeads(*plan, reserving, reserving.groups.values())
                heads.reserving_only = True
                yield heads

    # --- 3. to 5.: the cycles

    def run(self, plan_heads: PlanHeads, limit: int | None) -> CycleOutcome:
        """Run cycles, at most `limit` (None: no limit), and return what they come to."""
        state = self._state
        nominator = Nominator(self.snapshot, state.directory, state.claims)
        cycles = Cycles(self.snapshot, self.trial, nominator, self.checks, plan_heads, self.cycle_budget)
        return cycles.run(limit, state.left)

    def add(self, outcome: CycleOutcome) -> None:
        """Add what the cycles came to. A workload that the ledger does not have yet is queued before."""
        decisions: list[Decision] = [self._admit(*found) for found in outcome.admitted]
        for one in outcome.preempting:
            decisions += [_evict(target, one) for target in one.evicted]
            decisions.append(keep(one.entry, one.reason, claim=one.claim))
        # Heads that were nominated get their reason in any case: it makes their groups inadmissible.
        decisions += [
            *outcome.waiting,
            *outcome.refused.values(),
            *outcome.unfinished,
            *outcome.must_wait,
        ]
        self.moved |= outcome.moved
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

    def _admit(self, entry: Entry, found: AssignmentResult) -> Admit:
        workload, features = entry.workload, self._state.features
        assert workload is not None
        attempt = Attempt(
            workload=entry.id,
            number=next_number(entry),
            state=AttemptState.ADMITTED,
            assignment=found.assignment,
            admitted_at=self.now,
        )
        booked = Attribution.of(workload, features.account(workload) if features.active else ())
        return Admit(attempt, entry.ref, created_at=workload.created_at, attribution=booked)

    # --- 6. reasons for what no cycle reached

    def report(self, plan_heads: PlanHeads, outcome: CycleOutcome) -> None:
        """Report the reasons of other workloads that the ledger has, as far as the budget of cycles goes."""
        state = self._state
        fresh = [entry for entry, step in self.due if isinstance(step, Enqueue) and entry.recorded is None]
        others = chain(
            self._unreported(plan_heads, outcome, self._by_group(fresh)),
            (
                (one, one.ineligible)
                for one in chain(state.unreported.values(), fresh)
                if one.ineligible is not None and one.id not in self.moved
            ),
        )
        # What is to be queued, and is not by this plan, is reported once the ledger has it as it is now (L3).
        due = state.due_steps
        known = (
            one for one in others if one[0].id in self._queued or not isinstance(due.get(one[0].id), Enqueue)
        )
        reported = list(islice(known, max(0, self.cycle_budget - outcome.work)))
        self.decisions += [keep(entry, reason) for entry, reason in reported]
        self.work += len(reported)
        self.more |= bool(outcome.left or self.deferred) or next(known, None) is not None

    def _unreported(
        self,
        plan_heads: PlanHeads,
        outcome: CycleOutcome,
        fresh: Mapping[EquivalenceGroup, Sequence[Entry]],
    ) -> Iterator[tuple[Entry, Reason]]:
        """Yield the workloads, other than refused heads, whose reason is to be reported, group by group (R2).

        `fresh`: those that the ledger has once the plan is committed.
        """
        requeued = plan_heads.requeued
        preempting = {one.claim.cluster_queue: one.claim for one in outcome.preempting}
        with_requeued = {group.cluster_queue for group in requeued}
        groups = dict.fromkeys(outcome.refused)
        for queue in plan_heads.queues:
            groups |= queue.unreported
        groups |= dict.fromkeys(fresh)
        for group in groups:
            queue = self._state.pending[group.cluster_queue]
            known = None if group in requeued or group in queue.requeued else group.inadmissible
            refused = outcome.refused.get(group)
            head, reason = (None, known) if refused is None else (refused.workload, refused.reason)
            at_head = queue.stopped_at_head and not queue.requeued and queue.name not in with_requeued
            claim = preempting.get(queue.name, queue.claim if queue.blocked else None)
            behind = claim is not None and (queue.strict or claim.owner in group.members)
            if reason is None and (behind or at_head):
                for entry in chain(group.unreported.values(), fresh.get(group, ())):
                    if entry.id not in self.moved and not queue.preempted(entry):
                        yield entry, queue.waiting_for_head()
                continue
            if reason is None:
                continue  # it will be nominated
            shown = queue.told(reason)
            for entry in _told_anew(group, shown, fresh.get(group, ())):
                if entry.id != head and entry.id not in self.moved:
                    yield entry, shown

    def _by_group(self, entries: Iterable[Entry]) -> dict[EquivalenceGroup, list[Entry]]:
        """Return those of `entries` that are in pending queues of which this plan decides."""
        tree, groups = self._state.tree, dict[EquivalenceGroup, list[Entry]]()
        for entry in entries:
            group = entry.group
            if group is not None and tree.root_of(group.cluster_queue) not in self.deferred:
                groups.setdefault(group, []).append(entry)
        return groups

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


def _told_anew(group: EquivalenceGroup, reason: Reason, fresh: Sequence[Entry]) -> Iterable[Entry]:
    """Return the members of a group that do not have its reason yet."""
    if group.reported == reason.key:
        return chain(group.unreported.values(), fresh)
    return sorted(group.members.values(), key=lambda entry: entry.order)


def _evict(target: Target, one: Preempting) -> Evict:
    victim, cause = target
    assert victim.attempt is not None
    reason = Reason(code=Code.PREEMPTED, cause=cause, by=str(one.entry.ref))
    shares = one.shares.get(victim.id)
    return Evict(victim.id, victim.ref, victim.attempt.number, reason, one.entry.id, shares=shares)
