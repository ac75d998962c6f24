"""Values of the core as documents of the REST API. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from queuectl.answers.advice import advice
from queuectl.answers.binding_limits import Binding, ahead_of, binding
from queuectl.answers.lending import Lent
from queuectl.answers.policies import cohort_condition, nominal_quota
from queuectl.answers.queue_states import QueueState
from queuectl.answers.state import LocalQueueState, State, Under
from queuectl.api import schemas
from queuectl.api.readiness import readiness
from queuectl.core import model, policy
from queuectl.core.decisions import Verdict
from queuectl.core.reasons import Code, Limit, Reason
from queuectl.core.redaction import Readable, named_in, redacted
from queuectl.core.resources import FlavorResource
from queuectl.ports.reader import DecisionRow

MAX_HOLDERS: Final = 5
REASONS: Final = 8192
"""How many different reasons are kept as documents."""
_LACKS_QUOTA: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.MIN_RUN_TIME_PROTECTED})
_OWN_DETAILS: Final = frozenset(
    (
        *("admittedAt", "arrival", "clusterQueue", "createdAt", "debt", "detail", "outcome", "podSets"),
        *("priority", "queue", "rebuiltFrom", "shape", "submitter"),
    )
)
"""The fields of a decision's payload that are about its own workload."""


@lru_cache(REASONS)
def reason(value: Reason) -> schemas.Reason:
    """Workloads that wait for the same have equal reasons: most of a page are found here."""
    return schemas.Reason(
        code=value.code,
        family=value.family,
        message=value.message,
        flavor=value.flavor,
        resource=value.resource,
        requested=value.requested,
        available=value.available,
        short_by=value.short_by,
        reserved=value.reserved,
        awaited=value.awaited,
        until=value.until,
        limit=value.limit,
        node=value.node,
        cause=value.cause,
        by=value.by,
        detail=value.detail,
        considered=value.considered,
        pods=value.pods,
        pods_fit=value.pods_fit,
        nodes=tuple(schemas.NodeFinding(name=one.name, free=one.free) for one in value.nodes),
        victims=tuple(schemas.RejectedCandidate(who=one.who, why=one.why) for one in value.victims),
        others=tuple(reason(other) for other in value.others),
    )


def as_of(value: Reason, state: State) -> Reason:
    """The reason with the numbers of `state`: the ledger has those of the last change of code or limit.

    Unchanged where the missing quota is available by now: then the workload is about to be evaluated, or that
    quota is reserved for others.
    """
    others = tuple(as_of(other, state) for other in value.others)
    room = _room(value, state)
    if room is not None and value.requested is not None and value.requested > room:
        short = value.requested - room
        return replace(value, available=max(0, room), short_by=short, reserved=False, others=others)
    return replace(value, others=others) if others else value


def _room(value: Reason, state: State) -> int | None:
    """What is available of the missing quota where a ClusterQueue's nominal quota binds; may be negative."""
    kind, _, name = (value.node or "").partition("/")
    queue = state.queues.get(name) if kind == "ClusterQueue" else None
    if queue is None or value.limit is not Limit.NOMINAL_QUOTA or not value.flavor or not value.resource:
        return None
    cell = FlavorResource(value.flavor, value.resource)
    match value.code:
        case Code.WAITING_FOR_QUOTA | Code.MIN_RUN_TIME_PROTECTED:
            return queue.nominal.get(cell, 0) - queue.used.get(cell, 0)
        case Code.EXCEEDS_MAX_QUOTA:
            return queue.nominal.get(cell, 0)
        case _:
            return None


def _workload(
    value: model.StoredWorkload, why: schemas.Reason | None, position: int | None, ready: int | None
) -> dict[str, Any]:
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
        "labels": dict(value.labels),
        "attempts": value.attempts,
        "attempt": attempt.number if attempt else None,
        "admitted_at": attempt.admitted_at if attempt else None,
        "pods": attempt.assignment.pods if attempt else None,
        "pods_ready": ready,
        "reason": why,
        "admission": admission(attempt.assignment) if attempt else None,
    }


