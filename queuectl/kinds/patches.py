"""Bodies of writes to Kubernetes: patches, Events and status, as plain JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model import Attempt, Effect, ObjectRef, PodSetAssignment, Workload, WorkloadId
from queuectl.core.policy import Condition
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.core.resources import FlavorResource, format_amount
from queuectl.kinds.admission import additions, parse, render, rfc3339
from queuectl.kinds.fields import Json, clean
from queuectl.kinds.jobs import QUEUE_LABEL, SUSPENDED, JobKind, Path, says_suspended
from queuectl.kinds.labels import queued_by
from queuectl.kinds.node_constraints import NodeConstraints, toleration_json
from queuectl.kinds.workloads import finished
from queuectl.kinds.written import ADMISSION_ANNOTATION, WORKLOAD_LABEL

Operation = dict[str, Any]
"""One step of a JSON patch (RFC 6902)."""

REPORTER: Final = "queuectl.dev/controller"
MAX_NOTE: Final = 1024
"""Longest note of an Event that the API server accepts, in bytes."""
MAX_WAITING: Final = 50
_MAX_MESSAGE: Final = 1000
_ASKED: Final = "queuectl suspended it; its quota is released once its controller has seen that"


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
    patch += _label(kind, effect)
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
    patch = []
    for pod_set, template in _templates(kind, effect):
        own = NodeConstraints(pod_set.node_selector, pod_set.tolerations)
        added = additions(pod_set, effect.flavors)
        wanted = own.steered(added)
        before = effect.observation.admission is not None
        spec = (*template, "spec")
        if before or added.node_selector:
            patch.append(_add((*spec, "nodeSelector"), dict(wanted.node_selector)))
        if before or added.tolerations:
            patch.append(_add((*spec, "tolerations"), [toleration_json(item) for item in wanted.tolerations]))
    return patch


def _label(kind: JobKind, effect: Effect) -> list[Operation]:
    """Labels of all pod templates, and so of the pods. Those of a former attempt are replaced."""
    labels = {QUEUE_LABEL: effect.workload.queue, WORKLOAD_LABEL: effect.workload.id}
    unlabelled = dict(effect.observation.unlabelled)
    patch = []
    for pod_set, template in _templates(kind, effect):
        metadata = (*template, "metadata")
        if pod_set.name not in unlabelled:
            patch += [_add((*metadata, "labels", name), value) for name, value in labels.items()]
        elif unlabelled[pod_set.name]:
            patch.append(_add((*metadata, "labels"), labels))
        else:
            patch.append(_add(metadata, {"labels": labels}))
    return patch


def _templates(kind: JobKind, effect: Effect) -> Iterator[tuple[PodSetAssignment, Path]]:
    """The podsets of the assignment, with the path of the pod template of each."""
    place = {pod_set.name: index for index, pod_set in enumerate(effect.workload.pod_sets)}
    for pod_set in effect.attempt.assignment.pod_sets:
        yield pod_set, kind.template(pod_set.name, place.get(pod_set.name, 0))


class Write(NamedTuple):
    """A JSON patch of a workload's object."""

    body: list[Operation]
    subresource: str = ""


def first_stop(kind: JobKind, effect: Effect) -> Write | None:
    """The stop of an object that was last seen running; None: it must be read first.

    A later start moves the generation, so a stop that is delayed on its way is refused then.
    """
    seen = effect.observation
    if seen.suspended or _superseded(effect, seen.admission):
        return None
    return Write(_suspend(kind, effect.workload.ref, seen.generation))


def next_stop(kind: JobKind, effect: Effect, obj: Json) -> Write | None:
    """The next write of a stop, from the object as read or as the last write left it; None: it is done.

    It is done where it is over, where a later attempt runs, and where it is suspended and its status does not
    say so yet: what says so from then on was written by its controller after the stop.
    """
    ref, metadata = effect.workload.ref, obj["metadata"]
    annotation = (metadata.get("annotations") or {}).get(ADMISSION_ANNOTATION)
    admission = parse(annotation, WorkloadId(ref.uid))
    generation = metadata.get("generation")
    if finished(kind, obj) or _superseded(effect, admission.attempt if admission else None):
        return None
    if not kind.suspended(obj):
        return Write(_suspend(kind, ref, generation, obj))
    return Write(_ask(ref, generation, obj), "status") if says_suspended(obj) else None


def _superseded(effect: Effect, marked: Attempt | None) -> bool:
    """By time: an adopted attempt has a number of its own, the object the one of a former ledger (L4)."""
    return marked is not None and marked.admitted_at > effect.attempt.admitted_at


def _suspend(kind: JobKind, ref: ObjectRef, generation: object, obj: Json | None = None) -> list[Operation]:
    """`obj`: the object, where parents of the field may be missing."""
    patch = [_test(("metadata", "uid"), ref.uid), _test(("metadata", "generation"), generation)]
    place: Json | None = obj
    for depth, key in enumerate(kind.suspend[:-1], 1):
        if place is not None:
            place = place.get(key)
            if place is None:
                patch.append(_add(kind.suspend[:depth], {}))
    return [*patch, _add(kind.suspend, True)]


def _ask(ref: ObjectRef, generation: object, obj: Json) -> list[Operation]:
    """On the status subresource: take back that it is suspended, which its controller said before the stop.

    Its controller answers by saying it again, from an object that it has read after this write.
    """
    places = enumerate(obj["status"]["conditions"])
    place = next(place for place, condition in places if condition.get("type") == SUSPENDED)
    condition: Path = ("status", "conditions", place)
    return [
        _test(("metadata", "uid"), ref.uid),
        _test(("metadata", "generation"), generation),
        _test((*condition, "type"), SUSPENDED),
        _test((*condition, "status"), "True"),
        _add((*condition, "status"), "Unknown"),
        _add((*condition, "reason"), "StopNotSeenYet"),
        _add((*condition, "message"), _ASKED),
    ]


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
            "kind": kind.kind,
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
