"""How workloads that are over ended, and each of their attempts, by the decisions on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import WorkloadOutcome
from queuectl.ports.history import AttemptHistory, StoredDecision, history_of


class FinalOutcome(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"  # its object was deleted, or lost its queue label, or an IdlePolicy ended it
    TIMED_OUT = "TimedOut"
    PREEMPTED = "Preempted"
    NODE_FAILURE = "NodeFailure"
    EVICTED = "Evicted"  # for another reason: a hold, a stop of its queue, pods that were not ready


_OF_OBJECT: Final[Mapping[str, FinalOutcome]] = {
    WorkloadOutcome.SUCCEEDED: FinalOutcome.SUCCEEDED,
    WorkloadOutcome.FAILED: FinalOutcome.FAILED,
    WorkloadOutcome.DELETED: FinalOutcome.CANCELLED,
    WorkloadOutcome.TIMED_OUT: FinalOutcome.TIMED_OUT,
    WorkloadOutcome.CANCELLED: FinalOutcome.CANCELLED,
}
_OF_EVICTION: Final = {
    Code.MAXIMUM_EXECUTION_TIME_EXCEEDED: FinalOutcome.TIMED_OUT,
    Code.IDLE_CANCELLED: FinalOutcome.CANCELLED,
    Code.PREEMPTED: FinalOutcome.PREEMPTED,
    Code.NODE_FAILURES: FinalOutcome.NODE_FAILURE,
}


def of_object(outcome: str) -> str:
    """How a workload ended whose object ended so, as its history has it."""
    return _OF_OBJECT.get(outcome, outcome)


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """An attempt that is over."""

    number: int
    outcome: FinalOutcome
    started_at: datetime
    """Of its admission."""
    ended_at: datetime
    """When its quota was released."""
    requests: dict[str, int]
    """Of all its pods, as of its admission. In base units: thousandths of a cpu, bytes of memory, devices,
    pods."""
    resource_seconds: dict[str, int]
    """What it held, by resource: base units times seconds, such as GPU-seconds (as `usage`)."""


@dataclass(frozen=True, slots=True)
class WorkloadEnd:
    """How a workload that is over ended."""

    outcome: FinalOutcome
    """Cancelled: its object was deleted or lost its queue label, or an IdlePolicy ended it. TimedOut: it was
    deleted, or is to be, after its longest run time was used up."""
    started_at: datetime | None
    """Of its first admission. Null: it was never admitted."""
    ended_at: datetime
    held_seconds: float
    """How long its attempts held quota, together."""
    resource_seconds: dict[str, int]
    """Of its attempts. What it held, by resource: base units times seconds, such as GPU-seconds (as
    `usage`)."""
    attempts: tuple[AttemptEnd, ...]
    """Oldest first."""
    failure: str | None
    """Why its object failed, as its status says."""


def end_of(decisions: Iterable[StoredDecision], held: Mapping[int, Mapping[str, int]]) -> WorkloadEnd | None:
    """Return how a workload ended; None: it is open.

    `decisions`: those on it, oldest first. `held`: as Readings.held_by_attempts.
    """
    history = history_of(decisions)
    outcome = _OF_OBJECT.get(history.outcome or "")
    if history.ended_at is None or outcome is None:
        return None
    attempts = tuple(
        AttemptEnd(
            number,
            _of_attempt(one, outcome),
            one.admitted_at,
            one.end.now,
            _requests(one.admission),
            seconds(held.get(one.end.sequence, {})),
        )
        for number, one in enumerate(history.attempts, history.number - len(history.attempts) + 1)
        if one.end is not None
    )
    if outcome is FinalOutcome.CANCELLED and attempts and attempts[-1].outcome is FinalOutcome.TIMED_OUT:
        outcome = FinalOutcome.TIMED_OUT  # its time was used up before its object was deleted
    return WorkloadEnd(
        outcome,
        attempts[0].started_at if attempts else None,
        history.ended_at,
        sum((one.ended_at - one.started_at).total_seconds() for one in attempts),
        seconds(_sums(held.get(one.end.sequence, {}) for one in history.attempts if one.end is not None)),
        attempts,
        history.failure,
    )


def _of_attempt(attempt: AttemptHistory, workload: FinalOutcome) -> FinalOutcome:
    """`workload`: the outcome of the workload, which is that of an attempt that was not evicted."""
    if attempt.eviction is None:
        return workload
    reason = attempt.eviction.reason
    return _OF_EVICTION.get(reason.code, FinalOutcome.EVICTED) if reason is not None else FinalOutcome.EVICTED


def seconds(held: Mapping[str, int]) -> dict[str, int]:
    """Base units times seconds, of base units times microseconds; rounded down."""
    return {resource: amount // 1_000_000 for resource, amount in sorted(held.items())}


def _sums(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for one in amounts:
        sums.update(one)
    return sums


def _requests(admission: StoredDecision) -> dict[str, int]:
    return _sums(
        {resource: int(each) * int(pods["count"]) for resource, each in pods["requests"].items()}
        for pods in admission.payload.get("podSets", ())
    )
