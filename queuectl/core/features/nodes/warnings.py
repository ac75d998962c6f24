"""Warnings about quota and nodes that do not belong together. They change no decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

from queuectl.core.model.reasons import utc
from queuectl.core.model.resources import FlavorResource, format_amount
from queuectl.core.model.values import value


class WarningCode(StrEnum):
    FLAVOR_WITHOUT_NODES = "FlavorWithoutNodes"
    """No node has the labels of a flavor whose spec says that nodes limit it."""
    QUOTA_BEYOND_NODES = "QuotaBeyondNodes"
    """More quota is promised than usable nodes have."""
    STOCKED_OUT = "StockedOut"
    """Nodes of an Elastic flavor did not come in time: it is not used for a while (M20)."""
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
    """What usable nodes have (core/features/nodes/capacity)."""
    nodes: int | None = None
    """Number of nodes without a flavor."""
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
            case WarningCode.QUOTA_BEYOND_NODES:
                assert self.resource is not None
                there, promised = (
                    format_amount(self.resource, amount or 0) for amount in (self.capacity, self.promised)
                )
                return f"{promised} {self.resource} of {self.flavor} are promised, usable nodes have {there}"


def capacity_warnings(
    promised: Mapping[FlavorResource, int],
    capacity: Mapping[FlavorResource, int],
    without_nodes: Iterable[str],
    stray_nodes: int,
) -> Iterator[CapacityWarning]:
    """Yield all warnings, by flavor and resource.

    `capacity`: of the cells that quota is compared with. `without_nodes`: flavors of which nodes limit
    something by their spec, and that no node has the labels of. `stray_nodes`: nodes with the labels of none.
    """
    missing = set(without_nodes)
    for name in sorted(missing):
        yield CapacityWarning(code=WarningCode.FLAVOR_WITHOUT_NODES, flavor=name)
    for cell in sorted(promised):
        there = capacity.get(cell)
        if there is not None and there < promised[cell] and cell.flavor not in missing:
            yield CapacityWarning(
                code=WarningCode.QUOTA_BEYOND_NODES,
                flavor=cell.flavor,
                resource=cell.resource,
                promised=promised[cell],
                capacity=there,
            )
    if stray_nodes:
        yield CapacityWarning(code=WarningCode.NODES_WITHOUT_FLAVOR, nodes=stray_nodes)
