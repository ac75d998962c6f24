"""The schemas of answers about changes that were tried (docs/answers.md)."""

from __future__ import annotations

from pydantic import Field

from queuectl.api.schemas import AMOUNT, Admission, Committed, Condition, Document, Reason
from queuectl.core.reasons import PreemptionCause
from queuectl.core.what_if import ChangeKind, PolicyChange, Start


class Displaced(Document):
    """A workload that would be evicted."""

    namespace: str | None = Field(description="Null where the caller may not read it; so are kind and name.")
    kind: str | None
    name: str | None
    cause: PreemptionCause | None = Field(description="The rule (P2 to P9).")


class Outcome(Document):
    """What would be decided about a workload."""

    starts: Start
    displaces: tuple[Displaced, ...] = Field(description="In the order of eviction.")
    admission: Admission | None = Field(
        description="The quota that it would hold; null if it does not start now."
    )


class Fit(Document):
    """Another size of its pods (A24): the body of `POST …/fit`, and the options of `queuectl fit`."""

    gpus: int | None = Field(description="Devices of all its pods together.")
    pods: int | None
    pod_set: str | None = Field(description="Null: it need not be named.")


class Counterfactual(Outcome):
    """A change with which the workload starts: the smallest one of its kind."""

    kind: ChangeKind
    message: str = Field(description="The change in words.")
    pod_set: str | None
    resource: str | None
    flavor: str | None
    node: str | None = Field(description="The object that gets more quota, such as ClusterQueue/team-a.")
    target: str | None = Field(description="The other LocalQueue or WorkloadPriorityClass.")
    before: int | None = Field(description=f"Number of pods, nominal quota, priority. {AMOUNT}")
    after: int | None
    fit: Fit | None = Field(
        description="How to make this change of a workload that waits; it keeps its place. Null: it is no "
        "other size, its kind has no field for it, or the workload does not exist yet."
    )


class Counterfactuals(Committed):
    """What would let a workload start now. Each change was tried by the planner on a copy of the state."""

    tried_at: int = Field(description="Sequence of that state, which may be some seconds older.")
    now: Outcome = Field(description="Without any change.")
    items: tuple[Counterfactual, ...]
    incomplete: tuple[ChangeKind, ...] = Field(
        description="Kinds of which not all changes were tried, because they would cost too much."
    )


class Affected(Document):
    """A workload about which the other policy decides something else."""

    namespace: str
    kind: str
    name: str
    change: PolicyChange
    reason: Reason | None = Field(description="Of an evicted or stranded one.")
    admission: Admission | None = Field(description="Of an admitted one.")


class Inactive(Document):
    """A ClusterQueue that would not admit workloads any more."""

    cluster_queue: str
    condition: Condition


class PlannedPolicy(Committed):
    """What another policy decides as soon as it is in force. Nothing is written."""

    tried_at: int = Field(description="Sequence of the state that it was tried on.")
    admitted: int
    evicted: int
    stranded: int = Field(description="Pending workloads that waiting does not help any more.")
    items: tuple[Affected, ...] = Field(
        description="The first 1,000 by name. A workload may be evicted, and then admitted or stranded."
    )
    inactive: tuple[Inactive, ...]


class Threat(Document):
    """Pending workloads of a ClusterQueue that might preempt it as soon as it runs."""

    cluster_queue: str | None = Field(description="Null for all together that the caller may not read.")
    cause: PreemptionCause
    pending: int


class Quote(Counterfactuals):
    """What would be decided about a new workload. Nothing is written."""

    reason: Reason | None = Field(description="Why it would not start now.")
    cluster_queue: str | None = Field(description="Where it would be queued; null: nowhere.")
    priority: int | None
    ahead: int | None = Field(description="Pending workloads of that ClusterQueue that come before it.")
    borrows: dict[str, dict[str, int]] = Field(
        description=f"By flavor and resource, what its ClusterQueue would use beyond its own quota. {AMOUNT}"
    )
    threats: tuple[Threat, ...] = Field(description="Which queues might take it back, if it starts.")
