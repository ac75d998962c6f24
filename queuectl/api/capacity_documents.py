"""Capacity and demand as documents. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from queuectl.api import capacity_schemas as schemas
from queuectl.api.documents import Quotas
from queuectl.core import capacity
from queuectl.core.nodes.inventory import NodeState
from queuectl.core.nodes.warnings import WarningCode
from queuectl.core.policy import ResourceFlavor
from queuectl.core.redaction import Readable


def capacity_of(
    value: capacity.FlavorCapacity, flavor: ResourceFlavor | None, quotas: Quotas, readable: Readable
) -> schemas.Capacity:
    """`flavor`: None for nodes without one. `quotas`: nominal and used, by resource."""
    return schemas.Capacity(**_capacity(value, flavor, quotas, readable))


def capacity_detail(
    value: capacity.FlavorCapacity,
    flavor: ResourceFlavor | None,
    quotas: Quotas,
    readable: Readable,
    committed: dict[str, Any],
) -> schemas.CapacityDetail:
    return schemas.CapacityDetail(**_capacity(value, flavor, quotas, readable), **committed)


def namespaces_of(values: Collection[capacity.FlavorCapacity]) -> set[str]:
    """The namespaces with unmanaged use."""
    return {
        namespace
        for value in values
        for one in value.resources
        for namespace, _ in one.unmanaged
        if namespace != capacity.OTHERS
    }


def _capacity(
    value: capacity.FlavorCapacity, flavor: ResourceFlavor | None, quotas: Quotas, readable: Readable
) -> dict[str, Any]:
    headroom = dict(flavor.nodes.headroom) if flavor is not None else {}
    return {
        "flavor": flavor.name if flavor is not None else None,
        "nodes": {NodeState(state): count for state, count in value.nodes},
        "resources": tuple(
            schemas.ResourceCapacity(
                resource=one.resource,
                mode=one.mode,
                nominal=quotas.get(one.resource, (0, 0))[0],
                allocatable={NodeState(state): amount for state, amount in one.allocatable},
                used=one.used,
                unmanaged=sum(amount for _, amount in one.unmanaged),
                unmanaged_by=tuple(_unmanaged(one, readable)),
                expected=one.expected,
                free=one.free,
                headroom=headroom.get(one.resource, 0),
                shapes=tuple(schemas.FreeShape(free=free, nodes=nodes) for free, nodes in one.shapes),
            )
            for one in value.resources
        ),
        "warnings": tuple(
            schemas.Warned(code=WarningCode(code), resource=resource, message=message)
            for code, resource, message in value.warnings
        ),
    }


def _unmanaged(value: capacity.ResourceCapacity, readable: Readable) -> Iterator[schemas.Unmanaged]:
    rest = 0
    for namespace, amount in value.unmanaged:
        if namespace != capacity.OTHERS and namespace in readable:
            yield schemas.Unmanaged(namespace=namespace, amount=amount)
        else:
            rest += amount
    if rest:
        yield schemas.Unmanaged(namespace=None, amount=rest)


def _demand(
    name: str, values: Collection[capacity.Demand], flavors: Mapping[str, ResourceFlavor]
) -> dict[str, Any]:
    return {
        "cluster_queue": name,
        "demand": tuple(
            schemas.Demand(
                flavor=one.flavor,
                node_labels=dict(flavors[one.flavor].node_labels) if one.flavor in flavors else {},
                awaits=one.awaits,
                workloads=one.workloads,
                pods=one.pods,
                requests=dict(one.requests),
                node_selector=dict(one.node_selector),
            )
            for one in values
        ),
    }


def demand_of(
    name: str, values: Collection[capacity.Demand], flavors: Mapping[str, ResourceFlavor]
) -> schemas.QueueDemand:
    return schemas.QueueDemand(**_demand(name, values, flavors))


def demand_detail(
    name: str,
    values: Collection[capacity.Demand],
    flavors: Mapping[str, ResourceFlavor],
    committed: dict[str, Any],
) -> schemas.QueueDemandDetail:
    return schemas.QueueDemandDetail(**_demand(name, values, flavors), **committed)
