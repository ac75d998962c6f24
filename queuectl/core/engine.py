"""The engine: the only writer of the scheduling state, shared by every driver.

restore -> handle(events) -> decide(now) -> [the driver commits the plan to the ledger] -> commit(plan, first)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime

from queuectl.core import committed_plans
from queuectl.core.copies import fork
from queuectl.core.cycle.plan_draft import PlanDraft, admissions_turn
from queuectl.core.decisions import Plan
from queuectl.core.feature import Alarm, Number
from queuectl.core.features.feature_set import new_state
from queuectl.core.model.events import Event
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, SchedulingConfiguration
from queuectl.core.model.workload import (
    Effect,
    EffectKey,
    Eviction,
    LedgerSnapshot,
    PodsReady,
    WorkloadId,
)
from queuectl.core.observed_events import fold
from queuectl.core.reports import ClusterQueueReport, ClusterReport, LocalQueueReport, ReportBuilder

DEFAULT_BUDGET = 2_000
"""Units of work in one decision: some 50 ms, far below any lease."""


class StalePlan(Exception):
    """The state changed between `decide` and `commit`; decide again."""


class Engine:
    """Decides once all `sources` have been listed.

    Before that, workloads of the ledger may have ended while no controller ran, and queues may be missing.
    """

    def __init__(
        self, sources: frozenset[str], configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
    ) -> None:
        self._state, self.features = new_state(sources, configuration)
        self._sources = sources
        self._version = 0
        self._cycle = 0

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
        times = (state.timers.earliest, state.requeuer.protections.earliest, state.features.due_at())
        return min((when for when in times if when is not None), default=None)

    @property
    def unlisted(self) -> frozenset[str]:
        """Sources of which no list was taken."""
        return frozenset(self._state.missing)

    def restore(self, snapshot: LedgerSnapshot) -> None:
        """Start from the open state of the ledger. Call once, before any event."""
        committed_plans.restore(self._state, snapshot)
        self._state.requeuer.requeue()
        self._version += 1

    def follow(self, before: LedgerSnapshot, after: LedgerSnapshot) -> None:
        """Take over what another process has stored since the ledger was as `before`, which was restored or
        followed. Equal to a new engine that restores `after` and handles the same events (L34)."""
        committed_plans.follow(self._state, before, after)
        self._state.requeuer.requeue()
        self._tidy()

    def unobserved(self) -> frozenset[WorkloadId]:
        """Workloads of the ledger that were not observed, or were over before the ledger had them."""
        return frozenset(one.id for one in self._state.entries.values() if one.observation is None)

    def list_again(self) -> None:
        """What was observed may be out of date: nothing is decided before the next list of each source."""
        self._state.missing = set(self._sources)
        self._version += 1

    def handle(self, events: Iterable[Event]) -> None:
        """Fold events into the state. To pass an event again is harmless."""
        fold(self._state, events)
        self._state.requeuer.requeue()
        self._tidy()

    def reconsider(self) -> None:
        """Nominate all pending workloads again, whatever was missing."""
        for queue in self._state.pending.values():
            self._state.requeuer.renominate(queue)
        self._state.route_renominated()
        self._tidy()

    def decide(self, now: datetime, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        """Return the next plan. The state stays as it is: called twice, it gives the same.

        `cycles`: how many admission cycles it may take; a cycle nominates the head of each ClusterQueue.
        None: no limit. The plan is empty until every source has been listed once. Raises IllegalTransition.
        """
        if not self._state.synced:
            return Plan(version=self._version, cycle=self._cycle, now=now)
        turn = admissions_turn(self._state) if self._state.apart else frozenset()
        plan = self._drafted(now, budget, cycles, turn)
        if turn and not plan.decisions and not plan.probes and not plan.checks:
            return self._drafted(now, budget, cycles, frozenset())
        return plan

    def _drafted(self, now: datetime, budget: int, cycles: int | None, turn: Set[str]) -> Plan:
        """Make a plan. What it charges and releases is tried, and rolled back at the end."""
        with self._state.limits.trying() as trial:
            draft = PlanDraft(self._state, now, budget, trial)
            # 1. What is due without a cycle: ends, evictions, arrivals.
            draft.take_due(turn)
            # 2. The heads of the queues where anything is due; claims come first.
            heads = draft.heads()
            # 3. Nominate them: flavors, victims. 4. Order them. 5. Process them: admit, preempt, refuse.
            outcome = draft.run(heads, cycles)
            draft.add(outcome)
            # 6. Reasons for what no cycle reached.
            draft.report(heads, outcome)
            return draft.plan(self._version, self._cycle)

    def commit(self, plan: Plan, first: int) -> None:
        """Apply a plan that the ledger has accepted.

        `first` is the sequence number of its first recorded decision. Raises StalePlan.
        """
        if plan.version != self._version:
            raise StalePlan(f"plan is for version {plan.version}, the state is at {self._version}")
        committed_plans.apply_plan(self._state, plan, first)
        self._state.requeuer.requeue()
        self._tidy()
        self._cycle += 1

    def _tidy(self) -> None:
        """The state has changed: forget what is no longer due, or used."""
        if self._state.synced:
            self._state.prune()
            if self._state.may_forget:
                self._state.forget_unused()
        self._version += 1

    def split(self, plan: Plan) -> list[tuple[str, Plan]]:
        """Return a plan that the ledger refused as one plan for each tree, to be committed one by one."""
        return committed_plans.split(self._state, plan)

    def commit_part(self, plan: Plan, first: int) -> None:
        """Apply one plan of `split` that the ledger has accepted."""
        self.commit(replace(plan, version=self._version), first)

    def freeze(self, what: str) -> None:
        """Decide nothing about the workloads under root `what`, of which memory and ledger disagree; or about
        workload `what`, which the ledger fails to store."""
        committed_plans.freeze(self._state, what)
        self._version += 1

    def thaw(self, what: str, snapshot: LedgerSnapshot | None = None) -> None:
        """Go on with a workload that was set aside, or with a root, which is loaded from the ledger again."""
        if snapshot is None:
            committed_plans.unfreeze(self._state, what)
        else:
            committed_plans.thaw(self._state, what, snapshot)
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
        effects: list[Effect] = []
        state = self._state
        if not state.synced:
            return effects  # flavors may not have been read yet
        for entry in list(state.outbox.values()):
            attempt, verb = entry.attempt, entry.unacknowledged
            workload, seen = entry.workload, entry.observation
            if attempt is None or verb is None or workload is None or seen is None:
                continue  # restored, and its object is not observed yet
            del state.outbox[entry.id]
            entry.dispatched = True
            eviction = None
            if entry.evicted_at is not None and entry.reason is not None:
                eviction = Eviction(entry.reason, entry.evicted_at, state.features.fails(entry))
            names = sorted({flavor for p in attempt.assignment.pod_sets for _, flavor in p.flavors})
            effects.append(
                Effect(
                    key=EffectKey(entry.id, attempt.number, verb),
                    workload=workload,
                    observation=seen,
                    attempt=attempt,
                    flavors=tuple(f for name in names if (f := state.directory.flavors.get(name))),
                    eviction=eviction,
                )
            )
        return effects

    def unacknowledged(self) -> frozenset[EffectKey]:
        """Return all committed writes that are not acknowledged."""
        return frozenset(
            EffectKey(entry.id, entry.attempt.number, entry.unacknowledged)
            for entry in self._state.entries.values()
            if entry.unacknowledged is not None and entry.attempt is not None
        )

    def take_pods_ready(self) -> list[PodsReady]:
        """Return how many pods are ready, for admitted workloads where that changed since the last call."""
        changed, self._state.pods_changed = self._state.pods_changed, set()
        return [
            PodsReady(
                entry.id, entry.attempt.number, entry.observation.pods_ready, entry.observation.pods_missing
            )
            for entry in map(self._state.entries.get, sorted(changed))
            if entry is not None and entry.attempt is not None and entry.observation is not None
            if entry.observation.pods_ready is not None
        ]

    def take_reports(
        self,
    ) -> tuple[Sequence[LocalQueueReport], Sequence[ClusterQueueReport], Sequence[str]]:
        """Return reports of queues that changed since the last call, and the ClusterQueues that are gone."""
        state = self._state
        if not state.synced:
            return [], [], []
        state.changed_queues |= state.features.changed_warnings()
        # An admission changes the positions in all LocalQueues of its ClusterQueue.
        state.changed.update(*(state.directory.pointing_to(name) for name in state.changed_queues))
        locals_, queues = sorted(state.changed), sorted(state.changed_queues)
        state.changed, state.changed_queues = set(), set()
        known, builder = state.directory.known_queues(), ReportBuilder(state)
        return (
            [builder.local_queue(name) for name in locals_ if name in state.directory.local_queues],
            [builder.cluster_queue(name) for name in queues if name in known],
            [name for name in queues if name not in known],
        )

    def numbers(self) -> list[Number]:
        """Return the numbers of features for metrics."""
        return self._state.features.numbers()

    def take_alarms(self) -> list[Alarm]:
        """Return what users of workloads are to be told beside decisions. Each is returned once."""
        return self._state.features.take_alarms()

    def cluster_report(self) -> ClusterReport:
        """Return what no report of a queue has. Costs the workloads that wait without a queue."""
        state = self._state
        state.changed_queues |= state.features.changed_warnings()
        aside = sum(what in state.entries for what in state.frozen)
        return ClusterReport(
            strays=ReportBuilder(state).strays(state.directory.known_queues()),
            frozen=len(state.frozen) - aside,
            set_aside=aside,
            gate_installed=state.directory.gate is not None,
            local_queues=frozenset(state.directory.local_queues),
            warnings=state.features.warnings,
        )
