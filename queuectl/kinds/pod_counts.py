"""Numbers of pods that a start reduces and a stop restores (partial admission, F9).

The reserved-admission annotation has the values that their user wrote. They count until the stop of that
attempt, which the reserved-stopped annotation records. A field that was edited since the start is the user's.
"""

from __future__ import annotations

from queuectl.core.model.workload import Effect, PodCount
from queuectl.kinds.admission import AdmissionAnnotation
from queuectl.kinds.jobs import Elastic, JobKind, value_at
from queuectl.kinds.json_fields import MAX_COUNT, Json
from queuectl.kinds.start_patch import pointer


def reduced(
    kind: JobKind, obj: Json, admission: AdmissionAnnotation | None, stopped: int | None
) -> tuple[PodCount, ...]:
    """The fields of `obj` that its last start reduced. `stopped`: the attempt whose stop is recorded."""
    if admission is None or (stopped is not None and admission.attempt.number <= stopped):
        return ()
    found = []
    for pods in admission.attempt.assignment.pod_sets:
        before = admission.counts.get(pods.name, {})
        for path in kind.counts:
            own = before.get(pointer(path))
            if own is not None and _value(obj, path) == pods.count:
                found.append(PodCount(pods.name, path, own))
    return tuple(found)


def as_requested(obj: Json, fields: tuple[PodCount, ...]) -> Json:
    """`obj` with the values of its user."""
    for field in fields:
        obj = _with(obj, field.path, field.own)
    return obj


def elastic(found: Elastic | None, obj: Json) -> tuple[PodCount, ...]:
    """The fields of a podset that may start with fewer pods. `obj` has the values of its user."""
    if found is None:
        return ()
    values = ((path, _value(obj, path)) for path in found.fields)
    return tuple(PodCount(found.pod_set, path, value) for path, value in values if value is not None)


def to_reduce(effect: Effect) -> tuple[PodCount, ...]:
    """The fields that this start reduces: those of podsets that get fewer pods than they request."""
    held = held_pods(effect)
    asked = {pods.name: pods.count for pods in effect.workload.pod_sets}
    return tuple(
        field
        for field in effect.observation.elastic
        if field.pod_set in held and held[field.pod_set] < asked.get(field.pod_set, 0)
    )


def held_pods(effect: Effect) -> dict[str, int]:
    """How many pods each podset holds quota for."""
    return {pods.name: pods.count for pods in effect.attempt.assignment.pod_sets}


def _value(obj: Json, path: tuple[str, ...]) -> int | None:
    value = value_at(obj, path)
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if whole else None


def _with(obj: Json, path: tuple[str, ...], value: int) -> Json:
    """A copy of `obj` with another value at `path`, whose parents exist."""
    key, rest = path[0], path[1:]
    return {**obj, key: _with(obj[key], rest, value) if rest else value}
