"""Policy objects, and the cluster objects that they refer to, as frozen values.

Amounts are in base units. Times are timezone-aware and in UTC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from queuectl.core.model.budgets import Budget
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.devices import DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from queuectl.core.model.pod_limits import LimitRange, NamespaceQuota
from queuectl.core.model.reasons import PreemptionCause
from queuectl.core.model.resources import NO_FORMS, Amounts, ResourceForms
from queuectl.core.model.usage_limits import UsageLimit
from queuectl.core.model.values import value


class PreemptionPolicy(StrEnum):
    """Which workloads are candidates: in the own ClusterQueue, or in others that borrow (P2)."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"  # own queue only
    ANY = "Any"  # other queues only

    def highest(self, priority: int) -> float:
        """Return the highest priority of a candidate of a workload with this one (P2), if that is newer."""
        match self:
            case PreemptionPolicy.NEVER:
                return -math.inf
            case PreemptionPolicy.LOWER_PRIORITY:
                return priority - 1
            case PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                return priority
            case PreemptionPolicy.ANY:
                return math.inf


@value(frozen=True, slots=True)
class BorrowWithinCohort:
    """Preemption in other queues by a preemptor that borrows afterwards; only of lower priority (P3)."""

    most_priority: int | None = None
    """Highest priority of a victim (`maxPriorityThreshold`); None: any that is lower than the preemptor's."""


@value(frozen=True, slots=True)
class MinRunTime:
    """Seconds after its admission in which a workload of this ClusterQueue is protected, by cause (P10)."""

    in_cluster_queue: int = 0
    in_cohort_reclamation: int = 0
    in_cohort_fair_sharing: int = 0
    in_cohort_reclaim_while_borrowing: int = 0

    def seconds(self, cause: PreemptionCause) -> int:
        """Return the seconds of protection from `cause`."""
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
    """Preemption rules of a ClusterQueue: its candidates, and how long its own workloads are protected."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: BorrowWithinCohort | None = None
    """None: never. Ignored in cohort trees with fair sharing."""
    min_run_time: MinRunTime = MinRunTime()

    @property
    def enabled(self) -> bool:
        """Whether any form of preemption is allowed."""
        return not (self.within_cluster_queue is self.reclaim_within_cohort is PreemptionPolicy.NEVER)


@value(frozen=True, slots=True, kw_only=True)
class FlavorFungibility:
    """Whether a flavor that needs borrowing or preemption ends the evaluation of flavors (F6)."""

    try_next_before_borrowing: bool = False
    try_next_before_preempting: bool = True
    preemption_over_borrowing: bool = False
    """True: preemption without borrowing is preferred to borrowing; False: the reverse (F7)."""


class PreemptionStrategy(StrEnum):
    """The condition on shares under which a candidate becomes a victim in fair sharing (P8)."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


STRATEGIES = (
    PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
    PreemptionStrategy.LESS_THAN_INITIAL_SHARE,
)


@value(frozen=True, slots=True, kw_only=True)
class FairSharing:
    """Fair sharing of a root Cohort and its tree (S1). None: the component configuration decides."""

    enabled: bool | None = None
    strategies: tuple[PreemptionStrategy, ...] | None = None
    by_past_usage: bool = False
    """Its members are ordered by past usage first (U7)."""


HALF_LIVES = 20
"""Number of half-lives for which past usage counts (U3)."""


