"""Policy objects, and what of the cluster they refer to, as frozen values. Amounts in base units, times aware and in UTC."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from queuectl.core.reasons import PreemptionCause
from queuectl.core.resources import Amounts
from queuectl.core.values import value


class PreemptionPolicy(StrEnum):
    """Whom a workload may take quota from: inside its own queue, or in others that borrow."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"  # own queue only
    ANY = "Any"  # other queues only


@value(frozen=True, slots=True)
class BorrowWithinCohort:
    """Preempt in other queues even though it borrows afterwards: victims of lower priority only."""

    most_priority: int | None = None
    """Only victims of at most this priority."""


@value(frozen=True, slots=True)
class MinRunTime:
    """Seconds that a workload of this queue runs at least before it may be preempted, by cause (P10)."""

    in_cluster_queue: int = 0
    in_cohort_reclamation: int = 0
    in_cohort_fair_sharing: int = 0
    in_cohort_reclaim_while_borrowing: int = 0

    def seconds(self, cause: PreemptionCause) -> int:
        match cause:
            case PreemptionCause.IN_CLUSTER_QUEUE:
                return self.in_cluster_queue
            case PreemptionCause.IN_COHORT_RECLAMATION:
                return self.in_cohort_reclamation
            case PreemptionCause.IN_COHORT_FAIR_SHARING:
                return self.in_cohort_fair_sharing
            case PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING:
                return self.in_cohort_reclaim_while_borrowing


