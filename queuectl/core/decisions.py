"""Decisions: what the core wants done, each with its reason as data. The ledger records each as a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from queuectl.core.flavors.queue_flavors import PodSetGroup
from queuectl.core.model.budgets import BudgetEntry
from queuectl.core.model.pods import PodOwner, Pods
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.values import value
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    Assignment,
    Attempt,
    Attribution,
    ConfigKey,
    ObjectRef,
    PastAttempts,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.core.preemption.claims import PreemptionClaim
from queuectl.core.preemption.fair import EvictionShares


class Verdict(StrEnum):
    """The name of a decision in the ledger, REST and CLI."""

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
    author: str | None = None
    """The user that wrote the spec; None: unknown, also for an object that is gone."""
    verdict: Verdict = Verdict.CONFIGURED


@value(frozen=True, slots=True)
class Enqueue:
    """A workload is queued: it is new, or changed in what the ledger has of it (L3)."""

    workload: Workload
    cluster_queue: str | None
    priority: int
    arrival: int
    past: PastAttempts = NO_PAST_ATTEMPTS
    verdict: Verdict = Verdict.QUEUED


@value(frozen=True, slots=True)
class Evaluation:
    """What memory keeps of a head that was nominated and not admitted. The ledger does not record it."""

    again: bool = False
    """It is not inadmissible: the next cycle nominates it again."""
    last_tried: tuple[tuple[PodSetGroup, int], ...] = ()
    """The flavors that were tried (F8)."""
    may_preempt: bool = False
    """It could preempt for what is missing (W3)."""
    reserves: bool = False
    """It reserves quota as long as it is the head (C6)."""
    until: datetime | None = None
    """When it is nominated again in any case: a protection ends."""
    lacking: tuple[Pods, ...] = ()
    """Pods that did not fit on nodes, with one of the flavors each: room for any of them helps it (W6)."""
    must_wait: bool = False
    """A start check does not admit it: it leaves its pending queue until that feature lets it (N6)."""


@value(frozen=True, slots=True)
class Keep:
    """The workload stays pending, for `reason`."""

    workload: WorkloadId
    ref: ObjectRef
    reason: Reason
    recorded: bool
    """Its code, or the limit that binds, is new: the ledger records it. Else only memory changes."""
    verdict: Verdict = Verdict.PENDING
    evaluation: Evaluation | None = None
    """Of a head that was nominated; None: the workload has the reason of its group."""
    claim: PreemptionClaim | None = None
    """Of a head that preempts: what it claims. Kept in memory only."""


@value(frozen=True, slots=True)
class Admit:
    """The workload is charged and started. `attempt.debt`: it was found running, and is charged as well."""

    attempt: Attempt
    ref: ObjectRef
    detail: str | None = None
    """For debt: how it came to run (L4)."""
    verdict: Verdict = Verdict.ADMITTED
    created_at: datetime | None = None
    """Creation of its object, if it was pending before. The ledger has it already."""
    attribution: Attribution | None = None
    """What it is booked on (B1); None: unknown."""
    budget: tuple[BudgetEntry, ...] = ()
    """What it reserves of budgets (Y3); set by the engine, as that of the next four."""


@value(frozen=True, slots=True)
class Amend:
    """The workload holds quota, and something changed that later decisions depend on (L16)."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    priority: int
    past: PastAttempts
    reason: Reason | None = None
    """Why it keeps the priority that it had; None: it has that of its class (O3)."""
    verdict: Verdict = Verdict.AMENDED
    budget: tuple[BudgetEntry, ...] = ()


@value(frozen=True, slots=True)
class Shrink:
    """Some of its pods have ended for good: their quota is released (L15)."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    assignment: Assignment
    """What it holds from now on: the same podsets, none with more pods than before."""
    verdict: Verdict = Verdict.SHRUNK
    budget: tuple[BudgetEntry, ...] = ()


@value(frozen=True, slots=True)
class Evict:
    """The workload is stopped. It stays charged until nothing of it is alive (H6)."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    reason: Reason
    preemptor: WorkloadId | None = None
    past: PastAttempts | None = None
    """What the attempt leaves (L17, L18); set by the engine."""
    shares: EvictionShares | None = None
    """Of a preemption between queues that share fairly: recorded for readers."""
    verdict: Verdict = Verdict.EVICTED


@value(frozen=True, slots=True)
class Release:
    """Nothing of the workload is alive, or it never started, or an admin releases its quota by force (L28):
    its quota is released, it is pending again."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    detail: str
    past: PastAttempts | None = None
    """What its attempts leave; None: unchanged."""
    verdict: Verdict = Verdict.RELEASED
    budget: tuple[BudgetEntry, ...] = ()


@value(frozen=True, slots=True)
class Retire:
    """The workload is over. An open attempt is closed with it."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int | None
    outcome: WorkloadOutcome
    detail: str | None = None
    """Why its object failed, as that says; set by the engine."""
    verdict: Verdict = Verdict.RETIRED
    budget: tuple[BudgetEntry, ...] = ()


