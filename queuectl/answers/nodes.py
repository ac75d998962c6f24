"""Nodes as the controller told of them last: state, what is used and free, and by which workloads. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from queuectl.core.features.nodes.inventory import NodeState, node_state
from queuectl.core.model.capacity import NodeFacts
from queuectl.core.model.policy import Node, NodeRules, ResourceFlavor
from queuectl.core.model.workload import StoredWorkload, WorkloadId


@dataclass(frozen=True, slots=True)
class PodsOfWorkload:
    """What the pods of one workload use of a node; `workload`: None for all that are of no open workload."""

    workload: StoredWorkload | None
    pods: int
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """Amounts are in base units."""

    node: Node
    state: NodeState
    flavors: tuple[str, ...]
    """Those whose labels it has."""
    used: Mapping[str, int]
    """Of what is allocatable."""
    free: Mapping[str, int]
    """0 on a node that is not ready."""
    workloads: tuple[PodsOfWorkload, ...]
    unmanaged: Mapping[str, int]
    """By pods of no workload."""


def flavors_of(node: Node, flavors: Iterable[ResourceFlavor]) -> tuple[str, ...]:
    """Return the names of the flavors whose labels a node has."""
    labels = set(node.labels)
    return tuple(one.name for one in flavors if labels.issuperset(one.node_labels))


def node_use(
    node: Node,
    facts: NodeFacts,
    flavors: tuple[str, ...],
    workloads: Mapping[WorkloadId, StoredWorkload],
    rules: NodeRules,
    now: datetime,
) -> NodeUse:
    """Return what is on a node. `workloads`: those that are not over."""
    state = node_state(node, rules, now, facts.avoided_until)
    used: Counter[str] = Counter()
    by_workload: dict[str, Counter[str]] = {}
    pods: Counter[str] = Counter()
    unmanaged: Counter[str] = Counter()
    for one in facts.pods:
        total = Counter({resource: amount * one.pods for resource, amount in one.requests})
        used += total
        if one.workload is None:
            unmanaged += total
        else:
            by_workload.setdefault(one.workload, Counter()).update(total)
            pods[one.workload] += one.pods
    there = [item for item in node.allocatable if item[0] != "pods"]  # those of no workload are not counted
    return NodeUse(
        node=node,
        state=state,
        flavors=flavors,
        used={resource: used[resource] for resource, _ in there},
        free={
            resource: max(0, most - used[resource]) if state is NodeState.READY else 0
            for resource, most in there
        },
        workloads=tuple(
            PodsOfWorkload(workloads.get(WorkloadId(id)), pods[id], dict(taken))
            for id, taken in sorted(by_workload.items())
        ),
        unmanaged=dict(unmanaged),
    )
