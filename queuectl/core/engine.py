"""The single writer of queue state, shared by every driver.

restore -> handle(events) -> decide(now) -> [the driver makes it durable] -> commit(plan, first sequence)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, islice

from queuectl.core import freezing
from queuectl.core.applying import apply, probe, restore
from queuectl.core.cycle import schedule, tell
from queuectl.core.decisions import (
    Admit,
    Configure,
    Decision,
    Evict,
    Keep,
    Plan,
    PodsToCount,
    Release,
    Retire,
    becomes_row,
)
from queuectl.core.events import Event
from queuectl.core.flavors import Assigned, adopt, nominate
from queuectl.core.folding import fold
from queuectl.core.invariants import check, check_plan
from queuectl.core.lifecycle import Adopt, Probe, Resend, accounted
from queuectl.core.model import (
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    Snapshot,
    WorkloadId,
)
from queuectl.core.pending import Entry
from queuectl.core.reasons import Reason
from queuectl.core.report import ClusterQueueReport, LocalQueueReport, Standing
from queuectl.core.resources import FlavorResource, Usage
from queuectl.core.rules import Settings
from queuectl.core.state import State

DEFAULT_BUDGET = 2_000
"""Units of work in one decision: some 50 ms, far below any lease."""


class StalePlan(Exception):
    """The state moved on between `decide` and `commit`; decide again."""


class _Trial:
    """What a plan under way would charge and free. Undone once the plan is made."""

    def __init__(self, state: State) -> None:
        self._tree = state.tree
        self._undo: list[Callable[[], None]] = []
        self.moved: set[WorkloadId] = set()
        """Workloads that the plan lets go, or ends."""
        self.freed: dict[str, set[FlavorResource]] = {}
        """By ClusterQueue, what comes free with the plan."""
        self.contested: set[str] = set()
        """ClusterQueues whose lines have to wait for the next plan: whoever is taken back there may be the
        first in order for what it gives back, and stands in line only when this plan is applied."""

    def charge(self, entry: Entry, found: Assigned) -> None:
        self.moved.add(entry.id)
        node = self._tree.queue(found.assignment.cluster_queue)
        self._tree.add(node, found.cells)
        self._undo.append(partial(self._tree.remove, node, found.cells))

    def give_back(self, entry: Entry, *, waits_again: bool) -> None:
        if not waits_again:
            self.moved.add(entry.id)
        if entry.attempt is None:
            return
        assignment = entry.attempt.assignment
        node = self._tree.queue(assignment.cluster_queue)
        self._tree.remove(node, entry.cells)
        self._undo.append(partial(self._tree.add, node, entry.cells))
        if waits_again:
            self.contested.add(assignment.cluster_queue)
        else:
            freed = (self._tree.names[cell] for cell, _ in entry.cells)
            self.freed.setdefault(assignment.cluster_queue, set()).update(freed)

    def undo(self) -> None:
        for step_back in reversed(self._undo):
            step_back()


class Engine:
    """`sources` are the lists that must have been read before anything is decided: the ledger may remember
    workloads that ended while nobody was watching, and a queue that is not there yet admits nobody."""

    def __init__(self, sources: frozenset[str], settings: Settings | None = None) -> None:
        self._state = State(sources, settings)
        self._version = 0
        self._cycle = 0

    @property
    def synced(self) -> bool:
        return self._state.synced

    @property
    def due(self) -> bool:
        """Would `decide` find anything to do?"""
        return self._state.synced and self._state.due

    @property
    def due_at(self) -> datetime | None:
        """When something becomes due by time alone: tell it `TimeCame` then. None: nothing does."""
        return self._state.timers.earliest

    def restore(self, snapshot: Snapshot) -> None:
        """Start from what the ledger says. Call once, before any event."""
        restore(self._state, snapshot)
        self._version += 1

    def handle(self, events: Iterable[Event]) -> None:
        """Fold events into the state. Replaying an event is harmless."""
        fold(self._state, events)
        self._version += 1

    def decide(self, now: datetime, budget: int = DEFAULT_BUDGET) -> Plan:
        """The next plan. The state stays as it is: called twice, it gives the same.

        Empty until every source has been listed once.
        """
        if not self._state.synced:
            return Plan(version=self._version, cycle=self._cycle, now=now)
        trial = _Trial(self._state)
        try:
            return self._plan(now, budget, trial)
        finally:
            trial.undo()

    def _plan(self, now: datetime, budget: int, trial: _Trial) -> Plan:
        state = self._state
        decisions: list[Decision] = [Configure(key, spec) for key, spec in state.unrecorded_configs()]
        probes: list[PodsToCount] = []
        due = state.first_due(budget)
        for entry in due:
            what = state.step(entry)
            if isinstance(what, Probe) and entry.attempt is not None:
                probes.append(PodsToCount(entry.id, entry.ref, entry.attempt.number))
            elif isinstance(what, Adopt):
                decisions += self._adopt(entry, what, now, trial)
            elif what is not None and not isinstance(what, Probe | Resend):
                decisions.append(what)
                if isinstance(what, Release | Retire):
                    trial.give_back(entry, waits_again=isinstance(what, Release))
        opened = len(decisions)
        more = len(due) < len(state.due_entries)
        if len(due) < budget:
            more |= self._admissions(now, budget - len(due), trial, decisions)
        else:
            more |= bool(state.due_lines or state.gated)
        return Plan(
            version=self._version,
            cycle=self._cycle,
            now=now,
            decisions=tuple(accounted(d, state.entries, now, state.settings) for d in decisions),
            probes=tuple(probes),
            more=more,
            work=len(due) + len(decisions) - opened,
        )

    def _admissions(self, now: datetime, budget: int, trial: _Trial, decisions: list[Decision]) -> bool:
        """Run cycles and append what they decide. Returns whether anything was left for the next plan."""
        state = self._state
        names = sorted((state.due_lines | trial.freed.keys()) - trial.contested)
        lines = [line for name in names if (line := state.lines.get(name)) is not None]

        def assign(entry: Entry) -> Assigned | Reason:
            assert entry.cluster_queue is not None
            return nominate(state.directory.menu(entry.cluster_queue), entry.shape)

        outcome = schedule(lines, trial.freed, assign, trial.charge, budget)
        decisions += [
            Admit(
                _attempt(entry, found, now),
                entry.ref,
                created_at=_created(entry),
            )
            for entry, found in outcome.admitted
        ]
        # Heads that were looked at are told in any case: that is what parks their groups.
        decisions += [_keep(entry, reason) for entry, reason in outcome.refused.values()]
        untold = chain(tell(lines, outcome), _before_gates(state.gated.values(), trial.moved))
        left = max(0, budget - outcome.work)
        decisions += [_keep(entry, reason) for entry, reason in islice(untold, left)]
        return outcome.more or bool(trial.contested) or next(untold, None) is not None

    def _adopt(self, entry: Entry, what: Adopt, now: datetime, trial: _Trial) -> Iterator[Decision]:
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
        trial.charge(entry, found)
        attempt = replace(_attempt(entry, found, now), debt=True)
        yield Admit(attempt, entry.ref, what.detail)
        if what.stop is not None:
            yield Evict(entry.id, entry.ref, attempt.number, what.stop)

    def commit(self, plan: Plan, first: int) -> None:
        """Apply a plan that the ledger has accepted.

        `first` is the sequence number of its first recorded decision. Raises StalePlan.
        """
        if plan.version != self._version:
            raise StalePlan(f"plan is for version {plan.version}, the state is at {self._version}")
        sequence = first
        for decision in plan.decisions:
            apply(self._state, decision, sequence)
            sequence += becomes_row(decision)
        for counted in plan.probes:
            probe(self._state, counted.workload)
        self._state.prune()
        self._version += 1
        self._cycle += 1

    def check(self, plan: Plan | None = None) -> list[str]:
        """What is wrong in memory, and with `plan` if given: sentences, none where all is sound.

        Looks at everything there is; for tests and for the operator who asks.
        """
        state = self._state
        return [*check(state), *(check_plan(state, plan) if plan is not None else ())]

    def split(self, plan: Plan) -> list[tuple[str, Plan]]:
        """A plan that the ledger refused, as one plan for each root cohort, to be committed one by one."""
        return freezing.split(self._state, plan)

    def commit_part(self, plan: Plan, first: int) -> None:
        """Apply one plan of `split` that the ledger has accepted."""
        self.commit(replace(plan, version=self._version), first)

    def freeze(self, root: str) -> None:
        """Decide nothing about the workloads under `root`: memory and ledger disagree about them."""
        freezing.freeze(self._state, root)
        self._version += 1

    def thaw(self, root: str, snapshot: Snapshot) -> None:
        """Load what is under `root` again, as the ledger has it, and go on with it."""
        freezing.thaw(self._state, root, snapshot)
        self._version += 1

    @property
    def frozen(self) -> frozenset[str]:
        return frozenset(self._state.frozen)

    def take_effects(self) -> list[Effect]:
        """Committed Kubernetes writes that nobody has in hands yet. Each is given out once, until settled."""
        return self._state.take_effects()

    def unacknowledged(self) -> frozenset[EffectKey]:
        """All committed writes that are not acknowledged."""
        return self._state.unacknowledged()

    def take_capacity(self) -> Usage | None:
        """What the ready nodes of each flavor can give, in base units; None: as when last asked."""
        directory = self._state.directory
        if not directory.capacity_changed:
            return None
        directory.capacity_changed = False
        return directory.capacity()

    def take_reports(
        self,
    ) -> tuple[Sequence[LocalQueueReport], Sequence[ClusterQueueReport], Sequence[str]]:
        """Of queues in which anything changed since the last call, and the ClusterQueues that are gone."""
        return self._state.take_reports()

    def standing(self) -> Standing:
        """What no queue's report shows, as it is now. Costs what waits without a queue."""
        return self._state.standing()


def _keep(entry: Entry, reason: Reason) -> Keep:
    recorded = entry.reason is None or entry.reason.key != reason.key
    return Keep(entry.id, entry.ref, reason, recorded)


def _before_gates(gated: Iterable[Entry], moved: Set[WorkloadId]) -> Iterator[tuple[Entry, Reason]]:
    for entry in gated:
        if entry.gate is not None and entry.id not in moved:
            yield entry, entry.gate


def _created(entry: Entry) -> datetime | None:
    return entry.workload.created_at if entry.workload else None


def _attempt(entry: Entry, found: Assigned, now: datetime) -> Attempt:
    return Attempt(
        workload=entry.id,
        number=entry.attempts + 1,
        state=AttemptState.ADMITTED,
        assignment=found.assignment,
        admitted_at=now,
    )
