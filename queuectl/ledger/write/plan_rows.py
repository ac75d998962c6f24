"""From a plan to changes of the ledger's rows: pure, the same for Postgres and for the ledger in memory.

A plan becomes segments. A segment changes each row at most once, so that one statement per table is enough;
a plan that evicts and releases the same workload has two segments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.decisions import (
    Admit,
    Amend,
    Configure,
    Decision,
    Enqueue,
    Evict,
    Keep,
    Release,
    Retire,
    Shrink,
)
from queuectl.core.model.budgets import BudgetEntry
from queuectl.core.model.reasons import Reason
from queuectl.core.model.resources import MAX_AMOUNT
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    AttemptState,
    ConfigKey,
    EffectKey,
    ObjectRef,
    PastAttempts,
    Phase,
    PodSet,
    Verb,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.ledger.codec import (
    Json,
    clean,
    clean_or_none,
    cleaned,
    options_to_json,
    past_to_json,
    pod_sets_to_json,
    reason_to_json,
)
from queuectl.ledger.shared_rows import StoredAttribution, shape_of, stored_attribution
from queuectl.ports.ledger import PlanFailed

RULES_VERSION: Final = 1
"""Version of the rules in docs/scheduling.md: raised when the same state leads to another decision."""

OUT_OF_RANGE: Final = "22003"
NO_VALUE: Final = "22004"
"""SQLSTATEs of the same failures in a database."""

BESIDE: Final = "reality"
"""Key of a decision's payload under which an observer stores the real state of the object at that time."""

Beside = Callable[[Decision], Json | None]


