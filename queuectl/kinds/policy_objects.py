"""The policy kinds, except UsageLimit and IdlePolicy, as the API server stores them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

from queuectl.kinds.policy_schema import (
    ATOMIC,
    SET,
    FlavorNodesModel,
    LabelKey,
    LabelValue,
    Name,
    ObjectPart,
    OrderedResourceGroups,
    ResourceGroups,
    RunSeconds,
    Seconds,
    Text,
    Weight,
    by_key,
    not_negative,
    rule,
    rules,
    without_cohort,
)
from queuectl.kinds.policy_status import ClusterQueueStatus, CohortStatus, LocalQueueStatus
from queuectl.kinds.reserved_keys import RESTRICTED_LABEL

GROUP: Final = "queuectl.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

StopPolicyName = Literal["None", "Hold", "HoldAndDrain"]
MAX_STOP_REASON: Final = 500
StopReason = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=MAX_STOP_REASON)] | None


# --- common parts -----------------------------------------------------------------------------------


class FairSharingSpec(ObjectPart):
    """Its weight in fair sharing."""

    model_config = ConfigDict(json_schema_extra=rules(not_negative("weight")))

    weight: Weight = 1
    """Relative to its siblings, the part of the borrowable quota that it is entitled to, such as 2 or "0.5":
    its share is what it borrows, divided by its weight. With 0 it borrows only what no sibling asks for."""


class LabelSelectorRequirement(ObjectPart):
    """A condition on the labels of a namespace."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                "In and NotIn need values, Exists and DoesNotExist have none",
                fieldPath=".values",
            )
        )
    )

    key: LabelKey
    """Key of a label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """In: the label has one of the values. NotIn: it has none of them, or does not exist. Exists and
    DoesNotExist: whatever its value."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=256, json_schema_extra=ATOMIC)] = ()
    """Values of the label. Required for In and NotIn, not allowed for Exists and DoesNotExist."""


class LabelSelectorModel(ObjectPart):
    """Selects namespaces by their labels. All conditions must hold; without any it selects all."""

    match_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    """Labels that the namespace must have, with these values. Each namespace has its name as
    kubernetes.io/metadata.name."""
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], Field(max_length=64, json_schema_extra=ATOMIC)
    ] = ()
    """Further conditions on the labels of the namespace."""


# --- ClusterQueue -----------------------------------------------------------------------------------


class FlavorFungibilitySpec(ObjectPart):
    """Whether a flavor that needs borrowing or preemption ends the evaluation of flavors, or the next one is
    tried. If the evaluation reaches the last flavor, the best of all is assigned."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.preference) || "
                "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
                "needs TryNextFlavor for both whenCanBorrow and whenCanPreempt",
                fieldPath=".preference",
            )
        )
    )

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """MayStopSearch: a flavor in which the workload fits by borrowing is assigned. TryNextFlavor: the next
    flavors are tried first, because one of them may fit without borrowing."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """MayStopSearch: a flavor in which the workload fits by preemption is assigned. TryNextFlavor: the next
    flavors are tried first, because one of them may fit without preemption."""
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which of two flavors is better, where one needs borrowing and the other preemption.
    BorrowingOverPreemption: the one that needs borrowing. PreemptionOverBorrowing: the other. Unset:
    BorrowingOverPreemption. Needs TryNextFlavor for whenCanBorrow and whenCanPreempt."""


