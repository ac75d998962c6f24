"""Dominant shares: how much of the lendable quota a node borrows (docs/scheduling.md, S1 to S5).

Shares are exact: fractions of integers, compared by cross-multiplication.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from queuectl.core.model.policy import NORMAL_WEIGHT
from queuectl.core.model.workload import Place
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree


class Share:
    """An immutable dominant share. The smaller is admitted first, the larger is preempted first."""

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
        """The share is numerator / denominator, in thousandths; the denominator is positive."""
        self.denominator = denominator
        self.infinite = infinite
        """It borrows with weight 0: larger than a finite share; two such shares compare by fraction (S3)."""
        self.resource = resource
        """The dominant resource; "" for a share of 0. Comparisons ignore it."""
        self.borrowing = borrowing
        """The node borrows on some cell, lendable or not (Q8). Comparisons ignore it."""

    @property
    def reported(self) -> int | None:
        """The share in thousandths, rounded up, for reports; None: infinite."""
        return None if self.infinite else -(-self.numerator // self.denominator)

    def compare(self, other: Share) -> int:
        """Return a number below 0 if this share is smaller, 0 if they are equal, else above 0 (S3)."""
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


def dominant_share(tree: QuotaTree, node: QuotaNode) -> Share:
    """Return the share of `node` (S2)."""
    if node.parent is None:
        return NO_SHARE
    borrowed = _borrowed(tree, node)
    if not borrowed:
        return NO_SHARE
    dominant, most, lent = "", 0, 1
    lends = lendable(tree, node.parent)
    for resource in sorted(borrowed):
        lendable_here = lends.get(resource, 0)
        if lendable_here > 0 and borrowed[resource] * lent > most * lendable_here:
            dominant, most, lent = resource, borrowed[resource], lendable_here
    if not most:
        return Share(borrowing=True)
    if not node.weight:
        return Share(1000 * most, lent, infinite=True, resource=dominant, borrowing=True)
    return Share(1000 * NORMAL_WEIGHT * most, lent * node.weight, resource=dominant, borrowing=True)


def _borrowed(tree: QuotaTree, node: QuotaNode) -> dict[str, int]:
    """Return the usage beyond the subtree quota, by resource over all flavors, in base units (S2)."""
    borrowed: dict[str, int] = {}
    for cell, (used, own) in enumerate(zip(node.usage, node.subtree, strict=True)):
        if used > own:
            resource = tree.names[cell].resource
            borrowed[resource] = borrowed.get(resource, 0) + used - own
    return borrowed


def lendable(tree: QuotaTree, cohort: QuotaNode) -> dict[str, int]:
    """Return the potential quota of `cohort` by resource over all flavors, in base units (S2, Q5).

    It depends on quota and the shape of the tree only, and is cached until one of them changes.
    """
    version, lends = cohort.lends
    if version != tree.version:
        lends = {}
        for cell, (_, resource) in enumerate(tree.names):
            lends[resource] = lends.get(resource, 0) + tree.potential(cohort, cell)
        cohort.lends = (tree.version, lends)
    return lends


class Contender(Protocol):
    """The nominated head of one ClusterQueue."""

    @property
    def node(self) -> QuotaNode:
        """The ClusterQueue."""

    @property
    def cells(self) -> Cells:
        """The charge of its admission."""

    @property
    def order(self) -> Place:
        """Its order by priority, creation and identity (O1, O2)."""


H = TypeVar("H", bound=Contender)


def tournament(
    tree: QuotaTree, heads: Iterable[H], past_usage: Callable[[QuotaNode], float] | None = None
) -> Iterator[H]:
    """Yield the heads of one cohort tree, at most one per queue, in fair-sharing order (S4, S5).

    `past_usage`: of a member, which orders members before their shares do (U7).

    The caller processes a head before it requests the next one. This may change the usage of the queue of
    that head. Quota, and the usage of other queues, must not change until the last head is yielded.
    """
    bracket = _Tournament(tree, heads, past_usage)
    while (head := bracket.winner) is not None:
        yield head
        bracket.leave(head)


class _Tournament(Generic[H]):
    """For each cohort a heap of the winners of its children. The first one is the winner of the cohort."""

    def __init__(
        self, tree: QuotaTree, heads: Iterable[H], past_usage: Callable[[QuotaNode], float] | None
    ) -> None:
        self._tree = tree
        self._past_usage = past_usage
        self._rounds: dict[QuotaNode, list[tuple[bool, float, Share, Place, H]]] = {}
        self._missing: dict[QuotaNode, int] = {}
        """Number of children whose winner is not determined."""
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
        """Remove `head`, the last winner. The usage of its queue may have changed."""
        self.winner = None
        for cohort in head.node.path():
            if cohort is not head.node:
                heapq.heappop(self._rounds[cohort])  # the head itself: it won in each of them
                self._missing[cohort] = 1
        self._climb(head.node, None)

    def _climb(self, node: QuotaNode, winner: H | None) -> None:
        """Set the winner of `node`, and of each ancestor whose children all have a winner then."""
        charged: H | None = None
        try:
            while (cohort := node.parent) is not None:
                if winner is not charged:
                    self._charge(charged, winner)
                    charged = winner
                if winner is not None:
                    heapq.heappush(self._rounds.setdefault(cohort, []), self._key(node, winner))
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

    def _key(self, node: QuotaNode, head: H) -> tuple[bool, float, Share, Place, H]:
        """Return the sort key of `head` among the children of its cohort (S5). `head` must be charged."""
        borrows = any(amount and node.borrows(cell) for cell, amount in head.cells)
        usage = self._past_usage(node) if self._past_usage is not None else 0
        return borrows, usage, dominant_share(self._tree, node), head.order, head
