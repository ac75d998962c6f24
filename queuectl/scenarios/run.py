"""Runs a document: cycles of the engine on its state, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.decisions import Admit, Evict, Keep, Plan, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    EffectSettled,
    Event,
    PolicyObserved,
    Result,
    TimeCame,
)
from queuectl.core.model.policy import ClusterQueue, LocalQueueName, Node
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import format_amount
from queuectl.core.model.workload import Assignment, PodSetAssignment
from queuectl.scenarios import findings
from queuectl.scenarios.build import SOURCE, beginning, over, settings
from queuectl.scenarios.documents import (
    Admitted,
    Cycle,
    Evicted,
    Expect,
    PodSetAdmitted,
    ScenarioStep,
    ScenarioVictim,
    ScenarioWorkload,
)
from queuectl.scenarios.findings import Finding
from queuectl.scenarios.nodes import LONG
from queuectl.scenarios.reader import Scenario

BUDGET: Final = 1_000_000
"""Budget of one plan: more than a document can need."""


@dataclass(slots=True)
class RunOutcome:
    """Results of the decisions since its start."""

    admitted: dict[str, Admitted] = field(default_factory=dict)
    preempted: dict[str, ScenarioVictim] = field(default_factory=dict)
    evicted: dict[str, Evicted] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    """By ClusterQueue: heads that are pending for victims of others."""


class Told(NamedTuple):
    """State after a cycle."""

    expect: Expect
    """In the form of a document."""
    findings: dict[str, Finding]
    """By workload, what became of it and why."""


class ScenarioRun:
    """The engine of one document, with holding and pending workloads."""

    def __init__(self, scenario: Scenario) -> None:
        assert isinstance(scenario.document, Cycle)
        self._document = scenario.document
        self._beginning = beginning(scenario)
        self._engine = Engine(frozenset({SOURCE}), settings(self._document.config))
        self._engine.restore(self._beginning.snapshot)
        for events in self._beginning.batches:
            self._engine.handle(events)
        self._workloads = {workload.reference: workload for workload in self._document.workloads}
        self._holding = {
            workload.reference: workload.admission.cluster_queue
            for workload in self._document.workloads
            if workload.admission is not None
        }
        self._cluster_queues = {
            event.value.name
            for event in scenario.policy
            if isinstance(event, PolicyObserved) and isinstance(event.value, ClusterQueue)
        }
        self._nodes: dict[str, Node] = {}
        """Nodes that a step has changed, by name."""
        self._reasons: dict[str, Reason] = {}
        self._decided: dict[str, Finding] = {}
        """What was decided on workloads that are not pending."""
        self._gone: set[str] = set()
        self._sequence = len(self._document.workloads)

    @property
    def _now(self) -> datetime:
        return self._document.config.now

    def outcome(self) -> tuple[Told, list[Told | None]]:
        """Results to compare: at the end, and after each step that is a cycle.

        If there are steps, `admitted` at the end is what the last cycle admitted.
        """
        whole = RunOutcome()
        if not self._document.steps:
            for _ in range(self._document.config.cycles):
                self.cycle(whole)
            return self._told(whole, whole), []
        last = whole
        after: list[Told | None] = []
        for step in self._document.steps:
            if step.do != "cycle":
                self._change(step)
                after.append(None)
                continue
            last = RunOutcome()
            self.cycle(last)
            whole.preempted |= last.preempted
            whole.skipped |= last.skipped
            whole.evicted |= last.evicted
            after.append(self._told(last, last))
        return self._told(last, whole), after

    def _change(self, step: ScenarioStep) -> None:
        if step.do == "deleteWorkloads":
            gone = [over(self._workloads[name]) for name in step.workloads]
            ids = {one.workload.id for one in gone}
            # Quota of what ends while a write is on its way would wait for that (L5).
            keys = [key for key in self._engine.unacknowledged() if key.workload in ids]
            self._engine.handle([*(EffectSettled(key, Result.DONE, 1) for key in keys), *gone])
            self._gone.update(step.workloads)
        elif step.do != "requeueInadmissible":
            self._engine.handle([*self._nodes_changed(step), TimeCame(self._now)])
        else:
            self._engine.reconsider()

    def _nodes_changed(self, step: ScenarioStep) -> Iterator[Event]:
        """What a step does to nodes. They have been ready, or not, for longer than any rule waits."""
        for name in step.nodes:
            for given in self._document.nodes:
                for node in given.named(name):
                    node = self._nodes.get(node.name, node)
                    if step.do == "removeNodes":
                        yield ContextGone(Node, node.name)
                        continue
                    self._nodes[node.name] = changed = _changed(node, step.do, self._now - LONG)
                    yield ContextObserved(changed)

    def cycle(self, outcome: RunOutcome) -> None:
        """One admission cycle, after all steps that are due without one."""
        plan = self._engine.decide(self._now, BUDGET, cycles=1)
        self._note(plan, outcome)
        self._engine.commit(plan, self._sequence + 1)
        self._sequence += len(plan.recorded)

    def _note(self, plan: Plan, outcome: RunOutcome) -> None:
        names = self._beginning.references
        for decision in plan.decisions:
            if isinstance(decision, Admit):
                name = names[decision.attempt.workload]
                assignment = decision.attempt.assignment
                outcome.admitted[name] = _admitted(assignment)
                self._decided[name] = findings.admitted(name, assignment)
                self._holding[name] = assignment.cluster_queue
                self._reasons.pop(name, None)
            elif isinstance(decision, Keep):
                self._reasons[names[decision.workload]] = decision.reason
            elif isinstance(decision, Evict):
                self._note_eviction(decision, outcome)
            elif isinstance(decision, Release | Retire):
                name = names[decision.workload]
                self._holding.pop(name, None)
                self._decided.pop(name, None)
                if isinstance(decision, Retire):
                    self._gone.add(name)
                    self._reasons.pop(name, None)

        self._note_skips(plan, outcome)

    def _note_skips(self, plan: Plan, outcome: RunOutcome) -> None:
        preemptors = {victim.preemptor for victim in plan.victims}
        for decision in plan.decisions:
            if (
                isinstance(decision, Keep)
                and decision.reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
                and decision.workload not in preemptors
            ):
                queue = self._queue(self._workloads[self._beginning.references[decision.workload]])
                if queue is not None:
                    outcome.skipped[queue] = outcome.skipped.get(queue, 0) + 1

    def _note_eviction(self, decision: Evict, outcome: RunOutcome) -> None:
        names = self._beginning.references
        name = names[decision.workload]
        self._decided[name] = findings.evicted(name, decision.reason)
        if decision.reason.code is Code.PREEMPTED:
            by = None if decision.preemptor is None else names[decision.preemptor]
            outcome.preempted[name] = ScenarioVictim(
                workload=name, reason=decision.reason.cause, by=by, cluster_queue=self._holding[name]
            )
        else:
            outcome.evicted[name] = Evicted(workload=name, reason=decision.reason.code)

    def _told(self, last: RunOutcome, whole: RunOutcome) -> Told:
        return Told(self._expect(last, whole), {one.workload: one for one in self._findings()})

    def _findings(self) -> Iterable[Finding]:
        for name in self._workloads:
            if name in self._decided:
                yield self._decided[name]
            elif name in self._holding:
                yield findings.holding(name, self._holding[name])
            elif name not in self._gone:
                yield findings.pending(name, self._reasons.get(name))

    def _expect(self, last: RunOutcome, whole: RunOutcome) -> Expect:
        waiting: dict[str, tuple[str, ...]] = {}
        for workload in self._waiting():
            queue = self._queue(workload)
            if queue is not None:
                waiting[queue] = (*waiting.get(queue, ()), workload.reference)
        waits = {workload.reference for workload in self._waiting()}
        return Expect(
            admitted=last.admitted,
            preempted=tuple(whole.preempted.values()),
            evicted=tuple(whole.evicted.values()),
            finished=(),
            pending=waiting,
            inadmissible={},
            holding=self._holding.copy(),
            reasons={name: reason.code.value for name, reason in self._reasons.items() if name in waits},
            skipped_preemptions=whole.skipped or None,
        )

    def _waiting(self) -> Iterable[ScenarioWorkload]:
        for workload in self._document.workloads:
            if workload.reference not in self._holding and workload.reference not in self._gone:
                yield workload

    def _queue(self, workload: ScenarioWorkload) -> str | None:
        """The ClusterQueue in which it is pending; None: it is routed to none."""
        name = workload.cluster_queue
        if workload.queue is not None:
            name = self._beginning.queues.get(LocalQueueName(workload.namespace, workload.queue))
        return name if name in self._cluster_queues else None


def _admitted(assignment: Assignment) -> Admitted:
    return Admitted(
        cluster_queue=assignment.cluster_queue,
        pod_sets={
            pod_set.name: PodSetAdmitted(
                count=pod_set.count,
                flavors=dict(pod_set.flavors),
                usage=_usage(pod_set),
            )
            for pod_set in assignment.pod_sets
        },
        state="admitted",
    )


def _usage(pod_set: PodSetAssignment) -> Any:
    """Usage of all its pods, in the units of documents."""
    return {
        resource: format_amount(resource, amount * pod_set.count) for resource, amount in pod_set.requests
    }


def _changed(node: Node, what: str, since: datetime) -> Node:
    """The node after a step. Raises ValueError."""
    match what:
        case "failNodes" | "returnNodes":
            return replace(node, ready=what == "returnNodes", ready_since=since)
        case "cordonNodes" | "uncordonNodes":
            return replace(node, cordoned=what == "cordonNodes")
        case _:
            raise ValueError(what)
