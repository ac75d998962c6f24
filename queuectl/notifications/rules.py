"""Which decisions are told to a sink (docs/notifications.md). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from queuectl.answers.outcomes import of_object
from queuectl.core.decisions import Verdict
from queuectl.core.model.device_use import DeviceUse
from queuectl.core.model.reasons import Family, Readable
from queuectl.kinds.selectors import Selects
from queuectl.ledger.codec import past_from_json
from queuectl.ports.outbox import BudgetLevel, Occurrence
from queuectl.ports.reader import DecisionRow
from queuectl.settings.notifications import RuleSettings


class Event(StrEnum):
    """What a rule is about."""

    STARTED = "Started"
    EVICTED = "Evicted"
    ENDED = "Ended"
    CAN_NEVER_RUN = "CanNeverRun"
    IDLE = "Idle"
    BUDGET = "Budget"
    """Also a decision of another event: see `budget_levels`."""
    START_MOVED = "StartMoved"
    """No decision: a forecast differs from the one that was told last."""


class _Everything:
    def __contains__(self, namespace: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules of a sink, and the workloads that they are about."""

    rules: tuple[RuleSettings, ...]
    namespaces: frozenset[str] = frozenset()
    """Only workloads in these; empty: in any."""
    queues: frozenset[str] = frozenset()
    """Only workloads of LocalQueues with these names; empty: of any."""
    users: frozenset[str] = frozenset()
    """Only workloads that these submitted; empty: of any."""
    labels: Selects | None = None
    """Only workloads with these labels; None: with any."""
    page: str | None = None
    """Address of the web page: messages have a link to their workload; None: they have none."""

    @property
    def readable(self) -> Readable:
        """Namespaces whose workloads its messages may name."""
        return self.namespaces or _Everything()

    @property
    def moved_more_than(self) -> timedelta | None:
        """By how much a start must move to be told; None: no rule is about that."""
        seconds = [one.moved_more_than_seconds for one in self.rules if one.moved_more_than_seconds]
        return timedelta(seconds=min(seconds)) if seconds else None


def selected(selection: Selection, found: Occurrence) -> Event | None:
    """The event that the sink is told of; None: no rule applies."""
    event = event_of(found)
    if event is None or not _is_about(selection, found):
        return None
    return event if any(_applies(rule, event, found) for rule in selection.rules) else None


def budget_levels(selection: Selection, found: Occurrence) -> tuple[BudgetLevel, ...]:
    """The levels of Budgets that the sink is told of."""
    told = any(rule.event == Event.BUDGET.value for rule in selection.rules) and _is_about(selection, found)
    return found.budgets if told else ()


def _is_about(selection: Selection, found: Occurrence) -> bool:
    ref = found.decision.ref
    return (
        ref is not None
        and (not selection.namespaces or ref.namespace in selection.namespaces)
        and (not selection.queues or found.queue in selection.queues)
        and (not selection.users or found.submitter in selection.users)
        and (selection.labels is None or selection.labels(found.labels))
    )


def event_of(found: Occurrence) -> Event | None:
    """None: no rule is about such decisions."""
    row = found.decision
    if row.verdict == Verdict.ADMITTED:
        # A workload that was found running did not start by this decision.
        return None if row.payload.get("debt") else Event.STARTED
    if row.verdict == Verdict.EVICTED:
        return Event.EVICTED
    if row.verdict == Verdict.RETIRED:
        return Event.ENDED
    if row.verdict == Verdict.AMENDED:
        return Event.IDLE if notice_in(row) is not None else None
    never = row.reason is not None and row.reason.family is Family.NEVER
    return Event.CAN_NEVER_RUN if row.verdict == Verdict.PENDING and never else None


def notice_in(row: DecisionRow) -> DeviceUse | None:
    """The verdict of a decision to tell a user of idle devices; None: it is another decision."""
    past: Any = row.payload.get("past")
    use = past_from_json(past).use
    notice = use.notice if use is not None else None
    # Later decisions about it have the same notice.
    return use if notice is not None and not notice.dry_run and notice.at == row.now else None


def outcome_of(row: DecisionRow) -> str:
    """How a workload ended, by the decision that it is over."""
    return of_object(str(row.payload.get("outcome", "")))


def waited(found: Occurrence) -> timedelta | None:
    """How long a workload waited before it started; None: its history is no longer stored."""
    return None if found.waiting_since is None else found.decision.now - found.waiting_since


def _applies(rule: RuleSettings, event: Event, found: Occurrence) -> bool:
    if rule.event != event:
        return False
    if event is Event.EVICTED and rule.reasons:
        return found.decision.reason is not None and found.decision.reason.code in rule.reasons
    if event is Event.ENDED and rule.outcomes:
        return outcome_of(found.decision) in rule.outcomes
    if event is Event.STARTED and rule.waited_more_than_seconds is not None:
        wait = waited(found)
        return wait is not None and wait > timedelta(seconds=rule.waited_more_than_seconds)
    return True
