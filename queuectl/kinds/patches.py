"""Bodies of writes to Kubernetes: patches, Events and status, as plain JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from queuectl.core.model import Effect, ObjectRef, Workload
from queuectl.core.report import ClusterQueueReport, Condition, LocalQueueReport
from queuectl.core.resources import FlavorResource, format_amount
from queuectl.kinds.admission import (
    ADMISSION_ANNOTATION,
    additions,
    render,
    rfc3339,
)
from queuectl.kinds.fields import clean
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, Path
from queuectl.kinds.labels import queued_by
from queuectl.kinds.node_constraints import NodeConstraints, toleration_json

Operation = dict[str, Any]
"""One step of a JSON patch (RFC 6902)."""

REPORTER: Final = "queuectl.dev/controller"
MAX_NOTE: Final = 1024
"""Longest note of an Event that the API server accepts, in bytes."""
MAX_WAITING: Final = 50
_MAX_MESSAGE: Final = 1000


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def start(kind: JobKind, effect: Effect) -> list[Operation]:
    """Start it, if it is still the object of the decision: otherwise the server refuses the whole patch."""
    workload, seen = effect.workload, effect.observation
    annotation = render(effect.attempt, workload.queue, effect.flavors)
    patch: list[Operation] = [
        _test(("metadata", "uid"), workload.ref.uid),
        _test(("metadata", "generation"), seen.generation),
        *_test_queue(workload),
    ]
    if seen.annotated:
        patch.append(_add(("metadata", "annotations", ADMISSION_ANNOTATION), annotation))
    else:
        # The whole map is added, so the object must still have none.
        patch.append(_test(("metadata", "resourceVersion"), seen.resource_version))
        patch.append(_add(("metadata", "annotations"), {ADMISSION_ANNOTATION: annotation}))
    patch += _steer(kind, effect)
    patch.append(_add(kind.suspend, False))
    return patch


def _test_queue(workload: Workload) -> list[Operation]:
    """Tests that it is still in the same queue; by Kueue's label only while queuectl's is absent."""
    label = queued_by(workload)
    found = [_test(("metadata", "labels", label), workload.queue)]
    # For an API server, an absent field equals null.
    return found if label == QUEUE_LABEL else [_test(("metadata", "labels", QUEUE_LABEL), None), *found]


def _steer(kind: JobKind, effect: Effect) -> list[Operation]:
    """Scheduling fields of all podsets: the user's own with the flavors' on top.

    Fields that both leave empty, and that no former admission can have set, are not written.
    """
    place = {pod_set.name: index for index, pod_set in enumerate(effect.workload.pod_sets)}
    patch = []
    for pod_set in effect.attempt.assignment.pod_sets:
        own = NodeConstraints(pod_set.node_selector, pod_set.tolerations)
        added = additions(pod_set, effect.flavors)
        wanted = own.steered(added)
        before = effect.observation.admission is not None
        spec = (*kind.template(pod_set.name, place.get(pod_set.name, 0)), "spec")
        if before or added.node_selector:
            patch.append(_add((*spec, "nodeSelector"), dict(wanted.node_selector)))
        if before or added.tolerations:
            patch.append(_add((*spec, "tolerations"), [toleration_json(item) for item in wanted.tolerations]))
    return patch


def stop(kind: JobKind, ref: ObjectRef) -> dict[str, Any]:
    """Suspend it: a merge patch, because the parent of the field may be missing. Another UID is refused."""
    body: Any = True
    for key in reversed(kind.suspend):
        body = {key: body}
    return {"metadata": {"uid": ref.uid}, **body}


def forget_start_time(ref: ObjectRef) -> list[Operation]:
    """On the status subresource: servers before 1.36 accept no new node selector with a start time."""
    return [_test(("metadata", "uid"), ref.uid), {"op": "remove", "path": "/status/startTime"}]


def _test(path: Path, value: object) -> Operation:
    return {"op": "test", "path": pointer(path), "value": value}


def _add(path: Path, value: object) -> Operation:
    return {"op": "add", "path": pointer(path), "value": value}


# --- Events and status --------------------------------------------------------------------------------


def event(
    kind: JobKind, ref: ObjectRef, *, reason: str, message: str, warning: bool, key: str, at: datetime
) -> dict[str, Any]:
    """An events.k8s.io/v1 Event on the object, named by UID, reason and `key`: idempotent."""
    digest = hashlib.sha256("\0".join((ref.uid, reason, key)).encode("utf-8", "replace")).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{ref.name[:230].rstrip('.-')}.{digest}", "namespace": ref.namespace},
        "eventTime": rfc3339(at),
        "reportingController": REPORTER,
        "reportingInstance": REPORTER,
        "action": reason,
        "reason": reason,
        "type": "Warning" if warning else "Normal",
        "note": _bounded(message, MAX_NOTE),
        "regarding": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": ref.uid,
        },
    }


def local_queue_status(report: LocalQueueReport) -> dict[str, Any]:
    """Status of a LocalQueue without its condition's time."""
    return {
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.admitted,
        "admittedWorkloads": report.admitted,
        "waiting": [
            {
                "name": item.ref.name,
                "uid": item.ref.uid,
                "kind": item.ref.kind,
                "position": item.position,
                "reason": {
                    "code": item.reason.code.value,
                    "message": _bounded(item.reason.message, _MAX_MESSAGE),
                },
            }
            for item in report.first[:MAX_WAITING]
        ],
        "conditions": [_active(report.condition)],
    }


def cluster_queue_status(report: ClusterQueueReport) -> dict[str, Any]:
    """Status of a ClusterQueue without its condition's time."""
    nominal = dict(report.nominal)
    used = dict(report.used)
    usage = _usage(sorted(nominal.keys() | used.keys()), nominal, used)
    return {
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.admitted,
        "admittedWorkloads": report.admitted,
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "conditions": [_active(report.condition)],
    }


def stamped(status: dict[str, Any], before: dict[str, Any] | None, at: str) -> dict[str, Any]:
    """`status` with times in its conditions: those of `before` if a condition's status is unchanged."""
    old = {item["type"]: item for item in (before or {}).get("conditions", ())}
    conditions = []
    for item in status["conditions"]:
        same = old.get(item["type"], {}).get("status") == item["status"]
        time = old[item["type"]]["lastTransitionTime"] if same else at
        conditions.append({**item, "lastTransitionTime": time})
    return {**status, "conditions": conditions}


def _usage(
    cells: Sequence[FlavorResource], nominal: dict[FlavorResource, int], used: dict[FlavorResource, int]
) -> list[dict[str, Any]]:
    flavors: dict[str, list[dict[str, str]]] = {}
    for cell in cells:
        total = used.get(cell, 0)
        borrowed = max(0, total - nominal.get(cell, 0))
        flavors.setdefault(cell.flavor, []).append(
            {
                "name": cell.resource,
                "total": format_amount(cell.resource, total),
                "borrowed": format_amount(cell.resource, borrowed),
            }
        )
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


def _active(condition: Condition) -> dict[str, str]:
    return {
        "type": "Active",
        "status": "True" if condition.active else "False",
        "reason": condition.reason,
        "message": _bounded(condition.message, _MAX_MESSAGE),
    }


def _bounded(message: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, cut between characters."""
    text = clean(message, limit)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore") + "…"
