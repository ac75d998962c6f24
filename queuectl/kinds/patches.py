"""Bodies of writes to Kubernetes: patches, Events and status, as plain JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.policy import Condition
from queuectl.core.model.reasons import redacted
from queuectl.core.model.resources import FlavorResource, format_amount
from queuectl.core.model.workload import MOST_ATTEMPTS, Attempt, Effect, ObjectRef, Observation, Workload
from queuectl.core.pod_numbers import allowed
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds.admission import render, rfc3339, with_fewer
from queuectl.kinds.jobs import PASSED, QUEUE_LABEL, JobKind, value_at
from queuectl.kinds.json_fields import Json, clean
from queuectl.kinds.labels import queued_by
from queuectl.kinds.node_constraints import NodeConstraints
from queuectl.kinds.podsets import Operation, Path, Templates
from queuectl.kinds.reserved_keys import ADMISSION_ANNOTATION, RELEASE_ANNOTATION, STOPPED_ANNOTATION
from queuectl.kinds.start_patch import add, directives, held_pods, labelling, pointer, to_reduce
from queuectl.kinds.stop_annotations import DISRUPTED, MAX_STOPPED, REASON_PREFIX, render_stop
from queuectl.kinds.workloads import has_room, observation

REPORTER: Final = "queuectl.dev/controller"
MAX_NOTE: Final = 1024
"""Longest note of an Event that the API server accepts, in bytes."""
MAX_WAITING: Final = 50
TO_FAIL: Final = 60.0
"""Seconds from the first try of a stop: a controller that has not failed the object by then does not."""
_MAX_MESSAGE: Final = 1000
_ASKED: Final = "queuectl suspended it; its quota is released once its controller has seen that"


def start(
    kind: JobKind,
    effect: Effect,
    pod_set: str | None = None,
    shapes: tuple[str, ...] = (),
    own: NodeConstraints | None = None,
) -> list[Operation]:
    """Start it, if it is still the object of the decision: otherwise the server refuses the whole patch.

    `pod_set`: of a pod of a group, its podset; `shapes`: as in AdmissionAnnotation; `own`: the scheduling
    fields of the pod, where those of its podset are of another one, None: they are the same.
    """
    workload, seen = effect.workload, effect.observation
    annotation = render(effect.attempt, workload.queue, effect.flavors, _before(effect), shapes)
    patch: list[Operation] = [
        _test(("metadata", "uid"), workload.ref.uid),
        _test_version(seen),
        *_test_queue(workload),
    ]
    if seen.annotated:
        patch.append(_test_stop_record(seen))
        patch.append(add(("metadata", "annotations", ADMISSION_ANNOTATION), annotation))
    else:
        # The whole map is added, so the object must still have none.
        patch.append(_test(("metadata", "resourceVersion"), seen.resource_version))
        patch.append(add(("metadata", "annotations"), {ADMISSION_ANNOTATION: annotation}))
    if seen.stopped is not None:
        patch.append(_remove(("metadata", "annotations", STOPPED_ANNOTATION)))
    if seen.release is not None and seen.release.attempt >= effect.key.attempt:
        # It cannot be about what starts only now: what is there later was written later (L28).
        patch.append(_remove(("metadata", "annotations", RELEASE_ANNOTATION)))
    patch += _resize(effect)
    steered = _of_pod_set(effect, pod_set, own) if pod_set else effect
    patch += (
        _steer(kind.podsets, steered) if isinstance(kind.podsets, Templates) else kind.podsets.steer(steered)
    )
    if not kind.scheduling_gate:
        patch.append(add(kind.suspend, False))
    return patch


def _of_pod_set(effect: Effect, name: str, own: NodeConstraints | None) -> Effect:
    """The effect for a pod of this podset alone."""
    attempt = effect.attempt
    pod_sets = tuple(one for one in attempt.assignment.steered() if one.name == name)
    if own is not None:
        pod_sets = tuple(
            replace(one, node_selector=own.node_selector, tolerations=own.tolerations) for one in pod_sets
        )
    return replace(
        effect, attempt=replace(attempt, assignment=replace(attempt.assignment, pod_sets=pod_sets))
    )


def _test_version(seen: Observation) -> Operation:
    """That its spec is as it was seen. Before Kubernetes 1.33 pods have no generation."""
    if seen.generation:
        return _test(("metadata", "generation"), seen.generation)
    return _test(("metadata", "resourceVersion"), seen.resource_version)


def _test_stop_record(seen: Observation) -> Operation:
    """That no stop was recorded since: a start that arrives after the stop of its attempt is refused."""
    if tests_resource_version(seen):
        return _test(("metadata", "resourceVersion"), seen.resource_version)
    # For an API server, an absent field equals null.
    record = seen.stopped.text if seen.stopped is not None else None
    return _test(("metadata", "annotations", STOPPED_ANNOTATION), record)


def tests_resource_version(seen: Observation) -> bool:
    """Whether a start is refused after any other write: what it relies on has no version of its own."""
    long = seen.stopped is not None and len(seen.stopped.text) > MAX_STOPPED
    return long or not (seen.annotated and seen.generation)


def resume(kind: JobKind, effect: Effect, generation: int | None) -> list[Operation]:
    """Start it after all else that its start writes, which left it with this generation."""
    return [
        _test(("metadata", "uid"), effect.workload.ref.uid),
        _test(("metadata", "generation"), generation),
        _test(("metadata", "annotations", STOPPED_ANNOTATION), None),
        *_test_queue(effect.workload),
        add(kind.suspend, False),
    ]


def _before(effect: Effect) -> dict[str, dict[str, int]]:
    """The numbers of pods that the start reduces, by podset and JSON pointer."""
    found: dict[str, dict[str, int]] = {}
    for field in to_reduce(effect):
        found.setdefault(field.pod_set, {})[pointer(field.path)] = field.own
    return found


def _resize(effect: Effect) -> list[Operation]:
    """Numbers of pods: as many as quota is held for where that is fewer, else those of the user."""
    held = held_pods(effect)
    wanted = {field.path: field.own for field in effect.observation.reduced}
    wanted |= {field.path: held[field.pod_set] for field in to_reduce(effect)}
    return [add(path, count) for path, count in wanted.items()]


def _test_queue(workload: Workload) -> list[Operation]:
    """Tests that it is still in the same queue; by Kueue's label only while queuectl's is absent."""
    label = queued_by(workload)
    found = [_test(("metadata", "labels", label), workload.queue)]
    # For an API server, an absent field equals null.
    return found if label == QUEUE_LABEL else [_test(("metadata", "labels", QUEUE_LABEL), None), *found]


def _steer(podsets: Templates, effect: Effect) -> list[Operation]:
    """Scheduling fields and labels of all pod templates."""
    place = {pod_set.name: index for index, pod_set in enumerate(effect.workload.pod_sets)}
    patch = []
    for pod_set in effect.attempt.assignment.steered():
        template = podsets.template(pod_set.name, place.get(pod_set.name, 0))
        if template is not None:
            patch += directives(pod_set, (*template, "spec"), effect)
            patch += labelling(pod_set, (*template, "metadata"), effect)
    return patch


def reduce_admission(seen: WorkloadObserved, obj: Json) -> list[Operation]:
    """Writes into the admission of an object that runs how many pods it allows now, where those are fewer:
    from then on the gate lets it have no more. Empty: there is nothing to write.

    `seen`: the object, as read from `obj`.
    """
    marked = seen.observation.admission
    if marked is None:
        return []
    now = allowed(seen.workload, seen.observation)
    counts = {
        pods.name: now[pods.name]
        for pods in marked.assignment.pod_sets
        if now.get(pods.name, pods.count) < pods.count
    }
    if not counts:
        return []
    path: Path = ("metadata", "annotations", ADMISSION_ANNOTATION)
    before = obj["metadata"]["annotations"][ADMISSION_ANNOTATION]
    return [
        _test(("metadata", "uid"), seen.workload.ref.uid),
        _test_version(seen.observation),
        _test(path, before),
        add(path, with_fewer(before, counts)),
    ]


class Write(NamedTuple):
    """A JSON patch of a workload's object."""

    body: list[Operation]
    subresource: str = ""
    only_records: bool = False
    """The object is stopped without it."""


