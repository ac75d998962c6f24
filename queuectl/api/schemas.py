"""The schema of every answer; the OpenAPI document is made from these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from queuectl.answers.explanation import AheadSize, BindingLimit, Holder, Lent, Readiness, WorkloadName
from queuectl.answers.outcomes import WorkloadEnd
from queuectl.core.decisions import Verdict
from queuectl.core.model.device_use import UseVerdict
from queuectl.core.model.policy import OnExceeded, QueueingStrategy, StopPolicy, Taint
from queuectl.core.model.reasons import (
    Code,
    ExcludedNodes,
    Family,
    Limit,
    NodeFinding,
    PreemptionCause,
    RejectedCandidate,
)
from queuectl.core.model.workload import Phase

AMOUNT = "In base units: thousandths of a cpu, bytes of memory, devices, pods."
RESOURCE_SECONDS = "What it held, by resource: base units times seconds, such as GPU-seconds (as `usage`)."


class Document(BaseModel):
    """What is made from a value has the fields of the same names; documents in it are made from those too.

    A dataclass, as most of `queuectl.answers`, may stand in it as it is: its docstrings describe it.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=False,
        from_attributes=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def of(cls, **values: Any) -> Self:
        """As the constructor; the type checker does not know that documents are made from other values."""
        return cls(**values)


Amounts = Annotated[dict[str, int], BeforeValidator(dict)]
"""Made from a mapping or from pairs."""
Labels = Annotated[dict[str, str], BeforeValidator(dict)]
"""The same."""


class Reason(Document):
    """Why a workload is pending or was evicted: a code of a closed list, and its numbers.

    Numbers and times are those of the last decision, which is recorded when the code, the limit or another
    text changes; `available` and `shortBy` are current where the quota of a ClusterQueue binds. Where
    `limit` is spec.hours, amounts are of hours.
    """

    code: Code
    family: Family = Field(description="Whether waiting helps.")
    message: str = Field(description="One sentence made from the fields.")
    flavor: str | None
    resource: str | None
    requested: int | None = Field(description=AMOUNT)
    available: int | None = Field(description=AMOUNT)
    short_by: int | None = Field(description=f"What is missing at `node`. {AMOUNT}")
    reserved: bool = Field(description="What is available is reserved for workloads ahead of it.")
    awaited: int | None = Field(description="How many workloads have to end first.")
    until: datetime | None = Field(
        description="When its pause ends, or the first protection of workloads that it might preempt, as of "
        "the decision; if that is over, a later one is in its way. Or when it, or the first workload that is "
        "equal to it, may get another flavor, or this one again."
    )
    limit: Limit | None = Field(description="The field of the policy that bound.")
    node: str | None = Field(description="The object that bound, such as ClusterQueue/team-a.")
    cause: PreemptionCause | None
    by: str | None = Field(
        description="The preemptor as namespace/kind/name, or the user or client that caused this. Null also "
        "where the caller may not read that workload."
    )
    detail: str | None
    considered: str | None = Field(
        description="The workloads it could have preempted and why none was enough, in numbers."
    )
    victims: tuple[RejectedCandidate, ...] = Field(description="The first few of those workloads.")
    pods: int | None = Field(description="How many pods nodes must have room for.")
    pods_fit: int | None = Field(description="How many of them would have fit, as of the decision.")
    nodes: tuple[NodeFinding | ExcludedNodes, ...] = Field(
        description="The nodes that came closest, then those that its pods cannot use, most first."
    )
    others: tuple[Reason, ...] = Field(description="The same for the other flavors that were tried.")


class PodSet(Document):
    name: str
    count: int
    requests: Amounts = Field(description=f"Of one pod. {AMOUNT}")
    flavors: Labels = Field(description="Flavor by resource.")


class Admission(Document):
    """The quota that a workload holds."""

    cluster_queue: str
    pod_sets: tuple[PodSet, ...]


class NamedDocument(Document):
    """About one workload."""

    namespace: str
    kind: str
    name: str
    uid: str


class DeviceVerdict(Document):
    """What an admitted workload does with its devices, by its last checks (docs/accounting.md)."""

    verdict: UseVerdict
    since: datetime
    devices: int
    idle_devices: int = Field(description="Of these, how many are idle or hang.")


class LoweredBy(Document):
    """A policy has lowered the priority of a workload (docs/scheduling.md, O8)."""

    policy: str = Field(description="Such as `Budget/lab`.")
    priority_class: str = Field(description="The WorkloadPriorityClass that it has the priority of.")