def admission(assignment: model.Assignment) -> schemas.Admission:
    return schemas.Admission(
        cluster_queue=assignment.cluster_queue,
        pod_sets=tuple(
            schemas.PodSet(
                name=pods.name, count=pods.count, requests=dict(pods.requests), flavors=dict(pods.flavors)
            )
            for pods in assignment.pod_sets
        ),
    )


class Reasons:
    """The reasons of a page as documents: many workloads have the same one."""

    def __init__(self, state: State, readable: Readable) -> None:
        self._state = state
        self._readable = readable
        self._known: dict[Reason, schemas.Reason] = {}

    def of(self, value: model.StoredWorkload) -> schemas.Reason | None:
        if value.reason is None:
            return None
        found = self._known.get(value.reason)
        if found is None:
            found = self._known[value.reason] = reason(_why(value.reason, self._state, self._readable))
        return found


def workload(value: model.StoredWorkload, state: State, reasons: Reasons) -> schemas.Workload:
    return schemas.Workload(**_workload(value, reasons.of(value), state.position(value), state.ready(value)))


def _why(value: Reason, state: State, readable: Readable) -> Reason:
    return as_of(redacted(value, readable), state)


def workload_detail(
    value: model.StoredWorkload,
    state: State,
    holders: Iterable[tuple[int, model.StoredWorkload]],
    ahead: Iterable[model.StoredWorkload],
    lent: Lent | None,
    readable: Readable,
    readable_queues: Readable,
    committed: dict[str, Any],
) -> schemas.WorkloadDetail:
    """`holders`: the workloads that hold the missing quota, with their amounts.

    `readable_queues`: the ClusterQueues, of those in `lent`, that the caller may read.
    """
    why = None if value.reason is None else _why(value.reason, state, readable)
    position = state.position(value)
    queue = state.queues.get(value.cluster_queue or "")
    return schemas.WorkloadDetail(
        **_workload(value, reason(why) if why else None, position, state.ready(value)),
        pod_sets=tuple(
            schemas.RequestedPods(
                name=one.name, count=one.count, min_count=one.min_count, requests=dict(one.requests)
            )
            for one in value.pod_sets
        ),
        line=len(queue.workloads.order) if queue and position else None,
        ahead_size=_ahead_size(value, state) if position else None,
        limits=tuple(map(_binding, binding(value, state))),
        ahead=tuple(_ahead(one, readable) for one in ahead),
        holders=tuple(_holder(amount, holder, readable) for amount, holder in holders),
        lent=_lent(lent, readable_queues) if lent else None,
        help=advice(value.phase, why),
        readiness=readiness(value, state),
        **committed,
    )


def _ahead_size(value: model.StoredWorkload, state: State) -> schemas.AheadSize:
    number, requests = ahead_of(value, state)
    return schemas.AheadSize(workloads=number, requests=requests)


def _binding(one: Binding) -> schemas.BindingLimit:
    return schemas.BindingLimit(
        flavor=one.cell.flavor,
        resource=one.cell.resource,
        node=one.node,
        limit=one.limit,
        requested=one.requested,
        available=one.available,
        short_by=one.requested - one.available,
        ever=one.ever,
    )


def _lent(value: Lent, readable: Readable) -> schemas.Lent:
    return schemas.Lent(
        amount=value.amount,
        reclaims=value.reclaims,
        share=value.share,
        borrowers=tuple(
            schemas.Borrower(
                cluster_queue=one.name if one.name in readable else None, amount=one.amount, share=one.share
            )
            for one in value.borrowers
        ),
    )


def holders(value: model.StoredWorkload, state: State) -> list[tuple[int, model.StoredWorkload]]:
    """The MAX_HOLDERS largest holders of the missing cell, at or below the node that binds; largest first.

    For a workload that preempts: the victims that still hold the cell, anywhere in its tree.
    """
    why = value.reason
    if value.phase is not model.Phase.PENDING or why is None or why.flavor is None or why.resource is None:
        return []
    if why.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS:
        queues = state.in_tree_of(value.cluster_queue or "")
        preemptor = str(value.ref)
    elif why.code in _LACKS_QUOTA and why.node is not None:
        queues, preemptor = state.below(why.node), None
    else:
        return []
    cell = FlavorResource(why.flavor, why.resource)
    found = [
        (attempt.assignment.usage().get(cell, 0), attempt.admitted_at, holder)
        for queue in queues
        if cell in queue.used
        for holder in queue.holders
        if (attempt := holder.attempt) is not None and (preemptor is None or _leaves_for(holder, preemptor))
    ]
    found.sort(key=lambda item: (-item[0], item[1], item[2].ref))
    return [(amount, holder) for amount, _, holder in found[:MAX_HOLDERS] if amount > 0]


