"""The messages about decisions, with the names that their receiver may read. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from queuectl.core.model.budgets import HOUR
from queuectl.core.model.device_use import DeviceUse
from queuectl.core.model.reasons import Readable, Reason, redacted, utc
from queuectl.core.model.resources import format_amount
from queuectl.notifications.rules import Event, notice_in, outcome_of, waited
from queuectl.ports.outbox import BudgetLevel, Deleted, Occurrence, ToldStart
from queuectl.ports.reader import DecisionRow

MAX_TEXT: Final = 2_000
"""Characters of the text of a message, and of each reason in it."""


@dataclass(frozen=True, slots=True)
class Message:
    """`id` is the same each time that it is sent: receivers ignore one that they have.

    It has the epoch of a decision or the time of a forecast: after a restore of the ledger other decisions
    have the sequences of those that were lost.
    """

    id: str
    event: str
    at: datetime
    text: str
    """One line for people."""
    document: dict[str, Any]
    """All of it, as JSON values."""

    @property
    def body(self) -> bytes:
        """The document as JSON, the same bytes each time."""
        return json.dumps(self.document, sort_keys=True, ensure_ascii=False).encode()


def about(
    cluster: str, event: Event, found: Occurrence, readable: Readable, page: str | None = None
) -> Message:
    """The message about a decision on a workload. `page`: see Selection."""
    row, ref = found.decision, found.decision.ref
    assert ref is not None
    reason = None if row.reason is None else redacted(row.reason, readable)
    name = f"{ref.kind} {ref.namespace}/{ref.name}"
    wait = waited(found) if event is Event.STARTED else None
    text = _what_happened(event, name, row, wait)
    if found.queue is not None:
        text += f", LocalQueue {found.queue}"
    if reason is not None:
        text += f": {reason.message}"
    use = notice_in(row) if event is Event.IDLE else None
    text += "" if use is None else f": {_idle_text(use)}"
    document = {
        "queue": found.queue,
        "workload": ref._asdict(),
        "attempt": row.attempt,
        "waitedSeconds": None if wait is None else int(wait.total_seconds()),
        "reason": _reason(reason),
    }
    if use is not None:
        document["idle"] = _idle(use)
    if event is Event.ENDED:
        document["outcome"] = outcome_of(row)
    if page is not None:
        address = "/".join(quote(part, safe="") for part in (ref.namespace, ref.kind, ref.name))
        document["link"] = f"{page.rstrip('/')}/#/workloads/{address}"
        text += f" {document['link']}"
    name = f"{cluster}/{row.epoch}/{row.sequence}"
    return _message(name, event, row.now, text, cluster, row.sequence, document)


def _what_happened(event: Event, name: str, row: DecisionRow, wait: timedelta | None) -> str:
    match event:
        case Event.STARTED:
            return f"{name} started" + ("" if wait is None else f" after {_duration(wait)}")
        case Event.EVICTED:
            return f"{name} was evicted"
        case Event.ENDED:
            return f"{name} ended: {outcome_of(row)}"
        case Event.CAN_NEVER_RUN:
            return f"{name} can't run as the policy is"
        case Event.IDLE:
            return f"{name} leaves GPUs idle"
        case Event.BUDGET | Event.START_MOVED:
            raise ValueError(f"told by `budget_used` and `moved`, not as what happened: {event}")


def _idle_text(use: DeviceUse) -> str:
    found, notice = use.finding, use.notice
    since = utc(use.idle_since or use.since)
    text = f"{found.idle_devices} of {found.devices} are {found.verdict} since {since}"
    if notice is not None and notice.lower_at is not None:
        text += f"; IdlePolicy/{notice.policy} lowers its priority at {utc(notice.lower_at)}"
    if notice is not None and notice.hold_at is not None:
        does = "cancels" if notice.cancels else "holds"
        text += f"; IdlePolicy/{notice.policy} {does} it at {utc(notice.hold_at)} unless they work before"
    return text if notice is None else f"{text}; preemption chooses it first"


def _idle(use: DeviceUse) -> dict[str, Any]:
    found, notice = use.finding, use.notice
    return {
        "verdict": found.verdict.value,
        "since": utc(use.idle_since or use.since),
        "devices": found.devices,
        "idleDevices": found.idle_devices,
        "coverage": found.coverage,
        "policy": None if notice is None else notice.policy,
        "holdAt": None if notice is None or notice.hold_at is None else utc(notice.hold_at),
    }


def budget_used(cluster: str, level: BudgetLevel, found: Occurrence) -> Message:
    """The message about a Budget: a decision on a workload took it past a level."""
    row, ref, (budget, subject, period, percent) = found.decision, found.decision.ref, level
    assert ref is not None
    hours = format_amount(budget.resource, budget.amount // HOUR)
    whose = f" of {subject}" if subject else ""
    text = (
        f"Budget/{budget.name}: {percent} % of the {hours} {budget.resource} hours{whose} until "
        f"{utc(period.ends)} are reserved or used, with {ref.kind} {ref.namespace}/{ref.name}"
    )
    document = {
        "queue": found.queue,
        "workload": ref._asdict(),
        "attempt": row.attempt,
        "budget": {
            "name": budget.name,
            "subject": subject or None,
            "resource": budget.resource,
            "percent": percent,
            "periodBegins": utc(period.begins),
            "periodEnds": utc(period.ends),
        },
    }
    name = f"{cluster}/{row.epoch}/{row.sequence}/{budget.name}/{utc(period.begins)}"
    return _message(name, Event.BUDGET, row.now, text, cluster, row.sequence, document)


def moved(cluster: str, known: ToldStart) -> Message:
    """The message about another expected start, which is `known.moved`."""
    ref, before, start, at = known.ref, known.start, known.moved, known.moved_at
    assert before is not None
    assert start is not None
    assert at is not None
    far = f"{_duration(abs(start - before))} {'later' if start > before else 'earlier'}"
    text = (
        f"{ref.kind} {ref.namespace}/{ref.name} is expected to start at {utc(start)}, {far} than before, "
        f"LocalQueue {known.queue}"
    )
    document = {
        "queue": known.queue,
        "workload": ref._asdict(),
        "startsAt": utc(start),
        "toldBefore": utc(before),
    }
    name = f"{cluster}/start/{known.workload}/{int(at.timestamp() * 1_000_000)}"
    return _message(name, Event.START_MOVED, at, text, cluster, None, document)


def gap(cluster: str, deleted: Deleted, now: datetime) -> Message:
    """History was deleted before it was told."""
    epoch, first, last = deleted
    text = (
        f"Decisions {first} to {last} were deleted with old history before they could be told: "
        "messages about them are missing"
    )
    document: dict[str, Any] = {"first": first, "last": last}
    return _message(f"{cluster}/{epoch}/{first}-{last}", "Gap", now, text, cluster, last, document)


def trial(cluster: str, sink: str, now: datetime) -> Message:
    """What `queuectl notifications --test` sends."""
    text = f"This is a test of sink {sink}: nothing happened"
    return _message(f"{cluster}/test/{utc(now)}", "Test", now, text, cluster, None, {})


def _message(
    name: str,
    event: str,
    at: datetime,
    text: str,
    cluster: str,
    sequence: int | None,
    document: dict[str, Any],
) -> Message:
    text = _short(" ".join(text.split()))
    head = {"id": name, "cluster": cluster, "sequence": sequence, "event": str(event)}
    return Message(name, str(event), at, text, {**head, "time": utc(at), "text": text, **document})


def _reason(reason: Reason | None) -> dict[str, str] | None:
    if reason is None:
        return None
    return {"code": reason.code.value, "family": reason.family.value, "message": _short(reason.message)}


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def _duration(time: timedelta) -> str:
    minutes, seconds = divmod(max(0, int(time.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    first = next((place for place, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"