class Fold:
    """Rows of consecutive decisions, the first of which gets sequence number `first`."""

    def __init__(self, first: int, now: datetime, config_version: int, beside: Beside | None = None) -> None:
        self.first = first
        self._beside = beside
        self.now = now
        self.config_version = config_version
        self.lines: list[NewDecision] = []
        self.segments: list[Segment] = []
        # Of the last segment: rows it has changed, workloads it has changed the phase of, and ended ones.
        self._touched: set[object] = set()
        self._moved: set[object] = set()
        self._ended: set[object] = set()

    def add_all(self, decisions: Iterable[Decision]) -> None:
        """Raises PlanFailed for a number that no row can hold: the workload is the cause, not its tree."""
        for decision in decisions:
            self.add(decision)

    def add(self, decision: Decision, *, attempt_sequence: int | None = None) -> None:
        """`attempt_sequence`: of an attempt that was opened by a decision of a lost ledger."""
        line = NewDecision(
            self.first + len(self.lines), decision.verdict.value, self.config_version, payload={}
        )
        self.lines.append(line)
        segment = self._segment(decision)
        match decision:
            case Configure():
                self.config_version = line.config_version = line.sequence
                self._configure(segment, line, decision)
            case Enqueue():
                self._enqueue(segment, line, decision)
            case Keep(workload, ref, reason):
                line.workload, line.ref, line.reason = workload, _ref(ref), reason
                change = segment.change(workload, line.sequence)
                change.reason, change.reason_set = reason, True
            case Admit(attempt, ref):
                line.workload, line.ref, line.attempt = attempt.workload, _ref(ref), attempt.number
                self._admit(segment, line, decision, attempt_sequence)
            case Amend() | Shrink():
                self._alter(segment, line, decision)
            case Evict():
                self._evict(segment, line, decision)
            case Release():
                self._release(segment, line, decision)
            case Retire():
                self._retire(segment, line, decision)
        segment.budget += _budget_rows(line.sequence, decision)
        if self._beside is not None and (beside := self._beside(decision)) is not None:
            line.payload[BESIDE] = cleaned(beside)

    def _segment(self, decision: Decision) -> Segment:
        """The segment for this decision: a new one if the last one would change a row twice."""
        subject: ConfigKey | WorkloadId
        match decision:
            case Configure(key):
                subject, again = key, key in self._touched
            case Enqueue():
                subject = decision.workload.id
                again = subject in self._touched
            case Keep(subject):
                again = subject in self._ended
            case _:
                subject = _workload(decision)
                again = subject in self._moved
        if again or not self.segments:
            self.segments.append(Segment())
            self._touched, self._moved, self._ended = set(), set(), set()
        self._touched.add(subject)
        if isinstance(decision, Admit | Amend | Shrink | Evict | Release | Retire):
            self._moved.add(subject)
        if isinstance(decision, Retire):
            self._ended.add(subject)
        return self.segments[-1]

    def _configure(self, segment: Segment, line: NewDecision, decision: Configure) -> None:
        key = ConfigKey(*(clean(part) for part in decision.key))
        spec, author = decision.spec, clean_or_none(decision.author)
        line.payload = {
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "spec": None if spec is None else cleaned(json.loads(spec)),
            "author": author,
        }
        segment.configs.append(NewConfig(line.sequence, key, clean_or_none(spec), author))

    def _enqueue(self, segment: Segment, line: NewDecision, decision: Enqueue) -> None:
        workload = decision.workload
        name = f"workload {workload.ref}"
        seen = SeenWorkload(
            sequence=line.sequence,
            id=workload.id,
            ref=_ref(workload.ref),
            queue=clean(workload.queue),
            cluster_queue=clean_or_none(decision.cluster_queue),
            priority=_bounded(name, "priority", decision.priority, -MAX_AMOUNT),
            created_at=workload.created_at,
            arrival=_bounded(name, "arrival", decision.arrival),
            submitter=clean_or_none(workload.submitter),
            labels={clean(key): clean(value) for key, value in workload.labels},
            pod_sets=workload.pod_sets,
            shape=shape_of(workload.pod_sets).id,
            past=decision.past,
            options=options_to_json(workload.options),
        )
        segment.seen.append(seen)
        line.workload, line.ref = workload.id, seen.ref
        line.payload = {
            "queue": seen.queue,
            "clusterQueue": seen.cluster_queue,
            "priority": seen.priority,
            "arrival": seen.arrival,
            "createdAt": seen.created_at.isoformat(),
            "submitter": seen.submitter,
            "shape": seen.shape,
        }
        if seen.options is not None:
            line.payload["options"] = seen.options
        if decision.past != NO_PAST_ATTEMPTS:
            line.payload |= _past(decision.past)

    def _admit(self, segment: Segment, line: NewDecision, decision: Admit, rebuilt_from: int | None) -> None:
        attempt = decision.attempt
        queue = clean(attempt.assignment.cluster_queue)
        line.payload = {
            "clusterQueue": queue,
            "podSets": pod_sets_to_json(attempt.assignment.pod_sets),
            "admittedAt": attempt.admitted_at.isoformat(),
            "debt": attempt.debt,
        }
        if decision.detail is not None:
            line.payload["detail"] = clean(decision.detail)
        name = f"attempt {attempt.number} of {decision.ref}"
        if rebuilt_from is not None:
            line.payload["rebuiltFrom"] = _bounded(name, "sequence", rebuilt_from, 1)
        change = segment.change(attempt.workload, line.sequence)
        change.held, change.phase, change.cluster_queue = False, Phase.ADMITTED, queue
        change.opened, change.reason, change.reason_set = attempt.number, None, True
        _bounded(name, "number", attempt.number, 1)
        segment.opened.append(
            NewAttempt(
                workload=attempt.workload,
                number=attempt.number,
                cluster_queue=queue,
                admitted_at=attempt.admitted_at,
                sequence=line.sequence if rebuilt_from is None else rebuilt_from,
                debt=attempt.debt,
                pod_sets=line.payload["podSets"],
            )
        )
        attribution = None if decision.attribution is None else stored_attribution(decision.attribution)
        if attribution is not None:
            segment.attributions[attribution.id] = attribution
        booked = None if attribution is None else attribution.id
        segment.holds += (
            hold._replace(attribution=booked)
            for hold in _holds(
                attempt.assignment, attempt.workload, attempt.number, name=name, sequence=line.sequence
            )
        )
        if not attempt.debt and rebuilt_from is None:
            segment.effects.append((line.sequence, EffectKey(attempt.workload, attempt.number, Verb.START)))

    def _evict(self, segment: Segment, line: NewDecision, decision: Evict) -> None:
        workload, number = decision.workload, decision.attempt
        line.workload, line.ref, line.attempt = workload, _ref(decision.ref), number
        line.reason = decision.reason
        line.payload = {"preemptor": clean_or_none(decision.preemptor), **_past(decision.past)}
        if decision.shares is not None:
            line.payload["shares"] = cleaned({k: v._asdict() for k, v in decision.shares._asdict().items()})
        change = segment.change(workload, line.sequence)
        change.held, change.phase, change.past = True, Phase.EVICTING, decision.past
        change.reason, change.reason_set = decision.reason, True
        segment.attempts.append(AttemptChange(workload, number, AttemptState.EVICTING, line.sequence))
        segment.effects.append((line.sequence, EffectKey(workload, number, Verb.STOP)))

    def _release(self, segment: Segment, line: NewDecision, decision: Release) -> None:
        workload, number = decision.workload, decision.attempt
        line.workload, line.ref, line.attempt = workload, _ref(decision.ref), number
        line.payload = {"detail": clean(decision.detail), **_past(decision.past)}
        change = segment.change(workload, line.sequence)
        change.held, change.phase, change.past = True, Phase.PENDING, decision.past
        segment.attempts.append(AttemptChange(workload, number, AttemptState.CLOSED, line.sequence))

    def _alter(self, segment: Segment, line: NewDecision, decision: Amend | Shrink) -> None:
        if isinstance(decision, Amend):
            self._amend(segment, line, decision)
        else:
            self._shrink(segment, line, decision)

    def _amend(self, segment: Segment, line: NewDecision, decision: Amend) -> None:
        workload = decision.workload
        line.workload, line.ref, line.attempt = workload, _ref(decision.ref), decision.attempt
        priority = _bounded(f"workload {decision.ref}", "priority", decision.priority, -MAX_AMOUNT)
        line.payload, line.reason = {"priority": priority, **_past(decision.past)}, decision.reason
        change = segment.change(workload, line.sequence)
        change.held, change.priority, change.past = True, priority, decision.past
        change.reason, change.reason_set = decision.reason, True
        use = None if decision.past is None else decision.past.use
        if use is not None and (use.finding.idle_devices or use.wasted_ms):
            segment.idle.append(IdleTime(workload, use.attempt, line.sequence, *use.finding[1:3]))

    def _shrink(self, segment: Segment, line: NewDecision, decision: Shrink) -> None:
        workload, number, assignment = decision.workload, decision.attempt, decision.assignment
        line.workload, line.ref, line.attempt = workload, _ref(decision.ref), number
        line.payload = {"podSets": pod_sets_to_json(assignment.pod_sets)}
        segment.change(workload, line.sequence).held = True
        holds = _holds(
            assignment, workload, number, name=f"attempt {number} of {decision.ref}", sequence=line.sequence
        )
        segment.resized.append(
            ResizedAttempt(workload, number, line.sequence, line.payload["podSets"], list(holds))
        )

    def _retire(self, segment: Segment, line: NewDecision, decision: Retire) -> None:
        workload, number = decision.workload, decision.attempt
        line.workload, line.ref, line.attempt = workload, _ref(decision.ref), number
        line.payload = {"outcome": decision.outcome.value}
        if decision.detail is not None:
            line.payload["detail"] = clean(decision.detail)
        change = segment.change(workload, line.sequence)
        change.held = number is not None
        change.phase = Phase.DELETED if decision.outcome is WorkloadOutcome.DELETED else Phase.FINISHED
        if number is not None:
            segment.attempts.append(AttemptChange(workload, number, AttemptState.CLOSED, line.sequence))


