"""Changes that are tried on a copy of the engine, and what it would decide then. Values for readers."""

from __future__ import annotations

from enum import StrEnum

from queuectl.core.model.policy import Condition
from queuectl.core.model.reasons import PreemptionCause, Reason
from queuectl.core.model.values import value
from queuectl.core.model.workload import Assignment, ObjectRef, WorkloadId


class Start(StrEnum):
    """Whether a workload starts."""

    NOW = "Now"
    AFTER_PREEMPTION = "AfterPreemption"  # when the pods of the workloads that it preempts have ended
    NOT_YET = "NotYet"
    NEVER = "Never"  # not under the policy in force: waiting does not help


@value(frozen=True, slots=True)
class DisplacedWorkload:
    """A workload that is evicted for another one."""

    workload: WorkloadId
    ref: ObjectRef
    cause: PreemptionCause | None


@value(frozen=True, slots=True, kw_only=True)
class Tried:
    """What the engine decides about one workload."""

    start: Start
    assignment: Assignment | None = None
    """Of a workload that starts now."""
    displaced: tuple[DisplacedWorkload, ...] = ()
    """In the order of eviction."""
    reason: Reason | None = None
    """Why it does not start now."""
    cluster_queue: str | None = None
    """Where it would be queued; None: nowhere, or it is queued already."""
    priority: int | None = None
    """The same."""

    @property
    def starts(self) -> bool:
        return self.start in (Start.NOW, Start.AFTER_PREEMPTION)


class ChangeKind(StrEnum):
    """What a counterfactual changes."""

    FEWER_PODS = "FewerPods"
    SMALLER_PODS = "SmallerPods"
    OTHER_FLAVOR = "OtherFlavor"
    OTHER_QUEUE = "OtherQueue"
    OTHER_PRIORITY = "OtherPriority"
    MORE_QUOTA = "MoreQuota"


@value(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a pending workload, or of the policy. Fields that its kind has no use for are None."""

    kind: ChangeKind
    pod_set: str | None = None
    """Of fewer or smaller pods."""
    resource: str | None = None
    """Of smaller pods, or more quota."""
    flavor: str | None = None
    """The flavor that its pods ask for, or that gets more quota."""
    node: str | None = None
    """The object that gets more quota, as `ClusterQueue/NAME`."""
    name: str | None = None
    """The other LocalQueue, or the other WorkloadPriorityClass."""
    before: int | None = None
    """Number of pods; or amount of one pod, nominal quota, or priority. In base units."""
    after: int | None = None


@value(frozen=True, slots=True)
class Counterfactual:
    """A change with which the workload starts: found by trying it (docs/answers.md, A9)."""

    change: Change
    outcome: Tried


@value(frozen=True, slots=True, kw_only=True)
class Counterfactuals:
    """The smallest change of each kind with which a pending workload starts, or a new one would."""

    sequence: int
    """Of the last decision in the state that they are about."""
    now: Tried
    """What is decided about it without any change."""
    found: tuple[Counterfactual, ...] = ()
    incomplete: tuple[ChangeKind, ...] = ()
    """Kinds of which not all changes were tried: they would have cost too much."""


class PolicyChange(StrEnum):
    """What becomes of a workload under another policy."""

    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    STRANDED = "Stranded"  # it waits, and under this policy waiting does not help
    OTHER_REASON = "OtherReason"  # it waits as before, for another reason


@value(frozen=True, slots=True, kw_only=True)
class ChangedOutcome:
    """A workload about which another policy decides something else."""

    workload: WorkloadId
    ref: ObjectRef
    change: PolicyChange
    assignment: Assignment | None = None
    """Of an admitted one."""
    reason: Reason | None = None
    """Of one that is not admitted: why it is evicted, or waits."""


@value(frozen=True, slots=True, kw_only=True)
class PlannedPolicy:
    """What is decided as soon as a policy is in force."""

    sequence: int
    """Of the last decision in the state that it is about."""
    affected: tuple[ChangedOutcome, ...]
    inactive: tuple[tuple[str, Condition], ...] = ()
    """ClusterQueues that would not be active any more, with their condition then."""