def first_stop(kind: JobKind, effect: Effect) -> Write | None:
    """The stop of an object that was last seen running; None: it must be read first.

    A later start moves the generation, so a stop that is delayed on its way is refused then.
    """
    seen = effect.observation
    if seen.suspended or superseded(effect, seen.admission) or _fails(kind, effect):
        return None
    return Write(_suspend(kind, effect, seen))


def next_stop(kind: JobKind, effect: Effect, obj: Json) -> Write | None:
    """The next write of a stop, from the object as read or as the last write left it; None: there is none.

    It is done where it is over, where a later attempt runs, and where it is suspended, has its own numbers of
    pods, the record of this stop, and a status that does not say so yet: what says so from then on was
    written by its controller after the stop. Else it `is_to_fail`.
    """
    seen = observation(kind, obj)
    if seen.finished or superseded(effect, seen.admission):
        return None
    if not seen.suspended and _fails(kind, effect):
        passed = value_at(obj, kind.deadline) == PASSED
        return None if passed else Write(_end(kind.deadline, PASSED, effect, seen, obj))
    if not seen.suspended or seen.reduced:
        return Write(_suspend(kind, effect, seen, obj))
    if record := _record(effect, seen, obj):
        return Write(record, only_records=True)
    if not kind.seen.asked or not kind.says_suspended(obj):
        return None
    return Write(_ask(kind, effect.workload.ref, seen.generation, obj), "status")


