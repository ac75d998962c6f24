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


def age(obj: Json, now: datetime, path: str = "metadata.creationTimestamp") -> str:
    """How long ago, as kubectl prints it: 45s, 12m, 3h, 5d."""
    stamp = at_path(obj, path)
    if not isinstance(stamp, str):
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(stamp)).total_seconds()))
    for unit, size, upto in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < upto:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _job_status(obj: Json) -> str:
    held = {c["type"] for c in at_path(obj, "status.conditions") or () if c["status"] == "True"}  # type: ignore[attr-defined]
    for condition in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended"):
        if condition in held:
            return condition
    if at_path(obj, "metadata.deletionTimestamp"):
        return "Terminating"
    return "Suspended" if at_path(obj, "spec.suspend") else "Running"


def _job(obj: Json, now: datetime) -> list[object]:
    status, spec = obj.get("status") or {}, obj["spec"]
    wanted = spec.get("completions") or f"1 of {spec.get('parallelism', 1)}"
    duration = ""
    if status.get("startTime"):
        end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
        duration = age(obj, end, "status.startTime")
    return [_name(obj), _job_status(obj), f"{status.get('succeeded', 0)}/{wanted}", duration, age(obj, now)]


def _pod(obj: Json, now: datetime) -> list[object]:
    status = obj.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(bool(c.get("ready")) for c in containers)
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "Unknown")
    if phase in ("Succeeded", "Failed"):
        phase = {"Succeeded": "Completed", "Failed": "Error"}[phase]
    restarts = sum(c.get("restartCount", 0) for c in containers)
    total = len(obj["spec"].get("containers") or ())
    node = obj["spec"].get("nodeName") or "<none>"
    return [_name(obj), f"{ready}/{total}", phase, restarts, age(obj, now), node]


def _node(obj: Json, now: datetime) -> list[object]:
    held = {c["type"]: c["status"] for c in at_path(obj, "status.conditions") or ()}  # type: ignore[attr-defined]
    state = "Ready" if held.get("Ready") == "True" else "NotReady" if "Ready" in held else "Unknown"
    if at_path(obj, "spec.unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = obj["metadata"].get("labels") or {}
    roles = ",".join(sorted(label.removeprefix(prefix) for label in labels if label.startswith(prefix)))
    version = at_path(obj, "status.nodeInfo.kubeletVersion") or ""
    return [_name(obj), state, roles or "<none>", age(obj, now), version]


def _event(obj: Json, now: datetime) -> list[object]:
    about = obj.get("involvedObject") or {}
    seen = next((path for path in ("lastTimestamp", "eventTime", "firstTimestamp") if obj.get(path)), "")
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    last = age(obj, now, seen or "metadata.creationTimestamp")
    return [last, obj.get("type", ""), obj.get("reason", ""), target, str(obj.get("message", "")).strip()]


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _fields(*paths: str) -> Cells:
    return lambda obj, now: [_name(obj), *(_shown(at_path(obj, path)) for path in paths), age(obj, now)]


def _shown(value: object) -> object:
    return "" if value is None else value if isinstance(value, str | int | float | bool) else str(value)


_BUILT_IN: dict[str, tuple[str, Cells]] = {
    "jobs": ("Name Status Completions Duration Age", _job),
    "pods": ("Name Ready Status Restarts Age *Node", _pod),
    "nodes": ("Name Status Roles Age Version", _node),
    "events": ("Last_Seen Type Reason Object Message", _event),
    "namespaces": ("Name Status Age", _fields("status.phase")),
    "priorityclasses": ("Name Value Global-Default Age", _fields("value", "globalDefault")),
    "leases": ("Name Holder Age", _fields("spec.holderIdentity")),
    "customresourcedefinitions": (
        "Name Created_At",
        lambda o, _: [_name(o), o["metadata"]["creationTimestamp"]],
    ),
}
_PLAIN: tuple[str, Cells] = ("Name Age", _fields())


def columns(kind: Kind) -> list[Json]:
    if kind.custom:
        found = [_column("Name", "string", 0, "name")]
        return found + [_column(c.name, c.type, c.priority, text=c.description) for c in kind.columns]
    names = _BUILT_IN.get(kind.plural, _PLAIN)[0].split()
    return [
        _column(n.lstrip("*").replace("_", " "), "string", int(n[0] == "*"), "name" if n == "Name" else "")
        for n in names
    ]


def _column(name: str, kind: str, priority: int, form: str = "", text: str = "") -> Json:
    return {"name": name, "type": kind, "format": form, "description": text, "priority": priority}


def row(kind: Kind, obj: Json, now: datetime, include: str) -> Json:
    """One row; `include` is None, Metadata or Object."""
    if kind.custom:
        cells: list[object] = [_name(obj)]
        cells += [_cell(obj, column.path, column.type, now) for column in kind.columns]
    else:
        cells = _BUILT_IN.get(kind.plural, _PLAIN)[1](obj, now)
    shown = None if include == "None" else obj if include == "Object" else partial(obj)
    return {"cells": cells, "object": shown}


def partial(obj: Json) -> Json:
    """Its metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(kind: Kind, rows: list[Json], metadata: Json, *, heading: bool = True) -> Json:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns(kind) if heading else None,
        "rows": rows,
    }


def _cell(obj: Json, path: str, kind: str, now: datetime) -> object:
    values = json_path(obj, path)
    if not values:
        return None
    if kind == "date":
        return age({"at": values[0]}, now, "at")
    if kind == "integer" and isinstance(values[0], int):
        return values[0]
    return ",".join(_text(value) for value in values)


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
        elif index is None or index == "*":
            found = [item for value in found for item in (value if isinstance(value, list) else ())]
        else:
            found = [item for value in found if isinstance(value, list) for item in _indexed(value, index)]
    return [value for value in found if value is not None]


def _indexed(values: list[Any], index: str) -> list[Any]:
    if condition := _FILTER.match(index):
        wanted = condition["value"]
        return [v for v in values if _text(at_path(v, condition["field"])) == wanted]
    low, colon, high = index.partition(":")
    if colon:
        return values[int(low) if low else None : int(high) if high else None]
    return [values[int(low)]] if -len(values) <= int(low) < len(values) else []