class BorrowWithinCohortSpec(ObjectPart):
    """Whether a workload that has to borrow may preempt workloads of other ClusterQueues that borrow. Without
    it only a workload that stays within nominalQuota may. Not used in a cohort tree with fair sharing."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Never: it preempts none of them. LowerPriority: those of lower priority. Needs reclaimWithinCohort
    other than Never."""
    max_priority_threshold: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Only workloads of other ClusterQueues with at most this priority are preempted while borrowing. Unset:
    all of lower priority than the preemptor."""


class MinRunTimeSpec(ObjectPart):
    """Seconds for which a workload of this queue runs, from its admission on, before it may be preempted for
    a cause. Each cause has a time of its own; 0: no protection."""

    model_config = ConfigDict(alias_generator=None)

    in_cluster_queue: Annotated[Seconds, Field(alias="InClusterQueue")] = 0
    """Against workloads of its own ClusterQueue (withinClusterQueue), in seconds."""
    in_cohort_reclamation: Annotated[Seconds, Field(alias="InCohortReclamation")] = 0
    """Against ClusterQueues that reclaim their nominal quota (reclaimWithinCohort), in seconds."""
    in_cohort_fair_sharing: Annotated[Seconds, Field(alias="InCohortFairSharing")] = 0
    """Against ClusterQueues with a smaller share, in a tree with fair sharing, in seconds."""
    in_cohort_reclaim_while_borrowing: Annotated[Seconds, Field(alias="InCohortReclaimWhileBorrowing")] = 0
    """Against ClusterQueues that borrow themselves (borrowWithinCohort), in seconds."""


class PreemptionSpec(ObjectPart):
    """Which workloads a pending workload of this queue may preempt if it does not fit, and how long workloads
    of this queue are protected. By default it preempts none. Victims are suspended and pending again; their
    quota is released when their pods are gone, and is reserved for the preemptor."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.borrowWithinCohort) || !has(self.borrowWithinCohort.policy) || "
                "self.borrowWithinCohort.policy == 'Never' || self.reclaimWithinCohort != 'Never'",
                "must be Never while reclaimWithinCohort is Never",
                fieldPath=".borrowWithinCohort.policy",
            )
        )
    )

    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which workloads of other ClusterQueues of the cohort tree it may preempt, of those that use quota
    beyond what their own queues and cohorts have. Never: none. LowerPriority: those of lower priority.
    Any: all."""
    borrow_within_cohort: BorrowWithinCohortSpec | None = None
    """Whether a workload that has to borrow may preempt workloads of other ClusterQueues too. Unset:
    Never."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which workloads of its own ClusterQueue it may preempt. Never: none. LowerPriority: those of lower
    priority. LowerOrNewerEqualPriority: also those of equal priority that were created later."""
    min_run_time: MinRunTimeSpec | None = None
    """How long a workload of this queue runs before it may be preempted, by cause. Unset: no protection."""


class MaxExecutionTimeSpec(ObjectPart):
    """Seconds that a workload of the queue may run, summed over all its attempts. It is evicted then, and
    over."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.default) || !has(self.ceiling) || self.default <= self.ceiling",
                "must not be more than ceiling",
                fieldPath=".default",
            )
        )
    )

    default: RunSeconds | None = None
    """For workloads without the label queuectl.dev/max-exec-time-seconds, in seconds. A LocalQueue's is used
    before that of its ClusterQueue. Unset: the ceiling, and without one no limit."""
    ceiling: RunSeconds | None = None
    """The most that the label may have, in seconds: a workload with more is not admitted (reason
    Misconfigured). Of a LocalQueue and its ClusterQueue the lower one counts. Unset: no limit."""
    on_exceeded: Literal["Suspend", "Fail"] | None = None
    """What then becomes of a Job or a job of Kubeflow's training operator. Fail: its activeDeadlineSeconds
    become 1, and its controller fails it; if it has not after a minute, it is suspended. A LocalQueue's is
    used before that of its ClusterQueue. Unset, and for all other kinds: Suspend."""


class Requeuing(ObjectPart):
    """How long a workload waits after a failed start, and when it is deactivated."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.backoffBaseSeconds) || !has(self.backoffLimitSeconds) || "
                "self.backoffBaseSeconds <= self.backoffLimitSeconds",
                "must not be more than backoffLimitSeconds",
                fieldPath=".backoffBaseSeconds",
            )
        )
    )

    backoff_base_seconds: RunSeconds | None = None
    """Pause after the first failed start; it doubles with each further one. Unset: as configured."""
    backoff_limit_seconds: RunSeconds | None = None
    """Longest pause. Unset: as configured."""
    backoff_limit_count: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Consecutive failed starts after which a workload is deactivated. Unset: as configured."""
    jitter_percent: Annotated[int, Field(ge=0, le=100)] = 0
    """By how much a pause may be longer, different for each workload and failed start, so that workloads that
    failed together do not start together again."""


class WaitForPodsReadySpec(ObjectPart):
    """Until when the pods of a started workload must be ready. It is evicted then (PodsReadyTimeout), waits,
    and keeps its place. Replaces scheduling.waitForPodsReady of the configuration for this queue."""

    scheduling_timeout_seconds: RunSeconds | None = None
    """From its start until all its pods are bound to nodes. Unset: no limit."""
    startup_timeout_seconds: RunSeconds | None = None
    """From then until all its pods are ready: pulls of images, and starts of containers. Unset: no limit."""
    recovery_timeout_seconds: RunSeconds | None = None
    """For pods that were all ready once and are not any more. Unset: no limit."""
    requeuing: Requeuing = Requeuing()
    """How long a workload waits after a failed start, and when it is deactivated."""


