"""Where the wait of a workload went, from its decisions in the ledger (docs/answers.md, A1 to A3). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Family, Limit
from queuectl.core.model.workload import Phase
from queuectl.ports.history import WorkloadHistory
from queuectl.ports.reader import DecisionRow, StartsSpan, WorkloadStarts

MOST_SPANS: Final = 100
"""Spells for which starts of other workloads are asked: the longest ones (A3)."""


class Cause(StrEnum):
    """What a workload waited for (A2)."""

    UNSEEN = "Unseen"
    UNEVALUATED = "Unevaluated"
    LINE = "Line"
    QUOTA = "Quota"
    NODES = "Nodes"
    PODS_ENDING = "PodsEnding"
    PROTECTED = "Protected"
    NAMESPACE_QUOTA = "NamespaceQuota"
    USAGE_LIMIT = "UsageLimit"
    DEPENDENCY = "Dependency"
    BEGIN_TIME = "BeginTime"
    ARRAY = "Array"
    BUDGET = "Budget"
    BACKOFF = "Backoff"
    HELD = "Held"
    STOPPED = "Stopped"
    DEACTIVATED = "Deactivated"
    NEVER = "Never"
    LEDGER_MISMATCH = "LedgerMismatch"


_CAUSES: Final[Mapping[Code, Cause]] = {
    Code.PENDING_EVALUATION: Cause.UNEVALUATED,
    Code.WAITING_FOR_QUOTA: Cause.QUOTA,
    Code.CAPACITY_MISSING: Cause.NODES,
    Code.NO_NODE_FITS: Cause.NODES,
    Code.NO_NODE_CAN_FIT: Cause.NODES,
    Code.WAITING_FOR_RESOURCE_QUOTA: Cause.NAMESPACE_QUOTA,
    Code.WAITING_FOR_USAGE_LIMIT: Cause.USAGE_LIMIT,
    Code.WAITING_FOR_DEPENDENCY: Cause.DEPENDENCY,
    Code.WAITING_FOR_BEGIN_TIME: Cause.BEGIN_TIME,
    Code.WAITING_FOR_ARRAY: Cause.ARRAY,
    Code.BUDGET_EXHAUSTED: Cause.BUDGET,
    Code.WAITING_FOR_PREEMPTED_WORKLOADS: Cause.PODS_ENDING,
    Code.BACKING_OFF: Cause.BACKOFF,
    Code.MIN_RUN_TIME_PROTECTED: Cause.PROTECTED,
    Code.ON_HOLD: Cause.HELD,
    Code.SUSPENDED: Cause.STOPPED,
    Code.DEACTIVATED: Cause.DEACTIVATED,
    Code.LEDGER_MISMATCH: Cause.LEDGER_MISMATCH,
}


class State(StrEnum):
    WAITS = "waits"
    RUNS = "runs"
    EVICTING = "evicting"
    OVER = "over"


class Why(NamedTuple):
    """A cause with the facts that tell it from others of its kind; what has an equal one is added up."""

    cause: Cause
    code: Code | None = None
    flavor: str | None = None
    resource: str | None = None
    limit: Limit | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Spell:
    """A time without a change of state or reason."""

    state: State
    why: Why | None
    """Of a wait."""
    cluster_queue: str | None
    start: datetime
    end: datetime
    after: int
    """Sequence of the decision that began it; 0: none did."""
    before: int | None
    """Sequence of the decision that ended it; None: it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPart:
    """A part of a wait: all times with the same cause."""

    cause: Cause
    text: str
    """The cause in words."""
    seconds: int
    code: Code | None
    """The reason that the workload had."""
    flavor: str | None
    resource: str | None
    limit: Limit | None
    node: str | None
    """The object that bound, such as ClusterQueue/team-a."""
    ahead: int | None
    """With cause `Line`: workloads of its ClusterQueue that started in that time, at most 10,000 counted each
    time."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Whole seconds; `waited`, `ran` and `evicting` add up to the time from `start` to `until`."""

    start: datetime
    until: datetime
    waited: int
    ran: int
    evicting: int
    parts: tuple[WaitPart, ...]
    """The longest first; they add up to `waited`."""


_STATES: Final = {
    Phase.PENDING: State.WAITS,
    Phase.ADMITTED: State.RUNS,
    Phase.EVICTING: State.EVICTING,
}


def spells(rows: Sequence[DecisionRow], created_at: datetime, until: datetime) -> list[Spell]:
    """The life of a workload from its creation up to `until`, or to its end (A1).

    `rows`: its decisions, oldest first. An id that was used before counts from its last enqueue after an end.
    """
    found: list[Spell] = []
    history = WorkloadHistory()
    start = min(created_at, rows[0].now) if rows else created_at  # creation is by another clock
    after = 0
    for number, row in enumerate((*rows, None)):
        end = max(start, until if row is None else row.now)
        if history.ended_at is None and end > start:
            state = _STATES[history.phase]
            why = None
            if state is State.WAITS:
                why = _why(history) if number else Why(Cause.UNSEEN)
            before = None if row is None else row.sequence
            found.append(Spell(state, why, history.cluster_queue, start, end, after, before))
        if row is not None:
            if history.ended_at is not None and row.verdict == Verdict.QUEUED:
                found.clear()  # the id is used again
            history.add(row)
            start, after = end, row.sequence
    return found


