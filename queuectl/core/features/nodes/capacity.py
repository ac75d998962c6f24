"""What the usable nodes of each flavor have in all: the capacity that quota is compared with (M2, M3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.features.nodes.matching import Matcher
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
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
                ready = dict(resource.allocatable).get(NodeState.READY, 0)
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