class AdmissionCheckRule(ObjectPart):
    """An AdmissionCheck, and the flavors that require it. Not supported yet."""

    name: Name
    """An AdmissionCheck."""
    on_flavors: Annotated[tuple[Name, ...], Field(max_length=64, json_schema_extra=SET)] = ()
    """Flavors that require it; empty: all."""


class AdmissionChecksStrategy(ObjectPart):
    """The AdmissionChecks of its workloads. Not supported yet."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], Field(min_length=1, max_length=64, json_schema_extra=by_key("name"))
    ]
    """Each AdmissionCheck with the flavors that require it."""


class AdmissionScope(ObjectPart):
    """How its LocalQueues share it."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing: workloads of the LocalQueue with the smaller past usage, divided by its
    fairSharing.weight, are admitted first, before priority and age. NoAdmissionFairSharing: priority and age
    alone order them."""
    user_order: Literal["PastUsage", "None"] | None = None
    """PastUsage: in each LocalQueue, workloads of the user with the smaller past usage in it are admitted
    first. Counts with UsageBasedAdmissionFairSharing. Unset: None."""


class MigrationConstraints(ObjectPart):
    """Limits of a migration. Not supported yet."""

    last_acceptable_flavor_name: Name
    """The last flavor, in the order of the resource group, that a workload may get."""


class Migration(ObjectPart):
    """Whether an admitted workload moves to a flavor that comes earlier. Not supported yet."""

    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    """TryPreferredFlavors: it moves when an earlier flavor has room. RetainFirstAdmission: it does not."""
    constraints: MigrationConstraints | None = None
    """Limits of the migration."""


class ConcurrentAdmissionPolicy(ObjectPart):
    """Evaluation of several flavors of one workload at the same time. Not supported yet."""

    migration: Migration
    """What happens after the first flavor was admitted."""


class ClusterQueueSpec(ObjectPart):
    """A pool of quota, and its rules of admission."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            without_cohort("borrowingLimit", "cohortName"), without_cohort("lendingLimit", "cohortName")
        )
    )

    resource_groups: OrderedResourceGroups = ()
    """Quota of the queue, by group of resources and by flavor. A workload that requests a resource that no
    group covers is not admitted."""
    cohort_name: Name | None = None
    """The cohort that it is a member of: members lend each other unused quota. Unset: it neither lends nor
    borrows. A Cohort object of this name is not required."""
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """BestEffortFIFO: later workloads are admitted before a head that does not fit. StrictFIFO: they wait
    behind it (reason WaitingForHead)."""
    head_can_never_run: Literal["Block", "PassOver"] = "Block"
    """Under StrictFIFO. PassOver: a workload that can never run with the quota and flavors of the queue keeps
    no other one waiting. Block: the others wait behind it until it is changed or deleted."""
    namespace_selector: LabelSelectorModel | None = None
    """Namespaces that may use it through a LocalQueue. Unset: none; empty: all."""
    flavor_fungibility: FlavorFungibilitySpec = FlavorFungibilitySpec()
    """Whether a flavor that needs borrowing or preemption is assigned, or the next flavor is tried."""
    preemption: PreemptionSpec = PreemptionSpec()
    """Which workloads a pending workload of this queue may preempt if it does not fit, and how long workloads
    of this queue are protected. By default it preempts none. Victims are suspended and pending again; their
    quota is released when their pods are gone, and is reserved for the preemptor."""
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Not supported yet: a ClusterQueue with it admits nothing."""
    admission_checks: Annotated[tuple[Name, ...], Field(max_length=64, json_schema_extra=SET)] = ()
    """As in older objects of Kueue. Not supported yet: a ClusterQueue with it admits nothing."""
    stop_policy: StopPolicyName = "None"
    """None: it admits workloads. Hold: it admits none, and running ones continue. HoldAndDrain: it also
    evicts those that it has admitted; they are pending again."""
    stop_reason: StopReason = None
    """Why it is stopped; shown to those whose workloads wait for it."""
    max_execution_time: MaxExecutionTimeSpec | None = None
    """How long its workloads may run. Unset: as long as their label says."""
    wait_for_pods_ready: WaitForPodsReadySpec | None = None
    """Until when the pods of its workloads must be ready. Unset: scheduling.waitForPodsReady of the
    configuration."""
    fair_sharing: FairSharingSpec | None = None
    """Its weight among the members of its cohort, in a tree with fair sharing. Unset: weight 1."""
    admission_scope: AdmissionScope | None = None
    """Usage-based order of its LocalQueues, where the configuration has scheduling.admissionFairSharing.
    Unset: priority and age alone order its workloads."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Not supported yet: a ClusterQueue with it admits nothing."""