class Workload(NamedDocument):
    queue: str = Field(description="LocalQueue in the workload's namespace.")
    cluster_queue: str | None
    phase: Phase
    priority: int = Field(description="That counts: of its class, or lower.")
    lowered: tuple[LoweredBy, ...] = Field(description="What lowers its priority now.")
    position: int | None = Field(
        description="From 1, in its ClusterQueue, as workloads are admitted when quota becomes available. "
        "Null outside the pending queue. Where past usage orders the LocalQueues, the first 1,000 workloads "
        "have one, at most some seconds old."
    )
    created_at: datetime
    submitter: str | None
    requests: Amounts = Field(
        description=f"Of all its pods: of the open attempt, else as its user requests them. {AMOUNT}"
    )
    labels: dict[str, str] = Field(description="Of its object at its last enqueue; at most 64.")
    attempts: int = Field(description="Admissions so far, the open one included.")
    attempt: int | None = Field(description="Number of the open one.")
    admitted_at: datetime | None
    pods: int = Field(
        description="Of the open attempt, without those that ended for good; else as its user requests them."
    )
    pods_ready: int | None = Field(
        description="How many of them are ready, by the status of the object, at most some seconds old; of "
        "Kubeflow's kinds: how many run. Null without an open attempt, and where the status does not say."
    )
    use: DeviceVerdict | None = Field(description="Null: it holds no devices, or these are not checked.")
    reason: Reason | None
    admission: Admission | None
    end: WorkloadEnd | None = Field(description="Null: it is not over, or its history is not kept any more.")


class Controller(Document):
    """The leading controller. It commits every 10 s at least, also if there is nothing to decide."""

    last_seen: datetime = Field(description="When it last committed, by the clock of the ledger.")
    seconds: float = Field(description="Since then. Above 30 no controller runs.")


class Committed(Document):
    """The committed state of the ledger that an answer comes from."""

    sequence: int = Field(description="Of the last decision in this state.")
    age_seconds: float = Field(description="Since the ledger last confirmed that this is its newest state.")
    controller: Controller
    stale: bool = Field(False, description="Present and true while the ledger cannot be reached.")
    observed: bool = Field(
        False,
        description="Present and true if these are decisions of an observer: none of them was carried out.",
    )


class RequestedPods(Document):
    """A podset as its user requests it."""

    name: str
    count: int
    min_count: int | None = Field(description="Least number of pods that it may start with; null: all.")
    requests: Amounts = Field(description=f"Of one pod. {AMOUNT}")


class WorkloadDetail(Workload, Committed):
    pod_sets: tuple[RequestedPods, ...] = Field(
        description="What it requests, as of the decision that queued it last."
    )
    booked: dict[str, str | None] | None = Field(
        description="What its open attempt is booked on (B1, B2): user, submitter and account keys. Null "
        "without one."
    )
    line: int | None = Field(description="Length of the pending queue that it is in.")
    ahead: tuple[WorkloadName, ...] = Field(
        description="The nearest workloads before it there, the nearest last."
    )
    ahead_size: AheadSize | None = Field(description="Null outside the pending queue.")
    limits: tuple[BindingLimit, ...] = Field(
        description="Every limit that binds, for each flavor that the reason names: the nearest node first."
    )
    holders: tuple[Holder, ...] = Field(
        description="Largest holders of the missing quota, below the node; or the workloads evicted for it."
    )
    more_holders: int = Field(description="How many more hold some of it.")
    lent: Lent | None = Field(
        description="If the queue's own quota that the workload lacks is lent to others; else null."
    )
    help: str | None = Field(description="What would let it run.")
    links: dict[str, str] = Field(description="By title: of `api.links`, for this workload.")
    readiness: Readiness | None = Field(
        description="The clock of waitForPodsReady that runs. Null if none does: its pods are ready, its "
        "status does not say, or there is no limit."
    )
    pods_missing: str | None = Field(
        description="Which pods of a group that runs do not exist, at most some seconds old: names or "
        "indices where labels tell them, else how many of which podset. Null: none is known to be missing."
    )


class Condition(Document):
    reason: str
    message: str


class Quota(Document):
    flavor: str
    resource: str
    nominal: int = Field(description=AMOUNT)
    effective: int = Field(
        description="What counts of nominal: less while nodes have less than is promised, in a tree with "
        "capacityShortage ProRata (M11)."
    )
    used: int = Field(description="Held by admitted workloads, and by evicted ones until all pods are gone.")
    free: int = Field(
        description="Of a ClusterQueue: the largest request of a new workload that starts now without "
        "preemption, by quota and by usable nodes; 0 where none can start (A40). Of a cohort: what none of "
        "the queues below uses."
    )