def _record(effect: Effect, seen: Observation, obj: Json) -> list[Operation]:
    """Record the stop of an object that is suspended already: a start that arrives later is refused.

    Empty if that is recorded, if there is no room for it, and without a queue label: such an object is not
    written, and its start is refused.
    """
    record = render_stop(effect)
    queued = queued_by(effect.workload) in (obj["metadata"].get("labels") or {})
    known = seen.stopped is not None and seen.stopped.text == record[: MAX_STOPPED + 1]  # as much as is read
    if known or not queued or not has_room(obj, STOPPED_ANNOTATION, record):
        return []
    patch = [_test(("metadata", "uid"), effect.workload.ref.uid), _test_version(seen)]
    if seen.annotated:
        return [*patch, _test_stop_record(seen), add(("metadata", "annotations", STOPPED_ANNOTATION), record)]
    return [*patch, *_first_annotation(record)]


def _first_annotation(record: str) -> list[Operation]:
    """The whole map is added, so the object must still have none. For an API server, absent equals null."""
    path: Path = ("metadata", "annotations")
    return [_test(path, None), add(path, {STOPPED_ANNOTATION: record})]


def is_to_fail(kind: JobKind, effect: Effect, obj: Json) -> bool:
    """Whether a stop waits for the controller of the object, which is to fail it."""
    seen = observation(kind, obj)
    running = not (seen.finished or seen.suspended or superseded(effect, seen.admission))
    return running and _fails(kind, effect)


def _fails(kind: JobKind, effect: Effect) -> bool:
    return bool(kind.deadline) and effect.eviction is not None and effect.eviction.fails


def stop_after(effect: Effect, seconds: float) -> Effect:
    """The effect of a stop that was first sent so long ago: what was to fail, and has not in time, is
    suspended."""
    eviction = effect.eviction
    if eviction is None or seconds < TO_FAIL:
        return effect
    return replace(effect, eviction=eviction._replace(fails=False))


