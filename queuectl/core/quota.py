"""The quota tree: ClusterQueues are its leaves, Cohorts its inner nodes (docs/scheduling.md, Q2 to Q6).

Cells, (flavor, resource) pairs, are numbered once; each node keeps its amounts in lists indexed by that
number. A change of quota, parent or usage costs the depth of its path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from queuectl.core.model import NORMAL_WEIGHT, ClusterQueue, Cohort, ResourceGroup
from queuectl.core.resources import FlavorResource, Usage
from queuectl.core.rules import TreeSharing

Cells = list[tuple[int, int]]
"""(cell number, amount) pairs."""


class Node:
    """One ClusterQueue or Cohort. Lists are indexed by cell number, amounts in base units."""

    __slots__ = (
        "borrowing",
        "children",
        "kind",
        "lending",
        "lends",
        "name",
        "nominal",
        "parent",
        "private",
        "sharing",
        "subtree",
        "usage",
        "wanted",
        "weight",
    )

    def __init__(self, kind: str, name: str, cells: int) -> None:
        self.kind = kind
        self.name = name
        self.parent: Node | None = None
        self.wanted: str | None = None
        """Name of the cohort it asks for. It has no parent while that would close a circle."""
        self.lends: tuple[int, dict[str, int]] = (-1, {})
        """What it lends by resource, with the version of the tree that this is of (S2)."""
        self.children: dict[tuple[str, str], Node] = {}
        self.nominal = [0] * cells
        self.borrowing: list[int | None] = [None] * cells
        self.lending: list[int | None] = [None] * cells
        self.subtree = [0] * cells
        """Own quota and what the children lend."""
        self.usage = [0] * cells
        self.private = [0] * cells
        """Quota that nobody above may use: max(0, subtree - lending) (Q3)."""
        self.weight = NORMAL_WEIGHT
        """In thousandths."""
        self.sharing = TreeSharing()

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def private_free(self, cell: int) -> int:
        return max(0, self.private[cell] - self.usage[cell])

    def borrows(self, cell: int, more: int = 0) -> bool:
        """Would it, with `more` added, use more than is its own (Q8)?"""
        return self.usage[cell] + more > self.subtree[cell]

    def share(self, cell: int) -> tuple[int, int]:
        """What its parent counts of it: quota that it lends, and usage beyond its private quota (Q2)."""
        private = self.private[cell]
        return self.subtree[cell] - private, max(0, self.usage[cell] - private)

    def widen(self) -> None:
        """Room for one more cell."""
        for amounts in (self.nominal, self.subtree, self.usage, self.private):
            amounts.append(0)
        self.borrowing.append(None)
        self.lending.append(None)

    def grow(self, cell: int, amount: int) -> None:
        """Change the quota of its subtree; what is private follows (Q3)."""
        self.subtree[cell] += amount
        lending = self.lending[cell]
        self.private[cell] = 0 if lending is None else max(0, self.subtree[cell] - lending)

    def path(self) -> Iterator[Node]:
        """This node and its ancestors, nearest first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


def cohorts_above(first: str | None, parent: Callable[[str], str | None]) -> list[str]:
    """Names of the cohort `first` and of those above it, nearest first.

    In a cycle the list ends with the first name that is in it twice.
    """
    chain: list[str] = []
    seen: set[str] = set()
    name = first
    while name is not None:
        chain.append(name)
        if name in seen:
            break
        seen.add(name)
        name = parent(name)
    return chain


def cyclic(chain: Sequence[str]) -> bool:
    """Does this result of `cohorts_above` end in a cycle?"""
    return len(chain) != len(set(chain))


