"""Quota that is promised, against what nodes have: what of it counts (M11), and warnings (M15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from queuectl.core.directory import Directory
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.flavors.queue_flavors import is_elastic
from queuectl.core.model.capacity import CapacityWarning, WarningCode
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import PastAttempts
from queuectl.core.quota.shortage import promised, share_out, shares_out
from queuectl.core.quota.tree import QuotaNode

_Versions = tuple[int, int, int]
"""Of the quota tree, of what nodes have, and of flavors whose nodes did not come."""


class Promises:
    def __init__(self, directory: Directory, nodes: NodeRoom, stock_outs: StockOuts) -> None:
        self._directory = directory
        self._nodes = nodes
        self._stock_outs = stock_outs
        self._shared_out: _Versions = (-1, -1, -1)
        self._compared: _Versions = (-1, -1, -1)
        self.warnings: tuple[CapacityWarning, ...] = ()
        """As of the last `compare`."""

    def _versions(self) -> _Versions:
        version = self._directory.tree.version
        return version, self._nodes.inventory.capacity_version, self._stock_outs.version

    def share_out(self) -> list[QuotaNode]:
        """Let nominal quotas count as nodes allow. Return the nodes of the tree that changed (M11).

        Costs the nodes of the tree after a change of policy or nodes, with their cells if any root says
        `ProRata`; else nothing.
        """
        if self._shared_out == self._versions():
            return []
        tree, changed = self._directory.tree, list[QuotaNode]()
        if shares_out(tree):
            there = self._nodes.capacities(promised(tree))
            changed = share_out(tree, {cell: one.amount for cell, one in there.items() if one.enforced})
        self._shared_out = self._versions()
        return changed

    def compare(self) -> set[str]:
        """Compute the warnings anew. Return the ClusterQueues that have others than before.

        Costs the nodes of the tree with their cells after a change of policy or nodes; else nothing.
        """
        if self._compared == self._versions():
            return set()
        self._compared = self._versions()
        before, self.warnings = self.warnings, self._found()
        flavors = {one.flavor for one in {*before} ^ {*self.warnings} if one.flavor is not None}
        return {name for flavor in flavors for name in self._directory.users_of(flavor)}

    def _found(self) -> tuple[CapacityWarning, ...]:
        tree, nodes = self._directory.tree, self._nodes
        total = promised(tree)
        capacity = {cell: one.amount for cell, one in nodes.capacities(total).items()}
        out = (
            CapacityWarning(code=WarningCode.STOCKED_OUT, flavor=name, until=until)
            for name, until in sorted(self._stock_outs.until.items())
            if is_elastic(self._directory.flavors.get(name))
        )
        return (
            *capacity_warnings(total, capacity, nodes.flavors_without_nodes(), nodes.stray_nodes()),
            *(
                CapacityWarning(code=WarningCode.NODES_TAINTED, flavor=name, taint=str(taint), nodes=count)
                for name in sorted({cell.flavor for cell in total})
                for taint, count in sorted(nodes.tainted(name).items(), key=lambda item: str(item[0]))
            ),
            *out,
        )

    def of_queue(self, name: str) -> tuple[CapacityWarning, ...]:
        """Return the warnings about the flavors and resources that a ClusterQueue has quota for."""
        tree = self._directory.tree
        cells = {tree.names[cell] for cell in tree.queue(name).named}
        flavors = {cell.flavor for cell in cells}
        return tuple(
            one
            for one in self.warnings
            if one.flavor in flavors and (one.resource is None or (one.flavor, one.resource) in cells)
        )


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


class StockOuts:
    """`seconds`: how long a flavor is not used; 0: none is ever left out.

    Of any flavor, whatever its mode: only those whose nodes come on demand are left out for it.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self.until: dict[str, datetime] = {}
        """By flavor: when it may be used again."""
        self.version = 0
        """Changes with `until`."""
        self._changed: set[str] = set()

    def note(self, past: PastAttempts, now: datetime) -> None:
        """Take from the record of a workload for which flavors nodes did not come, and when."""
        if not self._seconds or past.missed_at is None:
            return
        until = past.missed_at + timedelta(seconds=self._seconds)
        for flavor in past.missed:
            known = self.until.get(flavor)
            if until > max(now, known or now):
                self._set(flavor, until)

    def time_came(self, now: datetime) -> None:
        for flavor in [name for name, until in self.until.items() if until <= now]:
            self._set(flavor, None)

    @property
    def due_at(self) -> datetime | None:
        return min(self.until.values(), default=None)

    def take_changed(self) -> list[str]:
        """Return the flavors that are left out or used again since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _set(self, flavor: str, until: datetime | None) -> None:
        if until is None:
            del self.until[flavor]
        else:
            self.until[flavor] = until
        self.version += 1
        self._changed.add(flavor)
