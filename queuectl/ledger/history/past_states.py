"""A workload as it was after an earlier decision: from its row of today and its decisions up to then. Pure.

Most fields of a row change with decisions of certain verdicts only, so the last decision of each verdict is
enough. Labels, name and creation are those of the row of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

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
from queuectl.core.reasons import Reason
from queuectl.ledger.codec import Json, options_from_json, past_from_json, pod_sets_from_json

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


_PHASES = {
    Verdict.ADMITTED: Phase.ADMITTED,
    Verdict.EVICTED: Phase.EVICTING,
    Verdict.RELEASED: Phase.PENDING,
}


def as_of(
    row: StoredWorkload,
    decisions: Iterable[Said],
    shape: Shape,
    preempted_at: tuple[datetime, ...] = (),
) -> StoredWorkload:
    """Return `row` as it was after the last of `decisions`, which are about it, in any order.

    Needed are the last decision of each verdict, and the last of each that says what attempts left (`past`);
    none, if the row has not changed since and the workload is not being evicted. Where the first decisions
    are no longer stored, what they would say is taken from `row`.
    """
    last: dict[str, Said] = {}
    pasts: list[Said] = []
    for one in sorted(decisions, key=lambda one: one.sequence):
        last[one.verdict] = one
        if one.verdict == Verdict.QUEUED or "past" in one.payload:
            pasts.append(one)
    then: Fields = {"preempted_at": preempted_at, "evicted_at": None, "preemptor": None}
    then |= _queued(row, last, shape) | _reason(last) | _attempted(row, last)
    if pasts:
        past: Json | None = pasts[-1].payload.get("past")
        then["past"] = past_from_json(past)
    return replace(row, **then)


def _queued(row: StoredWorkload, last: dict[str, Said], shape: Shape) -> Fields:
    found: Fields = {}
    queued = last.get(Verdict.QUEUED)
    if queued is not None:
        said: Json = queued.payload
        found |= {
            "queue": said["queue"],
            "pod_sets": shape(said["shape"]) if "shape" in said else (),
            "options": options_from_json(said.get("options")),
            "submitter": said.get("submitter") or row.submitter,
        }
    if (newest := _newest(last, Verdict.QUEUED, Verdict.AMENDED)) is not None:
        found["priority"] = newest.payload["priority"]
    if (newest := _newest(last, Verdict.QUEUED, Verdict.ADMITTED)) is not None:
        found["cluster_queue"] = newest.payload["clusterQueue"]
    return found


def _reason(last: dict[str, Said]) -> Fields:
    newest = _newest(last, Verdict.PENDING, Verdict.EVICTED, Verdict.ADMITTED)
    if newest is None:
        return {"reason": None} if Verdict.QUEUED in last else {}
    return {"reason": None if newest.verdict == Verdict.ADMITTED else newest.reason}


def _attempted(row: StoredWorkload, last: dict[str, Said]) -> Fields:
    moved, attempt = _newest(last, *_PHASES), row.attempt
    if moved is None:
        if Verdict.QUEUED in last:
            return {"phase": Phase.PENDING, "attempts": 0, "attempt": None}
        return {"phase": Phase.PENDING if attempt is None else _phase(attempt)}
    phase = _PHASES[Verdict(moved.verdict)]
    if (admitted := last.get(Verdict.ADMITTED)) is not None:
        attempt = _attempt(row.id, admitted, last.get(Verdict.SHRUNK))
    assert moved.attempt is not None
    found: Fields = {"phase": phase, "attempts": moved.attempt, "attempt": None}
    if phase is Phase.PENDING or attempt is None:
        return found
    if phase is Phase.ADMITTED:
        return {**found, "attempt": replace(attempt, state=AttemptState.ADMITTED)}
    by = moved.payload.get("preemptor")
    return {
        **found,
        "attempt": replace(attempt, state=AttemptState.EVICTING),
        "evicted_at": moved.now,
        "preemptor": None if by is None else WorkloadId(str(by)),
    }


def _phase(attempt: Attempt) -> Phase:
    return Phase.EVICTING if attempt.state is AttemptState.EVICTING else Phase.ADMITTED


def _attempt(workload: WorkloadId, admitted: Said, shrunk: Said | None) -> Attempt:
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


def _newest(last: dict[str, Said], *verdicts: Verdict) -> Said | None:
    known = (last[verdict] for verdict in verdicts if verdict in last)
    return max(known, key=lambda one: one.sequence, default=None)