class QuotaTree:
    """All nodes of all trees. Usage is what open attempts hold."""

    def __init__(self) -> None:
        self.cells: dict[FlavorResource, int] = {}
        self.names: list[FlavorResource] = []
        self._queues: dict[str, Node] = {}
        self._cohorts: dict[str, Node] = {}
        self._left_open: dict[Node, None] = {}
        """Cohorts that are kept out of the parent they ask for: it would close a circle."""
        self._heights: dict[Node, int] = {}
        self._heights_of = -1
        """The version that the heights were measured at."""
        self.version = 0
        """Counts changes of quota and shape; usage is none."""

    # --- shape

    def queue(self, name: str) -> Node:
        """The node of a ClusterQueue, made empty if there is none: what is charged stays charged."""
        return self._queues.get(name) or self._add(self._queues, "ClusterQueue", name)

    def set_queue(self, queue: ClusterQueue) -> None:
        node = self.queue(queue.name)
        node.weight = queue.weight
        self._set(node, queue.cohort, queue.resource_groups)

    def set_cohort(self, cohort: Cohort) -> None:
        node = self._cohort(cohort.name)
        node.weight, node.sharing = cohort.weight, cohort.sharing
        self._set(node, cohort.parent, cohort.resource_groups)

    def drop_queue(self, name: str) -> None:
        """Its quota is gone; its usage stays until released."""
        self._set(self.queue(name), None, ())

    def drop_cohort(self, name: str) -> None:
        """Without its object a cohort goes on as an implicit root without quota of its own."""
        node = self._cohort(name)
        node.weight, node.sharing = NORMAL_WEIGHT, TreeSharing()
        self._set(node, None, ())

    def cyclic(self, queue: str) -> bool:
        """Is the cohort that this queue names, or one above it, its own ancestor?"""
        return cyclic(cohorts_above(self.queue(queue).wanted, lambda name: self._cohorts[name].wanted))

    def cell(self, name: FlavorResource) -> int:
        """Number of a cell, given at its first mention."""
        number = self.cells.get(name)
        if number is None:
            number = self.cells[name] = len(self.names)
            self.names.append(name)
            for node in self.nodes():
                node.widen()
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
        self.version += 1
        self._detach(node)
        before = node.nominal
        node.nominal, node.borrowing, node.lending = [0] * size, [None] * size, [None] * size
        for cell, quota in quotas:
            node.nominal[cell] = quota.nominal
            node.borrowing[cell] = quota.borrowing_limit
            node.lending[cell] = quota.lending_limit
        for cell, nominal in enumerate(node.nominal):
            node.grow(cell, nominal - before[cell])
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
                at.grow(cell, lent)
                at.usage[cell] += drawn
                after = at.share(cell)
                lent, drawn, at = after[0] - before[0], after[1] - before[1], at.parent

    # --- arithmetic

    def available(self, node: Node, cell: int) -> int:
        """What could be added to `node` now (Q4); negative where more is used than there is."""
        least: int | None = None
        free, at = 0, node
        while at.parent is not None:
            private, usage = at.private[cell], at.usage[cell]
            if usage < private:
                free += private - usage
            limit = at.borrowing[cell]
            if limit is not None:
                bound = free + at.subtree[cell] - private - max(0, usage - private) + limit
                if least is None or bound < least:
                    least = bound
            at = at.parent
        free += at.subtree[cell] - at.usage[cell]
        return free if least is None or free < least else least

    def fits(self, node: Node, cells: Cells) -> bool:
        """Is there room for all of `cells` at `node` now (Q4)?"""
        for cell, amount in cells:  # noqa: SIM110 (a generator costs half of this again)
            if amount > 0 and amount > self.available(node, cell):
                return False
        return True

    def level(self, node: Node, cells: Cells) -> int:
        """How far up the tree the furthest of `cells` more at `node` reaches (Q9)."""
        if node.parent is None:
            return 0
        level = 0
        for cell, amount in cells:
            if node.usage[cell] + amount > node.subtree[cell]:
                level = max(level, self.borrow_level(node, cell, amount)[0])
        return level

    def potential(self, node: Node, cell: int) -> int:
        """What could be available to `node` in an empty cluster (Q5)."""
        least: int | None = None
        own, at = 0, node
        while at.parent is not None:
            limit = at.borrowing[cell]
            if limit is not None and (least is None or own + at.subtree[cell] + limit < least):
                least = own + at.subtree[cell] + limit
            own += at.private[cell]
            at = at.parent
        own += at.subtree[cell]
        return own if least is None or own < least else least

    def borrow_level(self, node: Node, cell: int, amount: int) -> tuple[int, bool]:
        """How far up the tree `amount` more at a ClusterQueue reaches, 0 for not beyond its own (Q9).

        With it: is there somebody above from whom what is lent could be reclaimed?
        """
        if node.parent is None or not node.borrows(cell, amount):
            return 0, node.parent is not None
        rest, at = amount - node.private_free(cell), node.parent
        while at.parent is not None:
            usage = at.usage[cell]
            if usage + rest <= at.subtree[cell]:
                return self.height(at), True
            if usage < at.private[cell]:
                rest -= at.private[cell] - usage
            at = at.parent
        return self.height(at), False

    def height(self, node: Node) -> int:
        """Longest way down to a leaf; a cohort with nothing but queues has height 1."""
        if self._heights_of != self.version:
            self._heights = self._measure()
            self._heights_of = self.version
        return self._heights.get(node, 0)

    def _measure(self) -> dict[Node, int]:
        heights: dict[Node, int] = {}
        for queue in self._queues.values():
            for height, at in enumerate(queue.path()):
                if heights.get(at, -1) >= height:
                    break
                heights[at] = height
        for cohort in self._cohorts.values():  # one without queues below counts from its own leaves
            for height, at in enumerate(cohort.path()):
                if heights.get(at, -1) >= height:
                    break
                heights[at] = height
        return heights

    def roots(self) -> Iterator[Node]:
        return (node for node in self.nodes() if node.parent is None)

    def root(self, node: Node) -> Node:
        while node.parent is not None:
            node = node.parent
        return node

    def add(self, node: Node, usage: Iterable[tuple[int, int]]) -> None:
        """Charge `node`; what its private quota does not cover is charged to its parent too (Q6)."""
        for cell, amount in usage:
            at: Node | None = node
            while at is not None and amount > 0:
                free = at.private[cell] - at.usage[cell]
                at.usage[cell] += amount
                if free > 0:
                    amount -= free
                at = at.parent

    def remove(self, node: Node, usage: Iterable[tuple[int, int]]) -> None:
        """Undo `add`, exactly."""
        for cell, amount in usage:
            at: Node | None = node
            while at is not None and amount > 0:
                above = at.usage[cell] - at.private[cell]
                at.usage[cell] -= amount
                if above < amount:
                    amount = above
                at = at.parent