def _budget_rows(sequence: int, decision: Decision) -> Iterable[tuple[int, int, str, BudgetEntry]]:
    if isinstance(decision, Admit | Amend | Shrink | Release | Retire):
        for number, one in enumerate(decision.budget):
            _bounded(f"attempt {one.attempt} of {decision.ref}", f"Budget {one.budget}, rate", one.rate, 1)
            stored = replace(one, budget=clean(one.budget), subject=clean(one.subject))
            yield sequence, number, clean(decision.ref.namespace), stored


def decision_reason(line: NewDecision) -> Json | None:
    return None if line.reason is None else reason_to_json(line.reason)


def _past(past: PastAttempts | None) -> Json:
    return {} if past is None else {"past": past_to_json(past)}


def _workload(decision: Admit | Amend | Shrink | Evict | Release | Retire) -> WorkloadId:
    return decision.attempt.workload if isinstance(decision, Admit) else decision.workload


def _ref(ref: ObjectRef) -> ObjectRef:
    return ObjectRef(*map(clean, ref))


def _holds(
    assignment: Assignment, workload: WorkloadId, number: int, *, name: str, sequence: int
) -> Iterable[HoldLine]:
    for pod_set in assignment.pod_sets:
        flavors = dict(pod_set.flavors)
        field_name = f"podset {pod_set.name}"
        count = _bounded(name, f"{field_name}, count", pod_set.count)
        for resource, amount in pod_set.requests:
            if resource not in flavors:
                raise PlanFailed(f"{name}: {field_name} has no flavor for {resource}", NO_VALUE)
            yield HoldLine(
                workload=workload,
                attempt=number,
                cluster_queue=clean(assignment.cluster_queue),
                pod_set=clean(pod_set.name),
                pods=count,
                flavor=clean(flavors[resource]),
                resource=clean(resource),
                amount=_bounded(name, f"{field_name}, {resource}", amount),
                sequence=sequence,
            )


