"""How much of what others lend a node has borrowed: its dominant share (docs/scheduling.md, S2 and S3).

Exact: shares are fractions of integers, compared by multiplying crosswise.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from queuectl.core.entries import Place
from queuectl.core.policy import NORMAL_WEIGHT, SchedulingConfiguration
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree


class Share:
    """A dominant share, not to be changed. It orders: the smaller is served first, the larger gives first."""

    __slots__ = ("borrowing", "denominator", "infinite", "numerator", "resource")

    def __init__(
        self,
        numerator: int = 0,
        denominator: int = 1,
        *,
        infinite: bool = False,
        resource: str = "",
        borrowing: bool = False,
    ) -> None:
        self.numerator = numerator
        """In thousandths of what is lent, over `denominator`, which is positive."""
        self.denominator = denominator
        self.infinite = infinite
        """Borrows with weight 0: larger than all that are not; among themselves the fraction orders (S3)."""
        self.resource = resource
        """The dominant one, "" at a share of 0. Takes no part in comparisons."""
        self.borrowing = borrowing
        """Uses more of anything than is its own, even if nobody lends it. Takes no part in comparisons."""

    @property
    def reported(self) -> int | None:
        """Thousandths, rounded up, as people read it; None: infinite."""
        return None if self.infinite else -(-self.numerator // self.denominator)

    def compare(self, other: Share) -> int:
        """Negative where this one is smaller, 0 where they are equal, positive where it is larger (S3)."""
        if self.infinite is not other.infinite:
            return 1 if self.infinite else -1
        return self.numerator * other.denominator - other.numerator * self.denominator

    def __lt__(self, other: Share) -> bool:
        return self.compare(other) < 0

    def __le__(self, other: Share) -> bool:
        return self.compare(other) <= 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self.compare(other) == 0

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        value = f"{self.numerator}/{self.denominator}"
        return f"Share({value}{' infinite' if self.infinite else ''} {self.resource or 'nothing'})"


NO_SHARE = Share()


def shares_fairly(tree: QuotaTree, node: QuotaNode, settings: SchedulingConfiguration) -> bool:
    """Does the tree of `node` share fairly (S1)? A queue without a cohort has nobody to share with."""
    if node.parent is None:
        return False
    enabled = tree.root(node).sharing.enabled
    return settings.fair_sharing if enabled is None else enabled


def dominant_share(tree: QuotaTree, node: QuotaNode, extra: Sequence[tuple[int, int]] = ()) -> Share:
    """Share of `node` (S2). `extra` are (cell, amount) pairs that count as if `node` itself used them too."""
    if node.parent is None:
        return NO_SHARE
    over = _borrowed(tree, node, extra)
    if not over:
        return NO_SHARE
    dominant, most, lent = "", 0, 1
    lends = lendable(tree, node.parent)
    for resource in sorted(over):
        there = lends.get(resource, 0)
        if there > 0 and over[resource] * lent > most * there:
            dominant, most, lent = resource, over[resource], there
    if not most:
        return Share(borrowing=True)
    if not node.weight:
        return Share(1000 * most, lent, infinite=True, resource=dominant, borrowing=True)
    return Share(1000 * NORMAL_WEIGHT * most, lent * node.weight, resource=dominant, borrowing=True)


def _borrowed(tree: QuotaTree, node: QuotaNode, extra: Sequence[tuple[int, int]]) -> dict[str, int]:
    """What it uses beyond the quota of its subtree, by resource over all flavors, in base units."""
    usage = node.usage
    if extra:
        usage = usage.copy()
        for cell, amount in extra:
            usage[cell] += amount
    over: dict[str, int] = {}
    for cell, (used, own) in enumerate(zip(usage, node.subtree, strict=True)):
        if used > own:
            resource = tree.names[cell].resource
            over[resource] = over.get(resource, 0) + used - own
    return over


def lendable(tree: QuotaTree, cohort: QuotaNode) -> dict[str, int]:
    """What the children of `cohort` could draw at most, by resource over all flavors, in base units (S2).

    Changes with quota and shape alone, so it is remembered until one of them does.
    """
    version, lends = cohort.lends
    if version != tree.version:
        lends = {}
        for cell, (_, resource) in enumerate(tree.names):
            lends[resource] = lends.get(resource, 0) + tree.potential(cohort, cell)
        cohort.lends = (tree.version, lends)
    return lends


class Contender(Protocol):
    """The first of one ClusterQueue, with what it would be charged."""

    @property
    def node(self) -> QuotaNode: ...
    @property
    def cells(self) -> Cells: ...
    @property
    def order(self) -> Place: ...


H = TypeVar("H", bound=Contender)


def tournament(tree: QuotaTree, heads: Iterable[H]) -> Iterator[H]:
    """Heads of one root's tree, one per queue, each once, the fairest next (S4, S5).

    The caller processes a head before it asks for the next one. That may change the usage of its queue;
    quota, and usage of other queues, must stay as they are until the last head is out.
    """
    bracket = _Tournament(tree, heads)
    while (head := bracket.winner) is not None:
        yield head
        bracket.leave(head)


class _Tournament(Generic[H]):
    """For each cohort a heap of its children's winners, the first of them its own winner."""

    def __init__(self, tree: QuotaTree, heads: Iterable[H]) -> None:
        self._tree = tree
        self._rounds: dict[QuotaNode, list[tuple[bool, Share, Place, H]]] = {}
        self._missing: dict[QuotaNode, int] = {}
        """How many children have yet to name their winner."""
        self.winner: H | None = None
        first = list(heads)
        seen: set[QuotaNode] = set()
        for head in first:
            assert head.node not in seen, f"two heads of {head.node}"
            assert tree.root(head.node) is tree.root(first[0].node), f"{head.node} is in another tree"
            at = head.node
            while at not in seen:
                seen.add(at)
                if at.parent is None:
                    break
                self._missing[at.parent] = self._missing.get(at.parent, 0) + 1
                at = at.parent
        for head in first:
            self._climb(head.node, head)

    def leave(self, head: H) -> None:
        """The winner is out, and its queue's usage may have changed."""
        self.winner = None
        for cohort in head.node.path():
            if cohort is not head.node:
                heapq.heappop(self._rounds[cohort])  # itself: it won all of them
                self._missing[cohort] = 1
        self._climb(head.node, None)

    def _climb(self, node: QuotaNode, winner: H | None) -> None:
        """`node` names its winner; so does each ancestor that waited for no other child."""
        charged: H | None = None
        try:
            while (cohort := node.parent) is not None:
                if winner is not charged:
                    self._charge(charged, winner)
                    charged = winner
                if winner is not None:
                    heapq.heappush(self._rounds.setdefault(cohort, []), self._standing(node, winner))
                self._missing[cohort] -= 1
                if self._missing[cohort]:
                    return
                node, contenders = cohort, self._rounds.get(cohort)
                winner = contenders[0][-1] if contenders else None
            self.winner = winner
        finally:
            self._charge(charged, None)

    def _charge(self, before: H | None, after: H | None) -> None:
        if before is not None:
            self._tree.remove(before.node, before.cells)
        if after is not None:
            self._tree.add(after.node, after.cells)

    def _standing(self, node: QuotaNode, head: H) -> tuple[bool, Share, Place, H]:
        """Smaller goes first. `head` is charged, so that its share is what it would be (S4, S5)."""
        borrows = any(amount and node.borrows(cell) for cell, amount in head.cells)
        return borrows, dominant_share(self._tree, node), head.order, head
