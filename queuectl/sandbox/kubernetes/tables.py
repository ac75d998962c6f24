"""Objects as the tables kubectl prints."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.selectors import at_path
from queuectl.sandbox.kubernetes.wire import Json

Cells = Callable[[Json, datetime], list[object]]
_FILTER = re.compile(r"""\?\(@\.(?P<field>[\w.]+)\s*==\s*["'](?P<value>[^"']*)["']\)""")
_STEP = re.compile(r"\.?(?P<name>[\w\-/]+|\*)|\[(?P<index>[^\]]+)\]")


def age(stamp: object, now: datetime) -> str:
    """How long ago, as kubectl prints it: 45s, 12m, 3h, 5d."""
    if not isinstance(stamp, str):
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(stamp)).total_seconds()))
    for unit, size, upto in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < upto:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _held(obj: Json) -> set[str]:
    """Types of the conditions that are true."""
    return {c["type"] for c in (obj.get("status") or {}).get("conditions") or () if c["status"] == "True"}


def _job(obj: Json, now: datetime) -> list[object]:
    status, spec, held = obj.get("status") or {}, obj["spec"], _held(obj)
    states = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended")
    state = next((name for name in states if name in held), "Suspended" if spec["suspend"] else "Running")
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    duration = age(status["startTime"], end) if status.get("startTime") else ""
    wanted = spec.get("completions") or f"1 of {spec['parallelism']}"
    return [_name(obj), state, f"{status.get('succeeded', 0)}/{wanted}", duration, _age(obj, now)]


def _pod(obj: Json, now: datetime) -> list[object]:
    status, spec = obj.get("status") or {}, obj["spec"]
    containers = status.get("containerStatuses") or []
    ready = sum(bool(c.get("ready")) for c in containers)
    state = status.get("phase", "Unknown")
    state = "Terminating" if obj["metadata"].get("deletionTimestamp") else state
    state = {"Succeeded": "Completed", "Failed": "Error"}.get(state, state)
    restarts = sum(c.get("restartCount", 0) for c in containers)
    total = f"{ready}/{len(spec.get('containers') or ())}"
    return [_name(obj), total, state, restarts, _age(obj, now), spec.get("nodeName") or "<none>"]


def _node(obj: Json, now: datetime) -> list[object]:
    state = "Ready" if "Ready" in _held(obj) else "NotReady"
    state += ",SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else ""
    return [_name(obj), state, _age(obj, now), at_path(obj, "status.nodeInfo.kubeletVersion") or ""]


def _event(obj: Json, now: datetime) -> list[object]:
    about = obj.get("involvedObject") or {}
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    return [age(seen, now), obj.get("type"), obj.get("reason"), target, obj.get("message")]


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _field(path: str) -> Cells:
    return lambda obj, now: [_name(obj), at_path(obj, path), _age(obj, now)]


# A column with * is shown with -o wide.
_BUILT_IN: dict[str, tuple[str, Cells]] = {
    "jobs": ("Name Status Completions Duration Age", _job),
    "pods": ("Name Ready Status Restarts Age *Node", _pod),
    "nodes": ("Name Status Age Version", _node),
    "events": ("Last_Seen Type Reason Object Message", _event),
    "namespaces": ("Name Status Age", _field("status.phase")),
    "priorityclasses": ("Name Value Age", _field("value")),
    "leases": ("Name Holder Age", _field("spec.holderIdentity")),
    "customresourcedefinitions": (
        "Name Created_At",
        lambda o, _: [_name(o), o["metadata"]["creationTimestamp"]],
    ),
}
_PLAIN: tuple[str, Cells] = ("Name Age", lambda obj, now: [_name(obj), _age(obj, now)])


def columns(kind: Kind) -> list[Json]:
    if kind.custom:
        found = [("Name", "string", 0, "name")] + [(c.name, c.type, c.priority, "") for c in kind.columns]
    else:
        names = [name.replace("_", " ") for name in _BUILT_IN.get(kind.plural, _PLAIN)[0].split()]
        found = [(n.strip("*"), "string", int(n[0] == "*"), "name" if n == "Name" else "") for n in names]
    keys = ("name", "type", "priority", "format")
    return [dict(zip(keys, column, strict=True)) | {"description": ""} for column in found]


def row(kind: Kind, obj: Json, now: datetime, include: str) -> Json:
    """One row; `include` is None, Metadata or Object."""
    if kind.custom:
        cells = [_name(obj), *(_cell(obj, column.path, column.type, now) for column in kind.columns)]
    else:
        cells = _BUILT_IN.get(kind.plural, _PLAIN)[1](obj, now)
    return {"cells": cells, "object": {"None": None, "Object": obj}.get(include, partial(obj))}


def partial(obj: Json) -> Json:
    """Its metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(kind: Kind, rows: list[Json], metadata: Json, *, heading: bool = True) -> Json:
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return head | {"columnDefinitions": columns(kind) if heading else None, "rows": rows}


def _cell(obj: Json, path: str, kind: str, now: datetime) -> object:
    values = json_path(obj, path)
    if not values:
        return None
    if kind == "date":
        return age(values[0], now)
    return values[0] if kind == "integer" else ",".join(_text(value) for value in values)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_path(obj: Json, path: str) -> list[Any]:
    """What a printer column's path finds: names, indexes, slices, `*` and equality filters."""
    found: list[Any] = [obj]
    for step in _STEP.finditer(path.replace("\\.", "/dot/")):
        name, index = step["name"], step["index"]
        if name is not None and name != "*":
            name = name.replace("/dot/", ".")
            found = [value[name] for value in found if isinstance(value, dict) and name in value]
        else:
            lists = [value for value in found if isinstance(value, list)]
            found = [item for value in lists for item in _indexed(value, index or "*")]
    return [value for value in found if value is not None]


def _indexed(values: list[Any], index: str) -> list[Any]:
    if condition := _FILTER.match(index):
        return [v for v in values if _text(at_path(v, condition["field"])) == condition["value"]]
    low, colon, high = index.partition(":")
    if index == "*" or colon:
        return values[int(low) if low and index != "*" else None : int(high) if high else None]
    return [values[int(low)]] if -len(values) <= int(low) < len(values) else []
