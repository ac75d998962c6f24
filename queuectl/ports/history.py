"""The history of one workload: its decisions, in order, folded into its attempts and its state. Pure.

Everything that reads decisions of the past reads them through this fold; `queuectl verify` alone checks each
decision against what the ledger holds, and has rules of its own (ledger/history/replay).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A decision as the ledger has it."""

    sequence: int
    now: datetime
    """UTC, by the clock of the ledger."""
    verdict: str
    attempt: int | None
    reason: Reason | None
    payload: dict[str, Any]
    """Other details of the verdict, such as flavors of an admission. Several decisions may share it."""


_PHASES: Final[Mapping[str, Phase]] = {
    Verdict.ADMITTED: Phase.ADMITTED,
    Verdict.EVICTED: Phase.EVICTING,
    Verdict.RELEASED: Phase.PENDING,
}


LIFE: Final = frozenset(
    (Verdict.QUEUED, Verdict.ADMITTED, Verdict.EVICTED, Verdict.RELEASED, Verdict.RETIRED)
)
"""Decisions that begin or end a workload or an attempt."""


@dataclass(slots=True)
class AttemptHistory:
    """One attempt, by the decisions on it."""

    admission: StoredDecision
    resize: StoredDecision | None = None
    """The last one that made its hold smaller."""
    eviction: StoredDecision | None = None
    end: StoredDecision | None = None
    """The one that released its quota; None: it is open."""

    @property
    def ended_at(self) -> datetime | None:
        return None if self.end is None else self.end.now

    @property
    def admitted_at(self) -> datetime:
        """UTC. An admission that was lost and recorded again has the time of the lost one."""
        recorded = self.admission.payload.get("admittedAt")
        return self.admission.now if recorded is None else datetime.fromisoformat(recorded)


@dataclass(slots=True)
class WorkloadHistory:
    """A workload after the decisions that were added so far, in order.

    An id that is used again begins a new life, of which alone this tells. Of decisions that are missing,
    as in a month that was dropped, it has what the later ones tell.
    """

    phase: Phase = Phase.PENDING
    attempts: list[AttemptHistory] = field(default_factory=list)
    """Those whose admissions are known, oldest first."""
    number: int = 0
    """Of its last attempt; 0: it has had none."""
    queued: StoredDecision | None = None
    """The last one: a workload is queued again in another queue, or with another size."""
    moved: StoredDecision | None = None
    """The last one that changed the phase."""
    cluster_queue: str | None = None
    priority: int | None = None
    reason: Reason | None = None
    """Why it is pending, or was evicted last; of one that is admitted, why it keeps a former priority."""
    evaluated: bool = False
    """It is pending, and its reason is one of this wait."""
    past: Any = None
    """What its attempts have left behind, as JSON of the ledger."""
    ended_at: datetime | None = None
    """When it finished or was deleted, UTC; None: it is open."""
    outcome: str | None = None
    """A WorkloadOutcome; None: it is open."""
    failure: str | None = None
    """Why its object failed, as that says."""

    @property
    def open_attempt(self) -> AttemptHistory | None:
        """The attempt that holds quota, if its admission is known."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.end is None else None

    def add(self, decision: StoredDecision) -> None:
        payload = decision.payload
        match decision.verdict:
            case Verdict.QUEUED:
                if self.ended_at is not None:
                    self._begin()
                self.queued, self.past = decision, None
                self.cluster_queue, self.priority = payload.get("clusterQueue"), payload.get("priority")
            case Verdict.AMENDED:
                self.priority, self.reason = payload.get("priority", self.priority), decision.reason
            case Verdict.PENDING:
                self.reason, self.evaluated = decision.reason, True
            case Verdict.ADMITTED:
                self.attempts.append(AttemptHistory(decision))
                self.cluster_queue, self.reason = payload.get("clusterQueue", self.cluster_queue), None
            case Verdict.EVICTED:
                self.reason = decision.reason
            case Verdict.RETIRED:
                self.ended_at, self.outcome = decision.now, payload.get("outcome")
                self.failure = payload.get("detail")
        self.past = payload.get("past", self.past)
        if (phase := _PHASES.get(decision.verdict)) is not None:
            self.phase, self.moved, self.evaluated = phase, decision, False
            self.number = self.number if decision.attempt is None else decision.attempt
        if (attempt := self.open_attempt) is not None:
            self._change(attempt, decision)

    def _begin(self) -> None:
        self.phase, self.attempts, self.number, self.moved = Phase.PENDING, [], 0, None
        self.reason, self.evaluated, self.ended_at, self.outcome, self.failure = None, False, None, None, None

    @staticmethod
    def _change(attempt: AttemptHistory, decision: StoredDecision) -> None:
        match decision.verdict:
            case Verdict.SHRUNK:
                attempt.resize = decision
            case Verdict.EVICTED:
                attempt.eviction = decision
            case Verdict.RELEASED | Verdict.RETIRED:
                attempt.end = decision


def history_of(decisions: Iterable[StoredDecision]) -> WorkloadHistory:
    """Return the history of one workload. `decisions`: those on it, oldest first."""
    history = WorkloadHistory()
    for decision in decisions:
        history.add(decision)
    return history
