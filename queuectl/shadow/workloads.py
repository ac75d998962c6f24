"""The workloads of an observer: what was decided, and what really happened. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Family, Reason
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.ledger.write.plan_rows import BESIDE
from queuectl.ports.history import WorkloadHistory
from queuectl.ports.reader import DecisionRow

SLACK: Final = timedelta(seconds=1)
"""Times of a workload's status are in whole seconds: smaller differences do not count."""

RUNNING: Final = "Running"
SUSPENDED: Final = "Suspended"
GONE: Final = "Gone"


class Fate(StrEnum):
    """What would have happened to a workload."""

    AT_ONCE = "admittedAtOnce"
    WAITED = "waited"
    """Admitted, after it was pending with a reason."""
    WAITING = "waiting"
    """Not admitted yet: it is pending, or ended in reality before its admission."""
    NEVER = "never"
    """It can never run with the present configuration."""
    HELD = "held"
    DEBT = "debt"
    """It ran before the observer started."""


@dataclass(slots=True)
class ObservedWorkload:
    """One workload: decisions, by the ledger's clock, and reality, by Kubernetes' clock."""

    id: WorkloadId
    ref: ObjectRef
    queued_at: datetime
    """First seen."""
    created_at: datetime
    queue: str
    requests: dict[str, int]
    """Of all its pods together, in base units by resource."""
    late: bool
    """It had ended before it was first seen."""
    history: WorkloadHistory = field(default_factory=WorkloadHistory)
    reason: Reason | None = None
    """Its last reason for being pending."""
    told_to_wait: bool = False
    # --- reality
    state: str = SUSPENDED
    """As of the last decision: Running, Suspended, Gone, or how it ended."""
    ran: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def cluster_queue(self) -> str | None:
        return self.history.cluster_queue

    @property
    def admitted_at(self) -> datetime | None:
        """Its first admission."""
        return self.history.attempts[0].admission.now if self.history.attempts else None

    @property
    def debt(self) -> bool:
        return bool(self.history.attempts) and self.history.attempts[0].admission.payload.get("debt") is True

    @property
    def evictions(self) -> list[Reason]:
        evictions = (one.eviction for one in self.history.attempts)
        return [one.reason for one in evictions if one is not None and one.reason is not None]

    @property
    def retired_at(self) -> datetime | None:
        return self.history.ended_at

    @property
    def fate(self) -> Fate:
        if self.debt:
            return Fate.DEBT
        if self.admitted_at is not None:
            return Fate.WAITED if self.told_to_wait else Fate.AT_ONCE
        family = self.reason.family if self.reason is not None else Family.NOT_YET
        return {Family.NEVER: Fate.NEVER, Family.HELD: Fate.HELD}.get(family, Fate.WAITING)

    @property
    def real_start(self) -> datetime | None:
        """None: it has not run."""
        return (self.started_at or self.created_at) if self.ran else None

    def waited(self, now: datetime) -> timedelta:
        """From first sight to admission, or to its end or now if it was not admitted."""
        return max(timedelta(), (self.admitted_at or self.retired_at or now) - self.queued_at)

    def ran_anyway(self) -> bool:
        """It ran although it would have been pending."""
        if not self.told_to_wait or self.debt or (start := self.real_start) is None:
            return False
        return self.admitted_at is None or start < self.admitted_at

    def sooner(self, now: datetime) -> timedelta | None:
        """How much longer it waited in reality than it would have; None: it did not."""
        if self.admitted_at is None or self.debt or self.late:
            return None
        if self.ran:
            late = (self.started_at or self.created_at) - self.admitted_at
        else:
            late = (self.retired_at or now) - self.admitted_at
        return late if late > SLACK else None


class ObservedWorkloads:
    """All workloads, built from decisions in their order."""

    def __init__(self) -> None:
        self.by_id: dict[WorkloadId, ObservedWorkload] = {}
        self.began: datetime | None = None
        """When the observer started."""

    def add(self, row: DecisionRow) -> ObservedWorkload | None:
        """The workload of this decision, as it is after it; None: none, or one from a dropped month."""
        if row.workload is None or row.ref is None:
            if row.payload.get("kind") == "Gate" and isinstance(spec := row.payload.get("spec"), dict):
                self.began = datetime.fromisoformat(spec["installedAt"])
            return None
        real = reality(row)
        workload = self.by_id.get(row.workload)
        if row.verdict == Verdict.QUEUED:
            workload = self._queued(row, workload, real)
        if workload is None:
            return None
        _decided(workload, row)
        _really(workload, real)
        return workload

    def _queued(
        self, row: DecisionRow, known: ObservedWorkload | None, real: dict[str, Any]
    ) -> ObservedWorkload:
        """A second Queued is a move to another queue or another size: its wait continues."""
        payload: dict[str, Any] = row.payload
        assert row.workload is not None
        assert row.ref is not None
        if known is not None and known.retired_at is None:
            known.queue = payload["queue"]
            known.requests = real.get("requests", known.requests)
            return known
        self.by_id[row.workload] = ObservedWorkload(
            id=row.workload,
            ref=row.ref,
            queued_at=row.now,
            created_at=datetime.fromisoformat(payload["createdAt"]),
            queue=payload["queue"],
            requests=real.get("requests", {}),
            late=real.get("state") not in (RUNNING, SUSPENDED),
        )
        return self.by_id[row.workload]


def reality(row: DecisionRow) -> dict[str, Any]:
    """The real state of the object at the time of the decision."""
    found = row.payload.get(BESIDE)
    return found if isinstance(found, dict) else {}


def _decided(workload: ObservedWorkload, row: DecisionRow) -> None:
    if row.verdict == Verdict.PENDING:
        workload.reason = row.reason
        workload.told_to_wait |= workload.admitted_at is None
    workload.history.add(row)


def _really(workload: ObservedWorkload, real: dict[str, Any]) -> None:
    if "state" not in real:
        return
    workload.state = real["state"]
    workload.ran |= workload.state not in (SUSPENDED, GONE) or "startedAt" in real
    if "startedAt" in real:
        workload.started_at = datetime.fromisoformat(real["startedAt"])
    if "endedAt" in real:
        workload.ended_at = datetime.fromisoformat(real["endedAt"])


def difference(row: DecisionRow, workload: ObservedWorkload) -> str | None:
    """How reality differs from this decision; None: it does not."""
    runs = workload.state == RUNNING
    match row.verdict:
        case Verdict.PENDING if runs:
            return "runs"
        case Verdict.PENDING if workload.state != SUSPENDED:
            return "has run already"
        case Verdict.ADMITTED:
            return _of_admission(row, workload, runs)
        case Verdict.EVICTED if runs:
            return "runs on"
        case Verdict.RETIRED if workload.admitted_at is None and workload.ran:
            return "has run without an admission"
        case _:
            return None


def _of_admission(row: DecisionRow, workload: ObservedWorkload, runs: bool) -> str | None:
    if workload.debt and row.now == workload.admitted_at:
        return "ran before the observer started"
    if workload.state == SUSPENDED:
        return "still suspended"
    if not runs:
        return "is over already"
    start = workload.real_start
    ahead = row.now - start if start is not None else timedelta()
    return (
        f"runs for {ahead.total_seconds():.0f} s already" if workload.told_to_wait and ahead > SLACK else None
    )
