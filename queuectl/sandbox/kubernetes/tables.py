"""Objects as the tables that kubectl prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import orjson

from queuectl.kinds.jobs import conditions
from queuectl.kinds.json_paths import compiled
from queuectl.sandbox.kubernetes.builtin import from_stored
from queuectl.sandbox.kubernetes.resources import EVENTS, JOBS, PODS, ServedKind
from queuectl.sandbox.kubernetes.selectors import at_path, shown
from queuectl.sandbox.kubernetes.wire import Json


def age(stamp: object, now: datetime) -> str:
    """Age as kubectl prints it: 45s, 12m, 3h, 5d."""
    if not isinstance(stamp, str):
        return "<unknown>"
    seconds = max(0, int((now - datetime.fromisoformat(stamp)).total_seconds()))
    for unit, size, upto in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < upto:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _job(obj: Json, now: datetime) -> Json:
    status, spec, held = obj.get("status") or {}, obj["spec"], conditions(obj)
    states = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended")
    state = next((name for name in states if held.get(name) == "True"), "")
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    wanted = spec.get("completions") or f"1 of {spec['parallelism']}"
    return {
        "Status": state or ("Suspended" if spec["suspend"] else "Running"),
        "Completions": f"{status.get('succeeded', 0)}/{wanted}",
        "Duration": age(status["startTime"], end) if status.get("startTime") else "",
    }


def _pod(obj: Json, now: datetime) -> Json:
    status = obj.get("status") or {}
    containers = status.get("containerStatuses") or []
    phase = status.get("phase", "Unknown")
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else phase
    ready = sum(bool(container.get("ready")) for container in containers)
    return {
        "Ready": f"{ready}/{len(obj['spec']['containers'])}",
        "Status": {"Succeeded": "Completed", "Failed": "Error"}.get(phase, phase),
        "Restarts": sum(container.get("restartCount", 0) for container in containers),
        "Node": obj["spec"].get("nodeName") or "<none>",
    }


def _node(obj: Json, now: datetime) -> Json:
    state = "Ready" if conditions(obj).get("Ready") == "True" else "NotReady"
    return {"Status": state + (",SchedulingDisabled" if at_path(obj, "spec.unschedulable") else "")}


def _event(obj: Json, now: datetime) -> Json:
    about = obj.get("involvedObject") or {}
    seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"]["creationTimestamp"]
    return {
        "Last Seen": age(seen, now),
        "Object": f"{about.get('kind', '').lower()}/{about.get('name', '')}",
    }


_COMPUTED: dict[str, Callable[[Json, datetime], Json]] = {
    JOBS: _job,
    PODS: _pod,
    "nodes": _node,
    EVENTS: _event,
}
"""Cells of columns without a path, by collection."""


def table(
    kind: ServedKind,
    objects: Iterable[Json],
    metadata: Json,
    now: datetime,
    include: str,
    *,
    heading: bool = True,
) -> Json:
    """`objects` as stored; `include`: the part of the object in each row, None, Metadata or Object."""
    columns = [
        {"format": "", "description": "", "priority": 0} | {k: v for k, v in c.items() if k != "jsonPath"}
        for c in kind.columns
    ]
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    rows = [_row(kind, obj, now, include) for obj in objects]
    return head | {"columnDefinitions": columns if heading else None, "rows": rows}


def _row(kind: ServedKind, obj: Json, now: datetime, include: str) -> Json:
    compute = _COMPUTED.get(kind.collection)
    computed = compute(obj, now) if compute else {}
    cells = [computed[c["name"]] if "jsonPath" not in c else _cell(obj, c, now) for c in kind.columns]
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    return {"cells": cells, "object": {"None": None, "Object": from_stored(kind, obj)}.get(include, head)}


def _cell(obj: Json, column: Json, now: datetime) -> object:
    values = [found for found in compiled(column["jsonPath"]).findall(obj) if found is not None]
    if not values:
        return None
    if column["type"] == "date":
        return age(values[0], now)
    return values[0] if column["type"] == "integer" else ",".join(map(_text, values))


def _text(value: object) -> str:
    """Maps and lists as JSON, as the real server prints them."""
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else shown(value)