class QueueQuota(Quota):
    borrowed: int = Field(description="Used beyond its own quota.")
    lent: int = Field(description="Of its own quota, used by others: the sum of `lentTo` in `/share`.")


class Warned(Document):
    """Quota and nodes that do not belong together (M15), or a head that can never run (C4)."""

    code: str
    resource: str | None
    message: str


class MaxExecutionTime(Document):
    """Seconds that a workload of a queue may run, over all its attempts."""

    default: int | None = Field(description="For workloads without a label of their own; null: the ceiling.")
    ceiling: int | None = Field(description="The most that a label may allow; null: no limit.")
    on_exceeded: OnExceeded | None = Field(
        description="What then becomes of the object; null: as the ClusterQueue says, else it is suspended."
    )


class ClusterQueue(Document):
    name: str
    cohort: str | None
    active: bool
    condition: Condition
    stop_policy: StopPolicy
    queueing_strategy: QueueingStrategy
    max_execution_time: MaxExecutionTime
    pending: int
    admitted: int
    flavors: tuple[QueueQuota, ...]
    warnings: tuple[Warned, ...] = Field(
        description="About its head, and its flavors and resources as of a few seconds ago."
    )


class ClusterQueueDetail(ClusterQueue, Committed):
    spec: dict[str, Any] | None = Field(description="Of its object, with defaults. Null: there is none.")


class LocalQueue(Document):
    namespace: str
    name: str
    cluster_queue: str
    active: bool
    condition: Condition
    stop_policy: StopPolicy
    max_execution_time: MaxExecutionTime
    pending: int
    admitted: int


class LocalQueueDetail(LocalQueue, Committed):
    pass


class Decision(Document):
    """One row of the ledger."""

    sequence: int
    time: datetime
    cycle: int
    epoch: int = Field(description="The leadership term in which it was decided.")
    verdict: Verdict
    attempt: int | None
    reason: Reason | None
    details: dict[str, Any]


class WorkloadDecision(Decision):
    resource_seconds: dict[str, int] | None = Field(
        description=f"Null, or of the attempt that it ended: {RESOURCE_SECONDS}"
    )


class Remark(Document):
    """An event or a decision of one workload."""

    time: datetime
    what: str = Field(
        description="decided; or requested, acknowledged or withdrawn, of a write to its object."
    )
    detail: str = Field(description="The decision with its attempt and reason, or the write and its attempt.")


class LedgerDecision(Decision):
    """One row of the ledger and its workload; null for decisions that are not about a workload."""

    namespace: str | None
    kind: str | None
    name: str | None
    uid: str | None


class Cohort(Document):
    name: str
    parent: str | None
    explicit: bool = Field(description="There is a Cohort object; otherwise only nodes below it name it.")
    active: bool
    condition: Condition
    cluster_queues: int = Field(description="At any depth below it.")
    pending: int = Field(description="In all of them.")
    admitted: int
    flavors: tuple[Quota, ...] = Field(description="Its own quota and that of all nodes below it, summed.")


class CohortDetail(Cohort, Committed):
    pass


class Toleration(Document):
    key: str | None
    operator: str | None
    value: str | None
    effect: str | None
    toleration_seconds: int | None


class FlavorResource(Document):
    resource: str
    nominal: int = Field(description=f"In all ClusterQueues and Cohorts. {AMOUNT}")
    used: int


class ResourceFlavor(Document):
    name: str
    node_labels: Labels
    node_taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    resources: tuple[FlavorResource, ...]


class ResourceFlavorDetail(ResourceFlavor, Committed):
    pass


Item = TypeVar("Item", bound=Document)


class Page(Committed, Generic[Item]):
    """One page of a list. It may be shorter than its limit; there are more pages as long as `next` is set."""

    items: tuple[Item, ...]
    next: str | None = Field(description="The value of the parameter `next` for the following page.")


class Decisions(Page[LedgerDecision]):
    epoch: int = Field(
        description="The leadership term of this state; 0 with `asOf`. A sequence names one decision within "
        "it: after a restore of the ledger other decisions have the sequences of those that were lost."
    )


class Problem(BaseModel):
    """An error, in the form of RFC 9457."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    audiences: tuple[str, ...] | None = Field(
        default=None, description="With 401: the token must be for one of these audiences."
    )


class Health(Document):
    status: str
    detail: str | None = None
    controller: Controller | None = None