# --- Cohort -----------------------------------------------------------------------------------------


class CohortFairSharing(FairSharingSpec):
    """Fair sharing of its tree, if it is a root, and its weight in it otherwise."""

    enabled: bool | None = None
    """Whether its tree uses fair sharing. Unset: scheduling.fairSharing of the configuration decides. On a
    root only: Not supported beside parentName."""
    preemption_strategies: (
        Annotated[
            tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...],
            Field(
                min_length=1,
                max_length=2,
                json_schema_extra=ATOMIC
                | rules(
                    rule(
                        "size(self) < 2 || self == ['LessThanOrEqualToFinalShare', 'LessThanInitialShare']",
                        "must be one of the two, or both with LessThanOrEqualToFinalShare first",
                    )
                ),
            ),
        ]
        | None
    ) = None
    """When a workload may be preempted by fair sharing. LessThanOrEqualToFinalShare: the share of the
    preemptor's side, with the preemptor, is at most that of the victim's side without the victim.
    LessThanInitialShare: it is less than that of the victim's side with the victim. With both, the second is
    tried where the first does not free enough. Unset: as in the configuration. On a root only: Not supported
    beside parentName."""
    admission_order: Literal["PastUsage", "PresentUsage"] | None = None
    """PastUsage: of the members of each Cohort in its tree that do not borrow, then of those that do, the one
    with the smaller past usage, divided by its weight, is admitted first. It gives no right to preempt. Needs
    scheduling.admissionFairSharing in the configuration. PresentUsage: shares, or without fair sharing the
    borrow level, priority and age, order them. Unset: PresentUsage. On a root only: Not supported beside
    parentName."""


class CohortSpec(ObjectPart):
    """A node of the tree in which queues lend and borrow, with optional quota of its own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            without_cohort("borrowingLimit", "parentName"), without_cohort("lendingLimit", "parentName")
        )
    )

    parent_name: Name | None = None
    """The cohort above it, with which it lends and borrows. Unset: it is the root of its tree."""
    resource_groups: ResourceGroups = ()
    """Quota of the cohort itself, which all queues below it may borrow."""
    fair_sharing: CohortFairSharing | None = None
    """Fair sharing of its tree, if it is a root, and its weight among its siblings otherwise."""
    capacity_shortage: Literal["ByPriority", "ProRata"] | None = None
    """What nominal quotas of its tree count while usable nodes have less of a flavor and resource than all
    quotas promise, where nodes limit it. ByPriority: all of it, so that room on nodes decides in the order of
    the queues. ProRata: the part that nodes have of what is promised; what is in use above that counts as
    borrowed, and is reclaimed only as spec.preemption of the ClusterQueues says. Unset: ByPriority. On a root
    only: Not supported beside parentName."""


# --- ResourceFlavor -----------------------------------------------------------------------------------


class TaintSpec(ObjectPart):
    """A taint of nodes."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """NoSchedule or NoExecute: only workloads that tolerate the taint get the flavor. PreferNoSchedule: all
    do."""


class TolerationModel(ObjectPart):
    """A toleration of pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
                "must be Exists where key is empty",
                fieldPath=".operator",
            ),
            rule(
                "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
                "must be empty where operator is Exists",
                fieldPath=".value",
            ),
            rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "needs effect NoExecute",
                fieldPath=".tolerationSeconds",
            ),
        )
    )

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Key of the taints that it tolerates. Empty, with operator Exists: all keys."""
    operator: Literal["Exists", "Equal"] | None = None
    """Equal: taints with this value. Exists: taints with any value. Unset: Equal."""
    value: LabelValue | None = None
    """Value of the taints that it tolerates. Empty with operator Exists."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """NoSchedule, PreferNoSchedule or NoExecute: the effect of the taints that it tolerates. Empty or unset:
    all effects."""
    toleration_seconds: int | None = None
    """Seconds for which a taint with effect NoExecute is tolerated after it was added to a node. Unset:
    forever. Needs effect NoExecute."""


class ResourceFlavorSpec(ObjectPart):
    """The nodes of the flavor. Admitted workloads get its labels as node selector, and its tolerations."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
                "needs at least one of nodeLabels",
                fieldPath=".topologyName",
            ),
            rule(
                "!has(oldSelf.topologyName) || "
                "(has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
                "cannot be changed",
                fieldPath=".topologyName",
            ),
        )
    )

    node_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=8,
        json_schema_extra=rules(
            rule(
                "self.all(k, size(k) <= 317 && k.matches('^([-a-z0-9.]{1,253}/)?[-A-Za-z0-9_.]{1,63}$'))",
                "keys must be label names, such as example.com/accelerator",
            )
        ),
    )
    """Labels of its nodes. Admitted workloads get them as node selector, and workloads whose own node
    selector or required node affinity excludes them do not get the flavor. Empty: any node."""
    node_taints: Annotated[
        tuple[TaintSpec, ...], Field(max_length=8, json_schema_extra=by_key("key", "effect"))
    ] = ()
    """Taints of its nodes: only workloads that tolerate them, by themselves or by its tolerations, get it."""
    tolerations: Annotated[tuple[TolerationModel, ...], Field(max_length=8, json_schema_extra=ATOMIC)] = ()
    """Added to the pods of admitted workloads."""
    nodes: FlavorNodesModel | None = None
    """What its nodes limit beside the quota. Unset: the devices that they have, such as nvidia.com/gpu."""
    topology_name: Name | None = None
    """Not supported yet: a ClusterQueue that uses the flavor admits nothing."""


