"""What readers see of the nodes: by flavor, what there is, what pods use of it, and what is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import Final

from queuectl.core.features.nodes.inventory import NodeRecord, NodeState
from queuectl.core.features.nodes.modes import is_device, mode_of
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.features.nodes.usage import Use
from queuectl.core.features.nodes.warnings import CapacityWarning
from queuectl.core.model.capacity import (
    NO_FLAVOR,
    OTHERS,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    QuotaWarning,
)
from queuectl.core.model.policy import ANY_NODES, ResourceFlavor
from queuectl.core.model.resources import FlavorResource

MOST_SHAPES: Final = 16
MOST_NAMESPACES: Final = 50
"""Namespaces with unmanaged use that are named; the others are summed."""

Labels = tuple[tuple[str, str], ...]


class _Sums:
    """One flavor and resource."""

    __slots__ = ("allocatable", "expected", "shapes", "unmanaged", "used")

    def __init__(self) -> None:
        self.allocatable: Counter[str] = Counter()
        self.used = self.expected = 0
        self.unmanaged: Counter[str] = Counter()
        self.shapes: Counter[int] = Counter()


class _Flavor:
    """The nodes of one flavor, added one by one."""

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()
        self.sums: dict[str, _Sums] = {}
        self.warnings: list[QuotaWarning] = []

    def add(self, record: NodeRecord, used: Mapping[Use, int], expected: Mapping[str, int]) -> None:
        assert record.node is not None
        self.nodes[record.state] += 1
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
                sums.allocatable[record.state] += amount
                sums.expected += expected.get(resource, 0)
                free = amount - taken[resource]
                if record.state is NodeState.READY and free > 0:
                    sums.shapes[free] += 1


def capacities(
    room: NodeRoom,
    flavors: Mapping[str, ResourceFlavor],
    promised: Iterable[FlavorResource],
    warnings: Iterable[CapacityWarning],
) -> list[FlavorCapacity]:
    """Return the capacity of each flavor, by name; first that of all nodes without a flavor.

    Costs the nodes and what is used on them by namespace, not the pods.
    """
    found = {name: _Flavor() for name in flavors}
    stray = _Flavor()
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
                free=sum(free * nodes for free, nodes in one.shapes.items()),
                shapes=tuple(FreeNodes(*shape) for shape in nlargest(MOST_SHAPES, one.shapes.items())),
            )
            for resource, one in sorted(sums.sums.items())
        ),
        warnings=tuple(sums.warnings),
    )


def _in_order(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((state.value, counts[state]) for state in NodeState if counts[state])


def _most(unmanaged: Counter[str]) -> tuple[tuple[str, int], ...]:
    named = nsmallest(MOST_NAMESPACES, unmanaged.items(), key=lambda item: (-item[1], item[0]))
    rest = unmanaged.total() - sum(amount for _, amount in named)
    return (*named, (OTHERS, rest)) if rest else tuple(named)