def held_back(kind: JobKind, effect: Effect, obj: Json) -> Write | None:
    """The next write of the stop of a pod that its scheduling gate holds back; None: it is done."""
    seen = observation(kind, obj)
    record = [] if seen.finished or superseded(effect, seen.admission) else _record(effect, seen, obj)
    return Write(record, only_records=True) if record else None


def deletes(kind: JobKind, effect: Effect, obj: Json) -> bool:
    """Whether a stop deletes the object as it was read: not while its scheduling gate holds it back, not
    after its end, and not if a later attempt runs."""
    seen = observation(kind, obj)
    return not (seen.suspended or seen.finished or superseded(effect, seen.admission))


def disruption(effect: Effect, obj: Json, at: datetime) -> list[Operation]:
    """On the status subresource of a pod: the condition DisruptionTarget, and why queuectl deletes the pod.

    Empty if the condition is there, or if it has no status yet.
    """
    metadata, status = obj["metadata"], obj.get("status") or {}
    present = status.get("conditions") or []
    if any((one.get("type"), one.get("status")) == (DISRUPTED, "True") for one in present):
        return []
    reason = effect.eviction.reason if effect.eviction is not None else None
    told = redacted(reason, (effect.workload.ref.namespace,)).message if reason is not None else ""
    condition = {
        "type": DISRUPTED,
        "status": "True",
        "reason": f"{REASON_PREFIX}{reason.code.value if reason is not None else 'Stopped'}",
        "message": _bounded(f"queuectl deletes it: {told}".rstrip(": "), _MAX_MESSAGE),
        "lastTransitionTime": rfc3339(at),
    }
    others = [one for one in present if one.get("type") != DISRUPTED]
    patch = [
        _test(("metadata", "uid"), effect.workload.ref.uid),
        _test(("metadata", "resourceVersion"), metadata.get("resourceVersion")),
        add(("status", "conditions"), [*others, condition]),
    ]
    record = render_stop(effect)
    if not metadata.get("annotations"):
        patch.append(add(("metadata", "annotations"), {STOPPED_ANNOTATION: record}))
    elif has_room(obj, STOPPED_ANNOTATION, record):
        patch.append(add(("metadata", "annotations", STOPPED_ANNOTATION), record))
    return patch


def superseded(effect: Effect, marked: Attempt | None) -> bool:
    """Return whether a later attempt runs. One of the same number is of a ledger that lost decisions.

    An attempt that was adopted by an earlier version has a number of its own.
    """
    attempt = effect.attempt
    if marked is None or marked.number > MOST_ATTEMPTS:
        return False
    since = marked.admitted_at > attempt.admitted_at
    if marked.number == attempt.number:
        return since and not attempt.debt
    return marked.number > attempt.number and (since or not attempt.debt)


def _suspend(kind: JobKind, effect: Effect, seen: Observation, obj: Json | None = None) -> list[Operation]:
    """Suspend it, record why, if there is room for that, and restore its numbers of pods.

    `obj`: the object, where parents of the field may be missing.
    """
    return [
        *_end(kind.suspend, True, effect, seen, obj),
        *(add(field.path, field.own) for field in seen.reduced),
    ]


def _end(
    path: tuple[str, ...], value: object, effect: Effect, seen: Observation, obj: Json | None
) -> list[Operation]:
    """Set the field that ends its run, and record why, if there is room. `obj`: as for `_suspend`."""
    patch = [_test(("metadata", "uid"), effect.workload.ref.uid)]
    patch.append(_test(("metadata", "generation"), seen.generation))
    record = render_stop(effect)
    if obj is not None and not has_room(obj, STOPPED_ANNOTATION, record):
        pass  # the API server would refuse the whole stop
    elif seen.annotated:
        patch.append(add(("metadata", "annotations", STOPPED_ANNOTATION), record))
    else:
        patch += _first_annotation(record)
    place: Json | None = obj
    for depth, key in enumerate(path[:-1], 1):
        if place is not None:
            place = place.get(key)
            if place is None:
                patch.append(add(path[:depth], {}))
    return [*patch, add(path, value)]


