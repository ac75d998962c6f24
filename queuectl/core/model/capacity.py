"""What the nodes of flavors have, and what waits for them, as values for readers. They decide nothing."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.policy import CapacityMode, Node
from queuectl.core.model.reasons import utc
from queuectl.core.model.resources import Amounts, format_amount
from queuectl.core.model.values import value

NO_FLAVOR: Final = ""
"""In place of a flavor: of nodes that match no ResourceFlavor."""
OTHERS: Final = ""
"""In place of a namespace: all further ones together."""


class FreeNodes(NamedTuple):
    """`nodes` ready nodes have `free` of a resource each, in base units."""

    free: int
    nodes: int


@value(frozen=True, slots=True, kw_only=True)
class FlavorResourceCapacity:
    """What the nodes of one flavor have of one resource. Amounts are in base units."""

    resource: str
    mode: CapacityMode
    allocatable: tuple[tuple[str, int], ...] = ()
    """(state of nodes, amount) pairs."""
    used: int = 0
    """By pods of workloads that are bound to nodes."""
    unmanaged: tuple[tuple[str, int], ...] = ()
    """(namespace, amount) pairs, most first: by pods that are bound and belong to no workload."""
    expected: int = 0
    """By pods of admitted workloads that are not bound yet (M7); 0 where nodes do not limit the resource."""
    free: int = 0
    """On ready nodes whose taints the flavor tolerates, beside all of these."""
    available: int | None = None
    """What new pods can have of `free`: less the headroom (M6); None: an older controller told it."""
    shapes: tuple[FreeNodes, ...] = ()
    """How it is spread over nodes, most first; nodes with nothing free are left out."""


class QuotaWarning(NamedTuple):
    """A warning about a flavor (M15)."""

    code: str
    resource: str | None
    message: str


@value(frozen=True, slots=True, kw_only=True)
class FlavorCapacity:
    """The nodes of one flavor. A node with the labels of two flavors counts for both."""

    flavor: str
    nodes: tuple[tuple[str, int], ...] = ()
    """(state, number of nodes) pairs."""
    resources: tuple[FlavorResourceCapacity, ...] = ()
    """By name: those that quota is promised for, and the devices that the nodes have."""
    warnings: tuple[QuotaWarning, ...] = ()


class WarningCode(StrEnum):
    FLAVOR_WITHOUT_NODES = "FlavorWithoutNodes"
    """No node has the labels of a flavor whose spec says that nodes limit it."""
    QUOTA_BEYOND_NODES = "QuotaBeyondNodes"
    """More quota is promised than usable nodes have."""
    STOCKED_OUT = "StockedOut"
    """Nodes of an Elastic flavor did not come in time: it is not used for a while (M20)."""
    NODES_TAINTED = "NodesTainted"
    """Ready nodes, whose devices limit admissions, have a taint that their flavor does not tolerate."""
    NODES_WITHOUT_FLAVOR = "NodesWithoutFlavor"
    """Nodes have the labels of no flavor: no workload of a queue is sent there."""


@value(frozen=True, slots=True, kw_only=True)
class CapacityWarning:
    """Amounts are in base units of `resource`."""

    code: WarningCode
    flavor: str | None = None
    resource: str | None = None
    promised: int | None = None
    """Sum of the nominal quotas of all ClusterQueues and Cohorts."""
    capacity: int | None = None
    """What usable nodes have."""
    nodes: int | None = None
    """Number of nodes without a flavor, or with the taint."""
    taint: str | None = None
    """As kubectl writes it."""
    until: datetime | None = None
    """When a flavor is used again."""

    @property
    def message(self) -> str:
        match self.code:
            case WarningCode.FLAVOR_WITHOUT_NODES:
                return f"no node has the labels of ResourceFlavor {self.flavor}"
            case WarningCode.STOCKED_OUT:
                assert self.until is not None
                until = f"it is not used until {utc(self.until)}"
                return f"nodes of ResourceFlavor {self.flavor} did not come in time: {until}"
            case WarningCode.NODES_WITHOUT_FLAVOR:
                nodes = "1 node has" if self.nodes == 1 else f"{self.nodes} nodes have"
                return f"{nodes} the labels of no ResourceFlavor"
            case WarningCode.NODES_TAINTED:
                nodes = "1 node has" if self.nodes == 1 else f"{self.nodes} nodes have"
                return f"{nodes} taint {self.taint}, which ResourceFlavor {self.flavor} does not tolerate"
            case WarningCode.QUOTA_BEYOND_NODES:
                assert self.resource is not None
                there, promised = (
                    format_amount(self.resource, amount or 0) for amount in (self.capacity, self.promised)
                )
                return f"{promised} {self.resource} of {self.flavor} are promised, usable nodes have {there}"


class AwaitedLimit(StrEnum):
    """The limit that pending workloads wait for."""

    QUOTA = "Quota"
    ROOM = "Room"


@value(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """Equal pods of pending workloads of one ClusterQueue that wait for the same thing."""

    flavor: str
    """The flavor that comes closest to admit them."""
    awaits: AwaitedLimit
    workloads: int
    pods: int
    requests: Amounts
    """Of one pod, as its containers request them."""
    node_selector: tuple[tuple[str, str], ...] = ()


class ClusterQueueDemand(NamedTuple):
    cluster_queue: str
    demand: tuple[PodDemand, ...]


class PodsOnNode(NamedTuple):
    """Pods on one node that no decision tells apart."""

    namespace: str
    workload: str | None
    """Id of the workload that they belong to; None: they are unmanaged."""
    requests: Amounts
    """Of each of them; of unmanaged pods, those of their namespace together."""
    pods: int = 1
    """How many; of unmanaged pods always 1."""
    terminating: bool = False
    """They are being deleted."""


@value(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node as the controller knew it when it told of it."""

    name: str
    node: Node | None
    """None: there is no such Node, or not any more."""
    pods: tuple[PodsOnNode, ...] = ()
    """Sorted."""
    avoided_until: datetime | None = None
    """Until when it does not count (M14); None: it is not avoided."""

    @property
    def gone(self) -> bool:
        """Whether there is neither a Node of that name nor a pod on it."""
        return self.node is None and not self.pods
