"""The phases of a workload and all transitions between them (docs/scheduling.md, section L).

The table of section L is generated from ROWS: `make manifests` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from queuectl.core.decisions import Configure, Decision, Evict, Keep, Retire, Verdict, subject
from queuectl.core.entries import Entry, story
from queuectl.core.model.reasons import FAMILIES, Code, Family
from queuectl.core.model.workload import Phase, WorkloadId, WorkloadOutcome


class Transition(NamedTuple):
    """What is decided, the phase that follows, and the code of the reason where the decision has one."""

    decision: Verdict
    to: Phase
    code: Code | None = None

    def __str__(self) -> str:
        return f"{self.to} `{self.code}`" if self.code is not None else str(self.to)


class TransitionRow(NamedTuple):
    """An event, and what it does to a workload of each phase; None: nothing."""

    event: str
    pending: Transition | None = None
    admitted: Transition | None = None
    evicting: Transition | None = None


def _waits(code: Code) -> Transition:
    return Transition(Verdict.PENDING, Phase.PENDING, code)


def _evicted(code: Code) -> Transition:
    return Transition(Verdict.EVICTED, Phase.EVICTING, code)


_QUEUED: Final = Transition(Verdict.QUEUED, Phase.PENDING)
_ADMITTED: Final = Transition(Verdict.ADMITTED, Phase.ADMITTED)
_AMENDED: Final = Transition(Verdict.AMENDED, Phase.ADMITTED)
_RELEASED: Final = Transition(Verdict.RELEASED, Phase.PENDING)
_FINISHED: Final = Transition(Verdict.RETIRED, Phase.FINISHED)
_DELETED: Final = Transition(Verdict.RETIRED, Phase.DELETED)

ROWS: Final = (
    TransitionRow("it fits", pending=_ADMITTED),
    TransitionRow("it does not fit", pending=_waits(Code.WAITING_FOR_QUOTA)),
    TransitionRow("its user holds it", pending=_waits(Code.ON_HOLD), admitted=_evicted(Code.USER_HOLD)),
    TransitionRow("its LocalQueue is held", pending=_waits(Code.SUSPENDED)),
    TransitionRow("its ClusterQueue is held", pending=_waits(Code.SUSPENDED)),
    TransitionRow(
        "its LocalQueue is drained",
        pending=_waits(Code.SUSPENDED),
        admitted=_evicted(Code.LOCAL_QUEUE_STOPPED),
    ),
    TransitionRow(
        "its ClusterQueue is drained",
        pending=_waits(Code.SUSPENDED),
        admitted=_evicted(Code.CLUSTER_QUEUE_STOPPED),
    ),
    TransitionRow("its queue label names another LocalQueue", pending=_QUEUED),
    TransitionRow("its queue label names no LocalQueue", pending=_waits(Code.QUEUE_NOT_FOUND)),
    TransitionRow("its priority changes", pending=_QUEUED, admitted=_AMENDED),
    TransitionRow("what it requests changes", pending=_QUEUED),
    TransitionRow("its run time is used up", admitted=_evicted(Code.MAXIMUM_EXECUTION_TIME_EXCEEDED)),
    TransitionRow("an IdlePolicy holds it", admitted=_evicted(Code.IDLE_DEVICES)),
    TransitionRow("an IdlePolicy cancels it", admitted=_evicted(Code.IDLE_CANCELLED)),
    TransitionRow("what a budget reserved is used up", admitted=_evicted(Code.BUDGET_TIME_EXCEEDED)),
    TransitionRow("its pods are not ready in time", admitted=_evicted(Code.PODS_READY_TIMEOUT)),
    TransitionRow("a node under its pods is lost", admitted=_evicted(Code.NODE_FAILURES)),
    TransitionRow(
        "some of its pods have ended for good",
        pending=_QUEUED,
        admitted=Transition(Verdict.SHRUNK, Phase.ADMITTED),
    ),
    TransitionRow("another workload preempts it", admitted=_evicted(Code.PREEMPTED)),
    TransitionRow("its start is denied, or refused after an edit", admitted=_RELEASED),
    TransitionRow("it finishes", pending=_FINISHED, admitted=_FINISHED, evicting=_FINISHED),
    TransitionRow("its object is deleted", pending=_DELETED, admitted=_DELETED, evicting=_DELETED),
    TransitionRow("another client suspends it", admitted=_evicted(Code.BYPASS)),
    TransitionRow("another client starts it", pending=_ADMITTED),
    TransitionRow("its object runs by an attempt that the ledger lost", _ADMITTED, _RELEASED, _RELEASED),
    TransitionRow("nothing of it is alive any more", evicting=_RELEASED),
    TransitionRow("the same, and its run time limit or an IdlePolicy ended it", evicting=_FINISHED),
    TransitionRow("an admin releases its quota by force", evicting=_RELEASED),
)
_COLUMNS: Final = ((Phase.PENDING, 1), (Phase.ADMITTED, 2), (Phase.EVICTING, 3))


def _by_decision() -> Mapping[tuple[Phase, Verdict, Code | None], Phase]:
    found: dict[tuple[Phase, Verdict, Code | None], Phase] = {}
    for row in ROWS:
        for phase, column in _COLUMNS:
            transition = row[column]
            if isinstance(transition, Transition) and transition.decision is not Verdict.RETIRED:
                found[phase, transition.decision, transition.code] = transition.to
    # While it waits, it may get the reason of any row, and all the reasons of sections F, G and P.
    for code in Code:
        if FAMILIES[code] is not Family.EVICTED:
            found[Phase.PENDING, Verdict.PENDING, code] = Phase.PENDING
    return found


_TO: Final = _by_decision()
_OUTCOMES: Final = {WorkloadOutcome.DELETED: Phase.DELETED}


class IllegalTransition(Exception):
    """A decision that the table does not allow. The message has the story of the workload."""

    def __init__(self, entry: Entry, phase: Phase, decision: Decision) -> None:
        self.workload = entry.id
        super().__init__(
            f"{entry.ref} (uid {entry.id}) is {phase}: {decision.verdict} is not in the table of transitions "
            f"(docs/scheduling.md, section L): {decision}\n{story(entry.recent)}"
        )


def transition(entry: Entry, phase: Phase, decision: Decision) -> Phase:
    """Return the phase of `entry` after `decision`, from `phase`. Raises IllegalTransition."""
    if isinstance(decision, Retire):
        if phase in (Phase.FINISHED, Phase.DELETED):
            raise IllegalTransition(entry, phase, decision)
        return _OUTCOMES.get(decision.outcome, Phase.FINISHED)
    code = decision.reason.code if isinstance(decision, Keep | Evict) else None
    to = _TO.get((phase, decision.verdict, code))
    if to is None:
        raise IllegalTransition(entry, phase, decision)
    return to


def check_transitions(decisions: Iterable[Decision], entries: Mapping[WorkloadId, Entry]) -> None:
    """Raise IllegalTransition where a plan has a decision that the table does not allow."""
    phases: dict[WorkloadId, Phase] = {}
    for decision in decisions:
        if not isinstance(decision, Configure):
            entry = entries[subject(decision)]
            phases[entry.id] = transition(entry, phases.get(entry.id, entry.phase), decision)
