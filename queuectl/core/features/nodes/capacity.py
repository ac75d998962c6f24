"""What the usable nodes of each flavor have in all: the capacity that quota is compared with (M2, M3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queuectl.core.features.nodes.inventory import Inventory, NodeState
from queuectl.core.features.nodes.node_choice import Matcher
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import CapacityMode, ResourceFlavor
from queuectl.core.model.resources import FlavorResource


class CellCapacity(NamedTuple):
    """What the nodes of one flavor have of one resource."""

    amount: int
    """Allocatable on ready nodes (M3, M5), less the headroom (M6), in base units."""
    enforced: bool
    """It limits admissions (M2); else it is only compared with the quota."""


def capacities(
    matcher: Matcher, flavors: Mapping[str, ResourceFlavor], cells: Iterable[FlavorResource]
) -> dict[FlavorResource, CellCapacity]:
    """Return the capacity of those `cells` that nodes limit, or that are observed on nodes that have them.

    A node with the labels of two flavors counts for both. Costs the flavors with their groups of nodes, not
    the nodes.
    """
    found: dict[FlavorResource, CellCapacity] = {}
    ready: dict[str, dict[str, int]] = {}
    for cell in cells:
        mode, flavor = matcher.mode(*cell), flavors.get(cell.flavor)
        enforced = mode is CapacityMode.ENFORCE
        observed = mode is CapacityMode.OBSERVE and cell.resource in matcher.offered(cell.flavor)
        if flavor is None or not (enforced or observed):
            continue
        if cell.flavor not in ready:
            ready[cell.flavor] = _ready(matcher, cell.flavor)
        kept = dict(flavor.nodes.headroom).get(cell.resource, 0)
        found[cell] = CellCapacity(max(0, ready[cell.flavor].get(cell.resource, 0) - kept), enforced)
    return found


def told_capacities(
    told: Iterable[FlavorCapacity], flavors: Mapping[str, ResourceFlavor]
) -> dict[FlavorResource, CellCapacity]:
    """Return the same as `capacities`, from what readers are told of the nodes of each flavor.

    Has cells of devices that no quota is promised for, too.
    """
    known = [one for one in told if one.flavor in flavors or one.flavor == NO_FLAVOR]
    found: dict[FlavorResource, CellCapacity] = {}
    if not any(one.nodes for one in known):
        return found  # M4
    for one in known:
        flavor = flavors.get(one.flavor)
        if flavor is None:
            continue
        kept = dict(flavor.nodes.headroom)
        for resource in one.resources:
            name, enforced = resource.resource, resource.mode is CapacityMode.ENFORCE
            if enforced or (resource.mode is CapacityMode.OBSERVE and resource.allocatable):
                there = dict(resource.allocatable)
                ready = there.get(NodeState.READY, 0) + there.get(NodeState.TAINTED, 0)
                amount = max(0, ready - kept.get(name, 0))
                found[FlavorResource(one.flavor, name)] = CellCapacity(amount, enforced)
    return found


def _ready(matcher: Matcher, flavor: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for group in matcher.of_flavors((flavor,)):
        if group.state is NodeState.READY:
            for resource, amount in group.allocatable.items():
                found[resource] = found.get(resource, 0) + amount
    return found


class Headroom:
    def __init__(self, flavors: Mapping[str, ResourceFlavor], inventory: Inventory, matcher: Matcher) -> None:
        self._flavors = flavors
        self._inventory = inventory
        self._matcher = matcher
        self._any: bool | None = None
        """Whether any flavor has headroom; None: not known."""

    def forget(self) -> None:
        """Flavors changed."""
        self._any = None

    def left(self, pods: Pods) -> bool:
        """Return whether the headroom of their flavors stays free after these pods are added (M6)."""
        if self._any is None:
            self._any = any(flavor.nodes.headroom for flavor in self._flavors.values())
        if not self._any:
            return True
        asked: dict[FlavorResource, int] = {}
        for group in pods:
            shape, count = group.shape, group.count
            match = self._matcher.match(shape)
            for name in dict.fromkeys(flavor for _, flavor in shape.flavors):
                for resource, number in self._inventory.resources.items():
                    cell = FlavorResource(name, resource)
                    asked[cell] = asked.get(cell, 0) + match.vector[number] * count
        return all(
            self.free(cell) - amount >= kept
            for cell, amount in asked.items()
            if amount and (kept := self._kept(cell))
        )

    def _kept(self, cell: FlavorResource) -> int:
        flavor = self._flavors.get(cell.flavor)
        return dict(flavor.nodes.headroom).get(cell.resource, 0) if flavor is not None else 0

    def free(self, cell: FlavorResource) -> int:
        """Return what is free on the ready nodes of a flavor, in base units; 0 if nodes do not limit it."""
        number = self._inventory.resources.get(cell.resource)
        if number is None:
            return 0
        return sum(
            max(0, free[number]) * len(names)
            for group in self._matcher.of_flavors((cell.flavor,))
            if group.state is NodeState.READY
            for free, names in group.by_free.items()
        )