def _ask(kind: JobKind, ref: ObjectRef, generation: object, obj: Json) -> list[Operation]:
    """On the status subresource: take back that it is suspended, which its controller said before the stop.

    Its controller answers by saying it again, from an object that it has read after this write.
    """
    sign, asked = kind.seen
    patch = [_test(("metadata", "uid"), ref.uid), _test(("metadata", "generation"), generation)]
    if not isinstance(sign.of, str):
        return [*patch, _test(sign.of, sign.value), add(sign.of, asked)]
    places = enumerate(obj["status"]["conditions"])
    place = next(place for place, condition in places if condition.get("type") == sign.of)
    condition: Path = ("status", "conditions", place)
    return [
        *patch,
        _test((*condition, "type"), sign.of),
        _test((*condition, "status"), sign.value),
        add((*condition, "status"), asked),
        add((*condition, "reason"), "StopNotSeenYet"),
        add((*condition, "message"), _ASKED),
    ]


def forget_start_time(ref: ObjectRef) -> list[Operation]:
    """On the status subresource: as the Job controller does from 1.36 on when a Job is suspended."""
    return [_test(("metadata", "uid"), ref.uid), {"op": "remove", "path": "/status/startTime"}]


def _test(path: Path, value: object) -> Operation:
    return {"op": "test", "path": pointer(path), "value": value}


def _remove(path: Path) -> Operation:
    return {"op": "remove", "path": pointer(path)}


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
    readable = (report.name.namespace,)
    usage = _by_flavor((cell, {"total": amount}) for cell, amount in report.used)
    return {
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.admitted,
        "admittedWorkloads": report.admitted,
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "waiting": [
            {
                "name": item.ref.name,
                "uid": item.ref.uid,
                "kind": item.ref.kind,
                "position": item.position,
                "reason": {
                    "code": item.reason.code.value,
                    "message": _bounded(redacted(item.reason, readable).message, _MAX_MESSAGE),
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
    counting = nominal | dict(report.reduced)
    amounts = (
        (cell, used.get(cell, 0), counting.get(cell, 0)) for cell in sorted(nominal.keys() | used.keys())
    )
    usage = _by_flavor(
        (cell, {"total": total, "borrowed": max(0, total - quota), "effectiveQuota": quota})
        for cell, total, quota in amounts
    )
    return {
        "pendingWorkloads": report.pending,
        "reservingWorkloads": report.admitted,
        "admittedWorkloads": report.admitted,
        "flavorsReservation": usage,
        "flavorsUsage": usage,
        "conditions": [_active(report.condition), *_capacity_warning(report)],
        # A merge patch leaves what it does not name.
        "fairSharing": None if report.share is None else {"weightedShare": report.share},
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


def _by_flavor(amounts: Iterable[tuple[FlavorResource, dict[str, int]]]) -> list[dict[str, Any]]:
    """Amounts of cells in base units, as a list of flavors with their resources."""
    flavors: dict[str, list[dict[str, str]]] = {}
    for cell, named in amounts:
        texts = {name: format_amount(cell.resource, amount) for name, amount in named.items()}
        flavors.setdefault(cell.flavor, []).append({"name": cell.resource, **texts})
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]


def _active(condition: Condition) -> dict[str, str]:
    return {
        "type": "Active",
        "status": "True" if condition.active else "False",
        "reason": condition.reason,
        "message": _bounded(condition.message, _MAX_MESSAGE),
    }


def _capacity_warning(report: ClusterQueueReport) -> Iterator[dict[str, str]]:
    """The condition that is there only while there is a warning (M15)."""
    if report.warnings:
        yield {
            "type": "CapacityWarning",
            "status": "True",
            "reason": report.warnings[0].code.value,
            "message": _bounded("; ".join(one.message for one in report.warnings), _MAX_MESSAGE),
        }


def _bounded(message: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, cut between characters."""
    text = clean(message, limit)
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore") + "…"
