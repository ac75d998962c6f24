"""The single writer of queue state, shared by every driver.

restore -> handle(events) -> decide(now) -> [the driver makes it durable] -> commit(plan, first sequence)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from queuectl.core.cycle import schedule, tell
from queuectl.core.decisions import Admit, Configure, Decision, Keep, Plan, Release, Retire
from queuectl.core.events import Event
from queuectl.core.flavors import Assigned, adopt, nominate
from queuectl.core.lifecycle import Adopt, Probe, Resend, step
from queuectl.core.model import (
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    ObjectRef,
    Snapshot,
    WorkloadId,
)
from queuectl.core.pending import Entry
from queuectl.core.quota import Cells, Node
from queuectl.core.reasons import Reason
from queuectl.core.report import ClusterQueueReport, LocalQueueReport
from queuectl.core.state import State

DEFAULT_BUDGET = 2_000
"""Units of work in one decision: some 50 ms, far below any lease."""


class StalePlan(Exception):
    """The state moved on between `decide` and `commit`; decide again."""


class Engine:
    """`sources` are the lists that must have been read before anything is decided: the ledger may remember
    workloads that ended while nobody was watching, and a queue that is not there yet admits nobody."""

    def __init__(self, sources: frozenset[str]) -> None:
        self._state = State(sources)
        self._version = 0
        self._cycle = 0

    @property
    def synced(self) -> bool:
        return self._state.synced

    @property
    def due(self) -> bool:
        """Would `decide` find anything to do?"""
        return self._state.synced and self._state.due

    def restore(self, snapshot: Snapshot) -> None:
        """Start from what the ledger says. Call once, before any event."""
        self._state.restore(snapshot)
        self._version += 1

    def handle(self, events: Iterable[Event]) -> None:
        """Fold events into the state. Replaying an event is harmless."""
        self._state.fold(events)
        self._version += 1

    def decide(self, now: datetime, budget: int = DEFAULT_BUDGET) -> Plan:
        """The next plan. The state stays as it is: called twice, it gives the same.

        Empty until every source has been listed once.
        """
        if not self._state.synced:
            return Plan(version=self._version, cycle=self._cycle, now=now)
        charged: list[tuple[Node, Cells]] = []
        try:
            return self._plan(now, budget, charged)
        finally:
            for node, cells in reversed(charged):
                self._state.tree.remove(node, cells)

    def _plan(self, now: datetime, budget: int, charged: list[tuple[Node, Cells]]) -> Plan:
        state = self._state
        decisions: list[Decision] = [Configure(key, spec) for key, spec in state.unrecorded_configs()]
        probes: list[tuple[WorkloadId, ObjectRef, int]] = []
        due = state.due_entries()
        for entry in due[:budget]:
            what = step(entry, state.around(entry))
            if isinstance(what, Probe) and entry.attempt is not None:
                probes.append((entry.id, entry.ref, entry.attempt.number))
            elif isinstance(what, Adopt):
                decisions.append(self._adopt(entry, what, now, charged))
            elif what is not None and not isinstance(what, Probe | Resend):
                decisions.append(what)
        opened = len(decisions)
        left = max(0, budget - len(due))
        # Quota that this plan frees is there for the next one. To look for room before would park in vain, and
        # the wake-up that the release brings would come too early.
        frees = any(isinstance(d, Release | Retire) for d in decisions)
        more = frees or len(due) > budget
        if left and not frees:
            more |= self._admissions(now, left, charged, decisions)
        return Plan(
            version=self._version,
            cycle=self._cycle,
            now=now,
            decisions=tuple(decisions),
            probes=tuple(probes),
            more=more,
            work=min(budget, len(due)) + len(decisions) - opened,
        )

    def _admissions(
        self, now: datetime, budget: int, charged: list[tuple[Node, Cells]], decisions: list[Decision]
    ) -> bool:
        """Run cycles and append what they decide. Returns whether the budget ran out."""
        state = self._state
        lines = state.due_lines()

        def charge(entry: Entry, found: Assigned) -> None:
            node = state.tree.queue(found.assignment.cluster_queue)
            state.tree.add(node, found.cells)
            charged.append((node, found.cells))

        def assign(entry: Entry) -> Assigned | Reason:
            assert entry.workload is not None
            assert entry.cluster_queue is not None
            directory = state.directory
            return nominate(directory.menu(entry.cluster_queue), directory.charges(entry.workload))

        outcome = schedule(lines, assign, charge, budget)
        for entry, found in outcome.admitted:
            decisions.append(Admit(_attempt(entry, found, now), entry.ref))
        leaving = frozenset(entry.id for entry, _ in outcome.admitted)
        left = budget - outcome.work
        told = [pair for line in lines for pair in tell(line, outcome, leaving)]
        told += [(entry, entry.gate) for entry in state.gated_entries() if entry.gate is not None]
        # Heads that were looked at are told in any case: that is what parks their groups.
        heads = {entry.id for entry, _ in outcome.refused.values()}
        for entry, reason in told:
            if entry.id not in heads:
                left -= 1
                if left < 0:
                    outcome.more = True
                    continue
            recorded = entry.reason is None or entry.reason.key != reason.key
            decisions.append(Keep(entry.id, entry.ref, reason, recorded))
        return outcome.more

    def _adopt(self, entry: Entry, what: Adopt, now: datetime, charged: list[tuple[Node, Cells]]) -> Admit:
        """Charge what runs already: as its own annotation says, else as it would be charged today."""
        state = self._state
        assert entry.workload is not None
        assert entry.observation is not None
        assert entry.cluster_queue is not None
        marked = entry.observation.admission
        if marked is not None:
            found = Assigned(marked.assignment, state.tree.numbered(marked.assignment.usage()))
        else:
            directory = state.directory
            found = adopt(directory.menu(entry.cluster_queue), directory.charges(entry.workload))
        node = state.tree.queue(found.assignment.cluster_queue)
        state.tree.add(node, found.cells)
        charged.append((node, found.cells))
        attempt = replace(_attempt(entry, found, now), debt=True)
        return Admit(attempt, entry.ref, what.detail)

    def commit(self, plan: Plan, first: int) -> None:
        """Apply a plan that the ledger has accepted.

        `first` is the sequence number of its first recorded decision. Raises StalePlan.
        """
        if plan.version != self._version:
            raise StalePlan(f"plan is for version {plan.version}, the state is at {self._version}")
        sequence = first
        for decision in plan.decisions:
            self._state.apply(decision, sequence)
            if not isinstance(decision, Keep) or decision.recorded:
                sequence += 1
        for workload, _, _ in plan.probes:
            self._state.probe(workload)
        self._state.prune()
        self._version += 1
        self._cycle += 1

    def take_effects(self) -> list[Effect]:
        """Committed Kubernetes writes that nobody has in hands yet. Each is given out once, until settled."""
        return self._state.take_effects()

    def unacknowledged(self) -> frozenset[EffectKey]:
        """All committed writes that are not acknowledged."""
        return self._state.unacknowledged()

    def take_reports(
        self,
    ) -> tuple[Sequence[LocalQueueReport], Sequence[ClusterQueueReport], Sequence[str]]:
        """Of the queues in which anything changed since the last call, and the ClusterQueues that are gone."""
        return self._state.take_reports()


def _attempt(entry: Entry, found: Assigned, now: datetime) -> Attempt:
    return Attempt(
        workload=entry.id,
        number=entry.attempts + 1,
        state=AttemptState.ADMITTED,
        assignment=found.assignment,
        admitted_at=now,
    )
