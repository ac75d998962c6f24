"""The rows that a plan adds and changes, before they are written to a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from queuectl.core.model.reasons import Reason
from queuectl.core.model.workload import (
    AttemptState,
    ConfigKey,
    EffectKey,
    ObjectRef,
    PastAttempts,
    Phase,
    PodSet,
    WorkloadId,
)
from queuectl.ledger.codec import Json


@dataclass(slots=True)
class NewDecision:
    """One row of history."""

    sequence: int
    verdict: str
    config_version: int
    payload: Json
    workload: str | None = None
    ref: ObjectRef | None = None
    attempt: int | None = None
    reason: Reason | None = None


@dataclass(slots=True)
class SeenWorkload:
    """A workload that is seen for the first time, or again with another queue, priority or podsets."""

    sequence: int
    id: WorkloadId
    ref: ObjectRef
    queue: str
    cluster_queue: str | None
    priority: int
    created_at: datetime
    arrival: int
    submitter: str | None
    labels: dict[str, str]
    pod_sets: tuple[PodSet, ...]
    shape: str
    past: PastAttempts
    options: Json | None


@dataclass(slots=True)
class WorkloadChange:
    """A change of a workload that has a row. None leaves a field unchanged."""

    id: WorkloadId
    sequence: int
    held: bool | None = None
    """It must hold quota already (True) or must not (False); otherwise memory and ledger disagree."""
    phase: Phase | None = None
    cluster_queue: str | None = None
    opened: int | None = None
    """Number of the attempt that opens: greater than all before."""
    reason: Reason | None = None
    reason_set: bool = False
    priority: int | None = None
    past: PastAttempts | None = None

    @property
    def closes(self) -> bool:
        return self.phase in (Phase.FINISHED, Phase.DELETED)


@dataclass(slots=True)
class NewAttempt:
    """An attempt that opens, in state Admitted."""

    workload: WorkloadId
    number: int
    cluster_queue: str
    admitted_at: datetime
    sequence: int
    debt: bool
    pod_sets: list[Json]


@dataclass(slots=True)
class HoldLine:
    """`count` pods of `amount` each, of one podset and one resource."""

    workload: WorkloadId
    attempt: int
    cluster_queue: str
    pod_set: str
    count: int
    flavor: str
    resource: str
    amount: int
    sequence: int


@dataclass(slots=True)
class AttemptChange:
    workload: WorkloadId
    number: int
    state: AttemptState
    sequence: int


@dataclass(slots=True)
class ResizedAttempt:
    """An open attempt that holds less after this decision."""

    workload: WorkloadId
    number: int
    sequence: int
    pod_sets: list[Json]
    lines: list[HoldLine]
    """All hold lines after the change; lines of unchanged podsets stay open."""


class NewConfig(NamedTuple):
    """A spec that comes into force."""

    sequence: int
    key: ConfigKey
    spec: str | None
    """None: the object is gone."""
    author: str | None


@dataclass(slots=True)
class Segment:
    configs: list[NewConfig] = field(default_factory=list)
    seen: list[SeenWorkload] = field(default_factory=list)
    changes: dict[WorkloadId, WorkloadChange] = field(default_factory=dict)
    opened: list[NewAttempt] = field(default_factory=list)
    holds: list[HoldLine] = field(default_factory=list)
    attempts: list[AttemptChange] = field(default_factory=list)
    resized: list[ResizedAttempt] = field(default_factory=list)
    effects: list[tuple[int, EffectKey]] = field(default_factory=list)

    def change(self, workload: WorkloadId, sequence: int) -> WorkloadChange:
        found = self.changes.setdefault(workload, WorkloadChange(workload, sequence))
        found.sequence = sequence
        return found