# --- LocalQueue ---------------------------------------------------------------------------------------


class LocalQueueSpec(ObjectPart):
    """A queue in a namespace, which points to one ClusterQueue."""

    cluster_queue: Annotated[
        Name, Field(json_schema_extra=rules(rule("self == oldSelf", "cannot be changed")))
    ]
    """The ClusterQueue that admits its workloads. It cannot be changed."""
    stop_policy: StopPolicyName = "None"
    """None: its workloads are admitted. Hold: none is, and running ones continue. HoldAndDrain: running ones
    are evicted too; they are pending again."""
    stop_reason: StopReason = None
    """Why it is stopped; shown to those whose workloads wait for it."""
    max_execution_time: MaxExecutionTimeSpec | None = None
    """How long its workloads may run, within what its ClusterQueue allows. Unset: as that says."""
    fair_sharing: FairSharingSpec | None = None
    """Its weight among the LocalQueues of a ClusterQueue with usage-based order. Unset: weight 1."""


# --- labels that are policy ---------------------------------------------------------------------------


class PolicyLabels(ObjectPart):
    """Labels of a policy object that are policy.

    By a label the API server finds what is restricted: it evaluates queuectl-use-* for nothing else.
    """

    restricted: Literal["true", "false"] = Field(alias=RESTRICTED_LABEL)
    """Whether only users with the RBAC verb use on the object may name it."""


class PolicyMetadata(ObjectPart):
    """What the metadata of a policy object says about policy."""

    labels: PolicyLabels


# --- whole objects ------------------------------------------------------------------------------------


class ClusterQueueObject(ObjectPart):
    """A pool of quota that namespaces use through LocalQueues."""

    spec: ClusterQueueSpec = ClusterQueueSpec()
    """Its quota and its rules of admission."""
    status: ClusterQueueStatus | None = None
    """Written by the controller, never read back."""


class CohortObject(ObjectPart):
    """A node of the tree in which ClusterQueues lend and borrow."""

    spec: CohortSpec = CohortSpec()
    """Its place in the tree, quota of its own, and fair sharing."""
    status: CohortStatus | None = None
    """Not written yet."""


class ResourceFlavorObject(ObjectPart):
    """A class of nodes with quota of its own."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()
    """The nodes of the flavor. Admitted workloads get its labels as node selector, and its tolerations."""


class WorkloadPriorityClassObject(ObjectPart):
    """Priority in the queue only: pods keep theirs. Workloads name it by label; those that name none have the
    one with the name `default`, if there is one."""

    metadata: SkipJsonSchema[PolicyMetadata | None] = None
    value: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
    """The priority. Workloads with larger values are admitted first, and may preempt those with smaller ones
    where the ClusterQueue allows it."""
    description: Text | None = None
    """When to use it, for users. It has no effect."""


class LocalQueueObject(ObjectPart):
    """A queue that workloads of its namespace name in their label queuectl.dev/queue-name."""

    metadata: SkipJsonSchema[PolicyMetadata | None] = None
    spec: LocalQueueSpec
    """The ClusterQueue that it points to, and whether it is stopped."""
    status: LocalQueueStatus | None = None
    """Written by the controller, never read back."""
