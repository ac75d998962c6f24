"""What an engine would decide after a change: tried on a copy, without a ledger or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeVar

from queuectl.answers.what_if.alike import Behind, Line, ahead_of, first_ones, joining
from queuectl.core.decisions import Admit, Decision, Enqueue, Evict, Keep, Plan, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.events import Event, PolicyObserved, WorkloadGone, WorkloadObserved
from queuectl.core.model import (
    Assignment,
    ConfigKey,
    LedgerSnapshot,
    Observation,
    Phase,
    StoredWorkload,
    Workload,
    WorkloadId,
)
from queuectl.core.nodes.facts import pods_of_facts
from queuectl.core.nodes.pods import Pod
from queuectl.core.policy import Policy, SchedulingConfiguration
from queuectl.core.reasons import Family, Reason, waits_for_victims
from queuectl.core.resources import FlavorResource
from queuectl.core.what_if import Displaced, Start, Tried
from queuectl.ports.reader import NotAtRest
from queuectl.scenarios.rebuilt_engine import by_workload, engine_of, observed, requested, rules

BUDGET: Final = 1_000_000
"""Of one plan: more than a state can need."""
FORKED_FOR_ONE: Final = 10
"""How many workloads are copied in the time of one unit of work."""
POD_SETS_FOR_ONE: Final = 4
"""How many podsets of the workload that is tried are evaluated in the time of one unit of work."""
PLANS: Final = 1_000
"""Most plans until nothing is left to decide at one time."""
SUSPENDED: Final = Observation(resource_version="1", generation=1, suspended=True, annotated=True)

_TRIED: Final = "{}"
"""In the place of a spec: only the ledger would read it."""

P = TypeVar("P", bound=Policy)


class Abandoned(Exception):
    """Nothing waits for the answer any more."""


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
        behind: Behind | None = None,
    ) -> None:
        """`engine`: in this state; it belongs to the trials from now on. `pods`: those on nodes. `behind`:
        workloads that are not in the engine; if given, what only the reasons of other workloads depend on is
        not decided either. Raises NotAtRest."""
        self.now: Final = now
        self.workloads: Final[Mapping[WorkloadId, StoredWorkload]] = {one.id: one for one in workloads}
        self._policies: Final = {one.key: one for one in policies}
        self.pods: Final[Mapping[WorkloadId, list[str]]] = by_workload(pods)
        """The UIDs of the pods of each workload that are on nodes."""
        self.work = 0
        self.abandoned: Callable[[], bool] = lambda: False
        """Whether nothing waits for the answer any more. Called from the thread that tries."""
        self._engine = engine
        self._behind = Behind({}) if behind is None else behind
        self._lean = behind is not None
        self._size = len(self.workloads) - self._behind.number
        self._read = self._sequence = sequence
        self._decided: dict[WorkloadId, list[Decision]] = {}
        self._new = set(self.workloads)
        """The workloads about which nothing has been decided in this engine so far."""
        if self._lean:
            engine.keep_refusals()
        self._decide()

    def _decide(self) -> None:
        """Decide all that can be decided. Of new workloads, keep it as what is told without a change."""
        for subject, decision in self._settle():
            if subject in self._new:
                self._decided.setdefault(subject, []).append(decision)
        self._new.clear()

    def _settle(self) -> list[tuple[WorkloadId, Decision]]:
        """Decide all that can be decided. No pods end meanwhile. Returns the decisions by their subjects."""
        found: list[tuple[WorkloadId, Decision]] = []
        for _ in range(PLANS):
            plan = self._plan(self._engine, self._behind)
            if not plan.decisions and not plan.more:
                return found
            self._sequence = commit(self._engine, plan, self._sequence)
            found += by_subject(plan)
        raise NotAtRest(f"it does not come to rest within {PLANS} plans")

    def _plan(self, engine: Engine, behind: Behind) -> Plan:
        """Return the next plan of an engine, to which workloads are added that it needs."""
        while True:
            plan = engine.decide(self.now, BUDGET)
            self.work += plan.work
            needed = behind.needed(plan)
            if not needed:
                return plan
            self._join(engine, needed)

    def _join(self, engine: Engine, line: Line) -> None:
        engine.join(joining(line))
        engine.handle(observed(one, frozenset()) for one in line)
        if engine is self._engine:
            self._new.update(one.id for one in line)

    def include(self, workload: WorkloadId) -> None:
        """Have a workload in the engine, to try changes of it. Raises KeyError: it is not in the state."""
        stored = self.workloads[workload]
        if self._behind.take(stored):
            self._join(self._engine, (stored,))
            self._decide()

    def fork(self) -> Engine:
        """Return a copy of the engine, at rest. Only those of whole trials have all workloads."""
        return self._engine.fork()

    def close(self) -> None:
        """Free the engine. No trial follows."""
        self._engine.dissolve()

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
        engine, behind = self._fork()
        try:
            engine.handle(changes)
            if self._lean:
                engine.keep_refusals()
            return tried(workload.id, self._until_it_starts(engine, behind, workload))
        finally:
            engine.dissolve()

    def go_on(self) -> None:
        """Raise Abandoned if nothing waits for the answer. The trials are as they were before."""
        if self.abandoned():
            raise Abandoned

    def ahead(self, workload: WorkloadId) -> int:
        """Return how many workloads that are alike start before it. Costs the workloads of its queue."""
        return ahead_of(self.workloads[workload], self.workloads.values())

    def could_start(self, workload: WorkloadId, cell: FlavorResource, more: int, ahead: int) -> bool:
        """Return False only if a pending workload would not start, had its queue `more` quota of a cell.

        In a trial nothing becomes available: victims hold their quota until their pods have ended.
        """
        return self._engine.could_start(workload, cell, more, ahead)

    def _fork(self) -> tuple[Engine, Behind]:
        self.work += self._size // FORKED_FOR_ONE
        return self._engine.fork(), self._behind.copy()

    def _try(self, change: Sequence[Event], back: Sequence[Event], workload: Workload) -> Tried:
        engine = self._engine
        engine.handle(change)
        try:
            self.work += _evaluated(workload)
            plan = self._plan(engine, self._behind)
            found: Sequence[Decision] = plan.decisions
            if _goes_on(plan) and not tried(workload.id, found).starts:
                engine_beside, behind = self._fork()
                try:
                    found = self._until_it_starts(engine_beside, behind, workload)
                finally:
                    engine_beside.dissolve()
            return tried(workload.id, found)
        finally:
            engine.handle(back)
            self._decide()  # heads that are to be evaluated again would come into the next trial

    def _until_it_starts(self, engine: Engine, behind: Behind, workload: Workload) -> list[Decision]:
        """Decide until the workload starts, or nothing is left to decide. Raises Abandoned and NotAtRest."""
        sequence, found = self._sequence, list[Decision]()
        for _ in range(PLANS):
            self.go_on()
            self.work += _evaluated(workload)
            plan = self._plan(engine, behind)
            found += plan.decisions
            if not (plan.decisions or plan.more) or tried(workload.id, found).starts:
                return found
            sequence = commit(engine, plan, sequence)
        raise NotAtRest(f"it does not come to rest within {PLANS} plans")


def _evaluated(workload: Workload) -> int:
    """Units of work of one evaluation of its podsets."""
    return 1 + len(workload.pod_sets) // POD_SETS_FOR_ONE


def trials_of(
    snapshot: LedgerSnapshot, configuration: SchedulingConfiguration, *, whole: bool = True
) -> Trials:
    """Return trials on the state of a ledger. `whole`: the engine has all workloads from the start.

    Raises ValueError for a spec that cannot be read, and for a ledger without a decision.
    """
    if snapshot.now is None:
        raise ValueError("the ledger has no decision yet")
    events = rules(snapshot)
    present, behind = (snapshot.workloads, None) if whole else first_ones(snapshot.workloads)
    engine = engine_of(replace(snapshot, workloads=present), configuration, events)
    policies = (event for event in events if isinstance(event, PolicyObserved))
    pods = (pod for one in snapshot.nodes for pod in pods_of_facts(one))
    return Trials(engine, snapshot.workloads, policies, snapshot.now, snapshot.sequence, pods, behind)


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
    displaced: list[Displaced] = []
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
                displaced.append(Displaced(victim, ref, decision.reason.cause))
    return Tried(
        start=_start(assignment, displaced, reason),
        assignment=assignment,
        displaced=tuple(displaced),
        reason=reason if assignment is None else None,
        cluster_queue=queued.cluster_queue if queued is not None else None,
        priority=queued.priority if queued is not None else None,
    )


def _start(assignment: Assignment | None, displaced: Sequence[Displaced], reason: Reason | None) -> Start:
    if displaced or waits_for_victims(reason):
        return Start.AFTER_PREEMPTION
    if assignment is not None:
        return Start.NOW
    return Start.NEVER if reason is not None and reason.family is Family.NEVER else Start.NOT_YET
