"""What readers are told of each node, and the same as events for an engine that is made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Final, NamedTuple

from queuectl.core.features.nodes.inventory import NodeRecord, NodeState, is_device, mode_of
from queuectl.core.features.nodes.room import NodeRoom, Use
from queuectl.core.model.capacity import (
    NO_FLAVOR,
    OTHERS,
    CapacityWarning,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    NodeFacts,
    PodsOnNode,
    QuotaWarning,
)
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import ANY_NODES, ResourceFlavor
from queuectl.core.model.resources import FlavorResource, amounts
from queuectl.core.model.selectors import untolerated
from queuectl.core.model.workload import WorkloadId

MOST_TOLD: Final = 250
"""Nodes at a time: the others are told later, those that changed first before the others."""


class ToldNodes(NamedTuple):
    changed: tuple[NodeFacts, ...]
    """Since they were last told, by name."""
    every: tuple[str, ...] | None
    """The first time: the names of all nodes; None later."""


def take_facts(room: NodeRoom, most: int = MOST_TOLD) -> ToldNodes:
    """Return facts of nodes that changed since they were last returned, at most so many.

    Costs one step for each pod of the cluster if any node changed, else nothing.
    """
    usage = room.usage
    every = None if usage.told else tuple(usage.untold)
    usage.told = True
    names = sorted(islice(usage.untold, most))
    for name in names:
        del usage.untold[name]
    pods = _pods_on(room, names)
    return ToldNodes(tuple(_facts(room, name, pods[name]) for name in names), every)


def _facts(room: NodeRoom, name: str, pods: Iterable[Pod]) -> NodeFacts:
    record = room.inventory.records.get(name)
    return NodeFacts(
        name=name,
        node=record.node if record is not None else None,
        pods=tuple(sorted(_grouped(pods), key=_order)),
        avoided_until=room.inventory.avoided.get(name),
    )


def _pods_on(room: NodeRoom, names: Iterable[str]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {name: [] for name in names}
    for pod in room.pods.values() if found else ():
        if pod.node in found:
            found[pod.node].append(pod)
    return found


def _grouped(pods: Iterable[Pod]) -> Iterator[PodsOnNode]:
    alike: Counter[PodsOnNode] = Counter()
    others: list[PodsOnNode] = []
    for pod in pods:
        one = PodsOnNode(pod.namespace, pod.workload, pod.requests, 1, pod.terminating)
        if pod.workload is None:
            others.append(one)
        else:
            alike[one] += 1
    for one, count in alike.items():
        yield one._replace(pods=count)
    yield from _summed(others)


def _summed(unmanaged: Iterable[PodsOnNode]) -> Iterator[PodsOnNode]:
    sums: dict[tuple[str, bool], Counter[str]] = {}
    for one in unmanaged:
        total = sums.setdefault((one.namespace, one.terminating), Counter())
        for resource, amount in one.requests:
            total[resource] += amount * one.pods
    for (namespace, terminating), total in sums.items():
        yield PodsOnNode(namespace, None, amounts(total), 1, terminating)


def with_unmanaged(facts: NodeFacts, others: Container[str]) -> NodeFacts:
    """Return the facts for an engine that does not have these workloads: their pods take room, and stay.

    Pods of a workload that an engine does not know are expected to end, as those of one that is over.
    """
    if not any(one.workload is not None and one.workload in others for one in facts.pods):
        return facts
    pods = [one._replace(workload=None) if one.workload in others else one for one in facts.pods]
    kept = (one for one in pods if one.workload is not None)
    summed = _summed(one for one in pods if one.workload is None)
    return replace(facts, pods=tuple(sorted((*kept, *summed), key=_order)))


def _order(one: PodsOnNode) -> tuple[object, ...]:
    return one.workload or "", one.namespace, one.requests, one.terminating


def pods_of_facts(facts: NodeFacts) -> Iterator[Pod]:
    """Yield pods that an engine does not tell apart from those that the facts are of."""
    for number, one in enumerate(facts.pods):
        for copy in range(one.pods):
            name = f"{facts.name}/{number}/{copy}"
            yield Pod(
                uid=name,
                namespace=one.namespace,
                name=name,
                node=facts.name,
                requests=one.requests,
                workload=None if one.workload is None else WorkloadId(one.workload),
                terminating=one.terminating,
            )


MOST_SHAPES: Final = 16
MOST_NAMESPACES: Final = 50
"""Namespaces with unmanaged use that are named; the others are summed."""

Labels = tuple[tuple[str, str], ...]


class _Sums:
    """One flavor and resource."""

    __slots__ = ("allocatable", "expected", "ready", "shapes", "unmanaged", "used")

    def __init__(self) -> None:
        self.allocatable: Counter[str] = Counter()
        self.used = self.expected = 0
        self.ready = 0
        """Free on ready nodes, whatever their taints: of this the headroom stays free (M6)."""
        self.unmanaged: Counter[str] = Counter()
        self.shapes: Counter[int] = Counter()


class _Flavor:
    """The nodes of one flavor, added one by one."""

    def __init__(self, flavor: ResourceFlavor | None) -> None:
        self._flavor = flavor
        self.nodes: Counter[str] = Counter()
        self.sums: dict[str, _Sums] = {}
        self.warnings: list[QuotaWarning] = []

    def _state(self, record: NodeRecord) -> NodeState:
        """Return the state of a node for workloads that get this flavor."""
        assert record.node is not None
        if record.state is not NodeState.READY or self._flavor is None or not record.node.taints:
            return record.state
        taints = untolerated(record.node.taints, self._flavor.tolerations)
        return NodeState.TAINTED if taints else NodeState.READY

    def add(self, record: NodeRecord, used: Mapping[Use, int], expected: Mapping[str, int]) -> None:
        assert record.node is not None
        state = self._state(record)
        self.nodes[state] += 1
        there = [(resource, amount) for resource, amount in record.node.allocatable if amount]
        for resource, _ in there:
            if is_device(resource):
                self.sums.setdefault(resource, _Sums())
        taken: Counter[str] = Counter(expected)
        for (namespace, resource), amount in used.items():
            if (sums := self.sums.get(resource)) is not None:
                taken[resource] += amount
                if namespace is None:
                    sums.used += amount
                else:
                    sums.unmanaged[namespace] += amount
        for resource, amount in there:
            if (sums := self.sums.get(resource)) is not None:
                sums.allocatable[state] += amount
                sums.expected += expected.get(resource, 0)
                free = amount - taken[resource]
                if record.state is NodeState.READY and free > 0:
                    sums.ready += free
                    sums.shapes[free] += state is NodeState.READY


def capacities(
    room: NodeRoom,
    flavors: Mapping[str, ResourceFlavor],
    promised: Iterable[FlavorResource],
    warnings: Iterable[CapacityWarning],
) -> list[FlavorCapacity]:
    """Return the capacity of each flavor, by name; first that of all nodes without a flavor.

    Costs the nodes and what is used on them by namespace, not the pods.
    """
    found = {name: _Flavor(flavor) for name, flavor in flavors.items()}
    stray = _Flavor(None)
    for cell in promised:
        for one in (stray, found.get(cell.flavor, stray)):
            one.sums.setdefault(cell.resource, _Sums())
    match = _matcher(flavors)
    expected = _expected(room)
    for record in room.inventory.nodes():
        assert record.node is not None
        mine = [found[name] for name in match(record.node.labels)] or [stray]
        for one in mine:
            one.add(record, room.usage.of(record.name), expected.get(record.name, {}))
    found[NO_FLAVOR] = stray
    for warning in warnings:
        if (about := found.get(warning.flavor or NO_FLAVOR)) is not None:
            about.warnings.append(QuotaWarning(warning.code, warning.resource, warning.message))
    return [_capacity(name, flavors.get(name), found[name]) for name in sorted(found)]


def _matcher(flavors: Mapping[str, ResourceFlavor]) -> Callable[[Labels], tuple[str, ...]]:
    """Return what finds the flavors of a node: nodes that are alike to all flavors are matched once."""
    asked = {key for flavor in flavors.values() for key, _ in flavor.node_labels}
    known: dict[Labels, tuple[str, ...]] = {}

    def match(labels: Labels) -> tuple[str, ...]:
        profile = tuple(item for item in labels if item[0] in asked)
        found = known.get(profile)
        if found is None:
            mine = set(profile)
            found = known[profile] = tuple(
                name for name, flavor in flavors.items() if mine.issuperset(flavor.node_labels)
            )
        return found

    return match


def _expected(room: NodeRoom) -> Mapping[str, Mapping[str, int]]:
    """Return what is expected on nodes: by node and resource."""
    room.settle()
    names = list(room.inventory.resources)
    found: dict[str, Counter[str]] = {}
    for node, vector in room.expected:
        there = found.setdefault(node, Counter())
        for name, amount in zip(names, vector, strict=True):
            if amount:
                there[name] += amount
    return found


def _capacity(name: str, flavor: ResourceFlavor | None, sums: _Flavor) -> FlavorCapacity:
    rules = flavor.nodes if flavor is not None else ANY_NODES
    headroom = dict(rules.headroom)
    free = {resource: _free(one) for resource, one in sums.sums.items()}
    return FlavorCapacity(
        flavor=name,
        nodes=_in_order(sums.nodes),
        resources=tuple(
            FlavorResourceCapacity(
                resource=resource,
                mode=mode_of(rules, resource, offered=bool(one.allocatable)),
                allocatable=_in_order(one.allocatable),
                used=one.used,
                unmanaged=_most(one.unmanaged),
                expected=one.expected,
                free=free[resource],
                available=max(0, min(free[resource], one.ready - headroom.get(resource, 0))),
                shapes=tuple(FreeNodes(*shape) for shape in nlargest(MOST_SHAPES, (+one.shapes).items())),
            )
            for resource, one in sorted(sums.sums.items())
        ),
        warnings=tuple(sums.warnings),
    )


def _free(sums: _Sums) -> int:
    return sum(free * nodes for free, nodes in sums.shapes.items())


def _in_order(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((state.value, counts[state]) for state in NodeState if counts[state])


def _most(unmanaged: Counter[str]) -> tuple[tuple[str, int], ...]:
    named = nsmallest(MOST_NAMESPACES, unmanaged.items(), key=lambda item: (-item[1], item[0]))
    rest = unmanaged.total() - sum(amount for _, amount in named)
    return (*named, (OTHERS, rest)) if rest else tuple(named)
