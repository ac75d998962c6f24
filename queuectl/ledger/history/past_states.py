"""A workload as it was after an earlier decision: from its row of today and its decisions up to then. Pure.

Most fields of a row change with decisions of certain verdicts only, so the last decision of each verdict is
enough. Labels, name and creation are those of the row of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Phase,
    PodSet,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ledger.codec import Json, options_from_json, past_from_json, pod_sets_from_json
from queuectl.ports.history import WorkloadHistory

Shape = Callable[[str], tuple[PodSet, ...]]
"""Podsets by the id of a shape."""
Fields = dict[str, Any]
"""Fields of a StoredWorkload that are not as in its row."""


class Said(NamedTuple):
    """What is needed of a decision. `payload` is only read: several decisions may share it."""

    sequence: int
    now: datetime
    verdict: str
    attempt: int | None
    reason: Reason | None
    payload: Json


def as_of(
    row: StoredWorkload,
    decisions: Iterable[Said],
    shape: Shape,
    preempted_at: tuple[datetime, ...] = (),
) -> StoredWorkload:
    """Return `row` as it was after the last of `decisions`, which are about it, in any order.
    `row.attribution` must be as of then.

    Needed are the last decision of each verdict, and the last of each that says what attempts left (`past`);
    none, if the row has not changed since and the workload is not being evicted. Where the first decisions
    are no longer stored, what they would say is taken from `row`.
    """
    known = sorted(decisions, key=lambda one: one.sequence)
    history = WorkloadHistory(cluster_queue=row.cluster_queue, priority=row.priority)
    if all(one.verdict != Verdict.QUEUED for one in known):
        history.phase, history.number, history.reason = _phase(row.attempt), row.attempts, row.reason
    for one in known:
        history.add(one)
    then: Fields = {
        "cluster_queue": history.cluster_queue,
        "priority": history.priority,
        "reason": history.reason,
        "phase": history.phase,
        "attempts": history.number,
        "attempt": _attempt(row, history),
        "preempted_at": preempted_at,
        "evicted_at": None,
        "preemptor": None,
    }
    if history.queued is not None:
        then |= _queued(row, history.queued.payload, shape)
    if history.queued is not None or history.past is not None:
        then["past"] = past_from_json(history.past)
    if then["attempt"] is not None and history.phase is Phase.EVICTING and history.moved is not None:
        by = history.moved.payload.get("preemptor")
        then |= {
            "evicted_at": history.moved.now,
            "preemptor": None if by is None else WorkloadId(str(by)),
        }
    return replace(row, **then)


def _queued(row: StoredWorkload, payload: Mapping[str, Any], shape: Shape) -> Fields:
    return {
        "queue": payload["queue"],
        "pod_sets": shape(payload["shape"]) if "shape" in payload else (),
        "options": options_from_json(payload.get("options")),
        "submitter": payload.get("submitter") or row.submitter,
    }


def _phase(attempt: Attempt | None) -> Phase:
    if attempt is None:
        return Phase.PENDING
    return Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED


def _attempt(row: StoredWorkload, history: WorkloadHistory) -> Attempt | None:
    if history.phase is Phase.PENDING:
        return None
    state = AttemptState.EVICTING if history.phase is Phase.EVICTING else AttemptState.ADMITTED
    known = history.open_attempt
    if known is None:
        return (
            None if history.queued is not None or row.attempt is None else replace(row.attempt, state=state)
        )
    payload, number = known.admission.payload, known.admission.attempt
    assert number is not None
    pod_sets = (known.resize or known.admission).payload["podSets"]
    return Attempt(
        workload=row.id,
        number=number,
        state=state,
        assignment=Assignment(cluster_queue=payload["clusterQueue"], pod_sets=pod_sets_from_json(pod_sets)),
        admitted_at=datetime.fromisoformat(payload["admittedAt"]),
        sequence=payload.get("rebuiltFrom") or known.admission.sequence,
        debt=payload["debt"],
    )