@value(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Of a ClusterQueue: whom its workloads may take quota from, and how long its own are protected."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: BorrowWithinCohort | None = None
    """None: never. No part in trees that share fairly."""
    min_run_time: MinRunTime = MinRunTime()

    @property
    def any(self) -> bool:
        """May it preempt at all?"""
        return not (self.within_cluster_queue is self.reclaim_within_cohort is PreemptionPolicy.NEVER)


@value(frozen=True, slots=True, kw_only=True)
class FlavorFungibility:
    """Whether to settle for a flavor that needs borrowing or preemption, or to look at the next one (F6)."""

    try_next_before_borrowing: bool = False
    try_next_before_preempting: bool = True
    preemption_over_borrowing: bool = False
    """Which of the two is preferred where both are possible."""


class PreemptionStrategy(StrEnum):
    """When a fair share lets one workload take another's place (P8)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


STRATEGIES = (
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE,
)


@value(frozen=True, slots=True, kw_only=True)
class FairSharing:
    """Of a root cohort: whether its tree shares fairly, and how. None: as the component's settings say."""

    enabled: bool | None = None
    strategies: tuple[PreemptionStrategy, ...] | None = None


HALF_LIVES = 20
"""How far back past usage counts (U3)."""


@value(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """Admission fair sharing: LocalQueues of one ClusterQueue take turns by decayed past usage (U1 to U5)."""

    half_life: int
    """Seconds; 0: the past does not count."""
    sampling_interval: int = 300
    """Seconds that an admission counts for at least."""
    weights: tuple[tuple[str, int], ...] = ()
    """Of a unit of a resource, in thousandths; 1000 for those not named."""


@value(frozen=True, slots=True, kw_only=True)
class RequeuingStrategy:
    """How long an evicted workload stays out of its line, by cause (L18)."""

    base_seconds: int = 60
    most_seconds: int = 3600
    limit: int | None = None
    """Evictions after which it is deactivated; None: never."""
    loses_place: bool = True
    """It comes back as if created when its pause ends; else with its old place in time (O6)."""


@value(frozen=True, slots=True, kw_only=True)
class SchedulingConfiguration:
    """The component's own configuration, as far as it decides (section `scheduling`)."""

    fair_sharing: bool = False
    """For trees whose root does not say."""
    strategies: tuple[PreemptionStrategy, ...] = STRATEGIES
    usage_sharing: AdmissionFairSharing | None = None
    pods_ready_timeout: int | None = None
    """Seconds from its start after which a workload is evicted if its pods are not all ready; None: never."""
    requeueing: RequeuingStrategy = RequeuingStrategy()
    eviction_budget: int = 8
    """Preemptions of one workload within `eviction_window`, after which it is left alone as long (P11)."""
    eviction_window: int = 3600
    """Seconds."""
    cooldown: int = 10
    """Seconds after its start in which a workload that was preempted before is not preempted again (P11)."""


NO_PREEMPTION = Preemption()
SETTLES_BY_BORROWING = FlavorFungibility()
AS_SETTINGS_SAY = FairSharing()
DEFAULT_CONFIGURATION = SchedulingConfiguration()


class LocalQueueName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


NORMAL_WEIGHT = 1000
"""Weights of fair shares are in thousandths."""


# --- policy ---------------------------------------------------------------------------------------


class QueueingStrategy(StrEnum):
    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


@value(frozen=True, slots=True)
class Requirement:
    """One match expression of a label or node selector. Operators: In NotIn Exists DoesNotExist Gt Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class LabelSelector:
    """All of it must match; an empty one matches everything."""

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Requirement, ...] = ()


@value(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@value(frozen=True, slots=True)
class Toleration:
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


@value(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    """A class of nodes: what an admitted pod is steered to."""

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
    """Only podsets that ask for a placement get it, where the queue has other flavors too (F2)."""


@value(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """Quota for one (flavor, resource) at one node of the tree. A limit of None means none."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@value(frozen=True, slots=True, kw_only=True)
class FlavorQuotas:
    name: str
    resources: tuple[tuple[str, ResourceQuota], ...]


@value(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that a podset gets from one flavor together; flavors in the order they are tried."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@value(frozen=True, slots=True, kw_only=True)
class Cohort:
    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: int = NORMAL_WEIGHT
    """Of its fair share, in thousandths; 0: served after all others."""
    sharing: FairSharing = AS_SETTINGS_SAY


@value(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    namespace_selector: LabelSelector | None = None
    """None admits nobody, an empty selector everybody."""
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    stop_policy: StopPolicy = StopPolicy.NONE
    preemption: Preemption = NO_PREEMPTION
    fungibility: FlavorFungibility = SETTLES_BY_BORROWING
    weight: int = NORMAL_WEIGHT
    """Of its fair share, in thousandths; 0: served after all others."""
    usage_based: bool = False
    """Its LocalQueues take turns by past usage, where the settings say how that is counted (U1)."""


@value(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    name: LocalQueueName
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    weight: int = NORMAL_WEIGHT
    """By which its past usage is divided, in thousandths; 0: last of all."""


@value(frozen=True, slots=True)
class WorkloadPriorityClass:
    """Priority of a workload in the queue alone; the pods keep their own."""

    name: str
    value: int


Policy = ClusterQueue | Cohort | ResourceFlavor | LocalQueue | WorkloadPriorityClass


# --- what else of the cluster has a say --------------------------------------------------------------


@value(frozen=True, slots=True)
class Namespace:
    name: str
    labels: tuple[tuple[str, str], ...] = ()


@value(frozen=True, slots=True)
class PriorityClass:
    name: str
    value: int
    default: bool = False


@value(frozen=True, slots=True)
class RuntimeClass:
    name: str
    overhead: Amounts = ()
    """Added to the requests of each pod that names this class."""


@value(frozen=True, slots=True)
class Node:
    name: str
    labels: tuple[tuple[str, str], ...] = ()
    allocatable: Amounts = ()
    ready: bool = True


@value(frozen=True, slots=True)
class Gate:
    """The validating policy in the API server that keeps labelled work suspended."""

    name: str
    installed_at: datetime


Context = Namespace | PriorityClass | RuntimeClass | Node | Gate


@value(frozen=True, slots=True)
class Condition:
    """Whether a queue can admit. `reason` is one word, as in a Kubernetes condition."""

    active: bool
    reason: str
    message: str
