"""What the core wants (imperative), with the reason as data. The ledger keeps each as a row."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from queuectl.core.model import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    ConfigKey,
    ObjectRef,
    Outcome,
    PastAttempts,
    Workload,
    WorkloadId,
)
from queuectl.core.reasons import Code, Reason
from queuectl.core.values import value


class Verdict(StrEnum):
    """How a decision reads in the ledger, REST and CLI."""

    CONFIGURED = "Configured"
    QUEUED = "Queued"
    PENDING = "Pending"
    ADMITTED = "Admitted"
    AMENDED = "Amended"
    SHRUNK = "Shrunk"
    EVICTED = "Evicted"
    RELEASED = "Released"
    RETIRED = "Retired"


@value(frozen=True, slots=True)
class Configure:
    """A policy object's spec comes into force (None: it is gone)."""

    key: ConfigKey
    spec: str | None
    verdict: Verdict = Verdict.CONFIGURED


@value(frozen=True, slots=True)
class Enqueue:
    """A workload is seen for the first time, or its queue, priority or past changed while it waited."""

    workload: Workload
    cluster_queue: str | None
    priority: int
    arrival: int
    past: PastAttempts = NO_PAST_ATTEMPTS
    verdict: Verdict = Verdict.QUEUED


class Victim(NamedTuple):
    """One whose end makes room."""

    workload: WorkloadId
    attempt: int


@value(frozen=True, slots=True)
class Claim:
    """What a preemptor is going to be given once its victims are gone (C7)."""

    cluster_queue: str
    cells: tuple[tuple[int, int], ...]
    """By cell number of the quota tree."""
    victims: tuple[Victim, ...]
    assignment: Assignment


@value(frozen=True, slots=True)
class Evaluation:
    """What memory keeps of having looked at a head in vain."""

    claim: Claim | None = None
    again: bool = False
    """It is not parked: it will be looked at in the next cycle."""
    tried: tuple[tuple[tuple[str, int], int], ...] = ()
    """Flavors that were looked at (F8)."""
    contends: bool = False
    """It might take from others what it lacks (W3)."""
    holds_back: bool = False
    until: datetime | None = None
    """When it is to be looked at again in any case: a protection ends."""


@value(frozen=True, slots=True)
class Keep:
    """Leave it waiting, and say why."""

    workload: WorkloadId
    ref: ObjectRef
    reason: Reason
    recorded: bool
    """Its code or the limit that binds is new; else memory alone takes note."""
    verdict: Verdict = Verdict.PENDING
    look: Evaluation | None = None
    """For memory alone; None: it was told what holds for its equals."""


@value(frozen=True, slots=True)
class Admit:
    """Charge it and let it go. `attempt.debt`: it was found running and is charged all the same."""

    attempt: Attempt
    ref: ObjectRef
    detail: str | None = None
    """For debt: how it came to run."""
    verdict: Verdict = Verdict.ADMITTED
    created_at: datetime | None = None
    """Of its object, where it waited for this; the ledger has it already."""


@value(frozen=True, slots=True)
class Amend:
    """While it holds quota something changed that later decisions about it rest on (L16)."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    priority: int
    past: PastAttempts
    verdict: Verdict = Verdict.AMENDED


@value(frozen=True, slots=True)
class Shrink:
    """Some of its pods have ended for good: what they held comes back (L15)."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    assignment: Assignment
    """What it holds from now on: the same podsets, none with more pods."""
    verdict: Verdict = Verdict.SHRUNK


@value(frozen=True, slots=True)
class Evict:
    """Stop it. Its charge stays until nothing of it is alive."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    reason: Reason
    preemptor: WorkloadId | None = None
    past: PastAttempts | None = None
    """What this attempt leaves behind; the engine fills it in."""
    verdict: Verdict = Verdict.EVICTED


@value(frozen=True, slots=True)
class Release:
    """Nothing of it is alive, or it never started: the quota comes back and it waits again."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    detail: str
    past: PastAttempts | None = None
    """What it leaves behind; None: what it had already."""
    verdict: Verdict = Verdict.RELEASED


@value(frozen=True, slots=True)
class Retire:
    """It is over. An open attempt is closed with it."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int | None
    outcome: Outcome
    verdict: Verdict = Verdict.RETIRED


Decision = Configure | Enqueue | Keep | Admit | Amend | Shrink | Evict | Release | Retire


def becomes_row(decision: Decision) -> bool:
    """Does the ledger give it a sequence number? What only memory takes note of gets none."""
    return not isinstance(decision, Keep) or decision.recorded


class PodsToCount(NamedTuple):
    """An attempt whose pods must be counted by a consistent read before its quota comes back."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int


@value(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions of one or more cycles, valid only against `version` of the engine's state."""

    version: int
    cycle: int
    """Number of the first admission cycle in it, counted from the engine's start."""
    now: datetime
    decisions: tuple[Decision, ...] = ()
    probes: tuple[PodsToCount, ...] = ()
    more: bool = False
    """The budget ran out: decide again after committing this."""
    work: int = 0
    """Units of work spent: workloads looked at."""

    @property
    def recorded(self) -> tuple[Decision, ...]:
        """Those that become rows, in the order of their sequence numbers."""
        return tuple(d for d in self.decisions if becomes_row(d))

    @property
    def victims(self) -> tuple[Evict, ...]:
        return tuple(d for d in self.decisions if isinstance(d, Evict) and d.reason.code is Code.PREEMPTED)