def _leaves_for(holder: model.StoredWorkload, preemptor: str) -> bool:
    return (
        holder.phase is model.Phase.EVICTING
        and holder.reason is not None
        and holder.reason.code is Code.PREEMPTED
        and holder.reason.by == preemptor
    )


def _ahead(value: model.StoredWorkload, readable: Readable) -> schemas.Ahead:
    if value.ref.namespace not in readable:
        return schemas.Ahead(namespace=None, kind=None, name=None)
    return schemas.Ahead(namespace=value.ref.namespace, kind=value.ref.kind, name=value.ref.name)


def _holder(amount: int, value: model.StoredWorkload, readable: Readable) -> schemas.Holder:
    assert value.attempt is not None
    known = value.ref.namespace in readable
    return schemas.Holder(
        namespace=value.ref.namespace if known else None,
        kind=value.ref.kind if known else None,
        name=value.ref.name if known else None,
        amount=amount,
        since=value.attempt.admitted_at,
    )


def _cluster_queue(value: QueueState, state: State) -> dict[str, Any]:
    queue = value.queue or policy.ClusterQueue(name=value.name)
    return {
        "name": value.name,
        "cohort": queue.cohort,
        "active": value.condition.active,
        "condition": schemas.Condition(reason=value.condition.reason, message=value.condition.message),
        "stop_policy": queue.stop_policy,
        "queueing_strategy": queue.queueing_strategy,
        "max_execution_time": _max_execution_time(queue.max_execution_time),
        "pending": value.pending,
        "admitted": len(value.holders),
        "flavors": _quotas(value.nominal, value.used, state.free(value), state.effective(value)),
    }


def _max_execution_time(limits: policy.MaxExecutionTime) -> schemas.MaxExecutionTime:
    return schemas.MaxExecutionTime(default=limits.default, ceiling=limits.ceiling)


def _quotas(
    nominal: Mapping[FlavorResource, int],
    used: Mapping[FlavorResource, int],
    free: Mapping[FlavorResource, int],
    effective: Mapping[FlavorResource, int],
) -> tuple[schemas.Quota, ...]:
    """In the order of `nominal`, then the cells that are used without nominal quota."""
    cells = [*nominal, *sorted(cell for cell in used if cell not in nominal)]
    return tuple(
        schemas.Quota(
            flavor=cell.flavor,
            resource=cell.resource,
            nominal=nominal.get(cell, 0),
            effective=effective.get(cell, 0),
            used=used.get(cell, 0),
            free=free.get(cell, 0),
        )
        for cell in cells
    )


def cluster_queue(value: QueueState, state: State) -> schemas.ClusterQueue:
    return schemas.ClusterQueue(**_cluster_queue(value, state))


def cluster_queue_detail(
    value: QueueState, state: State, committed: dict[str, Any]
) -> schemas.ClusterQueueDetail:
    return schemas.ClusterQueueDetail(**_cluster_queue(value, state), **committed)


def _local_queue(value: LocalQueueState) -> dict[str, Any]:
    return {
        "namespace": value.local.name.namespace,
        "name": value.local.name.name,
        "cluster_queue": value.local.cluster_queue,
        "active": value.condition.active,
        "condition": schemas.Condition(reason=value.condition.reason, message=value.condition.message),
        "stop_policy": value.local.stop_policy,
        "max_execution_time": _max_execution_time(value.local.max_execution_time),
        "pending": value.pending,
        "admitted": value.admitted,
    }


def local_queue(value: LocalQueueState) -> schemas.LocalQueue:
    return schemas.LocalQueue(**_local_queue(value))


def local_queue_detail(value: LocalQueueState, committed: dict[str, Any]) -> schemas.LocalQueueDetail:
    return schemas.LocalQueueDetail(**_local_queue(value), **committed)


