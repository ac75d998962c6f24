"""The quota tree: ClusterQueues are its leaves, Cohorts its inner nodes (docs/scheduling.md, Q2 to Q6).

A cell is a (flavor, resource) pair. Each cell gets a number once, and each node has its amounts in lists
indexed by that number. The cost of a change of quota, parent or usage is the depth of the node (Q7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final, NamedTuple

from queuectl.core.model.policy import (
    NORMAL_WEIGHT,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    FairSharing,
    ResourceGroup,
    cohorts_above,
)
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.resources import FlavorResource, Usage

Cells = list[tuple[int, int]]
"""(cell number, amount in base units) pairs."""


class QuotaNode:
    """One ClusterQueue or Cohort. Lists are indexed by cell number; amounts are in base units."""

    __slots__ = (
        "borrowing",
        "children",
        "kind",
        "lending",
        "lends",
        "name",
        "named",
        "nominal",
        "parent",
        "private",
        "promised",
        "sharing",
        "shortage",
        "subtree",
        "usage",
        "wanted",
        "weight",
    )

    def __init__(self, kind: str, name: str, cells: int) -> None:
        self.kind = kind
        self.name = name
        self.parent: QuotaNode | None = None
        self.wanted: str | None = None
        """Name of the cohort in its spec. `parent` stays None while that cohort would close a cycle (Q7)."""
        self.lends: tuple[int, dict[str, int]] = (-1, {})
        """(version of the tree, lendable quota by resource): the cache of `shares.lendable` (S2)."""
        self.children: dict[tuple[str, str], QuotaNode] = {}
        self.named: frozenset[int] = frozenset()
        """The cells that its spec names."""
        self.promised = [0] * cells
        """Nominal quota in its spec."""
        self.nominal = [0] * cells
        """What of it counts: less while nodes have less than is promised, if its root says so (M11)."""
        self.borrowing: list[int | None] = [None] * cells
        """Borrowing limit; None: no limit."""
        self.lending: list[int | None] = [None] * cells
        """Lending limit; None: no limit."""
        self.subtree = [0] * cells
        """Nominal quota, and the quota that the children lend (Q2)."""
        self.usage = [0] * cells
        """Usage of a ClusterQueue; for a cohort, the usage beyond private quota of its children (Q2)."""
        self.private = [0] * cells
        """Quota that is not lent: max(0, subtree - lending limit), or 0 without a limit (Q3)."""
        self.weight = NORMAL_WEIGHT
        """Fair-sharing weight in thousandths."""
        self.sharing = FairSharing()
        self.shortage = CapacityShortage.BY_PRIORITY

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def private_free(self, cell: int) -> int:
        """Return the unused private quota, in base units."""
        return max(0, self.private[cell] - self.usage[cell])

    def borrows(self, cell: int, more: int = 0) -> bool:
        """Return whether the node borrows on `cell` with `more` base units added to its usage (Q8)."""
        return self.usage[cell] + more > self.subtree[cell]

    def share(self, cell: int) -> tuple[int, int]:
        """Return what its parent adds up: (quota that it lends, usage beyond its private quota) (Q2)."""
        private = self.private[cell]
        return self.subtree[cell] - private, max(0, self.usage[cell] - private)

    def widen(self) -> None:
        """Append one cell to all lists."""
        for amounts in (self.promised, self.nominal, self.subtree, self.usage, self.private):
            amounts.append(0)
        self.borrowing.append(None)
        self.lending.append(None)

    def grow(self, cell: int, amount: int) -> None:
        """Add `amount` to the subtree quota and update the private quota (Q3)."""
        self.subtree[cell] += amount
        lending = self.lending[cell]
        self.private[cell] = 0 if lending is None else max(0, self.subtree[cell] - lending)

    def path(self) -> Iterator[QuotaNode]:
        """Yield this node and its ancestors, nearest first."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def below(self) -> Iterator[QuotaNode]:
        """Yield this node and all nodes below it, each before those below it."""
        todo = [self]
        while todo:
            at = todo.pop()
            yield at
            todo.extend(at.children.values())

    def queues(self) -> Iterator[QuotaNode]:
        """Yield the ClusterQueues at or below this node."""
        return (at for at in self.below() if at.kind == "ClusterQueue")


