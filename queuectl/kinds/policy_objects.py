"""The five policy kinds as the API server stores them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from queuectl.kinds.policy_schema import (
    ATOMIC,
    SET,
    LabelKey,
    LabelValue,
    Name,
    Part,
    ResourceGroups,
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

GROUP: Final = "queuectl.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

StopPolicyName = Literal["None", "Hold", "HoldAndDrain"]


# --- common parts -----------------------------------------------------------------------------------


class FairSharing(Part):
    model_config = ConfigDict(json_schema_extra=rules(not_negative("weight")))

    weight: Weight = 1
    """Weight of its share of borrowable quota. 0: served after all others."""


class LabelSelectorRequirement(Part):
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
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Field(max_length=256, json_schema_extra=ATOMIC)] = ()


class LabelSelectorModel(Part):
    match_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], Field(max_length=64, json_schema_extra=ATOMIC)
    ] = ()


# --- ClusterQueue -----------------------------------------------------------------------------------


class FlavorFungibility(Part):
    """Whether to use a flavor that needs borrowing or preemption, or to try the next one."""

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
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None


class BorrowWithinCohort(Part):
    policy: Literal["Never", "LowerPriority"] = "Never"
    max_priority_threshold: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Only workloads of at most this priority are victims."""


class MinRunTime(Part):
    """Seconds that a workload runs at least before it may be preempted for a cause."""

    model_config = ConfigDict(alias_generator=None)

    in_cluster_queue: Annotated[Seconds, Field(alias="InClusterQueue")] = 0
    in_cohort_reclamation: Annotated[Seconds, Field(alias="InCohortReclamation")] = 0
    in_cohort_fair_sharing: Annotated[Seconds, Field(alias="InCohortFairSharing")] = 0
    in_cohort_reclaim_while_borrowing: Annotated[Seconds, Field(alias="InCohortReclaimWhileBorrowing")] = 0


class Preemption(Part):
    """Which workloads a workload of this queue may preempt."""

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
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    min_run_time: MinRunTime | None = None


class AdmissionCheckRule(Part):
    name: Name
    """An AdmissionCheck."""
    on_flavors: Annotated[tuple[Name, ...], Field(max_length=64, json_schema_extra=SET)] = ()
    """Flavors that require it; empty: all."""


class AdmissionChecksStrategy(Part):
    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], Field(min_length=1, max_length=64, json_schema_extra=by_key("name"))
    ]


class AdmissionScope(Part):
    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]


class MigrationConstraints(Part):
    last_acceptable_flavor_name: Name


class Migration(Part):
    mode: Literal["TryPreferredFlavors", "RetainFirstAdmission"]
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(Part):
    migration: Migration


class ClusterQueueSpec(Part):
    """A pool of quota, and its rules of admission."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            without_cohort("borrowingLimit", "cohortName"), without_cohort("lendingLimit", "cohortName")
        )
    )

    resource_groups: ResourceGroups = ()
    cohort_name: Name | None = None
    """Members of a cohort lend each other unused quota. A Cohort object is not required."""
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """BestEffortFIFO admits later workloads before a head that does not fit, StrictFIFO does not."""
    namespace_selector: LabelSelectorModel | None = None
    """Namespaces that may use it. Unset: none; empty: all."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: Preemption = Preemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Not supported yet: a ClusterQueue with it admits nothing."""
    admission_checks: Annotated[tuple[Name, ...], Field(max_length=64, json_schema_extra=SET)] = ()
    """As in older objects of Kueue. Not supported yet: a ClusterQueue with it admits nothing."""
    stop_policy: StopPolicyName = "None"
    """Hold stops admission, HoldAndDrain also evicts admitted workloads."""
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    """Usage-based order of its LocalQueues, where the configuration has scheduling.admissionFairSharing."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Not supported yet: a ClusterQueue with it admits nothing."""


# --- Cohort -----------------------------------------------------------------------------------------


class CohortFairSharing(FairSharing):
    enabled: bool | None = None
    """Whether its tree uses fair sharing. On a root only: Not supported beside parentName."""
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
    """How its tree selects victims by fair sharing. On a root only: Not supported beside parentName."""


class CohortSpec(Part):
    """A node of the tree in which queues lend and borrow, with optional quota of its own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            without_cohort("borrowingLimit", "parentName"), without_cohort("lendingLimit", "parentName")
        )
    )

    parent_name: Name | None = None
    """The parent cohort; unset: this is a root."""
    resource_groups: ResourceGroups = ()
    """Quota of the cohort itself, which all below may borrow."""
    fair_sharing: CohortFairSharing | None = None


# --- ResourceFlavor -----------------------------------------------------------------------------------


class TaintModel(Part):
    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TolerationModel(Part):
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
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class ResourceFlavorSpec(Part):
    """A class of nodes. Admitted workloads get its labels as node selector, and its tolerations."""

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
    """Labels of its nodes."""
    node_taints: Annotated[
        tuple[TaintModel, ...], Field(max_length=8, json_schema_extra=by_key("key", "effect"))
    ] = ()
    """Taints of its nodes: only workloads that tolerate them, by themselves or by its tolerations, get it."""
    tolerations: Annotated[tuple[TolerationModel, ...], Field(max_length=8, json_schema_extra=ATOMIC)] = ()
    """Added to the pods of admitted workloads."""
    topology_name: Name | None = None
    """Not supported yet: a ClusterQueue that uses the flavor admits nothing."""


# --- LocalQueue ---------------------------------------------------------------------------------------


class LocalQueueSpec(Part):
    """A queue in a namespace, which points to one ClusterQueue."""

    cluster_queue: Annotated[
        Name, Field(json_schema_extra=rules(rule("self == oldSelf", "cannot be changed")))
    ]
    stop_policy: StopPolicyName = "None"
    """Hold stops admission from this queue, HoldAndDrain also evicts its admitted workloads."""
    fair_sharing: FairSharing | None = None


# --- whole objects ------------------------------------------------------------------------------------


class ClusterQueueObject(Part):
    """A pool of quota that namespaces use through LocalQueues."""

    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus | None = None


class CohortObject(Part):
    """A node of the tree in which ClusterQueues lend and borrow."""

    spec: CohortSpec = CohortSpec()
    status: CohortStatus | None = None


class ResourceFlavorObject(Part):
    """A class of nodes with quota of its own."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class WorkloadPriorityClassObject(Part):
    """Priority in the queue only: pods keep theirs. Workloads name it by label."""

    value: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
    """Larger values are admitted first."""
    description: Text | None = None


class LocalQueueObject(Part):
    """Points to the ClusterQueue for workloads of this namespace."""

    spec: LocalQueueSpec
    status: LocalQueueStatus | None = None
