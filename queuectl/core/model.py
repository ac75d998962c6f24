"""Frozen values named after the API's nouns. Amounts in base units, times aware and in UTC."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, NewType

from queuectl.core.past import NOTHING, Past
from queuectl.core.reasons import Reason
from queuectl.core.resources import Amounts, FlavorResource, Usage
from queuectl.core.rules import (
    AS_SETTINGS_SAY,
    NO_PREEMPTION,
    SETTLES_BY_BORROWING,
    Fungibility,
    Preemption,
    TreeSharing,
)
from queuectl.core.values import value

WorkloadId = NewType("WorkloadId", str)
"""Identity of a workload. One made of a single object has that object's UID; names are never identity."""


class ObjectRef(NamedTuple):
    """A Kubernetes object. `kind` is a row name of the table of job kinds, such as `Job`."""

    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


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
    sharing: TreeSharing = AS_SETTINGS_SAY


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
    fungibility: Fungibility = SETTLES_BY_BORROWING
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


# --- workloads ------------------------------------------------------------------------------------


@value(frozen=True, slots=True, kw_only=True)
class PodSet:
    """`count` pods of one shape. Scheduling fields are the user's own, without what an admission added."""

    name: str
    count: int
    min_count: int | None = None
    """It may start with as few pods as this (F9); None: with all of them or not at all."""
    requests: Amounts
    """Of one pod, without `pods` and without the overhead of its RuntimeClass."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()
    """Required node affinity: terms of which one must match, each a tuple of expressions that all must."""
    priority_class: str | None = None
    runtime_class: str | None = None
    group: str | None = None
    """Podsets of one group get their flavors together (F1)."""
    topology: bool = False
    """It asks for a placement: only flavors that know one will do (F2)."""


class Outcome(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"


@value(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a user asks for, as read from the object: everything that may change an admission."""

    id: WorkloadId
    ref: ObjectRef
    queue: str
    """Name of a LocalQueue in the object's namespace."""
    created_at: datetime
    pod_sets: tuple[PodSet, ...]
    priority_class: str | None = None
    """A WorkloadPriorityClass by label; else the pods' own PriorityClass counts."""
    submitter: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    hold: bool = False
    """The user asked that it stay out of the queue."""
    max_run_seconds: int | None = None
    """How long it may run, all its attempts together; None: as long as it takes."""
    problem: Reason | None = None
    """Why it can't even be charged (a quantity out of range, say); its pod_sets are then empty."""


@value(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of a workload's object, as last read."""

    resource_version: str
    generation: int
    suspended: bool
    annotated: bool
    """It has annotations at all: decides how a patch adds ours."""
    finished: Outcome | None = None
    quiet: bool | None = None
    """True: its own status promises that nothing of it is alive. None: no such promise; ask the pods."""
    admission: Attempt | None = None
    """What its reserved-admission annotation says."""
    bypassed_by: str | None = None
    """Who let it go past the gate, where the gate could note it."""
    started_at: datetime | None = None
    """By its own status; None: it does not say."""
    ended_at: datetime | None = None
    """By its own status, of one that is finished."""
    ready: bool | None = None
    """Are all its pods ready, or have ended well? None: its status does not say."""
    reclaimable: tuple[tuple[str, int], ...] = ()
    """By podset, how many of its pods have ended and will not come back, where its status promises that."""


class Phase(StrEnum):
    PENDING = "Pending"
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    FINISHED = "Finished"
    DELETED = "Deleted"


class AttemptState(StrEnum):
    """Reserved and Admitted are two steps from the start; admission checks will stand between them."""

    RESERVED = "Reserved"
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    CLOSED = "Closed"


@value(frozen=True, slots=True, kw_only=True)
class PodSetAssignment:
    """What one podset is charged: `count` pods of `requests` each, each resource from its flavor."""

    name: str
    count: int
    requests: Amounts
    """Of one pod, as charged: with overhead, and with `pods` where the queue covers it."""
    flavors: tuple[tuple[str, str], ...]
    """Flavor by resource, sorted by resource; the same resources as `requests`."""
    node_selector: tuple[tuple[str, str], ...] = ()
    """The user's own scheduling fields when it was admitted, to be given back later."""
    tolerations: tuple[Toleration, ...] = ()


@value(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The quota a workload holds: in which ClusterQueue, of which flavors."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]

    def usage(self) -> Usage:
        """Total per (flavor, resource) over all pods of all podsets, in base units."""
        total: Usage = {}
        for pod_set in self.pod_sets:
            flavors = dict(pod_set.flavors)
            for resource, amount in pod_set.requests:
                cell = FlavorResource(flavors[resource], resource)
                total[cell] = total.get(cell, 0) + amount * pod_set.count
        return total

    def resources(self) -> dict[str, int]:
        """Total per resource, from whatever flavor, in base units."""
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            for resource, amount in pod_set.requests:
                total[resource] = total.get(resource, 0) + amount * pod_set.count
        return total

    @property
    def pods(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets)


@value(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One admission of one workload, from its hold to its release. Numbers count from 1."""

    workload: WorkloadId
    number: int
    state: AttemptState
    assignment: Assignment
    admitted_at: datetime
    sequence: int = 0
    """Of the decision that opened it; 0 until the ledger has given one."""
    debt: bool = False
    """It was found running: charged although nobody asked whether it fits."""


class Verb(StrEnum):
    START = "Start"
    STOP = "Stop"


class EffectKey(NamedTuple):
    """A Kubernetes write that a committed decision asks for. At most one of each verb per attempt."""

    workload: WorkloadId
    attempt: int
    verb: Verb


@value(frozen=True, slots=True, kw_only=True)
class StoredWorkload:
    """What the ledger remembers of a workload that is not over."""

    id: WorkloadId
    ref: ObjectRef
    queue: str
    cluster_queue: str | None
    priority: int
    created_at: datetime
    arrival: int
    """Order of first sight: breaks ties between workloads created in the same second."""
    phase: Phase
    attempts: int
    """How many attempts it has had, the open one included."""
    attempt: Attempt | None
    """The open one."""
    reason: Reason | None
    submitter: str | None = None
    past: Past = NOTHING
    preempted_at: tuple[datetime, ...] = ()
    """When it was preempted, oldest first: the last few within the eviction window (P11)."""


class ConfigKey(NamedTuple):
    """A policy object: kind, namespace (empty for cluster-scoped ones), name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


class UsageSum(NamedTuple):
    """A part of a LocalQueue's past usage, as its history adds it up (core/decay)."""

    local_queue: LocalQueueName
    period: int
    """Half-lives since 1970."""
    total: int


@value(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The open state of one cluster's ledger at one sequence."""

    sequence: int
    now: datetime | None
    """Time of the last commit."""
    workloads: tuple[StoredWorkload, ...] = ()
    configs: tuple[tuple[ConfigKey, str], ...] = ()
    """Spec in force, as canonical JSON."""
    effects: tuple[EffectKey, ...] = ()
    """Not yet acknowledged."""
    past_usage: tuple[UsageSum, ...] = ()
    """Of closed attempts (U5); empty if the configuration counts no past usage."""


@value(frozen=True, slots=True, kw_only=True)
class Effect:
    """A committed decision's Kubernetes write, with all that is needed to make it.

    `workload` and `observation` are the object as last read: the write names them, and is refused by the API
    server when the object has moved on.
    """

    key: EffectKey
    workload: Workload
    observation: Observation
    attempt: Attempt
    flavors: tuple[ResourceFlavor, ...]
    """Those the attempt is charged to, as they were when this was made."""