class QuotaTree:
    """All nodes of all cohort trees. Usage is the sum of the open attempts."""

    def __init__(self, *, fair_sharing: bool = False) -> None:
        """`fair_sharing`: of trees whose root does not say so itself (S1)."""
        self._fair_sharing = fair_sharing
        self.numbering = CellNumbers()
        self.cells, self.names = self.numbering.numbers, self.numbering.names
        self._queues: dict[str, QuotaNode] = {}
        self._cohorts: dict[str, QuotaNode] = {}
        self._objects: set[str] = set()
        """Names of the cohorts that have an object; the others are only named by nodes below them."""
        self._left_open: dict[QuotaNode, None] = {}
        """Cohorts that are detached because the parent in their spec would close a cycle (Q7)."""
        self._heights: dict[QuotaNode, int] = {}
        self._heights_of = -1
        """The version that `_heights` was computed for."""
        self.reduced: dict[QuotaNode, frozenset[int]] = {}
        """By root: the cells of which less counts than is promised in its tree (M11)."""
        self.version = 0
        """Number of changes of quota and shape so far. Changes of usage do not count."""

    # --- shape

    def queue(self, name: str) -> QuotaNode:
        """Return the node of a ClusterQueue; a missing node is created without quota."""
        return self._queues.get(name) or self._add(self._queues, "ClusterQueue", name)

    def set_queue(self, queue: ClusterQueue) -> None:
        """Set parent, quota and weight of the node from `queue`."""
        node = self.queue(queue.name)
        node.weight = queue.weight
        self._set(node, queue.cohort, queue.resource_groups)

    def set_cohort(self, cohort: Cohort) -> None:
        """Set parent, quota, weight and fair sharing of the node from `cohort`."""
        self._objects.add(cohort.name)
        node = self.cohort(cohort.name)
        node.weight, node.sharing, node.shortage = cohort.weight, cohort.sharing, cohort.shortage
        self._set(node, cohort.parent, cohort.resource_groups)

    def drop_queue(self, name: str) -> None:
        """Remove the quota of a ClusterQueue. Its usage remains until it is released."""
        self._set(self.queue(name), None, ())

    def drop_cohort(self, name: str) -> None:
        """Remove the quota of a Cohort. Without its object, a cohort is an implicit root without quota."""
        node = self.cohort(name)
        node.weight, node.sharing = NORMAL_WEIGHT, FairSharing()
        node.shortage = CapacityShortage.BY_PRIORITY
        self._set(node, None, ())
        self._objects.discard(name)
        self._forget_cohort(name)

    def forget_queue(self, name: str) -> None:
        """Forget the node of a ClusterQueue that has no object and no usage."""
        self._set(self.queue(name), None, ())
        del self._queues[name]

    def _forget_cohort(self, name: str | None) -> None:
        """Forget the node of a cohort that has no object, unless another node names it."""
        node = self._cohorts.get(name or "")
        if node is None or node.name in self._objects or node.children:
            return
        if all(other.wanted != name for other in self._left_open):
            del self._cohorts[node.name]

    def queue_names(self) -> Set[str]:
        """Return the names of all nodes that are ClusterQueues, also of those without an object."""
        return self._queues.keys()

    def under(self, cohort: str) -> dict[QuotaNode, None]:
        """Return this cohort and the ClusterQueues below it by their specs, which may close a cycle."""
        found = {self._cohorts[cohort]: None} if cohort in self._cohorts else {}
        found |= {queue: None for queue in self._queues.values() if cohort in self._above(queue)}
        return found

    def _above(self, queue: QuotaNode) -> list[str]:
        return cohorts_above(queue.wanted, lambda name: self._cohorts[name].wanted)

    def cell(self, name: FlavorResource) -> int:
        """Return the number of a cell, which may be a new one."""
        number = self.cells.get(name)
        if number is None:
            before = len(self.names)
            number = self.numbering.add(name)
            if number == before:
                for node in self.nodes():
                    node.widen()
        return number

    def numbered(self, usage: Usage) -> Cells:
        """Return `usage` with cell numbers."""
        return [(self.cell(name), amount) for name, amount in usage.items()]

    def nodes(self) -> Iterator[QuotaNode]:
        """Yield all nodes: the ClusterQueues, then the Cohorts."""
        yield from self._queues.values()
        yield from self._cohorts.values()

    def cohort(self, name: str) -> QuotaNode:
        """Return the node of a Cohort; a missing node is created without quota."""
        return self._cohorts.get(name) or self._add(self._cohorts, "Cohort", name)

    def _add(self, nodes: dict[str, QuotaNode], kind: str, name: str) -> QuotaNode:
        node = nodes[name] = QuotaNode(kind, name, len(self.names))
        return node

    def _set(self, node: QuotaNode, parent: str | None, groups: Sequence[ResourceGroup]) -> None:
        quotas = [
            (self.cell(FlavorResource(flavor.name, resource)), quota)
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.resources
        ]
        size = len(self.names)
        self.version += 1
        named = frozenset(cell for cell, _ in quotas)
        self.numbering.change_spec(node.named, named)
        node.named = named
        self._detach(node)
        before, former = node.nominal, node.wanted
        node.promised, node.borrowing, node.lending = [0] * size, [None] * size, [None] * size
        for cell, quota in quotas:
            node.promised[cell] = quota.nominal
            node.borrowing[cell] = quota.borrowing_limit
            node.lending[cell] = quota.lending_limit
        node.nominal = list(node.promised)
        for cell, nominal in enumerate(node.nominal):
            node.grow(cell, nominal - before[cell])
        node.wanted = parent
        self._attach(node)
        # If this change broke a cycle, the nodes that were detached because of it can be attached.
        for other in list(self._left_open):
            if other is not node:
                self._attach(other)
        self._forget_cohort(former)

    def set_nominal(self, node: QuotaNode, cell: int, amount: int) -> None:
        """Count `amount` of the nominal quota of a cell, instead of what counted so far (M11)."""
        self.version += 1
        before = node.share(cell)
        node.grow(cell, amount - node.nominal[cell])
        node.nominal[cell] = amount
        after = node.share(cell)
        _add_above(node, cell, after[0] - before[0], after[1] - before[1])

    def _attach(self, node: QuotaNode) -> None:
        """Attach `node` to the parent in its spec, unless this would close a cycle (Q7)."""
        self._left_open.pop(node, None)
        if node.wanted is None:
            return
        parent = self.cohort(node.wanted)
        if node in parent.path():
            self._left_open[node] = None
            return
        node.parent = parent
        parent.children[node.kind, node.name] = node
        self._pass_up(node, 1)

    def _detach(self, node: QuotaNode) -> None:
        if node.parent is None:
            return
        self._pass_up(node, -1)
        del node.parent.children[node.kind, node.name]
        node.parent = None

    def _pass_up(self, node: QuotaNode, sign: int) -> None:
        """Add (`sign` 1) or subtract (-1) the lent quota and the usage of `node` at its ancestors (Q2)."""
        for cell in range(len(self.names)):
            lent, usage = node.share(cell)
            _add_above(node, cell, sign * lent, sign * usage)

    # --- arithmetic

    def free(self, queue: str, cells: Iterable[FlavorResource]) -> dict[FlavorResource, int]:
        """Return what a ClusterQueue can have now of each cell, in base units: the available quota (Q4).

        With what it may borrow, without what others have borrowed of its own: what one request gets without
        preemption if no quota is reserved and the queue is active.
        """
        node = self.queue(queue)
        return {cell: max(0, self.available(node, self.cell(cell))) for cell in cells}

    def available(self, node: QuotaNode, cell: int) -> int:
        """Return the available quota at `node` in base units (Q4); negative if usage exceeds quota."""
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

    def fits(self, node: QuotaNode, cells: Cells) -> bool:
        """Return whether every amount of `cells` is available at `node` (Q4)."""
        for cell, amount in cells:  # noqa: SIM110 (a generator takes 1.5 times as long)
            if amount > 0 and amount > self.available(node, cell):
                return False
        return True

    def level(self, node: QuotaNode, cells: Cells) -> int:
        """Return the highest borrow level of `cells` at `node` (Q9); 0 without borrowing."""
        if node.parent is None:
            return 0
        level = 0
        for cell, amount in cells:
            if node.usage[cell] + amount > node.subtree[cell]:
                level = max(level, self.borrow_level(node, cell, amount)[0])
        return level

    def potential(self, node: QuotaNode, cell: int) -> int:
        """Return the potential quota: what is available at `node` if nothing is used (Q5), in base units."""
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

    def borrow_level(self, node: QuotaNode, cell: int, amount: int) -> tuple[int, bool]:
        """Return the borrow level of `amount` more of `cell`, and whether quota can be reclaimed (Q9).

        `node` is a ClusterQueue. The level is 0 without borrowing. Lent quota can be reclaimed if the node of
        that level has a parent.
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

    def height(self, node: QuotaNode) -> int:
        """Return the longest distance to a leaf. A cohort with only ClusterQueues has height 1 (Q9)."""
        if self._heights_of != self.version:
            self._heights = self._measure()
            self._heights_of = self.version
        return self._heights.get(node, 0)

    def _measure(self) -> dict[QuotaNode, int]:
        heights: dict[QuotaNode, int] = {}
        for queue in self._queues.values():
            for height, at in enumerate(queue.path()):
                if heights.get(at, -1) >= height:
                    break
                heights[at] = height
        for cohort in self._cohorts.values():  # a cohort without ClusterQueues below it is a leaf itself
            for height, at in enumerate(cohort.path()):
                if heights.get(at, -1) >= height:
                    break
                heights[at] = height
        return heights

    def roots(self) -> Iterator[QuotaNode]:
        """Yield the root of each tree."""
        return (node for node in self.nodes() if node.parent is None)

    def root_of(self, queue: str) -> QuotaNode:
        """Return the root of the tree of a ClusterQueue."""
        return self.root(self.queue(queue))

    def root(self, node: QuotaNode) -> QuotaNode:
        """Return the root of the tree of `node`."""
        while node.parent is not None:
            node = node.parent
        return node

    def shares_fairly(self, node: QuotaNode) -> bool:
        """Return whether the tree of `node` has fair sharing (S1); False for a queue without a cohort."""
        if node.parent is None:
            return False
        enabled = self.root(node).sharing.enabled
        return self._fair_sharing if enabled is None else enabled

    def add(self, node: QuotaNode, usage: Iterable[tuple[int, int]]) -> None:
        """Charge (cell, amount) pairs to `node`; beyond private quota also to its parent (Q6)."""
        for cell, amount in usage:
            at: QuotaNode | None = node
            while at is not None and amount > 0:
                free = at.private[cell] - at.usage[cell]
                at.usage[cell] += amount
                if free > 0:
                    amount -= free
                at = at.parent

    def remove(self, node: QuotaNode, usage: Iterable[tuple[int, int]]) -> None:
        """Revert `add` exactly (Q6)."""
        for cell, amount in usage:
            at: QuotaNode | None = node
            while at is not None and amount > 0:
                above = at.usage[cell] - at.private[cell]
                at.usage[cell] -= amount
                if above < amount:
                    amount = above
                at = at.parent

    def explain(self, node: QuotaNode, cell: int, amount: int) -> Reason:
        """Return why `amount` more of `cell` is not available at `node`: the limit that binds."""
        ever = amount <= self.potential(node, cell)
        room, limit, at = min(limits(node, cell, empty=not ever), key=lambda one: one.available)
        if limit is Limit.NOMINAL_QUOTA and cell in self.reduced.get(at, ()):
            limit = Limit.CAPACITY_SHORTAGE
        flavor, resource = self.names[cell]
        return Reason(
            code=Code.WAITING_FOR_QUOTA if ever else Code.EXCEEDS_MAX_QUOTA,
            flavor=flavor,
            resource=resource,
            requested=amount,
            available=max(0, room),
            short_by=amount - room,
            limit=limit,
            node=str(at),
        )


def _add_above(node: QuotaNode, cell: int, lent: int, usage: int) -> None:
    """Add lent quota, and usage, to the ancestors of `node` (Q2)."""
    at = node.parent
    while at is not None and (lent or usage):
        before = at.share(cell)
        at.grow(cell, lent)
        at.usage[cell] += usage
        after = at.share(cell)
        lent, usage, at = after[0] - before[0], after[1] - before[1], at.parent


class LimitLeft(NamedTuple):
    """A limit on the path of a node, and how much of a cell it leaves to that node."""

    available: int
    """In base units; negative where more is used than the limit allows."""
    limit: Limit
    at: QuotaNode


def limits(node: QuotaNode, cell: int, *, empty: bool = False) -> Iterator[LimitLeft]:
    """Yield every limit on the path of `node`, the nearest one first (Q4, Q5).

    `empty`: as if nothing were used. What is available is the least of them.
    """
    free, at = 0, node
    while at.parent is not None:
        private = at.private[cell]
        usage = 0 if empty else at.usage[cell]
        free += max(0, private - usage)
        limit = at.borrowing[cell]
        if limit is not None:
            available = free + at.subtree[cell] - private - max(0, usage - private) + limit
            yield LimitLeft(available, Limit.BORROWING_LIMIT, at)
        at = at.parent
    yield LimitLeft(free + at.subtree[cell] - (0 if empty else at.usage[cell]), Limit.NOMINAL_QUOTA, at)


FREE: Final = FlavorResource("", "")
"""Name of a number that is free."""


class CellNumbers:
    def __init__(self) -> None:
        self.numbers: dict[FlavorResource, int] = {}
        self.names: list[FlavorResource] = []
        """By number."""
        self.unnamed: set[int] = set()
        """Cells that no spec names."""
        self._specs: Counter[int] = Counter()
        """Number of specs that name a cell."""
        self._free: list[int] = []

    def add(self, name: FlavorResource) -> int:
        """Give a new cell a number: one that is free, or the next one."""
        if self._free:
            number = self._free.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
        self.numbers[name] = number
        self.unnamed.add(number)
        return number

    def change_spec(self, before: Set[int], after: Set[int]) -> None:
        """A spec that named the cells `before` names the cells `after`."""
        self._specs.update(after - before)
        self._specs.subtract(before - after)
        for cell in before ^ after:
            if self._specs[cell]:
                self.unnamed.discard(cell)
            else:
                del self._specs[cell]
                self.unnamed.add(cell)

    def forget(self, held: Set[int]) -> None:
        """Free the numbers of the cells that no spec names, but for those of `held`."""
        for cell in sorted(self.unnamed - held):
            del self.numbers[self.names[cell]]
            self.names[cell] = FREE
            self._free.append(cell)
        self.unnamed &= held
