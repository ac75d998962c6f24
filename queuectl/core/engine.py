"""The engine: the only writer of the scheduling state, shared by every driver.

restore -> handle(events) -> decide(now) -> [the driver commits the plan to the ledger] -> commit(plan, first)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple

from queuectl.core import applying, outgoing
from queuectl.core.cycle.cycle import Cycles
from queuectl.core.cycle.cycle_pass import Preempting
from queuectl.core.cycle.nomination import Nominator
from queuectl.core.cycle.plan_draft import PlanDraft, Taken, admissions_turn, take_due, unreported
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
from queuectl.core.directory import Directory
from queuectl.core.due import runs_unasked
from queuectl.core.entries import Entry
from queuectl.core.feature import Features, Number
from queuectl.core.features import feature_set
from queuectl.core.features.nodes.facts import ToldNodes, take_facts
from queuectl.core.features.nodes.predictions import Predicted
from queuectl.core.features.nodes.report import capacities
from queuectl.core.features.ownership.strays import judge
from queuectl.core.flavors.assignment import AssignmentResult, adopt
from queuectl.core.forking import fork
from queuectl.core.lifecycle import (
    Adopt,
    Probe,
    Resend,
    accounted,
    forgotten,
    next_number,
    steered_by,
    to_be_queued,
)
from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.events import Event
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import (
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    LedgerSnapshot,
    PodsReady,
    WorkloadId,
)
from queuectl.core.observing import fold
from queuectl.core.preemption.search import Target
from queuectl.core.quota.shortage import promised
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport
from queuectl.core.settling import forget_unused, prune
from queuectl.core.state import EngineState
from queuectl.core.transitions import check_transitions

DEFAULT_BUDGET = 2_000
"""Units of work in one decision: some 50 ms, far below any lease."""


class _Admissions(NamedTuple):
    """What the cycles of one plan add to it."""

    decisions: list[Decision]
    work: int
    more: bool
    left: list[str]


class StalePlan(Exception):
    """The state changed between `decide` and `commit`; decide again."""


class Engine:
    """Decides once all `sources` have been listed.

    Before that, workloads of the ledger may have ended while no controller ran, and queues may be missing.
    """

    def __init__(
        self, sources: frozenset[str], configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
    ) -> None:
        directory = Directory(configuration)
        self.features = feature_set(configuration, directory.queues)
        self._state = EngineState(sources, directory, Features(self.features))
        self._version = 0
        self._cycle = 0
        self._reported = -1
        """Version of the quota tree of the last report on capacity."""

    @property
    def synced(self) -> bool:
        return self._state.synced

    @property
    def workloads(self) -> int:
        """How many workloads it knows."""
        return len(self._state.entries)

    @property
    def due(self) -> bool:
        """Whether `decide` would find anything to do."""
        return self._state.synced and self._state.due

    @property
    def due_at(self) -> datetime | None:
        """When something becomes due by time alone: pass `TimeCame` then. None: nothing does."""
        state = self._state
        times = (state.timers.earliest, state.requeuer.due_at, state.nodes.due_at(), state.stock_outs.due_at)
        return min((when for when in times if when is not None), default=None)

    @property
    def unreachable_nodes(self) -> frozenset[str]:
        """Nodes on which pods that are being deleted count as gone (M13)."""
        return self._state.nodes.losses.unreachable()

    def restore(self, snapshot: LedgerSnapshot) -> None:
        """Start from the open state of the ledger. Call once, before any event."""
        applying.restore(self._state, snapshot)
        self._state.requeuer.requeue()
        self._version += 1

    def handle(self, events: Iterable[Event]) -> None:
        """Fold events into the state. To pass an event again is harmless."""
        fold(self._state, events)
        judge(self._state)
        self._state.requeuer.requeue()
        forget_unused(self._state)
        self._version += 1

    def reconsider(self) -> None:
        """Nominate all pending workloads again, whatever was missing."""
        for queue in self._state.pending.values():
            self._state.requeuer.renominate(queue)
        prune(self._state)
        self._version += 1

    def decide(self, now: datetime, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        """Return the next plan. The state stays as it is: called twice, it gives the same.

        `cycles`: how many admission cycles it may take; a cycle nominates the head of each ClusterQueue.
        None: no limit. The plan is empty until every source has been listed once. Raises IllegalTransition.
        """
        if not self._state.synced:
            return Plan(version=self._version, cycle=self._cycle, now=now)
        turn = admissions_turn(self._state)
        plan = self._drafted(now, budget, cycles, turn)
        if turn and not plan.decisions and not plan.probes and not plan.checks:
            return self._drafted(now, budget, cycles, frozenset())
        return plan

    def _drafted(self, now: datetime, budget: int, cycles: int | None, turn: Set[str]) -> Plan:
        with self._state.limits.trying() as trial:
            draft = PlanDraft(self._state, now, trial)
            return self._plan(now, budget, cycles, draft, take_due(self._state, draft, budget, turn))

    def _plan(self, now: datetime, budget: int, cycles: int | None, draft: PlanDraft, due: Taken) -> Plan:
        state = self._state
        decisions: list[Decision] = [
            Configure(key, spec, state.authors.get(key)) for key, spec in state.unrecorded_configs()
        ]
        probes: list[PodsToCount] = []
        for entry, step in due.steps:
            if isinstance(step, Probe):
                assert entry.attempt is not None
                probes.append(PodsToCount(entry.id, entry.ref, entry.attempt.number, step.at_most))
            elif isinstance(step, Adopt):
                decisions += self._adopt(entry, step, now, draft)
            elif not isinstance(step, Resend):
                decisions.append(step)
                if isinstance(step, Release | Retire):
                    draft.release(entry, pending_again=isinstance(step, Release))
                elif isinstance(step, Evict | Amend) or (isinstance(step, Enqueue) and runs_unasked(entry)):
                    draft.defer(entry)
        outcome = self._admissions(now, max(budget - len(due.steps), budget // 4, 1), cycles, draft, due)
        decisions += outcome.decisions
        decided = tuple(accounted(d, state.entries, state.directory, state.features, now) for d in decisions)
        check_transitions(decided, state.entries)
        return Plan(
            version=self._version,
            cycle=self._cycle,
            now=now,
            decisions=decided,
            probes=tuple(probes),
            checks=tuple(self._to_check()),
            more=due.more or outcome.more,
            work=len(due.steps) + outcome.work,
            apart=frozenset(str(root) for root in draft.deferred),
            left=tuple(outcome.left),
        )

    def _to_check(self) -> Iterator[ChildToCheck | PodOwnerToRead]:
        yield from self._state.pod_owners.to_read()
        children = self._state.children
        for child in children.doubtful.values():
            family = (one.workload.ref for one in children.family(child.holder) if one.runs)
            yield ChildToCheck(child.workload.id, child.workload.ref, tuple(family))

    def _admissions(
        self, now: datetime, budget: int, cycles: int | None, draft: PlanDraft, due: Taken
    ) -> _Admissions:
        """Run cycles. A workload that the ledger does not have yet is queued before it is decided about."""
        state = self._state
        requeued = draft.requeued()
        claims, granted = draft.claims()
        of_granted = {claim.cluster_queue for claim in granted}
        helped = draft.helped(claims)
        queues = draft.due_queues(requeued, of_granted | helped)
        nominator = Nominator(draft.snapshot, state.directory, state.claims)
        run = Cycles(
            draft.snapshot,
            draft.trial,
            nominator,
            claims,
            draft.room,
            budget,
            cycles,
            state.left,
            granted=granted,
            helped=helped,
        )
        outcome = run.run(draft.heads(queues, requeued, of_granted))
        decisions: list[Decision] = [
            Admit(_attempt(entry, found, now), entry.ref, created_at=_created(entry))
            for entry, found in outcome.admitted
        ]
        for one in outcome.preempting:
            decisions += [_evict(target, one) for target in one.evicted]
            decisions.append(replace(_keep(one.entry, one.reason), claim=one.claim))
        decisions += [replace(_keep(one, reason), claim=claim) for one, reason, claim in outcome.waiting]
        # Heads that were nominated get their reason in any case: it makes their groups inadmissible.
        decisions += [_keep(*found) for found in outcome.refused.values()]
        decisions += [_keep(*found) for found in outcome.unfinished]
        decisions += [_keep(*found, Evaluation(no_room=True)) for found in outcome.no_room]
        others = chain(
            unreported(queues, state.pending, outcome, requeued),
            _ineligible(state.unreported.values(), draft.moved),
        )
        taken = due.workloads
        first = [
            step
            for decision in decisions
            if isinstance(decision, Admit | Keep)
            and isinstance(step := state.due_steps.get(subject(decision)), Enqueue)
            and step.workload.id not in taken
        ]
        queued = taken | {step.workload.id for step in first}
        known = (one for one in others if one[0].id in queued or not self._to_be_queued(one[0]))
        reported = list(islice(known, max(0, budget - outcome.work)))
        return _Admissions(
            decisions=[*first, *decisions, *(_keep(entry, reason) for entry, reason in reported)],
            work=outcome.work + nominator.work + len(reported),
            more=bool(outcome.left or draft.deferred) or next(known, None) is not None,
            left=outcome.left,
        )

    def _to_be_queued(self, entry: Entry) -> bool:
        """Return whether the ledger does not have `entry` as it is now (L3)."""
        return isinstance(self._state.due_steps.get(entry.id), Enqueue)

    def _adopt(self, entry: Entry, step: Adopt, now: datetime, draft: PlanDraft) -> Iterator[Decision]:
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
            draft.release(entry, pending_again=True)
        directory = state.directory
        charged = marked.assignment if marked is not None else steered_by(entry, directory)
        if charged is not None:
            found = AssignmentResult(charged, state.tree.numbered(charged.usage()))
        else:
            assert entry.cluster_queue is not None
            found = adopt(directory.queue_flavors(entry.cluster_queue), directory.charges(entry.workload))
        attempt = replace(_attempt(entry, found, now), debt=True)
        if marked is not None:
            number = marked.number if marked.number > entry.attempts else attempt.number
            attempt = replace(attempt, number=number, admitted_at=marked.admitted_at)
        if entry.attempt is None and (unrecorded := to_be_queued(entry, state.directory)) is not None:
            yield unrecorded
        draft.charge(entry, found)
        yield Admit(attempt, entry.ref, step.detail)
        if step.stop is not None:
            yield Evict(entry.id, entry.ref, attempt.number, step.stop)

    def commit(self, plan: Plan, first: int) -> None:
        """Apply a plan that the ledger has accepted.

        `first` is the sequence number of its first recorded decision. Raises StalePlan.
        """
        if plan.version != self._version:
            raise StalePlan(f"plan is for version {plan.version}, the state is at {self._version}")
        applying.apply_plan(self._state, plan, first)
        judge(self._state)
        self._state.requeuer.requeue()
        prune(self._state)
        forget_unused(self._state)
        self._version += 1
        self._cycle += 1

    def split(self, plan: Plan) -> list[tuple[str, Plan]]:
        """Return a plan that the ledger refused as one plan for each tree, to be committed one by one."""
        return applying.split(self._state, plan)

    def commit_part(self, plan: Plan, first: int) -> None:
        """Apply one plan of `split` that the ledger has accepted."""
        self.commit(replace(plan, version=self._version), first)

    def freeze(self, what: str) -> None:
        """Decide nothing about the workloads under root `what`, of which memory and ledger disagree; or about
        workload `what`, which the ledger fails to store."""
        applying.freeze(self._state, what)
        self._version += 1

    def thaw(self, what: str, snapshot: LedgerSnapshot | None = None) -> None:
        """Go on with a workload that was set aside, or with a root, which is loaded from the ledger again."""
        if snapshot is None:
            applying.unfreeze(self._state, what)
        else:
            applying.thaw(self._state, what, snapshot)
        self._state.requeuer.requeue()
        self._version += 1

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset(self._state.frozen)

    def fork(self) -> Engine:
        """Return an independent copy: what is done to one has no effect on the other.

        Costs as much as there are workloads and queues, a few microseconds each.
        """
        return fork(self)

    def take_effects(self) -> list[Effect]:
        """Return committed Kubernetes writes that no driver has yet. Each is returned once, until settled."""
        return outgoing.take_effects(self._state)

    def unacknowledged(self) -> frozenset[EffectKey]:
        """Return all committed writes that are not acknowledged."""
        return outgoing.unacknowledged(self._state)

    def take_capacities(self) -> list[FlavorCapacity] | None:
        """Return what the nodes of each flavor have (core/features/nodes/report); None: as returned last.

        Costs some ten microseconds for each node. None, too, until all sources are listed.
        """
        state = self._state
        tree, usage = state.tree, state.nodes.usage
        if not state.synced or not (usage.changed or self._reported != tree.version):
            return None
        usage.changed, self._reported = False, tree.version
        return capacities(state.nodes, state.directory.flavors, promised(tree), outgoing.warnings(state))

    def take_nodes(self) -> ToldNodes | None:
        """Return facts of nodes that changed since the last call; None until all sources are listed.

        Costs some 0.1 us for each pod of the cluster if any node changed.
        """
        return take_facts(self._state.nodes) if self._state.synced else None

    def take_predictions(self) -> Predicted:
        """Return how often room was found since the last call, and where kube-scheduler did not find it."""
        return self._state.predictions.take()

    def expected(self, workload: WorkloadId) -> list[tuple[str, Amounts]]:
        """Return the nodes where pods of an admitted workload are expected that are not bound (M7), each with
        what the pod requests. Pods that find no node are not in it."""
        return outgoing.expected(self._state, workload)

    def take_pods_ready(self) -> list[PodsReady]:
        """Return how many pods are ready, for admitted workloads where that changed since the last call."""
        return outgoing.take_pods_ready(self._state)

    def take_reports(
        self,
    ) -> tuple[Sequence[LocalQueueReport], Sequence[ClusterQueueReport], Sequence[str]]:
        """Return reports of queues that changed since the last call, and the ClusterQueues that are gone."""
        return outgoing.take_reports(self._state)

    def bound_pods(self, workload: WorkloadId) -> tuple[str, ...]:
        """Return the first pods of a workload that are bound, each with its node."""
        return self._state.nodes.bound.named(workload)

    def numbers(self) -> list[Number]:
        """Return the numbers of features for metrics."""
        return self._state.features.numbers()

    def cluster_report(self) -> ClusterReport:
        """Return what no report of a queue has. Costs the workloads that wait without a queue."""
        return outgoing.cluster_report(self._state)


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


def _created(entry: Entry) -> datetime | None:
    return entry.workload.created_at if entry.workload else None


def _attempt(entry: Entry, found: AssignmentResult, now: datetime) -> Attempt:
    return Attempt(
        workload=entry.id,
        number=next_number(entry),
        state=AttemptState.ADMITTED,
        assignment=found.assignment,
        admitted_at=now,
    )
