"""What the rows of a registry say of a sample object, which no cluster has to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import Workload, WorkloadOutcome
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, KindRegistry
from queuectl.kinds.json_fields import BadField, Json, mapping, shown
from queuectl.kinds.pod_group import POD_GROUP, of_pods_like
from queuectl.kinds.reserved_keys import GROUP_LABEL, RESERVED
from queuectl.kinds.single_pod import POD
from queuectl.kinds.workloads import observe

_MALFORMED: Final = "metadata: namespace, name or labels are malformed"
_CREATED: Final = {
    "uid": "sample",
    "resourceVersion": "1",
    "generation": 1,
    "creationTimestamp": "1970-01-01T00:00:00Z",
}
"""What an API server would add."""
_OF_ITS_CREATOR: Final = ("name", "generateName", "namespace", "labels", "annotations")
"""Fields of metadata. The others are written by the API server and by controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOutcome:
    """A sample object, as queuectl reads it."""

    kind: str
    """Of its row; what it says its kind is, if there is no row."""
    name: str
    pod_sets: tuple[tuple[str, int, Amounts], ...] = ()
    """Name, number of pods, requests of one pod."""
    suspended: bool = False
    finished: WorkloadOutcome | None = None
    ready: bool | None = None
    """None: its status does not say."""
    problem: str | None = None
    """Why it cannot be queued as it is."""


def tried(kinds: KindRegistry, obj: Json) -> SampleOutcome:
    """What an object like this one would be charged, and why it may be refused."""
    try:
        metadata = mapping(obj, "metadata", "")
        labels = mapping(metadata, "labels", "metadata")
    except BadField as problem:
        return SampleOutcome(kind="", name="", problem=str(problem))
    name = str(metadata.get("name") or metadata.get("generateName") or "sample")
    row = kinds.of(obj.get("apiVersion"), obj.get("kind"))
    if row is None:
        kind = f"{shown(obj.get('kind'))} of {shown(obj.get('apiVersion'))}"
        return SampleOutcome(kind=str(obj.get("kind")), name=name, problem=f"no row is for kind {kind}")
    try:
        event = _read(row, obj, metadata, {"namespace": "default"}, {QUEUE_LABEL: "sample", **labels})
    except BadField as problem:
        return SampleOutcome(kind=row.name, name=name, problem=str(problem))
    if event is None:
        return SampleOutcome(kind=row.name, name=name, problem=_MALFORMED)
    workload, seen = event.workload, event.observation
    return SampleOutcome(
        kind=row.name,
        name=name,
        pod_sets=tuple((pods.name, pods.count, pods.requests) for pods in workload.pod_sets),
        suspended=seen.suspended,
        finished=seen.finished,
        ready=seen.ready,
        problem=workload.problem.message if workload.problem is not None else None,
    )


def as_created(row: JobKind, obj: Json) -> Workload:
    """The workload of an object that is not created yet. Raises BadField.

    What a creator has no say in is left out: identity, times, owners, status and the annotations of queuectl.
    So the workload never stands for another one.
    """
    metadata = mapping(obj, "metadata", "")
    labels = mapping(metadata, "labels", "metadata")
    annotations = mapping(metadata, "annotations", "metadata")
    metadata = {key: metadata[key] for key in _OF_ITS_CREATOR if key in metadata}
    metadata["annotations"] = {key: text for key, text in annotations.items() if not key.startswith(RESERVED)}
    obj = {key: value for key, value in obj.items() if key != "status"}
    if QUEUE_LABEL not in labels:
        raise BadField("metadata.labels", f"there is no {QUEUE_LABEL}")
    event = _read(row, obj, metadata, {}, labels)
    if event is None:
        raise BadField("metadata", "namespace, name or labels are malformed")
    return event.workload


def _read(row: JobKind, obj: Json, metadata: Json, more: Json, labels: Json) -> WorkloadObserved | None:
    """As if an API server had created it; of a pod of a group, all pods of the group. Raises BadField."""
    name = str(metadata.get("name") or metadata.get("generateName") or "sample")
    # A generated name ends with a hyphen, and a name does not.
    created = {**_CREATED, **more, **metadata, "name": name.rstrip("-"), "labels": labels}
    obj = {**obj, "metadata": created}
    if row is POD and GROUP_LABEL in labels:
        return observe(POD_GROUP, of_pods_like(obj))
    return observe(row, obj)
