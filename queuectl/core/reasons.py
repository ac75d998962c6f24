"""Why a workload waits or was taken away: one member of a closed set, plus its numbers.

The same value reads in the ledger, REST, the CLI, the Kubernetes Event and metric labels.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from queuectl.core.resources import format_amount
from queuectl.core.values import value


class Family(StrEnum):
    """What waiting alone will do."""

    NEVER = "never"  # as things are set up
    NOT_YET = "not yet"
    HELD = "held"
    EVICTED = "evicted"


class Code(StrEnum):
    """The one list of reason codes (docs/scheduling.md, R1)."""

    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    MISCONFIGURED = "Misconfigured"
    QUEUE_NOT_FOUND = "QueueNotFound"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    QUANTITY_OUT_OF_RANGE = "QuantityOutOfRange"
    NEGATIVE_REQUEST = "NegativeRequest"
    PRIORITY_NOT_FOUND = "PriorityNotFound"

    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    WAITING_FOR_HEAD = "WaitingForHead"
    BACKING_OFF = "BackingOff"
    MIN_RUN_TIME_PROTECTED = "MinRunTimeProtected"
    CAPACITY_MISSING = "CapacityMissing"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks"

    ON_HOLD = "OnHold"
    SUSPENDED = "Suspended"
    DEACTIVATED = "Deactivated"
    ADMISSION_GATED = "AdmissionGated"
    LEDGER_MISMATCH = "LedgerMismatch"

    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    NODE_FAILURES = "NodeFailures"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"
    ADMISSION_CHECK = "AdmissionCheck"
    USER_HOLD = "UserHold"
    BYPASS = "Bypass"


class PreemptionCause(StrEnum):
    """Which rule let one workload take another's place."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


class Limit(StrEnum):
    """The field of the policy that bound."""

    NOMINAL_QUOTA = "nominalQuota"
    BORROWING_LIMIT = "borrowingLimit"
    LENDING_LIMIT = "lendingLimit"
    COVERED_RESOURCES = "coveredResources"


FAMILIES: dict[Code, Family] = {
    code: family
    for family, first, last in (
        (Family.NEVER, Code.EXCEEDS_MAX_QUOTA, Code.PRIORITY_NOT_FOUND),
        (Family.NOT_YET, Code.PENDING_EVALUATION, Code.UNSATISFIED_ADMISSION_CHECKS),
        (Family.HELD, Code.ON_HOLD, Code.LEDGER_MISMATCH),
        (Family.EVICTED, Code.PREEMPTED, Code.BYPASS),
    )
    for code in list(Code)[list(Code).index(first) : list(Code).index(last) + 1]
}


class Spared(NamedTuple):
    """One that could have made room, and why it did not."""

    who: str | None
    """`namespace/kind/name`; None where the reader may not know."""
    why: str


@value(frozen=True, slots=True, kw_only=True)
class Reason:
    """A code with the numbers behind it. Amounts are in base units of `resource`.

    `short_by` is what would have to come free at `node` for this request; `limit` is the policy field that
    bound there. `detail` says what no number can, such as the name of a missing flavor.
    `considered` and `victims` change without making it another reason. `others` are the same findings for the
    flavors that were tried besides.
    """

    code: Code
    flavor: str | None = None
    resource: str | None = None
    requested: int | None = None
    available: int | None = None
    short_by: int | None = None
    limit: Limit | None = None
    node: str | None = None
    """The object that bound, as `ClusterQueue/team-a`."""
    cause: PreemptionCause | None = None
    by: str | None = None
    """Who took its place or did this: a workload as `namespace/kind/name`, or a user."""
    detail: str | None = None
    considered: str | None = None
    """Who could have made room and why none of them did, in numbers (R3)."""
    victims: tuple[Spared, ...] = ()
    """The first few of them."""
    others: tuple[Reason, ...] = ()

    @property
    def family(self) -> Family:
        return FAMILIES[self.code]

    @property
    def key(self) -> tuple[str | None, ...]:
        """What makes it another reason: a new decision is recorded only when this changes."""
        return (
            self.code,
            self.flavor,
            self.resource,
            self.limit,
            self.node,
            self.cause,
            self.by,
            self.detail,
        )

    @property
    def message(self) -> str:
        """One sentence for people, made from the fields alone."""
        text = self._without_numbers() if self.resource is None or self.requested is None else self._numbers()
        text = f"{text}: {self.detail}" if self.detail else text
        return f"{text}; considered as victims: {self.considered}" if self.considered else text

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
        if self.flavor:
            text += f" in flavor {self.flavor}"
        if self.available is not None:
            room = _amount(self.resource, self.available)
            text += f", at most {room} ever" if self.code is Code.EXCEEDS_MAX_QUOTA else f", {room} available"
        if self.short_by is not None:
            text += f", short by {_amount(self.resource, self.short_by)}"
        bound = " of ".join(str(part) for part in (self.limit, self.node) if part)
        return f"{text} (bound by {bound})" if bound else text


def _amount(resource: str, amount: int) -> str:
    return f"-{format_amount(resource, -amount)}" if amount < 0 else format_amount(resource, amount)