@value(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """Usage-based order: LocalQueues of one ClusterQueue are ordered by decayed past usage (U1 to U5)."""

    half_life: int
    """Half-life of past usage in seconds; 0: past usage does not count."""
    sampling_interval: int = 300
    """Least duration in seconds that an open attempt counts for (U4)."""
    weights: tuple[tuple[str, int], ...] = ()
    """(resource, weight of one unit in thousandths) pairs; 1000 for a resource that is not listed."""


@value(frozen=True, slots=True, kw_only=True)
class RequeuingStrategy:
    """How long a workload backs off after a failed start, and when it is deactivated (L18)."""

    base_seconds: int = 60
    """Backoff after the first failed start; it doubles with each further one."""
    most_seconds: int = 3600
    """Longest backoff."""
    limit: int | None = None
    """Consecutive failed starts that are allowed; one more deactivates the workload. None: no limit."""
    loses_place: bool = True
    """True: the end of the backoff replaces its creation time in the order; False: it does not (O6)."""
    jitter_percent: int = 0
    """How much longer a backoff may be, different for each workload and failure."""

    def of_queue(self, own: WaitForPodsReady | None) -> RequeuingStrategy:
        """Return the strategy of a ClusterQueue with these fields of its own; None: it has none."""
        if own is None:
            return self
        base = self.base_seconds if own.base_seconds is None else own.base_seconds
        return RequeuingStrategy(
            base_seconds=base,
            most_seconds=max(self.most_seconds, base) if own.most_seconds is None else own.most_seconds,
            limit=self.limit if own.limit is None else own.limit,
            loses_place=False,
            jitter_percent=own.jitter_percent,
        )


@value(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """Which nodes count as capacity (M3)."""

    unusable_conditions: tuple[tuple[str, str], ...] = ()
    """(type, status) pairs: a node with one of these conditions is unhealthy."""
    unusable_taints: tuple[str, ...] = ()
    """Keys of taints: a node with one of them is unhealthy, and a device is not counted, whatever tolerates
    it."""
    settle_seconds: int = 30
    """How long a node that was not ready must be ready again before it counts (M5)."""
    loss_seconds: int = 60
    """How long a node must be not ready until the workloads on it are evicted (M12)."""
    stock_out_seconds: int = 0
    """How long a flavor is not used whose nodes did not come in time (M20); 0: it is used all the same."""


NODE_RULES = NodeRules()


class AccountSource(StrEnum):
    """What has the value of an account key."""

    WORKLOAD = "Workload"
    """A label of the workload."""
    NAMESPACE = "Namespace"
    """A label of its namespace."""
    GROUP = "Group"
    """The groups of its user: the first that is allowed."""
    OWNER = "Owner"
    """The object that controls it, such as `CronJob/nightly`."""


@value(frozen=True, slots=True, kw_only=True)
class AccountKey:
    """An axis that usage is accounted by, such as `cost-center`."""

    name: str
    label: str
    """Key of the label that has the value; empty where no label counts."""
    sources: tuple[AccountSource, ...] = (AccountSource.WORKLOAD, AccountSource.NAMESPACE)
    """The first that has an allowed value counts."""
    allowed: frozenset[str] | None = None
    """None: all values are."""
    required: bool = False
    """A workload without a value waits."""


@value(frozen=True, slots=True, kw_only=True)
class SchedulingConfiguration:
    """Section `scheduling` of the component configuration."""

    fair_sharing: bool = False
    """Fair sharing of trees whose root Cohort does not set it (S1)."""
    strategies: tuple[PreemptionStrategy, ...] = STRATEGIES
    usage_sharing: AdmissionFairSharing | None = None
    pods_ready_timeout: int | None = None
    """Seconds from its start after which a workload without all pods ready is evicted (L14); None: never."""
    requeueing: RequeuingStrategy = RequeuingStrategy()
    eviction_budget: int = 8
    """Preemptions of a workload within `eviction_window` after which it is protected for that time (P11)."""
    eviction_window: int = 3600
    """Seconds."""
    cooldown: int = 10
    """Seconds after its admission in which a workload that was preempted before is protected (P11)."""
    terminating_alarm: int = 600
    """Seconds after its eviction when it is said that the pods of a workload have not ended (L27)."""
    resources: ResourceForms = NO_FORMS
    """In which forms resources are charged (H8, H9)."""
    nodes: NodeRules = NODE_RULES
    account_keys: tuple[AccountKey, ...] = ()
    """What usage is accounted by, beside queues and users (B2)."""

    @property
    def preemptions_count_for(self) -> timedelta:
        """How long a preemption counts: all of a budget do until the protection by the last ends (P11)."""
        return timedelta(seconds=2 * self.eviction_window)


NO_PREEMPTION = Preemption()
DEFAULT_FUNGIBILITY = FlavorFungibility()
AS_CONFIGURED = FairSharing()
DEFAULT_CONFIGURATION = SchedulingConfiguration()


class LocalQueueName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


NORMAL_WEIGHT = 1000
"""The default weight: weights are in thousandths."""


# --- policy ---------------------------------------------------------------------------------------


class QueueingStrategy(StrEnum):
    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class HeadCanNeverRun(StrEnum):
    """What a StrictFIFO queue does with a head that can never run with its quota and flavors (C4)."""

    BLOCK = "Block"
    PASS_OVER = "PassOver"


class StopPolicy(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


@value(frozen=True, slots=True)
class Requirement:
    """One expression of a label or node selector. Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all labels and all expressions must match. An empty selector matches everything."""

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Requirement, ...] = ()


@value(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """As kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@value(frozen=True, slots=True)
class Toleration:
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


class CapacityMode(StrEnum):
    """What the nodes of a flavor mean for the admission of workloads that request one of its resources."""

    STATIC = "Static"  # nothing: quota alone decides
    OBSERVE = "Observe"  # their capacity is reported and compared with the quota
    ENFORCE = "Enforce"  # an admission needs room on them beside quota (M1)
    ELASTIC = "Elastic"  # they come on demand: as Static, and what waits is reported as demand


@value(frozen=True, slots=True, kw_only=True)
class FlavorNodes:
    """What the nodes of a flavor limit."""

    mode: CapacityMode | None = None
    """Of all its resources; None: Enforce for devices that its nodes have, Observe for the others (M2)."""
    modes: tuple[tuple[str, CapacityMode], ...] = ()
    """(resource, mode) pairs: other modes than `mode`."""
    headroom: Amounts = ()
    """What must stay free on all its nodes together after an admission, in base units (M6)."""


ANY_NODES = FlavorNodes()


@value(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    """A class of nodes. An admitted pod gets the node labels and tolerations of its flavor."""

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
    """Name of a Topology. Only podsets that request a topology placement may use this flavor, unless every
    flavor of the queue has a topology."""
    nodes: FlavorNodes = ANY_NODES
    unsupported: tuple[str, ...] = ()
    """Fields of its spec that are not obeyed, each as `PATH: WHY`: queues with it do not admit (Q1)."""


@value(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """Quota of one cell at one node of the quota tree, in base units. None: no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@value(frozen=True, slots=True, kw_only=True)
class FlavorQuotas:
    name: str
    resources: tuple[tuple[str, ResourceQuota], ...]
    wait: int = 0
    """How long a workload waits for this flavor before it may take the next one, in seconds (F10)."""


@value(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources that a podset gets from one flavor together (F1); flavors in order of evaluation."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


class CapacityShortage(StrEnum):
    """What nominal quotas of a tree count where nodes have less than is promised for them (M11)."""

    BY_PRIORITY = "ByPriority"  # all of it: room on nodes decides, in the order of the queues
    PRO_RATA = "ProRata"  # the part that nodes have of what is promised


@value(frozen=True, slots=True, kw_only=True)
class Cohort:
    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    weight: int = NORMAL_WEIGHT
    """Weight of its fair share in thousandths; 0: ordered after all others as soon as it borrows (S3)."""
    sharing: FairSharing = AS_CONFIGURED
    shortage: CapacityShortage = CapacityShortage.BY_PRIORITY
    """Of its tree, if it is a root."""
    unsupported: tuple[str, ...] = ()
    """Fields of its spec that are not obeyed, each as `PATH: WHY`: its queues do not admit (Q1)."""


class OnExceeded(StrEnum):
    """What becomes of an object whose run time is used up."""

    SUSPEND = "Suspend"
    FAIL = "Fail"


@value(frozen=True, slots=True, kw_only=True)
class MaxExecutionTime:
    """Seconds that a workload of a queue may run, over all its attempts (L13)."""

    default: int | None = None
    """For workloads without the label; None: the ceiling is."""
    ceiling: int | None = None
    """The most that a label may allow; None: no limit."""
    on_exceeded: OnExceeded | None = None
    """What then becomes of its object; None: as the ClusterQueue says, else suspend."""


NO_MAX_EXECUTION_TIME = MaxExecutionTime()


@value(frozen=True, slots=True, kw_only=True)
class WaitForPodsReady:
    """When the pods of workloads of a queue must be ready, in seconds, and what follows if they are not."""

    scheduling: int | None = None
    """From its start until all its pods are bound to nodes (L24); None: no limit."""
    startup: int | None = None
    """From then until all are ready (L25); None: no limit."""
    recovery: int | None = None
    """For pods that were all ready once and are not any more (L26); None: no limit."""
    base_seconds: int | None = None
    """This and the next two: as in RequeuingStrategy; None: as configured."""
    most_seconds: int | None = None
    limit: int | None = None
    jitter_percent: int = 0
    """How much longer a backoff may be than computed, different for each workload and failure."""


@value(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    name: str
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    namespace_selector: LabelSelector | None = None
    """None admits no namespace; an empty selector admits every namespace."""
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    head_can_never_run: HeadCanNeverRun = HeadCanNeverRun.BLOCK
    stop_policy: StopPolicy = StopPolicy.NONE
    stop_reason: str | None = None
    preemption: Preemption = NO_PREEMPTION
    fungibility: FlavorFungibility = DEFAULT_FUNGIBILITY
    weight: int = NORMAL_WEIGHT
    """Weight of its fair share in thousandths; 0: ordered after all others as soon as it borrows (S3)."""
    max_execution_time: MaxExecutionTime = NO_MAX_EXECUTION_TIME
    wait_for_pods_ready: WaitForPodsReady | None = None
    """None: as configured."""
    usage_based: bool = False
    """Its LocalQueues are ordered by past usage, if the configuration sets `admissionFairSharing` (U1)."""
    users_by_usage: bool = False
    """With `usage_based`: so are the users of each (U6)."""
    unsupported: tuple[str, ...] = ()
    """Fields of its spec that are not obeyed, each as `PATH: WHY`: it does not admit (Q1)."""


@value(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    name: LocalQueueName
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    stop_reason: str | None = None
    max_execution_time: MaxExecutionTime = NO_MAX_EXECUTION_TIME
    weight: int = NORMAL_WEIGHT
    """Divisor of its past usage, in thousandths; 0: ordered after all others (U2)."""
    restricted: bool = False
    """Only users with the right `use` may name it (G5)."""


@value(frozen=True, slots=True)
class WorkloadPriorityClass:
    """Priority of a workload in its pending queue. The pods keep their own priority."""

    name: str
    value: int
    restricted: bool = False
    """Only users with the right `use` may name it (G5)."""


def why_stopped(queue: ClusterQueue | LocalQueue) -> str:
    """Return what a queue that is stopped says to those who wait for it."""
    reason = f": {queue.stop_reason}" if queue.stop_reason else ""
    return f"stopPolicy is {queue.stop_policy}{reason}"


Policy = (
    ClusterQueue
    | Cohort
    | ResourceFlavor
    | LocalQueue
    | WorkloadPriorityClass
    | UsageLimit
    | Budget
    | IdlePolicy
)


# --- other cluster objects that decisions depend on ------------------------------------------------


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
    """Its kubelet says that it is ready."""
    ready_since: datetime | None = None
    """When `ready` last changed; None: unknown."""
    created_at: datetime | None = None
    cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    """(type, status) pairs of its conditions but Ready, sorted."""
    uid: str = ""
    """Of its Node object: another one of its name is another node. Empty: unknown."""


@value(frozen=True, slots=True)
class Gate:
    """The validating policy in the API server that keeps labelled workloads suspended."""

    name: str
    installed_at: datetime


OfNamespace = LimitRange | NamespaceQuota | ResourceClaim | ResourceClaimTemplate
"""Their name is `NAMESPACE/NAME`."""
Devices = ResourceSlice | DeviceTaintRule
"""Of nodes."""
Context = Namespace | PriorityClass | RuntimeClass | Node | Gate | Devices | OfNamespace


@value(frozen=True, slots=True)
class Condition:
    """Whether a queue can admit workloads. `reason` is one CamelCase word, as in a Kubernetes condition."""

    active: bool
    reason: str
    message: str


def cohorts_above(first: str | None, parent: Callable[[str], str | None]) -> list[str]:
    """Return the names of the cohort `first` and of those above it, nearest first, in a cycle each once."""
    above: dict[str, None] = {}
    name = first
    while name is not None and name not in above:
        above[name] = None
        name = parent(name)
    return list(above)


def cohort_cycle(first: str | None, parent: Callable[[str], str | None]) -> list[str]:
    """Return the names of the cycle of cohorts at or above `first`, each once; empty: there is none."""
    above = cohorts_above(first, parent)
    again = parent(above[-1]) if above else None
    return [] if again is None else above[above.index(again) :]
