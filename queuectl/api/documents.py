"""Values of the core and of answers as documents of the REST API. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from queuectl.answers.explanation import Explanation, Visibility, as_of
from queuectl.answers.queue_states import QueueState, cohort_condition, nominal_quota
from queuectl.answers.state import LocalQueueState, State, Under
from queuectl.api import schemas
from queuectl.core import policy
from queuectl.core.model import StoredWorkload
from queuectl.core.reasons import Reason
from queuectl.core.resources import FlavorResource
from queuectl.ports.reader import DecisionRow

REASONS: Final = 8192
"""How many different reasons are kept as documents."""


@lru_cache(REASONS)
def reason(value: Reason) -> schemas.Reason:
    """Workloads that wait for the same have equal reasons: most of a page are found here."""
    return schemas.Reason.model_validate(value)


class Reasons:
    """The reasons of a page as documents: many workloads have the same one."""

    def __init__(self, state: State, caller: Visibility) -> None:
        self._state = state
        self._caller = caller
        self._known: dict[Reason, schemas.Reason] = {}

    def of(self, value: StoredWorkload) -> schemas.Reason | None:
        if value.reason is None:
            return None
        known = self._known.get(value.reason)
        if known is None:
            known = reason(as_of(self._caller.reason(value.reason), self._state))
            self._known[value.reason] = known
        return known


def _workload(value: StoredWorkload, state: State) -> dict[str, Any]:
    """All fields but the reason and the position."""
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
        "created_at": value.created_at,
        "submitter": value.submitter,
        "labels": dict(value.labels),
        "attempts": value.attempts,
        "attempt": attempt.number if attempt else None,
        "admitted_at": attempt.admitted_at if attempt else None,
        "pods": attempt.assignment.pods if attempt else None,
        "pods_ready": state.ready(value),
        "admission": attempt.assignment if attempt else None,
    }


def workload(value: StoredWorkload, state: State, reasons: Reasons) -> schemas.Workload:
    return schemas.Workload(
        **_workload(value, state), position=state.position(value), reason=reasons.of(value)
    )


def workload_detail(
    value: StoredWorkload, state: State, explanation: Explanation, committed: dict[str, Any]
) -> schemas.WorkloadDetail:
    return schemas.WorkloadDetail(
        **_workload(value, state), pod_sets=value.pod_sets, **schemas.shallow(explanation), **committed
    )


def cluster_queue(value: QueueState, state: State) -> schemas.ClusterQueue:
    queue = value.queue or policy.ClusterQueue(name=value.name)
    return schemas.ClusterQueue(
        name=value.name,
        cohort=queue.cohort,
        active=value.condition.active,
        condition=value.condition,
        stop_policy=queue.stop_policy,
        queueing_strategy=queue.queueing_strategy,
        max_execution_time=queue.max_execution_time,
        pending=value.pending,
        admitted=len(value.holders),
        flavors=_quotas(value.nominal, value.used, state.free(value), state.effective(value)),
    )


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


def local_queue(value: LocalQueueState) -> schemas.LocalQueue:
    return schemas.LocalQueue(
        namespace=value.local.name.namespace,
        name=value.local.name.name,
        cluster_queue=value.local.cluster_queue,
        active=value.condition.active,
        condition=value.condition,
        stop_policy=value.local.stop_policy,
        max_execution_time=value.local.max_execution_time,
        pending=value.pending,
        admitted=value.admitted,
    )


def cohort(name: str, value: policy.Cohort | None, under: Under, state: State) -> schemas.Cohort:
    nominal: Counter[FlavorResource] = Counter()
    used: Counter[FlavorResource] = Counter()
    effective: Counter[FlavorResource] = Counter()
    for node in under.cohorts:
        nominal.update(nominal_quota(node))
        effective.update(state.effective(node))
    for queue in under.queues:
        nominal.update(queue.nominal)
        effective.update(state.effective(queue))
        used.update(queue.used)
    condition = cohort_condition(name, state.policies)
    free = {cell: max(0, effective[cell] - used[cell]) for cell in nominal}
    return schemas.Cohort(
        name=name,
        parent=value.parent if value else None,
        explicit=value is not None,
        active=condition.active,
        condition=condition,
        cluster_queues=len(under.queues),
        pending=sum(queue.pending for queue in under.queues),
        admitted=sum(len(queue.holders) for queue in under.queues),
        flavors=_quotas(dict(sorted(nominal.items())), used, free, effective),
    )


Quotas = Mapping[str, tuple[int, int]]
"""Nominal and used, by resource."""


def flavor(value: policy.ResourceFlavor, quotas: Quotas) -> schemas.ResourceFlavor:
    return schemas.ResourceFlavor(
        name=value.name,
        node_labels=value.node_labels,
        node_taints=value.node_taints,
        tolerations=tuple(
            schemas.Toleration(
                key=one.key,
                operator=one.operator,
                value=one.value,
                effect=one.effect,
                toleration_seconds=one.seconds,
            )
            for one in value.tolerations
        ),
        resources=tuple(
            schemas.FlavorResource(resource=resource, nominal=nominal, used=used)
            for resource, (nominal, used) in sorted(quotas.items())
        ),
    )


def _decision(row: DecisionRow) -> dict[str, Any]:
    return {
        "sequence": row.sequence,
        "time": row.now,
        "cycle": row.cycle,
        "epoch": row.epoch,
        "verdict": row.verdict,
        "attempt": row.attempt,
        "reason": reason(row.reason) if row.reason else None,
        "details": row.payload,
    }


def decision(row: DecisionRow, caller: Visibility) -> schemas.Decision:
    return schemas.Decision(**_decision(caller.decision(row)))


def ledger_decision(row: DecisionRow, caller: Visibility, *, specs: bool) -> schemas.LedgerDecision:
    """`specs`: the caller may read the policy too."""
    ref = row.ref
    return schemas.LedgerDecision(
        **_decision(caller.decision(row, specs=specs)),
        namespace=ref.namespace if ref else None,
        kind=ref.kind if ref else None,
        name=ref.name if ref else None,
        uid=ref.uid if ref else None,
    )
