"""Changes of the quota tree that are tried while a decision is made, and undone when it is (C5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from queuectl.core.entries import Entry
from queuectl.core.flavors.assignment import AssignmentResult
from queuectl.core.model import WorkloadId
from queuectl.core.preemption.claims import OpenClaim
from queuectl.core.preemption.search import Snapshot
from queuectl.core.queues.inadmissible import Freed
from queuectl.core.quota.tree import QuotaNode, QuotaTree
from queuectl.core.state import State

Change = tuple[QuotaNode, Iterable[tuple[int, int]], bool]


class UsageJournal:
    def __init__(self, tree: QuotaTree) -> None:
        self.tree = tree
        self._made: list[Change] = []

    def add(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        self.tree.add(node, cells)
        self._made.append((node, cells, True))

    def remove(self, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> None:
        self.tree.remove(node, cells)
        self._made.append((node, cells, False))

    def mark(self) -> int:
        return len(self._made)

    def undo(self, mark: int = 0) -> list[Change]:
        """Take back what was done since `mark`. Returns it, so that it can be done again."""
        undone = self._made[mark:]
        del self._made[mark:]
        for node, cells, added in reversed(undone):
            if added:
                self.tree.remove(node, cells)
            else:
                self.tree.add(node, cells)
        return undone

    def redo(self, changes: Iterable[Change]) -> None:
        for node, cells, added in changes:
            if added:
                self.add(node, cells)
            else:
                self.remove(node, cells)


class PlanDraft:
    """What a plan under way would charge and free. Undone once the plan is made."""

    def __init__(self, state: State, now: datetime) -> None:
        self._state = state
        self.trial = UsageJournal(state.tree)
        self.field = Snapshot(
            tree=state.tree,
            queues=state.directory.queues,
            holders=state.holders,
            settings=state.settings,
            now=now,
        )
        self.field.past_usage = state.past_usage(now, self.field.added)
        self.moved: set[WorkloadId] = set()
        """Workloads that the plan lets go, or ends."""
        self.freed: Freed = {}
        """By ClusterQueue, what comes free with the plan."""
        self.contested: set[QuotaNode] = set()
        """Roots of trees that have to wait for the next plan: whoever is taken back there may be the first in
        order for what it gives back, and stands in line only when this plan is applied (C9)."""

    def charge(self, entry: Entry, found: AssignmentResult) -> None:
        self.moved.add(entry.id)
        self.field.add(entry, found.assignment)
        self.trial.add(self._state.tree.queue(found.assignment.cluster_queue), found.cells)

    def give_back(self, entry: Entry, *, waits_again: bool) -> None:
        if not waits_again:
            self.moved.add(entry.id)
        if entry.attempt is None:
            return
        tree = self._state.tree
        node = tree.queue(entry.attempt.assignment.cluster_queue)
        self.trial.remove(node, entry.cells)
        self.field.away.add(entry.id)
        if waits_again:
            self.contested.add(tree.root(node))
        else:
            self.freed.setdefault(node, set()).update(tree.names[cell] for cell, _ in entry.cells)

    def set_apart(self, entry: Entry) -> None:
        """It leaves by itself, or holds quota at another priority: the next plan sees whom that exposes."""
        assert entry.attempt is not None
        tree = self._state.tree
        self.contested.add(tree.root(tree.queue(entry.attempt.assignment.cluster_queue)))

    def claims(self) -> tuple[list[OpenClaim], set[str]]:
        """Those whose victims hold quota still, and the queues whose preemptor waits for nobody any more."""
        away = self.field.away
        waiting: list[OpenClaim] = []
        settled: set[str] = set()
        for claim in self._state.waking.claims:
            left = {key: victim for key, victim in claim.victims.items() if key not in away}
            if left:
                waiting.append(replace(claim, victims=left))
            else:
                settled.add(claim.node.name)
        return waiting, settled
