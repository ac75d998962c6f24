"""Values of the core to the ledger's JSON and back.

Strings lose what Postgres cannot store (NUL, lone surrogates). Integers stay exact.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

from pydantic.alias_generators import to_camel

from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding, UseVerdict
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.reasons import (
    ExcludedNodes,
    NodeFinding,
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


# --- records: an object with the fields in camelCase, without those that have their default

_KEPT: Final = dataclasses.MISSING
_Both = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""From a value to JSON, and back."""


def _same(value: Any) -> Any:
    return value


def _by_type(hint: Any) -> _Both:
    """How a value of a field of this type is stored."""
    (kind,) = {*(get_args(hint) or (hint,))} - {type(None)}
    if kind is str:
        return clean, _same
    if kind is datetime:
        return datetime.isoformat, datetime.fromisoformat
    return (attrgetter("value"), kind) if issubclass(kind, Enum) else (_same, _same)


class _Record(Generic[Made]):
    """A dataclass."""

    def __init__(self, kind: type[Made], *, always: Container[str] = (), **others: _Both) -> None:
        """`always`: fields that are stored with their default too. `others`: how fields are stored that are
        no text, number, time or enum."""
        hints = get_type_hints(kind)
        self._kind = kind
        self._fields = [
            (one.name, to_camel(one.name), _KEPT if one.name in always else one.default, *of_type)
            for one in dataclasses.fields(kind)  # type: ignore[arg-type]
            for of_type in (others.get(one.name) or _by_type(hints[one.name]),)
        ]

    def to_json(self, record: Made) -> Json:
        found: Json = {}
        for name, key, default, store, _ in self._fields:
            value = getattr(record, name)
            if default is _KEPT or (value is not default and value != default):
                found[key] = store(value)
        return found

    def from_json(self, found: Json) -> Made:
        return self._kind(
            **{name: read(found[key]) for name, key, _, _, read in self._fields if key in found}
        )


def _each(store: Callable[[Any], Any], read: Callable[[Any], Any]) -> _Both:
    return lambda values: [*map(store, values)], lambda values: tuple(map(read, values))


def _node_to_json(one: NodeFinding | ExcludedNodes) -> Json:
    if isinstance(one, NodeFinding):
        return {"name": clean(one.name), "free": one.free}
    return {"nodes": one.nodes, "why": clean(one.why)}


def _node_from_json(one: Json) -> NodeFinding | ExcludedNodes:
    return NodeFinding(**one) if "name" in one else ExcludedNodes(**one)


def reason_to_json(reason: Reason) -> Json:
    return _REASON.to_json(reason)


def reason_from_json(value: Json) -> Reason:
    return _REASON.from_json(value)


def reason_or_none(value: Json | None) -> Reason | None:
    return None if value is None else reason_from_json(value)


_REASON: Final = _Record(
    Reason,
    victims=_each(
        lambda one: {"who": clean_or_none(one.who), "why": clean(one.why)},
        lambda one: RejectedCandidate(**one),
    ),
    nodes=_each(_node_to_json, _node_from_json),
    others=_each(reason_to_json, reason_from_json),
)
_NOTICE: Final = _Record(IdleNotice, always={"dry_run"})
_USE: Final = _Record(
    DeviceUse,
    always={"wasted_ms", "idle_ms"},
    finding=(_same, _same),
    notice=(_NOTICE.to_json, _NOTICE.from_json),
)


def _use_to_json(use: DeviceUse) -> Json:
    """With the fields of its finding."""
    found = _USE.to_json(use)
    return {**found.pop("finding")._asdict(), **found}


def _use_from_json(value: Json) -> DeviceUse:
    found = UseFinding(*(value[name] for name in UseFinding._fields))
    return _USE.from_json({**value, "finding": found._replace(verdict=UseVerdict(found.verdict))})


_PAST: Final = _Record(
    PastAttempts,
    always={"run_ms", "failures", "ready"},
    barred=(reason_to_json, reason_from_json),
    missed=(list, tuple),
    use=(_use_to_json, _use_from_json),
    lowered=_each(LoweredPriority._asdict, lambda one: LoweredPriority(**one)),
)
_START: Final = _Record(
    StartConditions, after=_each(list, lambda one: AfterWorkload(AfterOutcome(one[0]), *one[1:]))
)
_OPTIONS: Final = _Record(
    UserOptions,
    start=(_START.to_json, _START.from_json),
    problem=(reason_to_json, reason_from_json),
)


def past_to_json(past: PastAttempts) -> Json | None:
    """None for the empty past."""
    return None if past == NO_PAST_ATTEMPTS else _PAST.to_json(past)


def past_from_json(value: Json | None) -> PastAttempts:
    return NO_PAST_ATTEMPTS if value is None else _PAST.from_json(value)


def options_to_json(options: UserOptions) -> Json | None:
    """None if there are none."""
    return None if options == NO_OPTIONS else _OPTIONS.to_json(options)


def options_from_json(value: Json | None) -> UserOptions:
    return NO_OPTIONS if value is None else _OPTIONS.from_json(value)


# --- labels


def labels_from_json(value: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(value.items()))


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
