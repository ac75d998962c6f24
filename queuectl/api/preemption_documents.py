"""Preemptions as documents of the REST API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from queuectl.answers.exposure import Threat
from queuectl.api import preemption_schemas as schemas
from queuectl.api.answer_documents import Readable
from queuectl.api.identity import Allowed
from queuectl.core.model import StoredWorkload
from queuectl.core.reasons import PreemptionCause
from queuectl.core.redaction import redacted
from queuectl.ports.reader import PreemptionRow


def preemption(row: PreemptionRow, namespaces: Allowed, readable: Readable) -> schemas.Preemption:
    """`namespaces`: whose workloads the caller may read."""
    decision = row.decision
    assert decision.ref is not None
    assert decision.reason is not None
    why = redacted(decision.reason, namespaces)
    ran = None if row.admitted_at is None else int((decision.now - row.admitted_at).total_seconds())
    lost = row.held.resources() if row.held is not None and ran is not None else {}
    return schemas.Preemption(
        sequence=decision.sequence,
        time=decision.now,
        namespace=decision.ref.namespace,
        kind=decision.ref.kind,
        name=decision.ref.name,
        uid=decision.ref.uid,
        attempt=decision.attempt,
        cluster_queue=row.held.cluster_queue if row.held else None,
        cause=why.cause,
        by=why.by,
        shares=_shares(decision.payload.get("shares"), readable),
        ran_seconds=ran,
        lost={resource: amount * (ran or 0) for resource, amount in sorted(lost.items())},
    )


def _shares(stored: Any, readable: Readable) -> schemas.Shares | None:
    if stored is None:
        return None
    return schemas.Shares(
        **{
            side: schemas.ShareMove(
                node=move["node"] if move["node"] in readable else None,
                before=move["before"],
                after=move["after"],
            )
            for side, move in stored.items()
        }
    )


def nodes_of(rows: Iterable[PreemptionRow]) -> set[str]:
    """Every node of which a share was recorded."""
    found: set[str] = set()
    for row in rows:
        shares: Any = row.decision.payload.get("shares") or {}
        found |= {move["node"] for move in shares.values()}
    return found


def exposure(
    workload: StoredWorkload,
    threats: Sequence[Threat],
    queues: Allowed,
    committed: dict[str, Any],
) -> schemas.Exposure:
    """`queues`: ClusterQueues that the caller may read."""
    shown = [
        schemas.Threat(
            cluster_queue=one.cluster_queue,
            cause=one.cause,
            policy=one.policy,
            pending=one.pending,
            protected_until=one.protected_until,
        )
        for one in threats
        if one.cluster_queue in queues
    ]
    hidden: dict[tuple[PreemptionCause, datetime | None], int] = {}
    for one in threats:
        if one.cluster_queue not in queues:
            key = (one.cause, one.protected_until)
            hidden[key] = hidden.get(key, 0) + one.pending
    shown += [
        schemas.Threat(cluster_queue=None, cause=cause, policy=None, pending=pending, protected_until=until)
        for (cause, until), pending in hidden.items()
    ]
    return schemas.Exposure(
        namespace=workload.ref.namespace,
        kind=workload.ref.kind,
        name=workload.ref.name,
        uid=workload.ref.uid,
        exposed=any(one.pending and one.protected_until is None for one in threats),
        threats=tuple(shown),
        **committed,
    )
