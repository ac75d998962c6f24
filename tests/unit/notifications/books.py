"""A history in memory with the cursors of sinks, and a sink that a test makes fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code, Family, Reason
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.notifications.delivery import SinkFailed
from queuectl.notifications.messages import Message
from queuectl.notifications.rules import Event
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.outbox import BudgetLevel, Cursor, Deleted, Occurrence, Occurrences
from queuectl.ports.reader import DecisionRow
from queuectl.settings.notifications import RuleSettings

NOW = datetime(2026, 1, 5, tzinfo=UTC)
CREATED = NOW - timedelta(hours=2)


def each_event() -> tuple[RuleSettings, ...]:
    """A rule about each, without a condition."""
    moved = {Event.START_MOVED: {"moved_more_than_seconds": 600}}
    rules = ({"event": one.value, **moved.get(one, {})} for one in Event)
    return tuple(map(RuleSettings.model_validate, rules))


def row(
    sequence: int,
    verdict: Verdict,
    *,
    reason: Reason | None = None,
    name: str = "train",
    namespace: str = "team-a",
    debt: bool = False,
    at: datetime | None = None,
) -> DecisionRow:
    payload: dict[str, object] = {}
    if verdict is Verdict.QUEUED:
        payload = {"queue": "main", "createdAt": CREATED.isoformat()}
    elif verdict is Verdict.ADMITTED:
        payload = {"debt": debt}
    return DecisionRow(
        sequence=sequence,
        cycle=1,
        now=at or NOW + timedelta(seconds=sequence),
        epoch=1,
        verdict=verdict.value,
        workload=WorkloadId(f"uid-{name}"),
        ref=ObjectRef(namespace, "Job", name, f"uid-{name}"),
        attempt=1,
        reason=reason,
        payload=payload,
    )


def occurrence(rows: Sequence[DecisionRow], of: DecisionRow) -> Occurrence:
    """By reading all rows before it."""
    before = [one for one in rows if one.workload == of.workload and one.sequence < of.sequence]
    queued = [one for one in before if one.verdict == Verdict.QUEUED]
    released = [one for one in before if one.verdict == Verdict.RELEASED]
    since = None
    if released:
        since = released[-1].now
    elif queued:
        since = datetime.fromisoformat(str(queued[-1].payload["createdAt"]))
    queue, submitter = (queued[-1].payload.get(name) if queued else None for name in ("queue", "submitter"))
    return Occurrence(
        of, None if queue is None else str(queue), since, None if submitter is None else str(submitter)
    )


def may_be_told(one: DecisionRow) -> bool:
    never = one.reason is not None and one.reason.family is Family.NEVER
    told = one.verdict in (Verdict.ADMITTED, Verdict.EVICTED, Verdict.RETIRED)
    past: Any = one.payload.get("past") or {}
    noticed = one.verdict == Verdict.AMENDED and "notice" in past.get("use", {})
    return told or noticed or (one.verdict == Verdict.PENDING and never)


@dataclass
class Book:
    """ports.outbox.Outbox over rows with sequences from 1; `first` is the oldest that is left."""

    rows: list[DecisionRow] = field(default_factory=list)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    first: int = 1
    down: int = 0
    """So many calls from now on fail."""
    calls: int = 0
    failing: frozenset[int] = frozenset()
    """Numbers of calls that fail."""
    levels: dict[int, tuple[BudgetLevel, ...]] = field(default_factory=dict)
    """By the sequence of the decision."""
    errors: list[tuple[int, str, float]] = field(default_factory=list)

    def _reached(self) -> None:
        self.calls += 1
        if self.down or self.calls in self.failing:
            self.down = max(0, self.down - 1)
            raise LedgerUnavailable("no connection")

    async def occurrences(self, after: int, limit: int) -> Occurrences:
        self._reached()
        head = self.rows[-1].sequence if self.rows else 0
        left = [one for one in self.rows if one.sequence > after and one.sequence >= self.first]
        first = left[0].sequence if left else head + 1
        until = max(after, min(head, first - 1 + limit))
        found = [occurrence(self.rows, one) for one in left if one.sequence <= until and may_be_told(one)]
        found = [replace(one, budgets=self.levels.get(one.decision.sequence, ())) for one in found]
        epoch = left[0].epoch if left else 1
        deleted = Deleted(epoch, after + 1, first - 1) if head > after and first > after + 1 else None
        return Occurrences(found=found, until=until, head=max(head, after), read_at=NOW, deleted=deleted)

    async def cursor(self, sink: str) -> Cursor:
        self._reached()
        return self.cursors.setdefault(sink, Cursor(sink=sink, sequence=len(self.rows)))

    async def advance(self, cursor: Cursor, to: int, sent: int) -> bool:
        self._reached()
        stored = self.cursors[cursor.sink]
        if stored.sequence != cursor.sequence:
            return False
        self.cursors[cursor.sink] = replace(stored, sequence=to, sent=stored.sent + sent, failures=0)
        return True

    async def failed(self, cursor: Cursor, failures: int, error: str, seconds: float) -> None:
        self._reached()
        self.errors.append((failures, error, seconds))
        self.cursors[cursor.sink] = replace(self.cursors[cursor.sink], failures=failures, error=error)


@dataclass
class Receiver:
    """Accepts messages, except for the next `refusals` and those in `refusing`."""

    got: list[Message] = field(default_factory=list)
    refusals: int = 0
    tries: int = 0
    refusing: frozenset[int] = frozenset()
    """Numbers of tries that are refused."""
    retry_after: float | None = None

    async def send(self, message: Message) -> None:
        self.tries += 1
        if self.refusals or self.tries in self.refusing:
            self.refusals = max(0, self.refusals - 1)
            raise SinkFailed("answers 503", self.retry_after)
        self.got.append(message)

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.got]


@dataclass
class Counts:
    """delivery.Observer."""

    sent_by: dict[str, int] = field(default_factory=dict)
    failed_by: dict[str, int] = field(default_factory=dict)
    behind_by: dict[str, int] = field(default_factory=dict)

    def sent(self, sink: str) -> None:
        self.sent_by[sink] = self.sent_by.get(sink, 0) + 1

    def failed(self, sink: str) -> None:
        self.failed_by[sink] = self.failed_by.get(sink, 0) + 1

    def behind(self, sink: str, decisions: int) -> None:
        self.behind_by[sink] = decisions


NEVER = Reason(code=Code.EXCEEDS_MAX_QUOTA, resource="cpu", requested=9000, available=8000)
WAITS = Reason(code=Code.WAITING_FOR_QUOTA, resource="cpu", requested=9000, available=0)
PREEMPTED = Reason(code=Code.PREEMPTED, by="team-b/Job/secret-project")
HELD = Reason(code=Code.USER_HOLD, by="alice")
