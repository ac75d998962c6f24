"""Values of the core to the ledger's JSON and back.

Strings lose what Postgres cannot store (NUL, lone surrogates). Integers stay exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding, UseVerdict
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import (
    Code,
    ExcludedNodes,
    Limit,
    NodeFinding,
    PreemptionCause,
    Reason,
    RejectedCandidate,
)
from queuectl.core.model.start_conditions import AfterOutcome, AfterWorkload, StartConditions
from queuectl.core.model.workload import (
    NO_OPTIONS,
    NO_PAST_ATTEMPTS,
    PastAttempts,
    PodSetAssignment,
    UserOptions,
)
from queuectl.kinds.node_constraints import stored_toleration, toleration_json

PAYLOAD_VERSION: Final = 1

Json = dict[str, Any]
Made = TypeVar("Made")


class Parsed:
    """Values of JSON texts, each made once. The values are shared: they must not be changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Callable[[Any], Any], str | None], Any] = {}

    def __call__(self, make: Callable[[Any], Made], text: str | None) -> Made:
        """Return what `make` makes of the JSON value of `text`; of None, what it makes of None."""
        key = (make, text)
        if key not in self._known:
            self._known[key] = make(None if text is None else json.loads(text))
        found: Made = self._known[key]
        return found


def clean(text: str) -> str:
    """`text` without what Postgres cannot store."""
    if text.isascii():
        return text.replace("\0", "") if "\0" in text else text
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def clean_or_none(text: str | None) -> str | None:
    return None if text is None else clean(text)


def cleaned(value: Any) -> Any:
    """A JSON value whose strings, keys included, Postgres can store."""
    match value:
        case str():
            return clean(value)
        case Mapping():
            return {clean(key): cleaned(one) for key, one in value.items()}
        case list() | tuple():
            return [cleaned(one) for one in value]
        case _:
            return value


