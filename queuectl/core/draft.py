"""What a plan under way would change (docs/scheduling.md, C5, C9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from queuectl.core.claims import OpenClaim
from queuectl.core.contest import Field
from queuectl.core.flavors import Assigned
from queuectl.core.model import WorkloadId
from queuectl.core.pending import Entry
from queuectl.core.quota import Node
from queuectl.core.state import State
from queuectl.core.trial import Trial
from queuectl.core.wakes import Freed


class Draft:
    """What a plan under way would charge and free. Undone once the plan is made."""

    def __init__(self, state: State, now: datetime) -> None:
        self._state = state
        self.trial = Trial(state.tree)
        self.field = Field(
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
        self.contested: set[Node] = set()
        """Roots of trees that have to wait for the next plan: whoever is taken back there may be the first in
        order for what it gives back, and stands in line only when this plan is applied (C9)."""

    def charge(self, entry: Entry, found: Assigned) -> None:
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
