"""Scenario documents (`format: scenario/v1`): objects, workloads, and the decisions expected for them.

docs/policy-tests.md explains the fields.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StrictBool

from queuectl.core.model.budgets import BudgetEntry, BudgetSum
from queuectl.core.model.policy import (
    DEFAULT_CONFIGURATION,
    STRATEGIES,
    PreemptionStrategy,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.core.model.resources import PodResources
from queuectl.core.model.workload import StoredWorkload, UsageSum
from queuectl.kinds.requests import counted, pod_resources
from queuectl.kinds.scheduling_sections import NodeSettings, ResourceSettings
from queuectl.scenarios.fields import (
    Amounts,
    Duration,
    Name,
    Priority,
    Quantities,
    ReasonCode,
    Reference,
    ScenarioPart,
    Text,
    Time,
    Whole,
)
from queuectl.scenarios.nodes import MOST_NODES, MOST_PODS, NodeChange, NodeModel, PodModel

FORMAT: Final = "scenario/v1"
KINDS: Final = ("cycle", "simulation")
START: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""The clock of a document without `now`."""


# --- configuration -----------------------------------------------------------------------------------


class ScenarioFairSharing(ScenarioPart):
    enabled: StrictBool = False
    preemption_strategies: tuple[Literal[tuple(map(str, STRATEGIES))], ...] | None = None  # type: ignore[valid-type]

    @property
    def strategies(self) -> tuple[PreemptionStrategy, ...]:
        return (
            tuple(map(PreemptionStrategy, self.preemption_strategies))
            if self.preemption_strategies
            else STRATEGIES
        )


class ScenarioAdmissionFairSharing(ScenarioPart):
    enabled: StrictBool = True
    usage_half_life_time: Duration = 0
    usage_sampling_interval: Duration = 300
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    initial_usage: dict[Reference, Amounts] = Field(default_factory=dict)
    """Decayed past usage of LocalQueues, by NAMESPACE/NAME."""


class LedgerConfig(ScenarioPart):
    """What a dump has of the component: used instead of the other settings."""

    scheduling: SchedulingConfiguration = DEFAULT_CONFIGURATION
    past_usage: tuple[UsageSum, ...] = ()
    budget_sums: tuple[BudgetSum, ...] = ()
    budget_entries: tuple[BudgetEntry, ...] = ()


class Config(ScenarioPart):
    """The component's own configuration, and how the document is run."""

    now: Time = START
    cycles: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 1
    """A cycle evaluates at most the head of each ClusterQueue."""
    fair_sharing: ScenarioFairSharing = ScenarioFairSharing()
    """For cohort trees whose root does not set it."""
    admission_fair_sharing: ScenarioAdmissionFairSharing | None = None
    resources: ResourceSettings = ResourceSettings()
    """`excludeResourcePrefixes` and `transformations`, as in the configuration."""
    nodes: NodeSettings = NodeSettings()
    """Which nodes count as capacity, as in the configuration."""
    ledger: LedgerConfig | None = None
    """Of a dump."""


# --- workloads ---------------------------------------------------------------------------------------


