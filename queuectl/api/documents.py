"""Core values as documents. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from queuectl.api import schemas
from queuectl.api.advice import advice
from queuectl.api.state import LocalQueueState, QueueState, State
from queuectl.core import model
from queuectl.core.decisions import Verdict
from queuectl.core.reasons import Code, Limit, Reason
from queuectl.core.resources import FlavorResource
from queuectl.ports import DecisionRow

MAX_HOLDERS: Final = 5
MayRead = Callable[[str], bool]
"""May the caller read workloads of this namespace?"""


def reason(value: Reason) -> schemas.Reason:
    return schemas.Reason(
        code=value.code,
        family=value.family,
        message=value.message,
        flavor=value.flavor,
        resource=value.resource,
        requested=value.requested,
        available=value.available,
        short_by=value.short_by,
        limit=value.limit,
        node=value.node,
        cause=value.cause,
        by=value.by,
        detail=value.detail,
        others=tuple(reason(other) for other in value.others),
    )


def as_of(value: Reason, state: State) -> Reason:
    """With the numbers of `state`: the ledger keeps those of the moment when its code or limit last changed.

    Unchanged where what it lacked has come free since: then it is about to be looked at.
    """
    others = tuple(as_of(other, state) for other in value.others)
    room = _room(value, state)
    if room is not None and value.requested is not None and value.requested > room:
        short = value.requested - room
        return replace(value, available=max(0, room), short_by=short, others=others)
    return replace(value, others=others)


def _room(value: Reason, state: State) -> int | None:
    """What is there of what it lacks, where a ClusterQueue's nominal quota binds; negative below use."""
    kind, _, name = (value.node or "").partition("/")
    queue = state.queues.get(name) if kind == "ClusterQueue" else None
    if queue is None or value.limit is not Limit.NOMINAL_QUOTA or not value.flavor or not value.resource:
        return None
    cell = FlavorResource(value.flavor, value.resource)
    match value.code:
        case Code.WAITING_FOR_QUOTA:
            return queue.nominal.get(cell, 0) - queue.used.get(cell, 0)
        case Code.EXCEEDS_MAX_QUOTA:
            return queue.nominal.get(cell, 0)
        case _:
            return None


def _workload(value: model.StoredWorkload, position: int | None) -> dict[str, Any]:
    attempt = value.attempt
    return {
        "namespace": value.ref.namespace,
        "kind": value.ref.kind,
        "name": value.ref.name,
        "uid": value.ref.uid,
        "queue": value.queue,
        "cluster_queue": value.cluster_queue,
        "phase": value.phase,
        "priority": value.priority,
        "position": position,
        "created_at": value.created_at,
        "submitter": value.submitter,
        "attempts": value.attempts,
        "attempt": attempt.number if attempt else None,
        "admitted_at": attempt.admitted_at if attempt else None,
        "reason": reason(value.reason) if value.reason else None,
        "admission": _admission(attempt.assignment) if attempt else None,
    }


def _admission(assignment: model.Assignment) -> schemas.Admission:
    return schemas.Admission(
        cluster_queue=assignment.cluster_queue,
        pod_sets=tuple(
            schemas.PodSet(
                name=pods.name, count=pods.count, requests=dict(pods.requests), flavors=dict(pods.flavors)
            )
            for pods in assignment.pod_sets
        ),
    )


def workload(value: model.StoredWorkload, state: State) -> schemas.Workload:
    return schemas.Workload(**_workload(_now(value, state), state.position(value)))


def _now(value: model.StoredWorkload, state: State) -> model.StoredWorkload:
    return value if value.reason is None else replace(value, reason=as_of(value.reason, state))


def workload_detail(
    value: model.StoredWorkload, state: State, may_read: MayRead, committed: dict[str, Any]
) -> schemas.WorkloadDetail:
    value = _now(value, state)
    position = state.position(value)
    queue = state.queues.get(value.cluster_queue or "")
    return schemas.WorkloadDetail(
        **_workload(value, position),
        line=len(queue.positions) if queue and position else None,
        holders=tuple(holders(value, state, may_read)),
        help=advice(value),
        **committed,
    )


def holders(value: model.StoredWorkload, state: State, may_read: MayRead) -> Iterable[schemas.Holder]:
    """The largest holders of the cell that it lacks, at or below the node that binds; largest first."""
    why = value.reason
    if value.phase is not model.Phase.PENDING or why is None or why.code is not Code.WAITING_FOR_QUOTA:
        return
    if why.flavor is None or why.resource is None or why.node is None:
        return
    cell = FlavorResource(why.flavor, why.resource)
    found = [
        (attempt.assignment.usage().get(cell, 0), attempt.admitted_at, holder.ref)
        for queue in state.below(why.node)
        if cell in queue.used
        for holder in queue.holders
        if (attempt := holder.attempt) is not None
    ]
    found.sort(key=lambda item: (-item[0], item[1], item[2]))
    for amount, since, ref in found[:MAX_HOLDERS]:
        if amount > 0:
            known = may_read(ref.namespace)
            yield schemas.Holder(
                namespace=ref.namespace if known else None,
                kind=ref.kind if known else None,
                name=ref.name if known else None,
                amount=amount,
                since=since,
            )


def _cluster_queue(value: QueueState) -> dict[str, Any]:
    queue = value.queue or model.ClusterQueue(name=value.name)
    nominal = value.nominal
    cells = [*nominal, *sorted(cell for cell in value.used if cell not in nominal)]
    return {
        "name": value.name,
        "cohort": queue.cohort,
        "active": value.condition.active,
        "condition": schemas.Condition(reason=value.condition.reason, message=value.condition.message),
        "stop_policy": queue.stop_policy,
        "queueing_strategy": queue.queueing_strategy,
        "pending": value.pending,
        "admitted": len(value.holders),
        "flavors": tuple(
            schemas.Quota(
                flavor=cell.flavor,
                resource=cell.resource,
                nominal=nominal.get(cell, 0),
                used=value.used.get(cell, 0),
                free=value.free(cell),
            )
            for cell in cells
        ),
    }


def cluster_queue(value: QueueState) -> schemas.ClusterQueue:
    return schemas.ClusterQueue(**_cluster_queue(value))


def cluster_queue_detail(value: QueueState, committed: dict[str, Any]) -> schemas.ClusterQueueDetail:
    return schemas.ClusterQueueDetail(**_cluster_queue(value), **committed)


def _local_queue(value: LocalQueueState) -> dict[str, Any]:
    return {
        "namespace": value.local.name.namespace,
        "name": value.local.name.name,
        "cluster_queue": value.local.cluster_queue,
        "active": value.condition.active,
        "condition": schemas.Condition(reason=value.condition.reason, message=value.condition.message),
        "stop_policy": value.local.stop_policy,
        "pending": value.pending,
        "admitted": value.admitted,
    }


def local_queue(value: LocalQueueState) -> schemas.LocalQueue:
    return schemas.LocalQueue(**_local_queue(value))


def local_queue_detail(value: LocalQueueState, committed: dict[str, Any]) -> schemas.LocalQueueDetail:
    return schemas.LocalQueueDetail(**_local_queue(value), **committed)


def decision(row: DecisionRow) -> schemas.Decision:
    return schemas.Decision(
        sequence=row.sequence,
        time=row.now,
        cycle=row.cycle,
        epoch=row.epoch,
        verdict=Verdict(row.verdict),
        attempt=row.attempt,
        reason=reason(row.reason) if row.reason else None,
        details=dict(row.payload),
    )
