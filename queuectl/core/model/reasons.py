"""Reasons: why a workload is pending or was evicted, as one code of a closed set and its numbers (rule R1).

The ledger, REST, the CLI, Kubernetes Events and metric labels all use the same codes.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from queuectl.core.model.resources import format_amount
from queuectl.core.model.values import value


class Family(StrEnum):
    """Group of reason codes by what the workload is waiting for."""

    NEVER = "never"  # not admissible under the current policy
    NOT_YET = "not yet"  # admissible when quota, time or another condition allows
    HELD = "held"  # kept out of its pending queue by a user, an admin or a limit
    EVICTED = "evicted"


class Code(StrEnum):
    """All reason codes (docs/scheduling.md, R1)."""

    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    NO_NODE_CAN_FIT = "NoNodeCanFit"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    MISCONFIGURED = "Misconfigured"
    EXCEEDS_RESOURCE_QUOTA = "ExceedsResourceQuota"
    OUTSIDE_USAGE_LIMIT = "OutsideUsageLimit"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    BUDGET_NEEDS_LIMIT = "BudgetNeedsLimit"
    QUEUE_NOT_FOUND = "QueueNotFound"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    QUANTITY_OUT_OF_RANGE = "QuantityOutOfRange"
    NEGATIVE_REQUEST = "NegativeRequest"
    PRIORITY_NOT_FOUND = "PriorityNotFound"

    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_RESOURCE_QUOTA = "WaitingForResourceQuota"
    WAITING_FOR_USAGE_LIMIT = "WaitingForUsageLimit"
    WAITING_FOR_DEPENDENCY = "WaitingForDependency"
    WAITING_FOR_BEGIN_TIME = "WaitingForBeginTime"
    WAITING_FOR_ARRAY = "WaitingForArray"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_HEAD = "WaitingForHead"
    BACKING_OFF = "BackingOff"
    CAPACITY_MISSING = "CapacityMissing"
    NO_NODE_FITS = "NoNodeFits"
    MIN_RUN_TIME_PROTECTED = "MinRunTimeProtected"

    ON_HOLD = "OnHold"
    SUSPENDED = "Suspended"
    DEACTIVATED = "Deactivated"
    LEDGER_MISMATCH = "LedgerMismatch"

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    NODE_FAILURES = "NodeFailures"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    IDLE_DEVICES = "IdleDevices"
    IDLE_CANCELLED = "IdleCancelled"
    BUDGET_TIME_EXCEEDED = "BudgetTimeExceeded"
    USER_HOLD = "UserHold"
    BYPASS = "Bypass"


class PreemptionCause(StrEnum):
    """The rule under which a preemptor evicted a victim (docs/scheduling.md, P2 to P9)."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Limit(StrEnum):
    """The policy field whose value limited the request."""

    NOMINAL_QUOTA = "nominalQuota"
    CAPACITY_SHORTAGE = "capacityShortage"  # nominal quotas count less, because nodes have less (M11)
    BORROWING_LIMIT = "borrowingLimit"
    LENDING_LIMIT = "lendingLimit"
    COVERED_RESOURCES = "coveredResources"
    HARD = "spec.hard"  # of a ResourceQuota
    RUNNING = "spec.running"  # this and the next four of a UsageLimit
    PENDING = "spec.pending"
    RESOURCES = "spec.resources"
    FLAVORS = "spec.flavors"
    MIN_REQUEST = "spec.minRequest"
    HOURS = "spec.hours"  # of a Budget: amounts are hours


FAMILIES: dict[Code, Family] = {
    code: family
    for family, first, last in (
        (Family.NEVER, Code.EXCEEDS_MAX_QUOTA, Code.PRIORITY_NOT_FOUND),
        (Family.NOT_YET, Code.PENDING_EVALUATION, Code.MIN_RUN_TIME_PROTECTED),
        (Family.HELD, Code.ON_HOLD, Code.LEDGER_MISMATCH),
        (Family.EVICTED, Code.PREEMPTED, Code.BYPASS),
    )
    for code in list(Code)[list(Code).index(first) : list(Code).index(last) + 1]
}


