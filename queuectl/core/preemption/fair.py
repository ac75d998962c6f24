"""Who comes next, and who gives way, where a tree shares fairly (docs/scheduling.md, S4, S5, P7 to P9).

A tree of brackets does both. Between two choices usage changes only in the queue that was chosen, so only
the brackets on its path are drawn up again: a choice costs the depth of a tree, not its size.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from queuectl.core.entries import Entry
from queuectl.core.model import WorkloadId
from queuectl.core.policy import PreemptionStrategy
from queuectl.core.preemption.search import PreemptionSearch, Target
from queuectl.core.quota.shares import Share, dominant_share
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.reasons import PreemptionCause

# --- victims

Queues = dict[QuotaNode, deque[Entry]]
"""Candidates by ClusterQueue, first who is taken first."""


def fair_victims(search: PreemptionSearch, strategies: Sequence[PreemptionStrategy]) -> list[Target]:
    """The victims that make room for it; none where no set of those it may take does (P7 to P9).

    The tree is left as it was.
    """
    fair = _FairSearch(search)
    if not fair.queues:
        return []
    search.rejected.tried(sum(map(len, fair.queues.values())))
    search.limit.add(search.node, search.cells)
    try:
        try:
            found = fair.first(strategies[0]) or (len(strategies) > 1 and fair.second())
        finally:
            search.limit.remove(search.node, search.cells)
        if found:
            fair.taken = search.fill_back(fair.taken, allow_borrowing=True)
        return fair.taken if found else []
    finally:
        for target in fair.taken:
            search.restore(target.entry)


class _FairSearch:
    """Runs with the whole request charged, so that the preemptor's shares count it (P7)."""

    def __init__(self, search: PreemptionSearch) -> None:
        self._search = search
        self._tree = search.tree
        self._within_nominal = search.within_nominal
        self._below = {node.parent: node for node in search.node.path()}
        """The preemptor's side of each of its ancestors."""
        found = {node: search.candidates(node) for node in search.nodes_with_candidates()}
        self.queues: Queues = {node: deque(entries) for node, entries in found.items() if entries}
        everybody = search.sort([entry for entries in found.values() for entry in entries])
        self._rank = {entry.id: rank for rank, entry in enumerate(everybody)}
        self._aside: Queues = {}
        """Whom the first strategy spared."""
        self.taken: list[Target] = []

    def first(self, strategy: PreemptionStrategy) -> bool:
        """Take whom the first strategy gives, until it fits (P8)."""
        chooser = _Chooser(self._search, self.queues, self._rank)
        while (queue := chooser.choose()) is not None:
            entries = self.queues[queue]
            entry: Entry | None
            if queue is self._search.node:
                entry, cause = entries.popleft(), PreemptionCause.IN_CLUSTER_QUEUE
            elif self._within_nominal:  # P9
                entry, cause = self._first_borrower(queue, entries), PreemptionCause.IN_COHORT_RECLAMATION
            else:
                entry, cause = self._given(queue, strategy), PreemptionCause.IN_COHORT_FAIR_SHARING
            if entry is not None and self._fits_without(entry, cause):
                return True
            chooser.reconsider(queue)
        return False

    def second(self) -> bool:
        """Of those set aside, one more of each queue whose side has the larger share (P8)."""
        chooser = _Chooser(self._search, self._aside, self._rank)
        while (queue := chooser.choose()) is not None:
            entry = self._first_borrower(queue, self._aside[queue])
            mine, theirs = self._sides(queue)
            larger = dominant_share(self._tree, mine) < dominant_share(self._tree, theirs)
            cause = PreemptionCause.IN_COHORT_FAIR_SHARING
            if entry is not None and larger and self._fits_without(entry, cause):
                return True
            self._aside[queue].clear()
            chooser.reconsider(queue)
        return False

    def _given(self, queue: QuotaNode, strategy: PreemptionStrategy) -> Entry | None:
        """The first candidate of `queue` that the strategy gives; those before it are set aside (P8)."""
        mine, theirs = self._sides(queue)
        share, before = dominant_share(self._tree, mine), dominant_share(self._tree, theirs)
        entries = self.queues[queue]
        aside = self._aside.setdefault(queue, deque())
        if before < share:  # without one of its workloads its share is smaller still: none passes
            aside.extend(entries)
            entries.clear()
        while (entry := self._first_borrower(queue, entries)) is not None:
            if strategy is PreemptionStrategy.LESS_THAN_INITIAL_SHARE:
                passes = share < before
            else:
                passes = share <= self._share_without(entry, theirs)
                if share == before:  # all three are: neither of the two moves a share, both could take turns
                    passes &= _comes_before(self._search.entry, entry)  # (P12)
            if passes:
                return entry
            aside.append(entry)
        return None

    def _first_borrower(self, queue: QuotaNode, entries: deque[Entry]) -> Entry | None:
        """The first of a queue that holds what the queue borrows; whoever comes before it is out (P7)."""
        below = self._sides(queue)[1].parent
        while entries:
            entry = entries.popleft()
            if self._search.holds_what_is_borrowed(entry, queue, below):
                return entry
        return None

    def _sides(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """The nodes right below the nearest common ancestor: the preemptor's and the candidate's (P8)."""
        at = queue
        while at.parent not in self._below:
            assert at.parent is not None
            at = at.parent
        return self._below[at.parent], at

    def _share_without(self, entry: Entry, node: QuotaNode) -> Share:
        self._search.remove(entry)
        try:
            return dominant_share(self._tree, node)
        finally:
            self._search.restore(entry)

    def _fits_without(self, entry: Entry, cause: PreemptionCause) -> bool:
        """Take it. Does the request fit now?"""
        search = self._search
        search.remove(entry)
        self.taken.append(Target(entry, cause))
        self._search.limit.remove(search.node, search.cells)
        try:
            return search.fits(allow_borrowing=True)
        finally:
            self._search.limit.add(search.node, search.cells)


@dataclass(slots=True)
class _Claim:
    """A child in the bracket of its cohort; smaller is chosen first (P7)."""

    share: Share
    tie: tuple[int, str, int]
    node: QuotaNode

    def __lt__(self, other: _Claim) -> bool:
        difference = self.share.compare(other.share)
        return difference > 0 or (difference == 0 and self.tie < other.tie)


class _Chooser:
    """From which queue to take next: down from the root, where the share is largest (P7)."""

    def __init__(self, search: PreemptionSearch, queues: Queues, rank: dict[WorkloadId, int]) -> None:
        self._tree = search.tree
        self._root = search.tree.root(search.node)
        self._own = set(search.node.path())
        self._queues = queues
        self._rank = rank
        self._rounds: dict[QuotaNode, list[_Claim]] = {}
        seen: set[QuotaNode] = set()
        for queue in queues:
            at = queue
            while at not in seen and at.parent is not None:
                seen.add(at)
                self._enter(at, at.parent)
                at = at.parent

    def choose(self) -> QuotaNode | None:
        """A queue that has candidates; None when there is none left. Tell it what became of that one."""
        at = self._root
        while at.kind == "Cohort":
            if claims := self._rounds.get(at):
                at = claims[0].node
            elif at.parent is not None:  # nobody left below: out with it, and down from the root again
                heapq.heappop(self._rounds[at.parent])
                at = self._root
            else:
                return None
        return at if self._queues.get(at) else None

    def reconsider(self, queue: QuotaNode) -> None:
        """`queue`, chosen last, has other candidates now and may use less."""
        for node in queue.path():
            if node.parent is not None:
                heapq.heappop(self._rounds[node.parent])  # itself: it was chosen at each level
                self._enter(node, node.parent)

    def _enter(self, node: QuotaNode, cohort: QuotaNode) -> None:
        """Into the bracket of its cohort, unless nothing may be taken there any more."""
        if node.kind == "Cohort":
            tie = (0, node.name, 0)
        elif entries := self._queues[node]:
            tie = (1, "", self._rank[entries[0].id])
        else:
            return
        share = dominant_share(self._tree, node)
        if share.borrowing or node in self._own:
            heapq.heappush(self._rounds.setdefault(cohort, []), _Claim(share, tie, node))


def _comes_before(one: Entry, other: Entry) -> bool:
    """In priority, or where that is equal in creation (O1)."""
    return (-one.priority, one.order[1]) < (-other.priority, other.order[1])