WorkloadDecision = Enqueue | Keep | Admit | Amend | Shrink | Evict | Release | Retire
Decision = Configure | WorkloadDecision


def becomes_row(decision: Decision) -> bool:
    """Return whether the ledger records it under a sequence number. A change of memory alone gets none."""
    return not isinstance(decision, Keep) or decision.recorded


def subject(decision: Decision) -> WorkloadId:
    """Return the workload that a decision is about. `Configure` is about none."""
    match decision:
        case Enqueue():
            return decision.workload.id
        case Admit():
            return decision.attempt.workload
        case Configure():
            raise AssertionError("a policy object is no workload")
        case _:
            return decision.workload


def smaller(plan: Plan) -> list[Plan]:
    """Return parts of a plan that failed, each to be stored by itself; none: it is about one subject.

    Decisions of one kind are halved by subject. What a cycle decides counts on the quota that other decisions
    release or charge: where there are any, it is left out, and decided again once they are stored.
    """
    by_subject: dict[WorkloadId | ConfigKey, list[Decision]] = {}
    for decision in plan.decisions:
        by_subject.setdefault(_subject(decision), []).append(decision)
    if len(by_subject) == 1:
        return []
    kinds = [[d for d in plan.decisions if _of_cycle(d) is kind] for kind in (None, False, True)]
    alone, evictions, admissions = kinds
    if sum(map(bool, kinds)) == 1:
        each = list(by_subject.values())
        halves = (each[: len(each) // 2], each[len(each) // 2 :])
        return [_part(plan, chain.from_iterable(half)) for half in halves]
    if not alone:
        return [_part(plan, evictions)]
    first, known = [_part(plan, alone)], {_subject(decision) for decision in alone}
    rest = [decision for decision in (*evictions, *admissions) if _subject(decision) not in known]
    if rest and not any(map(_moves_quota, alone)):
        first.append(_part(plan, rest))
    return first


def _part(plan: Plan, decisions: Iterable[Decision]) -> Plan:
    return replace(plan, decisions=tuple(decisions), probes=(), checks=())


def _subject(decision: Decision) -> WorkloadId | ConfigKey:
    return decision.key if isinstance(decision, Configure) else subject(decision)


def _of_cycle(decision: Decision) -> bool | None:
    """Return False for an eviction by preemption, True for what a cycle decides besides, None for others."""
    match decision:
        case Evict() if decision.reason.code is Code.PREEMPTED:
            return False
        case Admit() if not decision.attempt.debt:
            return True
        case Keep():
            return True
        case _:
            return None


def _moves_quota(decision: Decision) -> bool:
    match decision:
        case Retire():
            return decision.attempt is not None
        case _:
            return isinstance(decision, Admit | Configure | Release | Shrink)


class PodsToCount(NamedTuple):
    """An attempt whose pods must be counted by a consistent read before its quota is released."""

    workload: WorkloadId
    ref: ObjectRef
    attempt: int
    at_most: int | None = None
    """It runs, and so many of its pods may be alive (L15); None: it is to have no pods any more."""
    generation: int | None = None
    """Of the object that allows so many: where it was edited since, they are not counted."""


class ChildToCheck(NamedTuple):
    """A child that runs and that no known owner holds quota for: its owners must be read (K2)."""

    workload: WorkloadId
    ref: ObjectRef
    family: tuple[ObjectRef, ...]
    """The children of the same owner that run: they are to be read too."""


class PodOwnerToRead(NamedTuple):
    """The controller of pods with the label of a workload: is the workload above it (M21)?"""

    workload: WorkloadId
    ref: ObjectRef
    """Of the workload."""
    owner: PodOwner


@value(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions of one or more cycles, valid only against `version` of the engine's state."""

    version: int
    cycle: int
    """Number of the first admission cycle in it, counted from the engine's start."""
    now: datetime
    decisions: tuple[Decision, ...] = ()
    probes: tuple[PodsToCount, ...] = ()
    checks: tuple[ChildToCheck | PodOwnerToRead, ...] = ()
    more: bool = False
    """The budget is used up: decide again after this plan is committed."""
    work: int = 0
    """Units of work spent: workloads nominated and searches made."""
    apart: frozenset[str] = frozenset()
    """Roots of trees without cycles in this plan, because it decides something else about them (C9)."""
    left: tuple[str, ...] = ()
    """Roots of trees that its budget did not reach."""

    @property
    def recorded(self) -> tuple[Decision, ...]:
        """Those that become rows, in the order of their sequence numbers."""
        return tuple(d for d in self.decisions if becomes_row(d))

    @property
    def victims(self) -> tuple[Evict, ...]:
        return tuple(d for d in self.decisions if isinstance(d, Evict) and d.reason.code is Code.PREEMPTED)
