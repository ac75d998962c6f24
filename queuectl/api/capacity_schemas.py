"""The schemas of capacity and demand."""

from __future__ import annotations

from pydantic import Field

from queuectl.api.schemas import AMOUNT, Committed, Document
from queuectl.core.capacity import AwaitedLimit
from queuectl.core.nodes.inventory import NodeState
from queuectl.core.nodes.warnings import WarningCode
from queuectl.core.policy import CapacityMode

NAMESPACES = "Namespaces that the caller may not read, and those after the first 50, are one item with null."


class Warned(Document):
    """Quota and nodes that do not belong together (rule M15)."""

    code: WarningCode
    resource: str | None
    message: str


class Unmanaged(Document):
    namespace: str | None
    amount: int = Field(description=AMOUNT)


class FreeShape(Document):
    """So many ready nodes have so much free each."""

    free: int = Field(description=AMOUNT)
    nodes: int


class ResourceCapacity(Document):
    resource: str
    mode: CapacityMode
    nominal: int = Field(description=f"Quota of all ClusterQueues and Cohorts. {AMOUNT}")
    allocatable: dict[NodeState, int] = Field(description=f"By state of the nodes. {AMOUNT}")
    used: int = Field(description="By bound pods of workloads.")
    unmanaged: int = Field(description="By bound pods that belong to no workload.")
    unmanaged_by: tuple[Unmanaged, ...] = Field(description=f"The same by namespace. {NAMESPACES}")
    expected: int = Field(
        description="By pods of admitted workloads that are not bound yet; 0 where nodes limit no admission."
    )
    free: int = Field(description="On ready nodes, beside all of these.")
    headroom: int = Field(description="What the flavor keeps free of that.")
    shapes: tuple[FreeShape, ...] = Field(
        description="How it is spread, most first: at most 16 different amounts."
    )


class Capacity(Document):
    """The nodes of one flavor. A node that matches two flavors counts for both."""

    flavor: str | None = Field(description="null: nodes that match no ResourceFlavor.")
    nodes: dict[NodeState, int] = Field(description="Their number by state.")
    resources: tuple[ResourceCapacity, ...] = Field(
        description="Those that quota is promised for, and the devices of the nodes."
    )
    warnings: tuple[Warned, ...]


class CapacityDetail(Capacity, Committed):
    pass


class Demand(Document):
    """Equal pods of pending workloads that wait for the same thing."""

    flavor: str = Field(description="The one that comes closest to admit them.")
    node_labels: dict[str, str] = Field(description="Of the flavor.")
    awaits: AwaitedLimit
    workloads: int
    pods: int = Field(description="Of all these workloads.")
    requests: dict[str, int] = Field(description=f"Of one pod, as its containers request them. {AMOUNT}")
    node_selector: dict[str, str] = Field(description="Of the pods.")


class QueueDemand(Document):
    cluster_queue: str
    demand: tuple[Demand, ...] = Field(description="Most pods first, at most 100.")


class QueueDemandDetail(QueueDemand, Committed):
    pass
