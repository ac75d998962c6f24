"""Which of the steps that are due a plan takes, and which trees it sets apart for that (C9 to C11)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from queuectl.core.cycle.plan_draft import PlanDraft
from queuectl.core.decisions import Amend, Evict, Release
from queuectl.core.due import runs_unasked
from queuectl.core.entries import Entry
from queuectl.core.lifecycle import Adopt, Step
from queuectl.core.model.workload import WorkloadId
from queuectl.core.state import EngineState


@dataclass(slots=True)
class Taken:
    """The steps of one plan, in order."""

    steps: list[tuple[Entry, Step]] = field(default_factory=list)
    more: bool = False
    """Some that are due are left for a later plan."""

    @property
    def workloads(self) -> Set[WorkloadId]:
        return {entry.id for entry, _ in self.steps}


def admissions_turn(state: EngineState) -> frozenset[str]:
    """Return the roots of trees that were set apart by the last plan, and where a queue is due (C11)."""
    if not state.apart:
        return frozenset()
    return state.apart & {state.root_of_queue(name) for name in state.due_queues}


def take_due(state: EngineState, draft: PlanDraft, budget: int, turn: Set[str]) -> Taken:
    """Return what a plan of that budget takes: at most half of it urgent steps, and half requests (C10).

    `turn`: roots of trees where nothing may be decided now that would set them apart.
    """
    share = max(1, budget // 2)
    taken = Taken()

    def waits(entry: Entry, step: Step) -> bool:
        return bool(turn) and isinstance(step, Evict | Amend | Release) and state.root(entry) in turn

    for entry, step in state.due_steps.urgent.values():
        if waits(entry, step):
            taken.more = True
        elif len(taken.steps) < share:
            taken.steps.append((entry, step))
        else:  # what it ends or uses would be decided about without knowing
            taken.more = True
            if entry.attempt is not None or isinstance(step, Adopt) or runs_unasked(entry):
                draft.defer(entry)
    requests = [item for item in state.due_steps.requests(share) if not waits(*item)]
    taken.more |= len(requests) < state.due_steps.requested
    taken.steps += requests
    return taken