_AT_MOST_EVER: Final = frozenset(
    {Code.EXCEEDS_MAX_QUOTA, Code.EXCEEDS_RESOURCE_QUOTA, Code.OUTSIDE_USAGE_LIMIT}
)
"""Codes where `available` is what there is at most."""


_PASSED_OVER: Final = "its queue passes over it"
"""Begins the detail of what is passed over."""


@value(frozen=True, slots=True)
class RejectedCandidate:
    """A workload that was a possible victim, and why it was not preempted (R3)."""

    who: str | None
    """As `namespace/kind/name`; null where the reader may not read it."""
    why: str


@value(frozen=True, slots=True)
class NodeFinding:
    """A node that came close to having room (M10)."""

    name: str
    free: int
    """Of the resource of the reason, in base units."""


@value(frozen=True, slots=True)
class ExcludedNodes:
    """Nodes of the flavor that the pods cannot use, or not now (M10)."""

    nodes: int
    why: str
    """What they are, have or lack, such as `cordoned`; no number that moves by itself."""


@value(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason code with its numbers. Amounts are in base units of `resource`.

    Numbers and times have fields of their own, which are not part of the identity of a reason (`key`). No
    text may contain them, except `considered` and `victims`, which are not part of it either.
    """

    code: Code
    flavor: str | None = None
    resource: str | None = None
    requested: int | None = None
    available: int | None = None
    short_by: int | None = None
    """The amount that has to become free at `node` before the request fits."""
    reserved: bool = False
    """What is available is reserved for workloads ahead of it (C6, C7)."""
    awaited: int | None = None
    """The number of workloads that have to end first."""
    until: datetime | None = None
    """When its pause ends (L18), or the first protection of a candidate (P10): others may end later. Or when
    it may get another flavor (F10), or this one again (M20)."""
    limit: Limit | None = None
    """The policy field of `node` that limited the request."""
    node: str | None = None
    """The object that limited the request, as `ClusterQueue/team-a`."""
    cause: PreemptionCause | None = None
    by: str | None = None
    """The preemptor as `namespace/kind/name`, or the user or client that caused this."""
    detail: str | None = None
    """Text for other facts, such as the name of a missing flavor; no number or time that moves by itself."""
    considered: str | None = None
    """How many candidates were rejected as victims, by cause (R3)."""
    victims: tuple[RejectedCandidate, ...] = ()
    """The first few rejected candidates."""
    pods: int | None = None
    """How many pods it needs room for (M10)."""
    pods_fit: int | None = None
    """How many of them would fit now."""
    nodes: tuple[NodeFinding | ExcludedNodes, ...] = ()
    """The nodes that come closest, then those that its pods cannot use, most first."""
    others: tuple[Reason, ...] = ()
    """The findings for the other flavors that were evaluated (F4, F5)."""

    @property
    def family(self) -> Family:
        return FAMILIES[self.code]

    @property
    def passed_over(self) -> bool:
        """Whether it can never run, and is in no pending queue because its StrictFIFO queue says so (C4)."""
        return self.detail is not None and self.detail.startswith(_PASSED_OVER)

    @property
    def key(self) -> tuple[str | None, ...]:
        """The identity of the reason: a new decision is recorded only when this changes (R2).

        It has no number, no time, and not whether quota is in use or reserved: these move all the time.
        """
        return (
            self.code,
            self.flavor,
            self.resource,
            self.limit,
            self.node,
            self.cause,
            self.by,
            self.detail,
            *sorted(one.why for one in self.nodes if isinstance(one, ExcludedNodes)),
        )

    @property
    def message(self) -> str:
        """The reason as one sentence for users, built from the fields alone."""
        text = self._without_numbers() if self.resource is None or self.requested is None else self._numbers()
        if self.until is not None:
            text += f", until {utc(self.until)}"
            text += " or later" if self.code is Code.MIN_RUN_TIME_PROTECTED else ""
        if self.awaited is not None:
            text += (
                f": {self.awaited} {'workload has' if self.awaited == 1 else 'workloads have'} to end first"
            )
        if self.pods_fit is not None:
            text += f": {self.pods_fit} of {self.pods} pods fit now"
        text += self._about_nodes()
        text = f"{text}: {self.detail}" if self.detail else text
        return f"{text}; not preempted: {self.considered}" if self.considered else text

    def _about_nodes(self) -> str:
        near = [
            f"{one.name} with {_amount(self.resource, one.free)} free"
            for one in self.nodes
            if isinstance(one, NodeFinding) and self.resource is not None
        ]
        unusable = [
            f"{one.nodes} {'node' if one.nodes == 1 else 'nodes'} {one.why}"
            for one in self.nodes
            if isinstance(one, ExcludedNodes)
        ]
        closest = f"; closest: {', '.join(near)}" if near else ""
        return f"{closest}; not usable: {', '.join(unusable)}" if unusable else closest

    def _without_numbers(self) -> str:
        text = self.code.value
        if self.cause:
            text += f" ({self.cause.value})"
        if self.flavor:
            text += f" in flavor {self.flavor}"
        if self.node:
            text += f" at {self.node}"
        return f"{text} by {self.by}" if self.by else text

    def _numbers(self) -> str:
        assert self.resource is not None
        assert self.requested is not None
        text = f"{self.code.value}: requests {_amount(self.resource, self.requested)} {self.resource}"
        text += " hours" if self.limit is Limit.HOURS else ""
        if self.flavor:
            text += f" in flavor {self.flavor}"
        if self.available is not None:
            available = _amount(self.resource, self.available)
            never = self.code in _AT_MOST_EVER
            when = "now" if self.limit is Limit.CAPACITY_SHORTAGE else "ever"
            text += f", at most {available} {when}" if never else f", {available} available"
        if self.reserved:
            text += ", which is reserved for workloads ahead of it"
        if self.short_by is not None:
            text += f", short by {_amount(self.resource, self.short_by)}"
        limit = " of ".join(str(part) for part in (self.limit, self.node) if part)
        return f"{text} (bound by {limit})" if limit else text


def passed_over(reason: Reason) -> Reason:
    """Return the reason of a workload that can never run and that its StrictFIFO queue passes over (C4)."""
    detail = _PASSED_OVER if reason.detail is None else f"{_PASSED_OVER}; {reason.detail}"
    return replace(reason, detail=detail)


Readable = Container[str]
"""Namespaces whose workloads the reader may read."""
_BY_USERS: Final = frozenset({Code.USER_HOLD, Code.BYPASS})
"""Codes where `by` is a user; for all others it is a workload, written with its namespace first."""


def waits_for_victims(reason: Reason | None) -> bool:
    """Return whether it is the reason of a workload that preempted, and holds a claim (C7)."""
    return reason is not None and reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS


def redacted(value: Reason, readable: Readable) -> Reason:
    """Return the reason without names of workloads that the reader may not read."""
    if value.by is None and not value.victims and not value.others:
        return value
    if all(namespace in readable for namespace in named_in(value)):
        return value
    others = tuple(redacted(other, readable) for other in value.others)
    victims = tuple(
        one if _namespace_of(one) in readable else RejectedCandidate(None, one.why) for one in value.victims
    )
    value = replace(value, others=others, victims=victims)
    namespace = _namespace_named(value)
    if namespace is None or namespace in readable:
        return value
    return replace(value, by=None, detail=None)


def named_in(*reasons: Reason | None) -> Iterator[str]:
    """Yield the namespaces of the workloads that the reasons name."""
    for found in reasons:
        if found is not None:
            if (namespace := _namespace_named(found)) is not None:
                yield namespace
            yield from (_namespace_of(one) for one in found.victims if one.who is not None)
            yield from named_in(*found.others)


def _namespace_named(value: Reason) -> str | None:
    return None if value.by is None or value.code in _BY_USERS else value.by.partition("/")[0]


def _namespace_of(one: RejectedCandidate) -> str:
    return (one.who or "").partition("/")[0]


def utc(when: datetime) -> str:
    """Return a time as shown to users: UTC, in whole seconds."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _amount(resource: str, amount: int) -> str:
    return f"-{format_amount(resource, -amount)}" if amount < 0 else format_amount(resource, amount)
