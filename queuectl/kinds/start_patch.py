"""What a start adds to an object so that its pods get the nodes and the labels of their admission, and the
numbers of pods that it reduces and a stop restores (partial admission, F9).

The reserved-admission annotation has the values that their user wrote. They count until the stop of that
attempt, which the reserved-stopped annotation records. A field that was edited since the start is the user's.
"""

from __future__ import annotations

import re
from typing import Final

from queuectl.core.model.workload import Effect, PodCount, PodSetAssignment
from queuectl.kinds.admission import AdmissionAnnotation, additions
from queuectl.kinds.jobs import QUEUE_LABEL, Elastic, JobKind, PodLabel, value_at
from queuectl.kinds.json_fields import MAX_COUNT, Json
from queuectl.kinds.node_constraints import NodeConstraints, toleration_json
from queuectl.kinds.podsets import Operation, Path, put
from queuectl.kinds.reserved_keys import CLUSTER_QUEUE_LABEL, FLAVOR_LABEL, PODSET_LABEL, WORKLOAD_LABEL

_VALUE: Final = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Of a label."""

LABELLED: Final = PodLabel(WORKLOAD_LABEL, uid=True)
"""Of the pods of every start. The gate lets no user take it off, so it counts without any other label."""
STARTED: Final = LABELLED._replace(sure=True)
"""The same, where owners do not tell whose pods are, or not for long."""


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def add(path: Path, value: object) -> Operation:
    return {"op": "add", "path": pointer(path), "value": value}


def pod_labels(effect: Effect, pod_set: PodSetAssignment) -> dict[str, str]:
    """Of every pod of a podset."""
    return {
        QUEUE_LABEL: effect.workload.queue,
        **admission_labels(effect, pod_set),
        PODSET_LABEL: _value(pod_set.name),
    }


def admission_labels(effect: Effect, pod_set: PodSetAssignment) -> dict[str, str]:
    """Also of a pod that queues by itself."""
    return {
        WORKLOAD_LABEL: effect.workload.id,
        CLUSTER_QUEUE_LABEL: _value(effect.attempt.assignment.cluster_queue),
        FLAVOR_LABEL: _value("_".join(dict.fromkeys(flavor for _, flavor in pod_set.flavors))),
    }


def _value(name: str) -> str:
    """Empty, if it can be no value: the API server checks no labels in templates of a custom resource, and
    its controller could make no pod."""
    return name if _VALUE.fullmatch(name) else ""


def directives(pod_set: PodSetAssignment, holder: Path, effect: Effect) -> list[Operation]:
    """The user's own scheduling fields with the flavors' on top, as fields of what is at `holder`.

    Fields that both leave empty, and that no former admission can have set, are not written.
    """
    own = NodeConstraints(pod_set.node_selector, pod_set.tolerations)
    added = additions(pod_set, effect.flavors)
    wanted = own.steered(added)
    before = effect.observation.admission is not None
    patch = []
    if before or added.node_selector:
        patch.append(add((*holder, "nodeSelector"), dict(wanted.node_selector)))
    if before or added.tolerations:
        patch.append(add((*holder, "tolerations"), [toleration_json(item) for item in wanted.tolerations]))
    return patch


def labelling(pod_set: PodSetAssignment, metadata: Path, effect: Effect) -> list[Operation]:
    """Labels of the pods of a podset, as a field of what is at `metadata`.

    Those of a former attempt are replaced.
    """
    labels = pod_labels(effect, pod_set)
    unlabelled = dict(effect.observation.unlabelled)
    if pod_set.name not in unlabelled:
        return [add((*metadata, "labels", name), value) for name, value in labels.items()]
    if unlabelled[pod_set.name]:
        return [add((*metadata, "labels"), labels)]
    return [add(metadata, {"labels": labels})]


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
            if own is not None and _count(obj, path) == pods.count:
                found.append(PodCount(pods.name, path, own))
    return tuple(found)


def as_requested(obj: Json, fields: tuple[PodCount, ...]) -> Json:
    """`obj` with the values of its user."""
    for field in fields:
        obj = put(obj, field.path, field.own)
    return obj


def elastic(found: Elastic | None, obj: Json) -> tuple[PodCount, ...]:
    """The fields of a podset that may start with fewer pods. `obj` has the values of its user."""
    if found is None:
        return ()
    values = ((path, _count(obj, path)) for path in found.fields)
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


def _count(obj: Json, path: tuple[str, ...]) -> int | None:
    value = value_at(obj, path)
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if whole else None