def _why(history: WorkloadHistory) -> Why:
    reason = history.reason
    if reason is None or not history.evaluated:
        return Why(Cause.UNEVALUATED)
    if reason.code is Code.WAITING_FOR_HEAD:
        return Why(Cause.LINE, node=reason.node)
    never = reason.family is Family.NEVER
    cause = Cause.NEVER if never else _CAUSES.get(reason.code, Cause.UNEVALUATED)
    return Why(cause, reason.code, reason.flavor, reason.resource, reason.limit, reason.node)


def spans(found: Iterable[Spell], last: int) -> dict[Spell, StartsSpan]:
    """Where starts of other workloads tell a wait behind them from one for quota: the longest MOST_SPANS.

    Up to the decision with sequence `last`.
    """
    asked = [
        (one, StartsSpan(one.cluster_queue, one.after, last + 1 if one.before is None else one.before))
        for one in found
        if one.cluster_queue is not None
        if one.why is not None and one.why.cause in (Cause.QUOTA, Cause.LINE)
    ]
    asked.sort(key=lambda pair: pair[0].start - pair[0].end)
    return dict(asked[:MOST_SPANS])


def breakdown(found: Sequence[Spell], starts: Mapping[Spell, WorkloadStarts]) -> Wait | None:
    """The wait by cause. None: it has no spell, because it ended at the moment of its creation."""
    if not found:
        return None
    start = found[0].start
    parts: dict[Why, tuple[int, int | None]] = {}
    sums = dict.fromkeys(State, 0)
    for spell in found:
        sums[spell.state] += _whole(start, spell.end) - _whole(start, spell.start)
        for why, begin, end, ahead in _pieces(spell, starts.get(spell)):
            seconds, known = parts.get(why, (0, None))
            seconds += _whole(start, end) - _whole(start, begin)
            parts[why] = (seconds, known if ahead is None else ahead + (known or 0))
    ordered = sorted(parts.items(), key=lambda part: -part[1][0])
    return Wait(
        start=start,
        until=found[-1].end,
        waited=sums[State.WAITS],
        ran=sums[State.RUNS],
        evicting=sums[State.EVICTING],
        parts=tuple(
            WaitPart(text=_text(why, ahead), seconds=seconds, ahead=ahead, **why._asdict())
            for why, (seconds, ahead) in ordered
            if seconds
        ),
    )


def _pieces(
    spell: Spell, starts: WorkloadStarts | None
) -> Iterable[tuple[Why, datetime, datetime, int | None]]:
    """A wait for quota up to the last start of another workload of its queue is a wait behind it (A3)."""
    why = spell.why
    if why is None:
        return
    if starts is None or starts.last is None:
        yield why, spell.start, spell.end, None
        return
    if why.cause is Cause.LINE:
        yield why, spell.start, spell.end, starts.number
        return
    last = min(max(spell.start, starts.last), spell.end)
    yield Why(Cause.LINE, node=f"ClusterQueue/{spell.cluster_queue}"), spell.start, last, starts.number
    yield why, last, spell.end, None


def _whole(start: datetime, time: datetime) -> int:
    """Whole seconds from `start`: differences of these add up exactly."""
    return int((time - start).total_seconds())


_WORDS: Final[Mapping[Cause, str]] = {
    Cause.UNSEEN: "before queuectl saw it",
    Cause.UNEVALUATED: "before it was evaluated",
    Cause.LINE: "{behind}{at}",
    Cause.QUOTA: "quota{what}{at}",
    Cause.NODES: "room on nodes ({code}){what}",
    Cause.PODS_ENDING: "pods of preempted workloads ending{at}",
    Cause.PROTECTED: "minimum run time of what it may preempt{at}",
    Cause.NAMESPACE_QUOTA: "ResourceQuota{what}{at}",
    Cause.USAGE_LIMIT: "usage limit{what}{at}",
    Cause.DEPENDENCY: "end of another workload{at}",
    Cause.BEGIN_TIME: "its begin time",
    Cause.ARRAY: "others of its array{at}",
    Cause.BUDGET: "hours{what}{at}",
    Cause.BACKOFF: "pause after a failed start",
    Cause.HELD: "held by its user",
    Cause.STOPPED: "queue stopped{at}",
    Cause.DEACTIVATED: "deactivated until its user acts",
    Cause.NEVER: "not admissible ({code}){what}{at}",
    Cause.LEDGER_MISMATCH: "set aside because memory and ledger disagreed",
}


def _text(why: Why, ahead: int | None) -> str:
    """What it waited for, in words."""
    what = f" of {why.resource}" if why.resource else ""
    what += f" in flavor {why.flavor}" if why.flavor else ""
    at = f" at {why.node}" if why.node else ""
    return _WORDS[why.cause].format(what=what, at=at, code=why.code, behind=_behind(ahead))


def _behind(count: int | None) -> str:
    if not count:
        return "behind the head of its pending queue"
    return f"behind {count} {'workload' if count == 1 else 'workloads'} that started before it"
