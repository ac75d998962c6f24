"""A workload as it was after an earlier decision: from its row of today and its decisions up to then. Pure.

Most fields of a row change with decisions of certain verdicts only, so the last decision of each verdict is
enough. Labels, name and creation are those of the row of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from queuectl.core.decisions import Verdict
from queuectl.core.model import (
    Assignment,
    Attempt,
    AttemptState,
    Phase,
    PodSet,
    StoredWorkload,
    WorkloadId,
)
from queuectl.ledger.codec import Json, options_from_json, past_from_json, pod_sets_from_json
from queuectl.ports import DecisionRow

Shape = Callable[[str], tuple[PodSet, ...]]
"""Podsets by the id of a shape."""

_PHASES = {
    Verdict.ADMITTED: Phase.ADMITTED,
    Verdict.EVICTED: Phase.EVICTING,
    Verdict.RELEASED: Phase.PENDING,
}


def as_of(
    row: StoredWorkload,
    decisions: Iterable[DecisionRow],
    shape: Shape,
    preempted_at: tuple[datetime, ...] = (),
) -> StoredWorkload:
    """Return `row` as it was after the last of `decisions`, which are about it, in any order.

    Needed are the last decision of each verdict, and the last of each that says what attempts left (`past`).
    Where the first decisions are no longer stored, what they would say is taken from `row`.
    """
    last: dict[str, DecisionRow] = {}
    pasts: list[DecisionRow] = []
    for one in sorted(decisions, key=lambda one: one.sequence):
        last[one.verdict] = one
        if one.verdict == Verdict.QUEUED or "past" in one.payload:
            pasts.append(one)
    found = replace(row, preempted_at=preempted_at, evicted_at=None, preemptor=None)
    found = _queued(found, last, shape)
    if pasts:
        past: Json | None = pasts[-1].payload.get("past")  # type: ignore[assignment]
        found = replace(found, past=past_from_json(past))
    return _with_attempt(_with_reason(found, last), last)


def _queued(found: StoredWorkload, last: dict[str, DecisionRow], shape: Shape) -> StoredWorkload:
    queued = last.get(Verdict.QUEUED)
    if queued is not None:
        said: Json = queued.payload
        found = replace(
            found,
            queue=said["queue"],
            pod_sets=shape(said["shape"]) if "shape" in said else (),
            options=options_from_json(said.get("options")),
            submitter=said.get("submitter") or found.submitter,
        )
    if (newest := _newest(last, Verdict.QUEUED, Verdict.AMENDED)) is not None:
        found = replace(found, priority=newest.payload["priority"])  # type: ignore[arg-type]
    if (newest := _newest(last, Verdict.QUEUED, Verdict.ADMITTED)) is not None:
        found = replace(found, cluster_queue=newest.payload["clusterQueue"])  # type: ignore[arg-type]
    return found


def _with_reason(found: StoredWorkload, last: dict[str, DecisionRow]) -> StoredWorkload:
    newest = _newest(last, Verdict.PENDING, Verdict.EVICTED, Verdict.ADMITTED)
    if newest is None:
        return replace(found, reason=None) if Verdict.QUEUED in last else found
    return replace(found, reason=None if newest.verdict == Verdict.ADMITTED else newest.reason)


def _with_attempt(found: StoredWorkload, last: dict[str, DecisionRow]) -> StoredWorkload:
    moved = _newest(last, *_PHASES)
    if moved is None:
        if Verdict.QUEUED in last:
            return replace(found, phase=Phase.PENDING, attempts=0, attempt=None)
        return replace(found, phase=Phase.PENDING if found.attempt is None else _phase(found.attempt))
    phase, attempt = _PHASES[Verdict(moved.verdict)], found.attempt
    if (admitted := last.get(Verdict.ADMITTED)) is not None:
        attempt = _attempt(found.id, admitted, last.get(Verdict.SHRUNK))
    assert moved.attempt is not None
    found = replace(found, phase=phase, attempts=moved.attempt, attempt=None)
    if phase is Phase.PENDING or attempt is None:
        return found
    if phase is Phase.ADMITTED:
        return replace(found, attempt=replace(attempt, state=AttemptState.ADMITTED))
    by = moved.payload.get("preemptor")
    return replace(
        found,
        attempt=replace(attempt, state=AttemptState.EVICTING),
        evicted_at=moved.now,
        preemptor=None if by is None else WorkloadId(str(by)),
    )


def _phase(attempt: Attempt) -> Phase:
    return Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED


def _attempt(workload: WorkloadId, admitted: DecisionRow, shrunk: DecisionRow | None) -> Attempt:
    said: Json = admitted.payload
    assert admitted.attempt is not None
    pod_sets = said["podSets"]
    if shrunk is not None and shrunk.sequence > admitted.sequence:
        pod_sets = shrunk.payload["podSets"]
    return Attempt(
        workload=workload,
        number=admitted.attempt,
        state=AttemptState.ADMITTED,
        assignment=Assignment(cluster_queue=said["clusterQueue"], pod_sets=pod_sets_from_json(pod_sets)),
        admitted_at=datetime.fromisoformat(said["admittedAt"]),
        sequence=said.get("rebuiltFrom") or admitted.sequence,
        debt=said["debt"],
    )


def _newest(last: dict[str, DecisionRow], *verdicts: Verdict) -> DecisionRow | None:
    known = (last[verdict] for verdict in verdicts if verdict in last)
    return max(known, key=lambda one: one.sequence, default=None)
