"""Outcomes of changes as documents of the REST API. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from queuectl.answers.exposure import Threat
from queuectl.api import documents
from queuectl.api import what_if_schemas as schemas
from queuectl.api.schemas import Condition
from queuectl.core.model import PodSet, StoredWorkload
from queuectl.core.reasons import PreemptionCause
from queuectl.core.resources import format_amount
from queuectl.core.what_if import (
    Affected,
    Change,
    ChangeKind,
    Counterfactual,
    Counterfactuals,
    Displaced,
    PlannedPolicy,
    PolicyChange,
    Start,
    Tried,
)
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.pod_sizes import Smaller, asked

MOST_AFFECTED: Final = 1000
"""Workloads that one plan names."""

Readable = Container[str]
"""Namespaces of which the caller may read workloads."""


def counterfactuals(
    found: Counterfactuals,
    workload: StoredWorkload,
    kind: JobKind | None,
    readable: Readable,
    committed: dict[str, Any],
) -> schemas.Counterfactuals:
    """`kind`: that of the workload; None: it is not known any more."""

    def fit(change: Change) -> schemas.Fit | None:
        return None if kind is None else _fit(kind, workload.pod_sets, change)

    return schemas.Counterfactuals(**fields(found, readable, fit), **committed)


def fields(
    found: Counterfactuals, readable: Readable, fit: Callable[[Change], schemas.Fit | None] = lambda _: None
) -> dict[str, Any]:
    """`fit`: how to make a change of size; without it the workload does not exist yet."""
    return {
        "tried_at": found.sequence,
        "now": schemas.Outcome(**_outcome(found.now, readable)),
        "items": tuple(_counterfactual(one, readable, fit(one.change)) for one in found.found),
        "incomplete": found.incomplete,
    }


def threats(found: Sequence[Threat], queues: Container[str]) -> tuple[schemas.Threat, ...]:
    """`queues`: ClusterQueues that the caller may read."""
    shown = [
        schemas.Threat(cluster_queue=one.cluster_queue, cause=one.cause, pending=one.pending)
        for one in found
        if one.cluster_queue in queues
    ]
    hidden: Counter[PreemptionCause] = Counter()
    for one in found:
        if one.cluster_queue not in queues:
            hidden[one.cause] += one.pending
    shown += [schemas.Threat(cluster_queue=None, cause=cause, pending=n) for cause, n in hidden.items()]
    return tuple(shown)


def planned(found: PlannedPolicy, committed: dict[str, Any]) -> schemas.PlannedPolicy:
    """For a caller that may read all workloads."""
    numbers = Counter(one.change for one in found.affected)
    return schemas.PlannedPolicy(
        tried_at=found.sequence,
        admitted=numbers[PolicyChange.ADMITTED],
        evicted=numbers[PolicyChange.EVICTED],
        stranded=numbers[PolicyChange.STRANDED],
        items=tuple(map(_affected, found.affected[:MOST_AFFECTED])),
        inactive=tuple(
            schemas.Inactive(
                cluster_queue=name,
                condition=Condition(reason=condition.reason, message=condition.message),
            )
            for name, condition in found.inactive
        ),
        **committed,
    )


def _affected(one: Affected) -> schemas.Affected:
    return schemas.Affected(
        namespace=one.ref.namespace,
        kind=one.ref.kind,
        name=one.ref.name,
        change=one.change,
        reason=documents.reason(one.reason) if one.reason is not None else None,
        admission=documents.admission(one.assignment) if one.assignment is not None else None,
    )


def displaced_namespaces(found: Counterfactuals) -> set[str]:
    """Namespaces of the workloads that are named in it."""
    outcomes = (found.now, *(one.outcome for one in found.found))
    return {one.ref.namespace for outcome in outcomes for one in outcome.displaced}


def _outcome(tried: Tried, readable: Readable) -> dict[str, Any]:
    return {
        "starts": tried.start,
        "displaces": tuple(_displaced(one, readable) for one in tried.displaced),
        "admission": documents.admission(tried.assignment) if tried.assignment is not None else None,
    }


def _displaced(one: Displaced, readable: Readable) -> schemas.Displaced:
    if one.ref.namespace not in readable:
        return schemas.Displaced(namespace=None, kind=None, name=None, cause=one.cause)
    namespace, kind, name, _ = one.ref
    return schemas.Displaced(namespace=namespace, kind=kind, name=name, cause=one.cause)


def _fit(kind: JobKind, pod_sets: Sequence[PodSet], change: Change) -> schemas.Fit | None:
    if change.kind not in (ChangeKind.FEWER_PODS, ChangeKind.SMALLER_PODS):
        return None
    tried = Smaller(change.pod_set or "", change.resource, change.before or 0, change.after or 0)
    way = asked(kind, pod_sets, tried)
    return None if way is None else schemas.Fit(gpus=way.devices, pods=way.pods, pod_set=way.pod_set)


def _counterfactual(
    one: Counterfactual, readable: Readable, fit: schemas.Fit | None
) -> schemas.Counterfactual:
    change = one.change
    return schemas.Counterfactual(
        **_outcome(one.outcome, readable),
        kind=change.kind,
        message=message(change, one.outcome),
        pod_set=change.pod_set,
        resource=change.resource,
        flavor=change.flavor,
        node=change.node,
        target=change.name,
        before=change.before,
        after=change.after,
        fit=fit,
    )


def message(change: Change, outcome: Tried) -> str:
    """One sentence: the change, and what it costs others."""
    if outcome.start is not Start.AFTER_PREEMPTION:
        return f"{_changed(change)} it starts now"
    number = len(outcome.displaced)
    match number:
        case 0:  # it claims what preempted workloads still hold (A9)
            when = "the pods of workloads that are being preempted have ended"
        case 1:
            when = "1 workload is preempted"
        case _:
            when = f"{number} workloads are preempted"
    return f"{_changed(change)} it starts as soon as {when}"


def _changed(change: Change) -> str:
    before, after = change.before or 0, change.after or 0
    match change.kind:
        case ChangeKind.FEWER_PODS:
            return f"With {after} of {before} pods in podset {change.pod_set}"
        case ChangeKind.SMALLER_PODS:
            amounts = f"{_amount(change, after)}, not {_amount(change, before)} {change.resource}"
            return f"With {amounts} for each pod of podset {change.pod_set}"
        case ChangeKind.OTHER_FLAVOR:
            return f"If its pods ask for flavor {change.flavor},"
        case ChangeKind.OTHER_QUEUE:
            return f"In LocalQueue {change.name}"
        case ChangeKind.OTHER_PRIORITY:
            return f"With WorkloadPriorityClass {change.name} ({after}, not {before})"
        case ChangeKind.MORE_QUOTA:
            amounts = f"{_amount(change, after)}, not {_amount(change, before)} {change.resource}"
            return f"If nominalQuota of {change.node} were {amounts} of flavor {change.flavor},"


def _amount(change: Change, amount: int) -> str:
    return format_amount(change.resource or "", amount)