def dump(value: Any) -> str:
    """JSON text of a cleaned value, the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- reasons

_NUMBERS: Final = {
    "requested": "requested",
    "available": "available",
    "shortBy": "short_by",
    "awaited": "awaited",
    "pods": "pods",
    "podsFit": "pods_fit",
}
_WORDS: Final = ("flavor", "resource", "node", "by", "detail", "considered")


def reason_to_json(reason: Reason) -> Json:
    found: Json = {"code": reason.code.value}
    for name in _WORDS:
        if (text := getattr(reason, name)) is not None:
            found[name] = clean(text)
    for name, field in _NUMBERS.items():
        if (number := getattr(reason, field)) is not None:
            found[name] = number
    others = {
        "limit": reason.limit and reason.limit.value,
        "cause": reason.cause and reason.cause.value,
        "until": reason.until and reason.until.isoformat(),
        "reserved": reason.reserved,
    }
    found |= {name: one for name, one in others.items() if one}
    if reason.victims:
        found["victims"] = [{"who": clean_or_none(who), "why": clean(why)} for who, why in reason.victims]
    if reason.nodes:
        found["nodes"] = [_node_to_json(one) for one in reason.nodes]
    if reason.others:
        found["others"] = [reason_to_json(other) for other in reason.others]
    return found


def reason_from_json(value: Json) -> Reason:
    return Reason(
        code=Code(value["code"]),
        reserved=value.get("reserved", False),
        until=datetime.fromisoformat(value["until"]) if "until" in value else None,
        limit=Limit(value["limit"]) if "limit" in value else None,
        cause=PreemptionCause(value["cause"]) if "cause" in value else None,
        victims=tuple(RejectedCandidate(one["who"], one["why"]) for one in value.get("victims", ())),
        others=tuple(reason_from_json(other) for other in value.get("others", ())),
        nodes=tuple(
            NodeFinding(one["name"], one["free"])
            if "name" in one
            else ExcludedNodes(one["nodes"], one["why"])
            for one in value.get("nodes", ())
        ),
        **{name: value.get(name) for name in _WORDS},
        **{field: value.get(name) for name, field in _NUMBERS.items()},
    )


def _node_to_json(one: NodeFinding | ExcludedNodes) -> Json:
    if isinstance(one, NodeFinding):
        return {"name": clean(one.name), "free": one.free}
    return {"nodes": one.nodes, "why": clean(one.why)}


def reason_or_none(value: Json | None) -> Reason | None:
    return None if value is None else reason_from_json(value)


# --- labels


def labels_from_json(value: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(value.items()))


# --- pasts


def past_to_json(past: PastAttempts) -> Json | None:
    """None for the empty past."""
    if past == NO_PAST_ATTEMPTS:
        return None
    found: Json = {"runMs": past.run_ms, "failures": past.failures, "ready": past.ready}
    if past.barred is not None:
        found["barred"] = reason_to_json(past.barred)
    if past.held_back:
        found["heldBack"] = past.held_back
    if past.missed:
        found["missed"] = list(past.missed)
    if past.use is not None:
        found["use"] = _use_to_json(past.use)
    if past.lowered:
        found["lowered"] = [one._asdict() for one in past.lowered]
    times = {
        "until": past.until,
        "boundAt": past.bound_at,
        "unreadyAt": past.unready_at,
        "partAt": past.part_at,
        "missedAt": past.missed_at,
        "orderedFrom": past.ordered_from,
    }
    return found | {name: when.isoformat() for name, when in times.items() if when is not None}


def past_from_json(value: Json | None) -> PastAttempts:
    if value is None:
        return NO_PAST_ATTEMPTS
    return PastAttempts(
        run_ms=value["runMs"],
        failures=value["failures"],
        ready=value["ready"],
        barred=reason_from_json(value["barred"]) if "barred" in value else None,
        until=_time(value, "until"),
        bound_at=_time(value, "boundAt"),
        unready_at=_time(value, "unreadyAt"),
        held_back=value.get("heldBack", 0),
        part_at=_time(value, "partAt"),
        missed=tuple(value.get("missed", ())),
        missed_at=_time(value, "missedAt"),
        use=_use_from_json(value["use"]) if "use" in value else None,
        lowered=tuple(LoweredPriority(**one) for one in value.get("lowered", ())),
        ordered_from=_time(value, "orderedFrom"),
    )


def _use_to_json(use: DeviceUse) -> Json:
    found: Json = {
        "attempt": use.attempt,
        "since": use.since.isoformat(),
        **use.finding._asdict(),
        "wastedMs": use.wasted_ms,
        "idleMs": use.idle_ms,
    }
    if use.idle_since is not None:
        found["idleSince"] = use.idle_since.isoformat()
    if use.notice is not None:
        found["notice"] = _notice_to_json(use.notice)
    return found


def _use_from_json(value: Json) -> DeviceUse:
    found = UseFinding(*(value[name] for name in UseFinding._fields))
    return DeviceUse(
        attempt=value["attempt"],
        since=datetime.fromisoformat(value["since"]),
        finding=found._replace(verdict=UseVerdict(found.verdict)),
        wasted_ms=value["wastedMs"],
        idle_ms=value["idleMs"],
        idle_since=_time(value, "idleSince"),
        notice=_notice_from_json(value["notice"]) if "notice" in value else None,
    )


def _notice_to_json(notice: IdleNotice) -> Json:
    times = {
        "at": notice.at,
        "holdAt": notice.hold_at,
        "lowerAt": notice.lower_at,
        "heldAt": notice.held_at,
    }
    found: Json = {"policy": notice.policy, "dryRun": notice.dry_run}
    if notice.cancels:
        found["cancels"] = True
    return found | {name: when.isoformat() for name, when in times.items() if when is not None}


def _notice_from_json(value: Json) -> IdleNotice:
    return IdleNotice(
        policy=value["policy"],
        at=datetime.fromisoformat(value["at"]),
        hold_at=_time(value, "holdAt"),
        cancels=value.get("cancels", False),
        lower_at=_time(value, "lowerAt"),
        dry_run=value["dryRun"],
        held_at=_time(value, "heldAt"),
    )


def _time(value: Json, name: str) -> datetime | None:
    return datetime.fromisoformat(value[name]) if name in value else None


# --- options


def options_to_json(options: UserOptions) -> Json | None:
    """None if there are none."""
    if options == NO_OPTIONS:
        return None
    found: Json = {}
    if options.priority_class is not None:
        found["priorityClass"] = clean(options.priority_class)
    if options.max_run_seconds is not None:
        found["maxRunSeconds"] = options.max_run_seconds
    if options.start is not None:
        found["start"] = _start_to_json(options.start)
    if options.problem is not None:
        found["problem"] = reason_to_json(options.problem)
    return found


def options_from_json(value: Json | None) -> UserOptions:
    if value is None:
        return NO_OPTIONS
    problem = value.get("problem")
    return UserOptions(
        priority_class=value.get("priorityClass"),
        max_run_seconds=value.get("maxRunSeconds"),
        start=_start_from_json(value["start"]) if "start" in value else None,
        problem=None if problem is None else reason_from_json(problem),
    )


def _start_to_json(start: StartConditions) -> Json:
    found: Json = {"after": [list(one) for one in start.after]} if start.after else {}
    if start.begin_at is not None:
        found["beginAt"] = start.begin_at.isoformat()
    if start.max_running is not None:
        found |= {"maxRunning": start.max_running, "array": clean(start.array or "")}
    return found


def _start_from_json(value: Json) -> StartConditions:
    after = tuple(AfterWorkload(AfterOutcome(on), kind, name) for on, kind, name in value.get("after", ()))
    return StartConditions(
        after=after,
        begin_at=_time(value, "beginAt"),
        max_running=value.get("maxRunning"),
        array=value.get("array"),
    )


# --- assignments


def pod_sets_to_json(pod_sets: Iterable[PodSetAssignment]) -> list[Json]:
    return [_pod_set_to_json(one) for one in pod_sets]


def _pod_set_to_json(one: PodSetAssignment) -> Json:
    found: Json = {
        "name": clean(one.name),
        "count": one.count,
        "requests": {clean(resource): amount for resource, amount in one.requests},
        "flavors": {clean(resource): clean(flavor) for resource, flavor in one.flavors},
    }
    if one.node_selector:
        found["nodeSelector"] = {clean(key): clean(value) for key, value in one.node_selector}
    if one.tolerations:
        found["tolerations"] = [cleaned(toleration_json(toleration)) for toleration in one.tolerations]
    if one.ended:
        found["ended"] = [*map(clean, one.ended)]
    return found


def pod_sets_from_json(values: Iterable[Json]) -> tuple[PodSetAssignment, ...]:
    return tuple(
        PodSetAssignment(
            name=value["name"],
            count=value["count"],
            requests=tuple(sorted(value["requests"].items())),
            flavors=tuple(sorted(value["flavors"].items())),
            node_selector=tuple(sorted(value.get("nodeSelector", {}).items())),
            tolerations=tuple(stored_toleration(one) for one in value.get("tolerations", ())),
            ended=tuple(value.get("ended", ())),
        )
        for value in values
    )
