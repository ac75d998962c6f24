"""The preemption search of fair sharing (docs/scheduling.md, P7 to P9).

Each cohort has a heap of its children by share. Between two choices, usage changes only in the ClusterQueue
that was chosen, so only the heaps on its path are updated: the cost of a choice is the depth of the tree.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.limits import Hold, Trial, held_by
from queuectl.core.model.policy import PreemptionStrategy
from queuectl.core.model.reasons import PreemptionCause
from queuectl.core.model.workload import WorkloadId
from queuectl.core.preemption.search import PreemptionSearch, Target
from queuectl.core.quota.shares import Share, dominant_share
from queuectl.core.quota.tree import QuotaNode

Queues = dict[QuotaNode, deque[Entry]]
"""Candidates by ClusterQueue, in order of preemption (P5)."""


def fair_victims(search: PreemptionSearch, strategies: Sequence[PreemptionStrategy]) -> list[Target]:
    """Return a set of victims without which the request fits, in order; empty if there is none (P7 to P9).

    `strategies` has one or two members (P8). The quota tree is left unchanged.
    """
    with search.limits.trying() as trial:
        fair = _FairSearch(search, trial)
        if not fair.queues:
            return []
        search.rejected.tried(sum(map(len, fair.queues.values())))
        trial.add(fair.request)
        found = fair.with_first_strategy(strategies[0]) or (
            len(strategies) > 1 and fair.with_second_strategy()
        )
        trial.remove(fair.request)
        return search.fill_back(fair.victims, allow_borrowing=True) if found else []


class _FairSearch:
    """One search. The whole request is charged throughout, so that shares include it (P7)."""

    def __init__(self, search: PreemptionSearch, trial: Trial) -> None:
        """`trial`: victims are removed in it."""
        self._search = search
        self._trial = trial
        self._tree = search.tree
        self.request = Hold(search.node, search.cells)
        self._within_nominal = search.within_nominal
        found = {node: search.candidates(node) for node in search.nodes_with_candidates()}
        self.queues: Queues = {node: deque(entries) for node, entries in found.items() if entries}
        self._sides = {node: two for node in self.queues if (two := sides(search.node, node)) is not None}
        """What the strategies compare, by the ClusterQueue of a candidate (P8)."""
        candidates = search.sort([entry for entries in found.values() for entry in entries])
        self._rank = {entry.id: rank for rank, entry in enumerate(candidates)}
        self._aside: Queues = {}
        """Candidates that the first strategy set aside (P8)."""
        self.victims: list[Target] = []

    def with_first_strategy(self, strategy: PreemptionStrategy) -> bool:
        """Preempt candidates that the first strategy passes; return whether the request fits (P8)."""
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

    def with_second_strategy(self) -> bool:
        """Preempt one set-aside candidate per queue; return whether the request fits (P8)."""
        chooser = _Chooser(self._search, self._aside, self._rank)
        while (queue := chooser.choose()) is not None:
            entry = self._first_borrower(queue, self._aside[queue])
            mine, theirs = self._sides[queue]
            larger = dominant_share(self._tree, mine) < dominant_share(self._tree, theirs)
            cause = PreemptionCause.IN_COHORT_FAIR_SHARING
            if entry is not None and larger and self._fits_without(entry, cause):
                return True
            self._aside[queue].clear()
            chooser.reconsider(queue)
        return False

    def _given(self, queue: QuotaNode, strategy: PreemptionStrategy) -> Entry | None:
        """Return the first candidate of `queue` that the strategy passes; set those before it aside (P8)."""
        mine, theirs = self._sides[queue]
        share, before = dominant_share(self._tree, mine), dominant_share(self._tree, theirs)
        entries = self.queues[queue]
        aside = self._aside.setdefault(queue, deque())
        if before < share:  # without a candidate, the share of `queue` is even smaller: no candidate passes
            aside.extend(entries)
            entries.clear()
        while (entry := self._first_borrower(queue, entries)) is not None:
            if strategy is PreemptionStrategy.LESS_THAN_INITIAL_SHARE:
                passes = share < before
            else:
                passes = share <= self._share_without(entry, theirs)
                if share == before:  # all three are equal: each of the two could preempt the other in turn
                    passes &= _comes_before(self._search.entry, entry)  # P12
            if passes:
                return entry
            aside.append(entry)
        return None

    def _first_borrower(self, queue: QuotaNode, entries: deque[Entry]) -> Entry | None:
        """Pop candidates up to the first that holds what its queue borrows, and return that one (P7)."""
        below = self._sides[queue][1].parent
        while entries:
            entry = entries.popleft()
            if self._search.holds_what_is_borrowed(entry, queue, below):
                return entry
        return None

    def _share_without(self, entry: Entry, node: QuotaNode) -> Share:
        """Return the share of `node` without the usage of `entry`."""
        with self._search.limits.trying() as trial:
            trial.remove(held_by(self._tree, entry))
            return dominant_share(self._tree, node)

    def _fits_without(self, entry: Entry, cause: PreemptionCause) -> bool:
        """Add `entry` to the victims, and return whether the request fits without them."""
        self._trial.remove(held_by(self._tree, entry))
        self.victims.append(Target(entry, cause))
        with self._search.limits.trying() as trial:
            trial.remove(self.request)
            return self._search.fits(allow_borrowing=True)


@dataclass(slots=True)
class _Child:
    """A child in the heap of its cohort. The smallest is chosen: the one with the largest share (P7)."""

    share: Share
    tie: tuple[int, str, int]
    node: QuotaNode

    def __lt__(self, other: _Child) -> bool:
        difference = self.share.compare(other.share)
        return difference > 0 or (difference == 0 and self.tie < other.tie)


class _Chooser:
    """Chooses the next ClusterQueue: from the root down, into the child with the largest share (P7)."""

    def __init__(self, search: PreemptionSearch, queues: Queues, rank: dict[WorkloadId, int]) -> None:
        self._tree = search.tree
        self._root = search.tree.root(search.node)
        self._own = set(search.node.path())
        self._queues = queues
        self._rank = rank
        self._heaps: dict[QuotaNode, list[_Child]] = {}
        seen: set[QuotaNode] = set()
        for queue in queues:
            at = queue
            while at not in seen and at.parent is not None:
                seen.add(at)
                self._enter(at, at.parent)
                at = at.parent

    def choose(self) -> QuotaNode | None:
        """Return a ClusterQueue with candidates, or None. Call `reconsider` with it before the next call."""
        at = self._root
        while at.kind == "Cohort":
            if children := self._heaps.get(at):
                at = children[0].node
            elif at.parent is not None:  # no candidate below: remove it and start from the root again
                heapq.heappop(self._heaps[at.parent])
                at = self._root
            else:
                return None
        return at if self._queues.get(at) else None

    def reconsider(self, queue: QuotaNode) -> None:
        """Update the path of `queue`, the last choice, after a change of its candidates and its usage."""
        for node in queue.path():
            if node.parent is not None:
                heapq.heappop(self._heaps[node.parent])  # `node` itself: it was chosen at each level
                self._enter(node, node.parent)

    def _enter(self, node: QuotaNode, cohort: QuotaNode) -> None:
        """Push `node` to the heap of its cohort, unless it has no candidates or is passed over (P7)."""
        if node.kind == "Cohort":
            tie = (0, node.name, 0)
        elif entries := self._queues[node]:
            tie = (1, "", self._rank[entries[0].id])
        else:
            return
        share = dominant_share(self._tree, node)
        if share.borrowing or node in self._own:
            heapq.heappush(self._heaps.setdefault(cohort, []), _Child(share, tie, node))


def _comes_before(one: Entry, other: Entry) -> bool:
    """Return whether `one` is ahead of `other` by priority, then by creation time (O1)."""
    return (-one.priority, one.order[1]) < (-other.priority, other.order[1])


class ShareChange(NamedTuple):
    """The dominant share of a node in thousandths, rounded up; None: infinite (S3)."""

    node: str
    """Such as `ClusterQueue/team-a`."""
    before: int | None
    """Without the preemptor, and with its victims."""
    after: int | None
    """With the preemptor, and without its victims."""


class EvictionShares(NamedTuple):
    """The children of the nearest common ancestor, which a strategy compares (P8)."""

    preemptor: ShareChange
    victim: ShareChange


def sides(one: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode] | None:
    """Return the children of the nearest common ancestor, that of `one` first; None for one queue."""
    above = {node.parent: node for node in one.path()}
    for node in other.path():
        if node.parent is not None and node.parent in above:
            return None if above[node.parent] is node else (above[node.parent], node)
    return None
