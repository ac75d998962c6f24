"""The quota tree: ClusterQueues are its leaves, Cohorts its inner nodes (docs/scheduling.md, Q2 to Q6).

Cells, (flavor, resource) pairs, are numbered once; each node keeps its amounts in lists indexed by that
number. A change of quota, parent or usage costs the depth of its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from queuectl.core.model import ClusterQueue, Cohort, ResourceGroup
from queuectl.core.resources import FlavorResource, Usage

Cells = list[tuple[int, int]]
"""(cell number, amount) pairs."""


class Node:
    """One ClusterQueue or Cohort. Lists are indexed by cell number, amounts in base units."""

    __slots__ = (
        "borrowing",
        "children",
        "kind",
        "lending",
        "name",
        "nominal",
        "parent",
        "subtree",
        "usage",
        "wanted",
    )

    def __init__(self, kind: str, name: str, cells: int) -> None:
        self.kind = kind
        self.name = name
        self.parent: Node | None = None
        self.wanted: str | None = None
        """Name of the cohort it asks for. It has no parent while that would close a circle."""
        self.children: dict[tuple[str, str], Node] = {}
        self.nominal = [0] * cells
        self.borrowing: list[int | None] = [None] * cells
        self.lending: list[int | None] = [None] * cells
        self.subtree = [0] * cells
        """Own quota and what the children lend."""
        self.usage = [0] * cells

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def private(self, cell: int) -> int:
        """Quota that nobody above may use (Q3)."""
        lending = self.lending[cell]
        return 0 if lending is None else max(0, self.subtree[cell] - lending)

    def private_free(self, cell: int) -> int:
        return max(0, self.private(cell) - self.usage[cell])

    def share(self, cell: int) -> tuple[int, int]:
        """What its parent counts of it: quota that it lends, and usage beyond its private quota (Q2)."""
        private = self.private(cell)
        return self.subtree[cell] - private, max(0, self.usage[cell] - private)

    def path(self) -> Iterator[Node]:
        """This node and its ancestors, nearest first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class QuotaTree:
    """All nodes of all trees. Usage is what open attempts hold."""

    def __init__(self) -> None:
        self.cells: dict[FlavorResource, int] = {}
        self.names: list[FlavorResource] = []
        self._queues: dict[str, Node] = {}
        self._cohorts: dict[str, Node] = {}
        self._left_open: dict[Node, None] = {}
        """Cohorts that are kept out of the parent they ask for: it would close a circle."""

    # --- shape

    def queue(self, name: str) -> Node:
        """The node of a ClusterQueue, made empty if there is none: what is charged stays charged."""
        return self._queues.get(name) or self._add(self._queues, "ClusterQueue", name)

    def set_queue(self, queue: ClusterQueue) -> None:
        self._set(self.queue(queue.name), queue.cohort, queue.resource_groups)

    def set_cohort(self, cohort: Cohort) -> None:
        self._set(self._cohort(cohort.name), cohort.parent, cohort.resource_groups)

    def drop_queue(self, name: str) -> None:
        """Its quota is gone; its usage stays until released."""
        self._set(self.queue(name), None, ())

    def drop_cohort(self, name: str) -> None:
        """Without its object a cohort goes on as an implicit root without quota of its own."""
        self._set(self._cohort(name), None, ())

    def cyclic(self, queue: str) -> bool:
        """Does following the wanted parents from this queue never end?"""
        seen: set[str] = set()
        wanted = self.queue(queue).wanted
        while wanted is not None and wanted not in seen:
            seen.add(wanted)
            wanted = self._cohorts[wanted].wanted
        return wanted is not None

    def cell(self, name: FlavorResource) -> int:
        """Number of a cell, given at its first mention."""
        number = self.cells.get(name)
        if number is None:
            number = self.cells[name] = len(self.names)
            self.names.append(name)
            for node in self.nodes():
                node.nominal.append(0)
                node.borrowing.append(None)
                node.lending.append(None)
                node.subtree.append(0)
                node.usage.append(0)
        return number

    def numbered(self, usage: Usage) -> Cells:
        return [(self.cell(name), amount) for name, amount in usage.items()]

    def nodes(self) -> Iterator[Node]:
        yield from self._queues.values()
        yield from self._cohorts.values()

    def _cohort(self, name: str) -> Node:
        return self._cohorts.get(name) or self._add(self._cohorts, "Cohort", name)

    def _add(self, nodes: dict[str, Node], kind: str, name: str) -> Node:
        node = nodes[name] = Node(kind, name, len(self.names))
        return node

    def _set(self, node: Node, parent: str | None, groups: Sequence[ResourceGroup]) -> None:
        quotas = [
            (self.cell(FlavorResource(flavor.name, resource)), quota)
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.resources
        ]
        size = len(self.names)
        self._detach(node)
        for cell, before in enumerate(node.nominal):
            node.subtree[cell] -= before
        node.nominal, node.borrowing, node.lending = [0] * size, [None] * size, [None] * size
        for cell, quota in quotas:
            node.nominal[cell] = quota.nominal
            node.borrowing[cell] = quota.borrowing_limit
            node.lending[cell] = quota.lending_limit
        for cell, nominal in enumerate(node.nominal):
            node.subtree[cell] += nominal
        node.wanted = parent
        self._attach(node)
        # A circle that this change opened lets the nodes in again that had been kept out of it.
        for other in list(self._left_open):
            if other is not node:
                self._attach(other)

    def _attach(self, node: Node) -> None:
        """Put it under the parent it asks for, unless that would close a circle."""
        self._left_open.pop(node, None)
        if node.wanted is None:
            return
        parent = self._cohort(node.wanted)
        if node in parent.path():
            self._left_open[node] = None
            return
        node.parent = parent
        parent.children[node.kind, node.name] = node
        self._pass_up(node, 1)

    def _detach(self, node: Node) -> None:
        if node.parent is None:
            return
        self._pass_up(node, -1)
        del node.parent.children[node.kind, node.name]
        node.parent = None

    def _pass_up(self, node: Node, sign: int) -> None:
        """Add what a node lends and draws to its ancestors, or take it from them (Q2)."""
        for cell in range(len(self.names)):
            lent, drawn = node.share(cell)
            lent, drawn, at = sign * lent, sign * drawn, node.parent
            while at is not None and (lent or drawn):
                before = at.share(cell)
                at.subtree[cell] += lent
                at.usage[cell] += drawn
                after = at.share(cell)
                lent, drawn, at = after[0] - before[0], after[1] - before[1], at.parent

    # --- arithmetic

    def available(self, node: Node, cell: int) -> int:
        """What could be added to `node` now (Q4); negative where more is used than there is."""
        path = list(node.path())
        root = path.pop()
        amount = root.subtree[cell] - root.usage[cell]
        for at in reversed(path):
            limit = at.borrowing[cell]
            if limit is not None:
                private = at.private(cell)
                drawn = max(0, at.usage[cell] - private)
                amount = min(amount, at.subtree[cell] - private - drawn + limit)
            amount += at.private_free(cell)
        return amount

    def potential(self, node: Node, cell: int) -> int:
        """What could be available to `node` in an empty cluster (Q5)."""
        path = list(node.path())
        amount = path.pop().subtree[cell]
        for at in reversed(path):
            amount += at.private(cell)
            limit = at.borrowing[cell]
            if limit is not None:
                amount = min(amount, at.subtree[cell] + limit)
        return amount

    def add(self, node: Node, usage: Iterable[tuple[int, int]]) -> None:
        """Charge `node`; what its private quota does not cover is charged to its parent too (Q6)."""
        for cell, amount in usage:
            at: Node | None = node
            while at is not None and amount > 0:
                spill = amount - at.private_free(cell)
                at.usage[cell] += amount
                amount, at = spill, at.parent

    def remove(self, node: Node, usage: Iterable[tuple[int, int]]) -> None:
        """Undo `add`, exactly."""
        for cell, amount in usage:
            at: Node | None = node
            while at is not None and amount > 0:
                above = at.usage[cell] - at.private(cell)
                at.usage[cell] -= amount
                amount, at = min(amount, above), at.parent
