"""What stays free on the nodes of flavors: their headroom (M6)."""

from __future__ import annotations

from collections.abc import Mapping

from queuectl.core.features.nodes.inventory import Inventory, NodeState
from queuectl.core.features.nodes.matching import Matcher
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import ResourceFlavor
from queuectl.core.model.resources import FlavorResource


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
