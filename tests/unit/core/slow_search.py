"""A slow reference of P7 to P9 of docs/scheduling.md: recursive, without state between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from queuectl.core.entries import Entry
from queuectl.core.limits import held_by
from queuectl.core.model.policy import PreemptionStrategy
from queuectl.core.model.reasons import PreemptionCause
from queuectl.core.preemption.search import PreemptionSearch
from queuectl.core.quota.tree import QuotaNode
from tests.unit.core.sharing import borrows, slow_share


class Slow:
    """The preemption search without state between steps."""

    def __init__(self, searched: PreemptionSearch) -> None:
        self.searched = searched
        self.tree = searched.tree
        self.node = searched.node
        self.taken: list[Entry] = []

    def choose(self, node: QuotaNode, lists: dict[QuotaNode, list[Entry]]) -> QuotaNode | None:
        """Return the next queue below `node`, or None without candidates."""
        if node.kind == "ClusterQueue":
            return node if lists.get(node) else None
        on_path = list(self.node.path())
        found = [
            (slow_share(self.tree, child), child, chosen)
            for child in node.children.values()
            if (borrows(child) or child in on_path) and (chosen := self.choose(child, lists)) is not None
        ]
        if not found:
            return None
        most = max(share for share, _, _ in found)
        best = [(child, chosen) for share, child, chosen in found if share == most]
        if cohorts := [pair for pair in best if pair[0].kind == "Cohort"]:
            return min(cohorts, key=lambda pair: pair[0].name)[1]
        first = self.searched.sort([lists[queue][0] for queue, _ in best])[0]
        return next(queue for queue, _ in best if lists[queue][0] is first)

    def sides(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        mine, theirs = list(self.node.path()), list(queue.path())
        while mine[-1] is theirs[-1]:
            mine.pop()
            theirs.pop()
        return mine[-1], theirs[-1]

    def remove(self, entry: Entry) -> None:
        hold = held_by(self.tree, entry)
        self.tree.remove(hold.node, hold.cells)

    def restore(self, entry: Entry) -> None:
        hold = held_by(self.tree, entry)
        self.tree.add(hold.node, hold.cells)

    def fits(self) -> bool:
        self.tree.remove(self.node, self.searched.cells)
        fits = self.searched.fits(allow_borrowing=True)
        self.tree.add(self.node, self.searched.cells)
        return fits

    def shares(self, queue: QuotaNode) -> tuple[tuple[bool, Fraction], tuple[bool, Fraction]]:
        mine, theirs = self.sides(queue)
        return slow_share(self.tree, mine), slow_share(self.tree, theirs)

    def passes(self, strategy: PreemptionStrategy, queue: QuotaNode, entry: Entry) -> bool:
        mine, before = self.shares(queue)
        if strategy is PreemptionStrategy.LESS_THAN_INITIAL_SHARE:
            return mine < before
        self.remove(entry)
        after = self.shares(queue)[1]
        self.restore(entry)
        asks = self.searched.entry
        first = (-asks.priority, asks.order[1]) < (-entry.priority, entry.order[1])
        return mine <= after and (mine < before or first)

    def take(self, entry: Entry, cause: PreemptionCause, found: list[tuple[str, str]]) -> bool:
        self.remove(entry)
        self.taken.append(entry)
        found.append((entry.id, cause.value))
        return self.fits()

    def search(self, strategies: Sequence[PreemptionStrategy]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        nominal = self.searched.within_nominal
        lists = {node: list(self.searched.candidates(node)) for node in self.searched.nodes_with_candidates()}
        self.tree.add(self.node, self.searched.cells)
        root = self.tree.root(self.node)
        take = partial(self.take, found=found)
        fits = self.first(root, lists, strategies[0], nominal, take)
        if not fits and len(strategies) > 1:
            fits = self.second(root, take)
        self.tree.remove(self.node, self.searched.cells)
        for entry in reversed(self.taken[:-1]) if fits else ():
            self.restore(entry)
            if self.searched.fits(allow_borrowing=True):
                self.taken.remove(entry)
            else:
                self.remove(entry)
        for entry in self.taken:
            self.restore(entry)
        return [pair for pair in found if pair[0] in {entry.id for entry in self.taken}] if fits else []

    def first(
        self,
        root: QuotaNode,
        lists: dict[QuotaNode, list[Entry]],
        strategy: PreemptionStrategy,
        nominal: bool,
        take: Callable[[Entry, PreemptionCause], bool],
    ) -> bool:
        self.aside: dict[QuotaNode, list[Entry]] = {}
        while (queue := self.choose(root, lists)) is not None:
            if queue is self.node:
                if take(lists[queue].pop(0), PreemptionCause.IN_CLUSTER_QUEUE):
                    return True
            elif nominal:
                if take(lists[queue].pop(0), PreemptionCause.IN_COHORT_RECLAMATION):
                    return True
            else:
                while lists[queue]:
                    entry = lists[queue].pop(0)
                    if self.passes(strategy, queue, entry):
                        if take(entry, PreemptionCause.IN_COHORT_FAIR_SHARING):
                            return True
                        break
                    self.aside.setdefault(queue, []).append(entry)
        return False

    def second(self, root: QuotaNode, take: Callable[[Entry, PreemptionCause], bool]) -> bool:
        while (queue := self.choose(root, self.aside)) is not None:
            mine, theirs = self.shares(queue)
            if mine < theirs and take(self.aside[queue][0], PreemptionCause.IN_COHORT_FAIR_SHARING):
                return True
            del self.aside[queue]
        return False
