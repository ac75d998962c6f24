"""What an engine would decide after a change: tried on a copy, without a ledger or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from queuectl.answers.trial_snapshot import without_alike
from queuectl.core.copies import dissolve
from queuectl.core.decisions import Admit, Decision, Enqueue, Evict, Keep, Plan, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.features.nodes.facts import pods_of_facts
from queuectl.core.model.budgets import Budget
from queuectl.core.model.events import Event, OutcomesRead, PolicyObserved, WorkloadGone, WorkloadObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Policy, SchedulingConfiguration
from queuectl.core.model.reasons import Family, Reason, waits_for_victims
from queuectl.core.model.usage_limits import UsageLimit
from queuectl.core.model.what_if import DisplacedWorkload, Start, Tried
from queuectl.core.model.workload import (
    Assignment,
    ConfigKey,
    LedgerSnapshot,
    Phase,
    StoredWorkload,
    Workload,
    WorkloadId,
)
from queuectl.ports.reader import NotAtRest
from queuectl.scenarios.rebuilt_engine import SUSPENDED, by_workload, engine_of, requested, rules

BUDGET: Final = 1_000_000
"""Of one plan: more than a state can need."""
FORKED_FOR_ONE: Final = 10
"""How many workloads are copied in the time of one unit of work."""
POD_SETS_FOR_ONE: Final = 4
"""How many podsets of the workload that is tried are evaluated in the time of one unit of work."""
PLANS: Final = 1_000
"""Most plans until nothing is left to decide at one time."""

_TRIED: Final = "{}"
"""In the place of a spec: only the ledger would read it."""

P = TypeVar("P", bound=Policy)


class Abandoned(Exception):
    """Nothing waits for the answer any more."""


class TooFewWorkloads(Exception):
    """A workload was admitted that stood for others, which the engine does not have."""


class Trials:
    """The state of a ledger, with everything decided that can be decided at its time.

    After each trial it is as before. `work`: units of work that trials have cost, as a plan counts them.
    """

    def __init__(
        self,
        engine: Engine,
        workloads: Iterable[StoredWorkload],
        policies: Iterable[PolicyObserved],
        now: datetime,
        sequence: int,
        pods: Iterable[Pod] = (),
        last: Set[WorkloadId] = frozenset(),
    ) -> None:
        """`engine`: in this state; it belongs to the trials from now on. `pods`: those on nodes.
        `last`: pending workloads that stand for others, which are not in the engine (without_alike).
        Raises NotAtRest and TooFewWorkloads; then the engine is freed."""
        self.now: Final = now
        self.workloads: Final[Mapping[WorkloadId, StoredWorkload]] = {one.id: one for one in workloads}
        self._policies: Final = {one.key: one for one in policies}
        self.pods: Final[Mapping[WorkloadId, list[str]]] = by_workload(pods)
        """The UIDs of the pods of each workload that are on nodes."""
        self.work = 0
        self.abandoned: Callable[[], bool] = lambda: False
        """Whether nothing waits for the answer any more. Called from the thread that tries."""
        self.outcomes = OutcomesRead(())
        """How workloads that are over ended that a workload is to be tried after."""
        self._engine = engine
        self._last: Final = last
        self._read = self._sequence = sequence
        self._decided: dict[WorkloadId, list[Decision]] = {}
        try:
            decisions = self._settle()
        except BaseException:
            self.close()
            raise
        for subject, decision in decisions:
            self._decided.setdefault(subject, []).append(decision)

    def _settle(self) -> list[tuple[WorkloadId, Decision]]:
        """Decide all that can be decided. No pods end meanwhile. Returns the decisions by their subjects."""
        decisions: list[tuple[WorkloadId, Decision]] = []
        for _ in range(PLANS):
            plan = self._plan(self._engine)
            if not plan.decisions and not plan.more:
                return decisions
            self._sequence = commit(self._engine, plan, self._sequence)
            decisions += by_subject(plan)
        raise NotAtRest(f"it does not come to rest within {PLANS} plans")

    def _plan(self, engine: Engine) -> Plan:
        """Return the next plan of an engine. Raises TooFewWorkloads."""
        plan = engine.decide(self.now, BUDGET)
        self.work += plan.work
        for decision in plan.decisions if self._last else ():
            if isinstance(decision, Admit) and decision.attempt.workload in self._last:
                raise TooFewWorkloads(decision.attempt.workload)
        return plan

    def fork(self) -> Engine:
        """Return a copy of the engine, at rest."""
        self.work += self._engine.workloads // FORKED_FOR_ONE
        return self._engine.fork()

    def close(self) -> None:
        """Free the engine. No trial follows."""
        dissolve(self._engine)

    @property
    def sequence(self) -> int:
        """Of the last decision."""
        return self._sequence

    def all_of(self, kind: type[P]) -> list[P]:
        """Return the policy objects of a kind, in the order of their keys."""
        values = (one.value for _, one in sorted(self._policies.items()))
        return [one for one in values if isinstance(one, kind)]

    def policy(self, key: ConfigKey) -> Policy | None:
        """Return the policy object of that key; None: there is none."""
        found = self._policies.get(key)
        return None if found is None else found.value

    @property
    def read(self) -> int:
        """Sequence of the state that they are about, before anything was decided here."""
        return self._read

    def unchanged(self, workload: WorkloadId) -> Tried:
        """Return what is decided about a workload without any change. Raises KeyError."""
        stored = self.workloads[workload]
        if workload in self._decided:
            return tried(workload, self._decided[workload])
        if stored.phase is Phase.ADMITTED and stored.attempt is not None:
            return Tried(start=Start.NOW, assignment=stored.attempt.assignment)
        return Tried(start=_start(None, (), stored.reason), reason=stored.reason)

    def with_workload(self, workload: Workload) -> Tried:
        """Try a workload, in the place of the pending one with its id if there is one.

        Raises ValueError for the id of a workload that holds quota: an engine would stop that workload.
        Raises Abandoned and NotAtRest.
        """
        self.go_on()
        known = self.workloads.get(workload.id)
        if known is not None and known.attempt is not None:
            raise ValueError(f"{workload.id} holds quota")
        back: Event = WorkloadGone(workload.id)
        if known is not None:
            back = WorkloadObserved(requested(known), SUSPENDED)
        return self._try([WorkloadObserved(workload, SUSPENDED)], [back], workload)

    def with_policy(self, key: ConfigKey, value: Policy, workload: Workload) -> Tried:
        """Try a workload under another spec of a policy object.

        Raises KeyError if there is none, Abandoned and NotAtRest.
        """
        if key not in self._policies:
            raise KeyError(key)
        self.go_on()
        changes: list[Event] = [PolicyObserved(key, value, _TRIED)]
        if workload.id not in self.workloads:
            changes.append(WorkloadObserved(workload, SUSPENDED))
        # On a copy: policy back in force would have the heads of the whole tree evaluated once more.
        engine = self.fork()
        try:
            engine.handle(changes)
            engine.handle([self.outcomes])
            return tried(workload.id, self._until_it_starts(engine, workload))
        finally:
            dissolve(engine)

    def go_on(self) -> None:
        """Raise Abandoned if nothing waits for the answer. The trials are as they were before."""
        if self.abandoned():
            raise Abandoned

    def _try(self, change: Sequence[Event], back: Sequence[Event], workload: Workload) -> Tried:
        engine = self._engine
        engine.handle(change)
        engine.handle([self.outcomes])
        try:
            self.work += _evaluated(workload)
            plan = self._plan(engine)
            decisions: Sequence[Decision] = plan.decisions
            if _goes_on(plan) and not tried(workload.id, decisions).starts:
                copy = self.fork()
                try:
                    decisions = self._until_it_starts(copy, workload)
                finally:
                    dissolve(copy)
            return tried(workload.id, decisions)
        finally:
            engine.handle(back)
            self._settle()  # heads that are to be evaluated again would come into the next trial

    def _until_it_starts(self, engine: Engine, workload: Workload) -> list[Decision]:
        """Decide until the workload starts, or nothing is left to decide. Raises Abandoned and NotAtRest."""
        sequence, decisions = self._sequence, list[Decision]()
        for _ in range(PLANS):
            self.go_on()
            self.work += _evaluated(workload)
            plan = self._plan(engine)
            decisions += plan.decisions
            if not (plan.decisions or plan.more) or tried(workload.id, decisions).starts:
                return decisions
            sequence = commit(engine, plan, sequence)
        raise NotAtRest(f"it does not come to rest within {PLANS} plans")


def _evaluated(workload: Workload) -> int:
    """Units of work of one evaluation of its podsets."""
    return 1 + len(workload.pod_sets) // POD_SETS_FOR_ONE


def trials_of(
    snapshot: LedgerSnapshot,
    configuration: SchedulingConfiguration,
    *,
    namespace: str | None = None,
    asked: WorkloadId | None = None,
) -> Trials:
    """Return trials on the state of a ledger. `namespace`: of the only workload that is tried, where not all
    workloads are needed; `asked`: its id, where it is in the ledger.

    Raises ValueError for a spec that cannot be read, and for a ledger without a decision; NotAtRest and
    TooFewWorkloads.
    """
    if snapshot.now is None:
        raise ValueError("the ledger has no decision yet")
    events = rules(snapshot)
    workloads, last = snapshot.workloads, frozenset[WorkloadId]()
    policies = [event for event in events if isinstance(event, PolicyObserved)]
    limits = [one.value for one in policies if isinstance(one.value, UsageLimit | Budget)]
    # A limit of pending workloads counts each of those that are alike (X6).
    counted = any(isinstance(one, UsageLimit) and one.pending is not None for one in limits)
    if namespace is not None and not counted:
        workloads, last = without_alike(snapshot.workloads, namespace, asked, by_user=bool(limits))
    engine = engine_of(replace(snapshot, workloads=workloads), configuration, events)
    pods = (pod for one in snapshot.nodes for pod in pods_of_facts(one))
    return Trials(engine, snapshot.workloads, policies, snapshot.now, snapshot.sequence, pods, last)


def commit(engine: Engine, plan: Plan, sequence: int) -> int:
    """Commit a plan after decision number `sequence`. Returns the number of its last one."""
    engine.commit(plan, sequence + 1)
    return sequence + len(plan.recorded)


def _goes_on(plan: Plan) -> bool:
    """Return whether a later plan may decide more at the same time."""
    moved = (isinstance(decision, Admit | Evict | Release | Retire) for decision in plan.decisions)
    return plan.more or bool(plan.apart) or any(moved)


def by_subject(plan: Plan) -> Iterator[tuple[WorkloadId, Decision]]:
    """Yield each decision that `tried` reads, with the workload that it is about or that it is made for."""
    for decision in plan.decisions:
        match decision:
            case Admit():
                yield decision.attempt.workload, decision
            case Keep():
                yield decision.workload, decision
            case Evict(preemptor=preemptor) if preemptor is not None:
                yield preemptor, decision


def tried(workload: WorkloadId, decisions: Iterable[Decision]) -> Tried:
    """Return what these decisions, in their order, say about one pending workload."""
    displaced: list[DisplacedWorkload] = []
    reason: Reason | None = None
    queued: Enqueue | None = None
    assignment: Assignment | None = None
    for decision in decisions:
        match decision:
            case Enqueue() if decision.workload.id == workload:
                queued = decision
            case Admit(attempt) if attempt.workload == workload:
                assignment = attempt.assignment
                break
            case Keep() if decision.workload == workload:
                reason = decision.reason
            case Evict(victim, ref, preemptor=preemptor) if preemptor == workload:
                displaced.append(DisplacedWorkload(victim, ref, decision.reason.cause))
    return Tried(
        start=_start(assignment, displaced, reason),
        assignment=assignment,
        displaced=tuple(displaced),
        reason=reason if assignment is None else None,
        cluster_queue=queued.cluster_queue if queued is not None else None,
        priority=queued.priority if queued is not None else None,
    )


def _start(
    assignment: Assignment | None, displaced: Sequence[DisplacedWorkload], reason: Reason | None
) -> Start:
    if displaced or waits_for_victims(reason):
        return Start.AFTER_PREEMPTION
    if assignment is not None:
        return Start.NOW
    return Start.NEVER if reason is not None and reason.family is Family.NEVER else Start.NOT_YET