class ScenarioPodSet(ScenarioPart):
    name: Name = "main"
    count: Whole = 1
    min_count: Whole | None = None
    requests: Quantities = Field(default_factory=dict)
    """Requests of one pod."""
    containers: tuple[dict[str, Any], ...] | None = None
    """As in a pod; used instead of `requests`."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = Field(default_factory=dict)

    @property
    def charged(self) -> tuple[tuple[str, int], ...]:
        """Requests of one pod, in base units. Raises RequestProblem or BadField."""
        return counted(self.pod, self.name)

    @property
    def pod(self) -> PodResources:
        """The resources of one pod. Raises RequestProblem or BadField."""
        whole = {"name": "main", "resources": {"requests": self.requests}}
        return pod_resources({"containers": self.containers or (whole,)}, self.name)


class PodSetAdmission(ScenarioPart):
    count: Whole | None = None
    """None: the count of the podset."""
    flavors: dict[str, str]
    """Flavor by resource."""
    usage: Amounts | None = None
    """Usage of all pods; None: their requests. With `count`, a whole number of base units for each pod."""
    nodes: Annotated[tuple[Name, ...], Field(max_length=MOST_PODS)] = ()
    """For each of its bound pods, the node. The others are not bound yet."""


class ScenarioAdmission(ScenarioPart):
    cluster_queue: Name
    pod_sets: Annotated[dict[str, PodSetAdmission], Field(min_length=1)]


class Happened(ScenarioPart):
    reason: Text
    at: Time


class ScenarioWorkload(ScenarioPart):
    name: Name
    namespace: Name = "default"
    uid: Text | None = None
    """Orders victims that are otherwise equal."""
    queue: Name | None = None
    """A LocalQueue of its namespace."""
    cluster_queue: Name | None = None
    """Instead of `queue`: the ClusterQueue in which it is pending, without a LocalQueue."""
    priority: Priority = 0
    created_at: Time | None = None
    """None: older than all others, in the order of the document."""
    pod_sets: tuple[ScenarioPodSet, ...]
    state: Literal["pending", "quotaReserved", "admitted"]
    admission: ScenarioAdmission | None = None
    quota_reserved_at: Time | None = None
    admitted_at: Time | None = None
    evicted: Happened | None = None
    ledger: StoredWorkload | None = None
    """Of a dump: all that the ledger has of it, which counts instead of the fields above."""

    @property
    def reference(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def holds(self) -> bool:
        return self.state != "pending"


# --- expected decisions --------------------------------------------------------------------------------


class PodSetAdmitted(ScenarioPart):
    count: Whole | None = None
    flavors: dict[str, str] | None = None
    usage: Amounts | None = None


class Admitted(ScenarioPart):
    cluster_queue: str | None = None
    pod_sets: dict[str, PodSetAdmitted] | None = None
    state: Literal["quotaReserved", "admitted"] | None = None


class ScenarioVictim(ScenarioPart):
    workload: Reference
    reason: PreemptionCause | None = None
    by: Reference | None = None
    cluster_queue: str | None = None


class Evicted(ScenarioPart):
    workload: Reference
    reason: Code | None = None


class Expect(ScenarioPart):
    """Fields that are absent are not compared."""

    admitted: dict[Reference, Admitted] | None = None
    preempted: tuple[ScenarioVictim, ...] | None = None
    evicted: tuple[Evicted, ...] | None = None
    finished: tuple[Reference, ...] | None = None
    pending: dict[str, tuple[Reference, ...]] | None = None
    """By ClusterQueue. All pending workloads are here and in `inadmissible` together."""
    inadmissible: dict[str, tuple[Reference, ...]] | None = None
    holding: dict[Reference, str] | None = None
    """ClusterQueue by workload, at the end."""
    reasons: dict[Reference, ReasonCode] | None = None
    """Reasons of pending workloads; other workloads may have one too."""
    skipped_preemptions: dict[str, Whole] | None = None
    """By ClusterQueue: heads whose victims were preempted for others in the same cycle."""


# --- documents ------------------------------------------------------------------------------------------


class ScenarioStep(ScenarioPart):
    do: Literal["cycle", "deleteWorkloads", "requeueInadmissible"] | NodeChange
    workloads: tuple[Reference, ...] = ()
    """Workloads to delete."""
    nodes: Annotated[tuple[Name, ...], Field(max_length=MOST_NODES)] = ()
    """Nodes that fail, return, are cordoned, uncordoned or removed: `nodes[].name`, or one of its nodes."""
    expect: Expect | None = None


class Header(ScenarioPart):
    """Fields of all documents."""

    model_config = ConfigDict(extra="ignore")

    format: Literal["scenario/v1"]
    kind: Text
    id: Text | None = None
    name: Text
    table: Text | None = None

    @property
    def title(self) -> str:
        return self.id or self.name


class ScenarioDocument(Header):
    """A document that can be run."""

    model_config = ConfigDict(extra="forbid")

    tags: tuple[str, ...] = ()
    config: Config = Config()
    objects: tuple[dict[str, Any], ...] = ()
    """Manifests of our kinds, Kueue's kinds, Namespaces and Nodes; each replaces one of that name in other
    files."""
    nodes: Annotated[tuple[NodeModel, ...], Field(max_length=MOST_NODES)] = ()
    """Nodes, in addition to those in `objects`."""
    pods: Annotated[tuple[PodModel, ...], Field(max_length=MOST_PODS)] = ()
    """Pods of no queue."""
    workloads: tuple[ScenarioWorkload, ...]


class Cycle(ScenarioDocument):
    kind: Literal["cycle"]
    steps: tuple[ScenarioStep, ...] = ()
    """Instead of `config.cycles`."""
    expect: Expect | None = None
    """None: decisions are shown, not compared."""
