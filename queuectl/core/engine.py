"""The single writer of queue state, shared by every driver.

restore -> handle(events) -> decide(now) -> [the driver makes it durable] -> commit(plan, first sequence)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice

from queuectl.core import applying
from queuectl.core.applying import apply, probe, restore
from queuectl.core.cycle.cycle import Cycles, tell
from queuectl.core.cycle.journal import PlanDraft
from queuectl.core.cycle.nomination import Nomination, Nominator
from queuectl.core.cycle.queue_heads import QueueHeads, UsageOf
from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Evaluation,
    Evict,
    Keep,
    Plan,
    PodsToCount,
    Release,
    Retire,
    becomes_row,
)
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.events import Event
from queuectl.core.flavors.assignment import AssignmentResult, adopt
from queuectl.core.flavors.queue_flavors import LastTriedFlavors, PodSetGroup
from queuectl.core.invariants import check, check_plan
from queuectl.core.lifecycle import Adopt, Probe, Resend, accounted
from queuectl.core.model import Attempt, AttemptState, Effect, EffectKey, LedgerSnapshot, WorkloadId
from queuectl.core.observing import fold
from queuectl.core.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.preemption.search import Target
from queuectl.core.queues.inadmissible import helped
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.reasons import Code, Reason
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport
from queuectl.core.resources import Usage
from queuectl.core.state import State

DEFAULT_BUDGET = 2_000
"""Units of work in one decision: some 50 ms, far below any lease."""


class StalePlan(Exception):
    """The state moved on between `decide` and `commit`; decide again."""


class Engine:
    """`sources` are the lists that must have been read before anything is decided: the ledger may remember
    workloads that ended while nobody was watching, and a queue that is not there yet admits nobody."""

    def __init__(
        self, sources: frozenset[str], settings: SchedulingConfiguration = DEFAULT_CONFIGURATION
    ) -> None:
        self._state = State(sources, settings)
        self._version = 0
        self._cycle = 0

    @property
    def synced(self) -> bool:
        return self._state.synced

    @property
    def due(self) -> bool:
        """Would `decide` find anything to do?"""
        return self._state.synced and self._state.due

    @property
    def due_at(self) -> datetime | None:
        """When something becomes due by time alone: tell it `TimeCame` then. None: nothing does."""
        times = (self._state.timers.earliest, self._state.waking.due_at)
        return min((when for when in times if when is not None), default=None)

    def restore(self, snapshot: LedgerSnapshot) -> None:
        """Start from what the ledger says. Call once, before any event."""
        restore(self._state, snapshot)
        self._state.waking.wake()
        self._version += 1

    def handle(self, events: Iterable[Event]) -> None:
        """Fold events into the state. Replaying an event is harmless."""
        fold(self._state, events)
        self._state.waking.wake()
        self._version += 1

    def reconsider(self) -> None:
        """Look at everybody who waits again, whatever they lack."""
        for line in self._state.lines.values():
            self._state.waking.rethink(line)
        self._state.prune()
        self._version += 1

    def decide(self, now: datetime, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        """The next plan. The state stays as it is: called twice, it gives the same.

        `cycles`: how many admission cycles it may take; a cycle looks at the head of each ClusterQueue. Empty
        until every source has been listed once.
        """
        if not self._state.synced:
            return Plan(version=self._version, cycle=self._cycle, now=now)
        draft = PlanDraft(self._state, now)
        try:
            return self._plan(now, budget, cycles, draft)
        finally:
            draft.trial.undo()

    def _plan(self, now: datetime, budget: int, cycles: int | None, draft: PlanDraft) -> Plan:
        state = self._state
        decisions: list[Decision] = [Configure(key, spec) for key, spec in state.unrecorded_configs()]
        probes: list[PodsToCount] = []
        due = state.first_due(budget)
        for entry in due:
            what = state.step(entry)
            if isinstance(what, Probe) and entry.attempt is not None:
                probes.append(PodsToCount(entry.id, entry.ref, entry.attempt.number))
            elif isinstance(what, Adopt):
                decisions += self._adopt(entry, what, now, draft)
            elif what is not None and not isinstance(what, Probe | Resend):
                decisions.append(what)
                if isinstance(what, Release | Retire):
                    draft.give_back(entry, waits_again=isinstance(what, Release))
                elif isinstance(what, Evict | Amend):
                    draft.set_apart(entry)
        work = len(due)
        more = len(due) < len(state.due_entries)
        if len(due) < budget:
            spent, left = self._admissions(now, budget - len(due), cycles, draft, decisions)
            work, more = work + spent, more or left
        else:
            more |= bool(state.due_lines or state.gated)
        return Plan(
            version=self._version,
            cycle=self._cycle,
            now=now,
            decisions=tuple(accounted(d, state.entries, now, state.settings) for d in decisions),
            probes=tuple(probes),
            more=more,
            work=work,
        )

    def _admissions(
        self, now: datetime, budget: int, cycles: int | None, draft: PlanDraft, decisions: list[Decision]
    ) -> tuple[int, bool]:
        """Run cycles and append what they decide. Returns the work, and whether any is left."""
        state, tree = self._state, self._state.tree
        woken = helped(tree, state.lines, draft.freed)
        claims, settled = draft.claims()
        names = state.due_lines | {group.line.name for group in woken} | settled
        lines: list[PendingQueue] = []
        for name in sorted(names):
            line = state.lines.get(name)
            if line is not None and tree.root(tree.queue(name)) not in draft.contested:
                lines.append(line)
        nominator = Nominator(draft.field)

        def nominate(entry: Entry, tried: LastTriedFlavors, pinned: Mapping[PodSetGroup, str]) -> Nomination:
            assert entry.cluster_queue is not None
            menu = state.directory.menu(entry.cluster_queue)
            line = state.lines[entry.cluster_queue]
            if line.preemptor is entry and line.promised is not None and not pinned:
                kept = nominator.promised(entry, menu, line.promised)
                if kept is not None:
                    return kept
            return nominator.nominate(entry, menu, entry.shape, tried, pinned)

        run = Cycles(draft.field, draft.trial, nominate, claims, budget, cycles)
        outcome = run.run(self._cursors(lines, woken, settled, draft.field.past_usage))
        decisions += [
            Admit(
                _attempt(entry, found, now),
                entry.ref,
                created_at=_created(entry),
            )
            for entry, found in outcome.admitted
        ]
        for entry, reason, claim, targets in outcome.preempting:
            decisions += [_evict(target, entry) for target in targets]
            decisions.append(_keep(entry, reason, Evaluation(claim=claim)))
        # Heads that were looked at are told in any case: that is what parks their groups.
        decisions += [_keep(*found) for found in outcome.refused.values()]
        decisions += [_keep(*found) for found in outcome.lingering]
        untold = chain(tell(lines, outcome, woken), _before_gates(state.gated.values(), draft.moved))
        work = outcome.work + nominator.work
        told = list(islice(untold, max(0, budget - outcome.work)))
        decisions += [_keep(entry, reason) for entry, reason in told]
        more = outcome.more or bool(draft.contested) or next(untold, None) is not None
        return work + len(told), more

    def _cursors(
        self,
        lines: Iterable[PendingQueue],
        woken: Mapping[EquivalenceGroup, None],
        settled: Set[str],
        usage_of: UsageOf | None,
    ) -> Iterator[QueueHeads]:
        """Of the lines to be looked at, and of those in the same trees whose heads keep something back."""
        state, tree = self._state, self._state.tree
        active: dict[QuotaNode, None] = {}
        looked_at: set[str] = set()
        called: dict[PendingQueue, list[EquivalenceGroup]] = {}
        for group in woken:
            if group not in group.line.woken:
                called.setdefault(group.line, []).append(group)
        for line in lines:
            groups = [*line.woken, *called.get(line, ())]
            if groups or not line.halted:
                groups += line.awake
            cursor = QueueHeads(line, groups, usage_of)
            if line.name in settled:
                cursor.blocked = False
            looked_at.add(line.name)
            active[tree.root(tree.queue(line.name))] = None
            yield cursor
        for name in sorted(state.waking.keeping - looked_at):
            keeping = state.lines.get(name)
            if keeping is None or keeping.blocked or not keeping.keeps:
                continue
            if tree.root(tree.queue(name)) in active:
                cursor = QueueHeads(keeping, keeping.groups.values(), usage_of)
                cursor.passive = True
                yield cursor

    def _adopt(self, entry: Entry, what: Adopt, now: datetime, draft: PlanDraft) -> Iterator[Decision]:
        """Charge what runs already: as its own annotation says, else as it would be charged today."""
        state = self._state
        assert entry.workload is not None
        assert entry.observation is not None
        assert entry.cluster_queue is not None
        marked = entry.observation.admission
        if marked is not None:
            found = AssignmentResult(marked.assignment, state.tree.numbered(marked.assignment.usage()))
        else:
            directory = state.directory
            found = adopt(directory.menu(entry.cluster_queue), directory.charges(entry.workload))
        draft.charge(entry, found)
        attempt = replace(_attempt(entry, found, now), debt=True)
        yield Admit(attempt, entry.ref, what.detail)
        if what.stop is not None:
            yield Evict(entry.id, entry.ref, attempt.number, what.stop)

    def commit(self, plan: Plan, first: int) -> None:
        """Apply a plan that the ledger has accepted.

        `first` is the sequence number of its first recorded decision. Raises StalePlan.
        """
        if plan.version != self._version:
            raise StalePlan(f"plan is for version {plan.version}, the state is at {self._version}")
        sequence = first
        self._state.now = max(self._state.now, plan.now)
        for decision in plan.decisions:
            apply(self._state, decision, sequence)
            sequence += becomes_row(decision)
        for counted in plan.probes:
            probe(self._state, counted.workload)
        self._state.waking.wake()
        self._state.prune()
        self._version += 1
        self._cycle += 1

    def check(self, plan: Plan | None = None) -> list[str]:
        """What is wrong in memory, and with `plan` if given: sentences, none where all is sound.

        Looks at everything there is; for tests and for the operator who asks.
        """
        state = self._state
        return [*check(state), *(check_plan(state, plan) if plan is not None else ())]

    def split(self, plan: Plan) -> list[tuple[str, Plan]]:
        """A plan that the ledger refused, as one plan for each root cohort, to be committed one by one."""
        return applying.split(self._state, plan)

    def commit_part(self, plan: Plan, first: int) -> None:
        """Apply one plan of `split` that the ledger has accepted."""
        self.commit(replace(plan, version=self._version), first)

    def freeze(self, root: str) -> None:
        """Decide nothing about the workloads under `root`: memory and ledger disagree about them."""
        applying.freeze(self._state, root)
        self._version += 1

    def thaw(self, root: str, snapshot: LedgerSnapshot) -> None:
        """Load what is under `root` again, as the ledger has it, and go on with it."""
        applying.thaw(self._state, root, snapshot)
        self._state.waking.wake()
        self._version += 1

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset(self._state.frozen)

    def take_effects(self) -> list[Effect]:
        """Committed Kubernetes writes that nobody has in hands yet. Each is given out once, until settled."""
        return self._state.take_effects()

    def unacknowledged(self) -> frozenset[EffectKey]:
        """All committed writes that are not acknowledged."""
        return self._state.unacknowledged()

    def take_capacity(self) -> Usage | None:
        """What the ready nodes of each flavor can give, in base units; None: as when last asked."""
        directory = self._state.directory
        if not directory.capacity_changed:
            return None
        directory.capacity_changed = False
        return directory.capacity()

    def take_reports(
        self,
    ) -> tuple[Sequence[LocalQueueReport], Sequence[ClusterQueueReport], Sequence[str]]:
        """Of queues in which anything changed since the last call, and the ClusterQueues that are gone."""
        return self._state.take_reports()

    def standing(self) -> ClusterReport:
        """What no queue's report shows, as it is now. Costs what waits without a queue."""
        return self._state.standing()


def _keep(entry: Entry, reason: Reason, look: Evaluation | None = None) -> Keep:
    recorded = entry.reason is None or entry.reason.key != reason.key
    return Keep(entry.id, entry.ref, reason, recorded, look=look)


def _evict(target: Target, preemptor: Entry) -> Evict:
    victim, cause = target
    assert victim.attempt is not None
    reason = Reason(code=Code.PREEMPTED, cause=cause, by=str(preemptor.ref))
    return Evict(victim.id, victim.ref, victim.attempt.number, reason, preemptor.id)


def _before_gates(gated: Iterable[Entry], moved: Set[WorkloadId]) -> Iterator[tuple[Entry, Reason]]:
    for entry in gated:
        if entry.gate is not None and entry.id not in moved:
            yield entry, entry.gate


def _created(entry: Entry) -> datetime | None:
    return entry.workload.created_at if entry.workload else None


def _attempt(entry: Entry, found: AssignmentResult, now: datetime) -> Attempt:
    return Attempt(
        workload=entry.id,
        number=entry.attempts + 1,
        state=AttemptState.ADMITTED,
        assignment=found.assignment,
        admitted_at=now,
    )