def _bounded(name: str, what: str, value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or not least <= value <= MAX_AMOUNT:
        raise PlanFailed(f"{name}: {what} is {value}, must be between {least} and {MAX_AMOUNT}", OUT_OF_RANGE)
    return value


@dataclass(slots=True)
class NewDecision:
    """One row of history."""

    sequence: int
    verdict: str
    config_version: int
    payload: Json
    workload: str | None = None
    ref: ObjectRef | None = None
    attempt: int | None = None
    reason: Reason | None = None


@dataclass(slots=True)
class SeenWorkload:
    """A workload that is seen for the first time, or again with another queue, priority or podsets."""

    sequence: int
    id: WorkloadId
    ref: ObjectRef
    queue: str
    cluster_queue: str | None
    priority: int
    created_at: datetime
    arrival: int
    submitter: str | None
    labels: dict[str, str]
    pod_sets: tuple[PodSet, ...]
    shape: str
    past: PastAttempts
    options: Json | None


@dataclass(slots=True)
class WorkloadChange:
    """A change of a workload that has a row. None leaves a field unchanged."""

    id: WorkloadId
    sequence: int
    held: bool | None = None
    """It must hold quota already (True) or must not (False); otherwise memory and ledger disagree."""
    phase: Phase | None = None
    cluster_queue: str | None = None
    opened: int | None = None
    """Number of the attempt that opens: greater than all before."""
    reason: Reason | None = None
    reason_set: bool = False
    priority: int | None = None
    past: PastAttempts | None = None

    @property
    def closes(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.DELETED)


class NewAttempt(NamedTuple):
    """An attempt that opens, in state Admitted."""

    workload: WorkloadId
    number: int
    cluster_queue: str
    admitted_at: datetime
    sequence: int
    debt: bool
    pod_sets: list[Json]


class HoldLine(NamedTuple):
    """`pods` of `amount` each, of one podset and one resource."""

    workload: WorkloadId
    attempt: int
    cluster_queue: str
    pod_set: str
    pods: int
    flavor: str
    resource: str
    amount: int
    sequence: int
    attribution: str | None = None
    """Id of what it is booked on. Of a smaller line: that of the one that it replaces."""


class AttemptChange(NamedTuple):
    workload: WorkloadId
    number: int
    state: AttemptState
    sequence: int


@dataclass(slots=True)
class ResizedAttempt:
    """An open attempt that holds less after this decision."""

    workload: WorkloadId
    number: int
    sequence: int
    pod_sets: list[Json]
    lines: list[HoldLine]
    """All hold lines after the change; lines of unchanged podsets stay open."""


class IdleTime(NamedTuple):
    """So many devices of an attempt are idle or hang from this decision on."""

    workload: WorkloadId
    attempt: int
    sequence: int
    devices: int
    idle_devices: int


class NewConfig(NamedTuple):
    """A spec that comes into force."""

    sequence: int
    key: ConfigKey
    spec: str | None
    """None: the object is gone."""
    author: str | None


@dataclass(slots=True)
class Segment:
    configs: list[NewConfig] = field(default_factory=list)
    seen: list[SeenWorkload] = field(default_factory=list)
    changes: dict[WorkloadId, WorkloadChange] = field(default_factory=dict)
    opened: list[NewAttempt] = field(default_factory=list)
    holds: list[HoldLine] = field(default_factory=list)
    attributions: dict[str, StoredAttribution] = field(default_factory=dict)
    """By id: those of `holds`."""
    attempts: list[AttemptChange] = field(default_factory=list)
    resized: list[ResizedAttempt] = field(default_factory=list)
    effects: list[tuple[int, EffectKey]] = field(default_factory=list)
    budget: list[tuple[int, int, str, BudgetEntry]] = field(default_factory=list)
    """With the sequence of its decision, its number among the rows of that, and the namespace."""
    idle: list[IdleTime] = field(default_factory=list)

    def change(self, workload: WorkloadId, sequence: int) -> WorkloadChange:
        found = self.changes.setdefault(workload, WorkloadChange(workload, sequence))
        found.sequence = sequence
        return found
