"""The facts that the screen shows, from documents of REST. Pure.

Documents of other versions may have more fields, which are ignored, or fewer, which are shown as empty. Only
a document of another type is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from queuectl.screen.text import amount, unit

Document = Mapping[str, Any]
Target = tuple[str, str, str]
"""Namespace, kind and name of a workload."""
HIDDEN: Final = "a workload not shown to you"
"""In place of a workload that the caller may not read."""


class NotUnderstood(ValueError):
    """A document is not one of queuectl's REST server."""


@dataclass(frozen=True, slots=True)
class ShownQuota:
    """One flavor and resource of a queue, in base units."""

    flavor: str
    resource: str
    nominal: int
    used: int
    free: int
    """What the queue can have now, by borrowing too."""

    @property
    def borrowed(self) -> int:
        return max(0, self.used - self.nominal)


@dataclass(frozen=True, slots=True)
class Queue:
    name: str
    cohort: str | None
    active: bool
    why: str
    """Reason and message of its condition."""
    pending: int
    admitted: int
    quotas: tuple[ShownQuota, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownReason:
    """The reason of one workload; amounts in base units of `resource`."""

    code: str
    message: str
    family: str = ""
    flavor: str | None = None
    resource: str | None = None
    short_by: int | None = None
    limit: str | None = None
    node: str | None = None
    others: tuple[str, ...] = ()
    """The same finding for the other flavors that were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One workload. Its names are None if the caller may not read it."""

    namespace: str | None
    kind: str | None
    name: str | None
    queue: str
    """ClusterQueue; empty if unknown."""
    phase: str
    priority: int
    position: int | None
    created_at: datetime | None
    admitted_at: datetime | None
    attempt: int | None
    pods: int | None
    """Of the open attempt."""
    pods_ready: int | None
    """Of those; None: unknown."""
    holds: tuple[tuple[str, str, int], ...]
    """Flavor, resource, amount of all pods."""
    why: ShownReason | None

    @property
    def target(self) -> Target | None:
        if self.namespace is None or self.kind is None or self.name is None:
            return None
        return (self.namespace, self.kind, self.name)

    @property
    def title(self) -> str:
        if self.name is None:
            return HIDDEN
        return f"{self.namespace}/{(self.kind or '').lower()}/{self.name}"


@dataclass(frozen=True, slots=True)
class ShownDecision:
    sequence: int
    time: datetime | None
    verdict: str
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Room:
    """What the nodes of one flavor have of one device, in base units."""

    flavor: str
    resource: str
    there: int
    """Allocatable on ready nodes."""
    free: int
    unmanaged: int
    """Used by pods that belong to no workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFacts:
    """From one committed state, or from two in close succession."""

    sequence: int = 0
    age_seconds: float = 0.0
    """Since the ledger last confirmed this state, at the time of the answer."""
    silent_seconds: float = 0.0
    """Since a controller last committed, at the time of the answer."""
    stale: bool = False
    one_state: bool = False
    """Queues and workloads are of the same sequence, so that their counts may be compared."""
    queues: tuple[Queue, ...] = ()
    more_queues: bool = False
    running: tuple[Work, ...] = ()
    more_running: bool = False
    waiting: tuple[Work, ...] = ()
    more_waiting: bool = False
    decisions: tuple[ShownDecision, ...] | None = None
    """Newest first; None if the server does not list them."""
    rooms: tuple[Room, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of the server, as received."""

    queues: Document
    admitted: Document
    evicting: Document
    pending: Document
    decisions: Document | None = None
    capacity: Document | None = None


def facts(answers: Answers) -> ScreenFacts:
    """Raises NotUnderstood."""
    try:
        return ScreenFacts(
            sequence=int(answers.queues["sequence"]),
            one_state=all(
                page.get("sequence") == answers.queues["sequence"]
                for page in (answers.admitted, answers.evicting, answers.pending)
            ),
            age_seconds=float(answers.queues["ageSeconds"]),
            silent_seconds=float((answers.queues.get("controller") or {}).get("seconds", 0)),
            stale=bool(answers.queues.get("stale")),
            queues=tuple(_queue(item) for item in answers.queues["items"]),
            more_queues=bool(answers.queues["next"]),
            running=tuple(_works(answers.evicting, answers.admitted)),
            more_running=bool(answers.admitted["next"] or answers.evicting["next"]),
            waiting=tuple(sorted(_works(answers.pending), key=_in_line)),
            more_waiting=bool(answers.pending["next"]),
            decisions=_decisions(answers.decisions),
            rooms=tuple(_rooms(answers.capacity)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotUnderstood(f"{type(error).__name__}: {error}") from None


def _rooms(capacity: Document | None) -> Iterable[Room]:
    for item in capacity["items"] if capacity is not None else ():
        for one in item["resources"]:
            if item["flavor"] is not None and "/" in one["resource"] and one["allocatable"]:
                there = int(one["allocatable"].get("Ready", 0))
                yield Room(
                    item["flavor"],
                    one["resource"],
                    there,
                    int(one.get("available", one["free"])),
                    int(one["unmanaged"]),
                )


def charges(holds: Sequence[tuple[str, str, int]], *, all: bool = False) -> list[str]:
    """Such as `4 gpu a100`: only devices, if there are any, unless `all`."""
    devices = [hold for hold in holds if "/" in hold[1]]
    return [
        f"{amount(resource, total)} {unit(resource)} {flavor}".rstrip()
        for flavor, resource, total in (holds if all else devices or holds)
    ]


def meant(filter: str, queues: Iterable[Queue]) -> set[str]:
    """Names of the queues that match a filter: the one of that name, else all whose name contains it."""
    names = {queue.name for queue in queues}
    return {filter} if filter in names else {name for name in names if filter in name}


def _queue(item: Document) -> Queue:
    condition = item.get("condition") or {}
    why = ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
    return Queue(
        name=item["name"],
        cohort=item.get("cohort"),
        active=bool(item["active"]),
        why=why,
        pending=int(item["pending"]),
        admitted=int(item["admitted"]),
        quotas=tuple(
            ShownQuota(
                cell["flavor"],
                cell["resource"],
                int(cell["nominal"]),
                int(cell["used"]),
                int(cell.get("free", max(0, int(cell["nominal"]) - int(cell["used"])))),
            )
            for cell in item["flavors"]
        ),
    )


def _works(*pages: Document) -> Iterable[Work]:
    return (_work(item) for page in pages for item in page["items"])


def _work(item: Document) -> Work:
    admission = item.get("admission") or {}
    reason = item.get("reason")
    return Work(
        namespace=item.get("namespace"),
        kind=item.get("kind"),
        name=item.get("name"),
        queue=admission.get("clusterQueue") or item.get("clusterQueue") or "",
        phase=item["phase"],
        priority=int(item.get("priority") or 0),
        position=item.get("position"),
        created_at=_time(item.get("createdAt")),
        admitted_at=_time(item.get("admittedAt")),
        attempt=item.get("attempt"),
        pods=item.get("pods"),
        pods_ready=item.get("podsReady"),
        holds=_holds(admission.get("podSets") or ()),
        why=_why(reason) if reason else None,
    )


def _why(reason: Document) -> ShownReason:
    return ShownReason(
        code=reason["code"],
        message=reason["message"],
        family=reason.get("family") or "",
        flavor=reason.get("flavor"),
        resource=reason.get("resource"),
        short_by=reason.get("shortBy"),
        limit=reason.get("limit"),
        node=reason.get("node"),
        others=tuple(other["message"] for other in reason.get("others") or ()),
    )


def _holds(pod_sets: Sequence[Document]) -> tuple[tuple[str, str, int], ...]:
    totals: dict[tuple[str, str], int] = {}
    for pods in pod_sets:
        for resource, each in pods["requests"].items():
            cell = (pods["flavors"].get(resource, ""), resource)
            totals[cell] = totals.get(cell, 0) + int(each) * int(pods["count"])
    # Devices first: they are scarce.
    ordered = sorted(totals.items(), key=lambda item: ("/" not in item[0][1], item[0]))
    return tuple((flavor, resource, total) for (flavor, resource), total in ordered)


def _in_line(work: Work) -> tuple[str, int]:
    """By ClusterQueue and position; those without a position last, in the order of the answer."""
    return (work.queue, 1 << 62 if work.position is None else work.position)


def _decisions(page: Document | None) -> tuple[ShownDecision, ...] | None:
    if page is None:
        return None
    found = [_decision(item) for item in page["items"]]
    return tuple(sorted(found, key=lambda decision: -decision.sequence))


def _decision(item: Document) -> ShownDecision:
    details = item.get("details") or {}
    reason = item.get("reason")
    return ShownDecision(
        sequence=int(item["sequence"]),
        time=_time(item.get("time")),
        verdict=item["verdict"],
        who=_who(item, details),
        text=reason["message"] if reason else _detail(item["verdict"], details),
    )


def _who(item: Document, details: Document) -> str:
    found = item.get("workload") or item.get("ref") or item
    if isinstance(found, Mapping) and found.get("name"):
        return f"{found.get('namespace')}/{str(found.get('kind') or '').lower()}/{found['name']}"
    named = (details.get(key) for key in ("kind", "namespace", "name"))
    return "/".join(str(part) for part in named if part)


def _detail(verdict: str, details: Document) -> str:
    if verdict == "Admitted":
        queue = details.get("clusterQueue")
        charge = ", ".join(charges(_holds(details.get("podSets") or ())))
        return f"{queue}: {charge}" if charge else str(queue or "")
    if verdict == "Queued":
        return f"in {details.get('clusterQueue') or details.get('queue')}, priority {details.get('priority')}"
    if verdict == "Configured":
        by = f"by {author}" if (author := details.get("author")) else ""
        return by if details.get("spec") is not None else "deleted"
    return ": ".join(str(details[key]) for key in ("outcome", "detail") if details.get(key))


def _time(text: object) -> datetime | None:
    if text is None:
        return None
    found = datetime.fromisoformat(str(text))
    if found.tzinfo is None:
        raise ValueError(f"a time without a zone: {text!r}")
    return found