def _cohort(name: str, value: policy.Cohort | None, under: Under, state: State) -> dict[str, Any]:
    nominal: Counter[FlavorResource] = Counter()
    used: Counter[FlavorResource] = Counter()
    effective: Counter[FlavorResource] = Counter()
    for cohort in under.cohorts:
        nominal.update(nominal_quota(cohort))
        effective.update(state.effective(cohort))
    for queue in under.queues:
        nominal.update(queue.nominal)
        effective.update(state.effective(queue))
        used.update(queue.used)
    condition = cohort_condition(name, state.policies)
    return {
        "name": name,
        "parent": value.parent if value else None,
        "explicit": value is not None,
        "active": condition.active,
        "condition": schemas.Condition(reason=condition.reason, message=condition.message),
        "cluster_queues": len(under.queues),
        "pending": sum(queue.pending for queue in under.queues),
        "admitted": sum(len(queue.holders) for queue in under.queues),
        "flavors": _quotas(
            dict(sorted(nominal.items())),
            used,
            {cell: max(0, effective[cell] - used[cell]) for cell in nominal},
            effective,
        ),
    }


def cohort(name: str, value: policy.Cohort | None, under: Under, state: State) -> schemas.Cohort:
    return schemas.Cohort(**_cohort(name, value, under, state))


def cohort_detail(
    name: str, value: policy.Cohort | None, under: Under, state: State, committed: dict[str, Any]
) -> schemas.CohortDetail:
    return schemas.CohortDetail(**_cohort(name, value, under, state), **committed)


Quotas = Mapping[str, tuple[int, int]]
"""Nominal and used, by resource."""


def _flavor(value: policy.ResourceFlavor, quotas: Quotas) -> dict[str, Any]:
    return {
        "name": value.name,
        "node_labels": dict(value.node_labels),
        "node_taints": tuple(
            schemas.Taint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in value.node_taints
        ),
        "tolerations": tuple(
            schemas.Toleration(
                key=one.key,
                operator=one.operator,
                value=one.value,
                effect=one.effect,
                toleration_seconds=one.seconds,
            )
            for one in value.tolerations
        ),
        "resources": tuple(
            schemas.FlavorResource(resource=resource, nominal=nominal, used=used)
            for resource, (nominal, used) in sorted(quotas.items())
        ),
    }


def flavor(value: policy.ResourceFlavor, quotas: Quotas) -> schemas.ResourceFlavor:
    return schemas.ResourceFlavor(**_flavor(value, quotas))


def flavor_detail(
    value: policy.ResourceFlavor, quotas: Quotas, committed: dict[str, Any]
) -> schemas.ResourceFlavorDetail:
    return schemas.ResourceFlavorDetail(**_flavor(value, quotas), **committed)


def _decision(row: DecisionRow, readable: Readable) -> dict[str, Any]:
    details = row.payload
    named = tuple(named_in(row.reason))
    if row.ref is not None and not (named and all(namespace in readable for namespace in named)):
        details = {name: value for name, value in row.payload.items() if name in _OWN_DETAILS}
    return {
        "sequence": row.sequence,
        "time": row.now,
        "cycle": row.cycle,
        "epoch": row.epoch,
        "verdict": Verdict(row.verdict),
        "attempt": row.attempt,
        "reason": reason(redacted(row.reason, readable)) if row.reason else None,
        "details": details,
    }


def decision(row: DecisionRow, readable: Readable) -> schemas.Decision:
    return schemas.Decision(**_decision(row, readable))


def ledger_decision(row: DecisionRow, readable: Readable, *, specs: bool) -> schemas.LedgerDecision:
    """`specs`: the caller may read the policy too."""
    found = _decision(row, readable)
    if row.ref is None and not specs:
        found["details"] = {
            name: value for name, value in row.payload.items() if name not in ("spec", "author")
        }
    ref = row.ref
    return schemas.LedgerDecision(
        **found,
        namespace=ref.namespace if ref else None,
        kind=ref.kind if ref else None,
        name=ref.name if ref else None,
        uid=ref.uid if ref else None,
    )
