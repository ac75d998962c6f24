"""A pod with the label of a pod group: what it requests, where it may run, its state and its place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from queuectl.core.model.resources import BadQuantity, parse_quantity
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.kinds.admission import AdmissionAnnotation, parse
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL, conditions
from queuectl.kinds.json_fields import BadField, Json, mapping
from queuectl.kinds.labels import MAX_RUN_LABEL
from queuectl.kinds.leader_worker_set import INDEX_LABEL, NAME_LABEL, TOPOLOGY_ANNOTATION
from queuectl.kinds.node_constraints import NodeConstraints, read_constraints
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    GROUP_INDEX,
    GROUP_LABEL,
    GROUP_SIZE,
    STOPPED_ANNOTATION,
    SUBMITTER_ANNOTATION,
    USER_ANNOTATION,
    WORKLOAD_LABEL,
)
from queuectl.kinds.single_pod import POD
from queuectl.kinds.stop_annotations import recorded_stop
from queuectl.kinds.workloads import annotation_bytes

NUMBER: Final = re.compile("[0-9]{1,4}")
_NAMED: Final = 10
"""Pods that a message names."""
_INDEX_LABELS: Final = (
    INDEX_LABEL,
    GROUP_INDEX,
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
)
"""The place of a pod in its group, from 0. The first that it has counts."""
AGREED_LABELS: Final = (QUEUE_LABEL, PRIORITY_LABEL, MAX_RUN_LABEL)
AGREED_ANNOTATIONS: Final = (GROUP_SIZE, SUBMITTER_ANNOTATION, USER_ANNOTATION)
_SHAPE: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priorityClassName",
    "topologySpreadConstraints",
    "resourceClaims",
)
_EVERY_POD_TOLERATES: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
OURS: Final = (ADMISSION_ANNOTATION, STOPPED_ANNOTATION)


class Member(NamedTuple):
    """A pod with the label of a group."""

    obj: Json
    uid: str
    name: str
    created: str
    version: int
    """Its resourceVersion; 0: it is no number."""
    workload: str
    """Of the start that it had; empty: none."""
    gated: bool
    phase: str
    terminating: bool
    ready: bool
    shape: str
    """Digest of what it requests and where it may run, before its start; empty: not known."""
    admission: AdmissionAnnotation | None
    stopped_in: int
    """The attempt of its workload in which it was stopped; 0: none."""
    agreed: tuple[object, ...]
    """What all pods of a group have in common."""
    annotation_bytes: int
    """Without those that a start and a stop write."""

    @property
    def pod_set(self) -> str:
        return pod_set_of(self.shape)

    @property
    def constraints(self) -> NodeConstraints | None:
        """Its own, which may be more than those of its shape; None: they cannot be read."""
        with suppress(BadField):
            return read_constraints(mapping(self.obj, "spec", ""), "spec")
        return None

    @property
    def alive(self) -> bool:
        return not self.gated and self.phase not in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """Whether it runs, and is to go on."""
        return self.alive and not self.terminating

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(str(metadata_of(self.obj).get("namespace")), POD.name, self.name, self.uid)


def pod_set_of(shape: str) -> str:
    return f"pods-{shape[:8]}"


def member(obj: Json) -> Member:
    """Raises BadField."""
    metadata, spec, status = (mapping(obj, key, "") for key in ("metadata", "spec", "status"))
    annotations, gated = mapping(metadata, "annotations", "metadata"), POD.suspended(obj)
    labels = mapping(metadata, "labels", "metadata")
    workload = "" if gated else str(labels.get(WORKLOAD_LABEL) or "")
    found = parse(annotations.get(ADMISSION_ANNOTATION), WorkloadId(workload)) if workload else None
    stop = recorded_stop(annotations.get(STOPPED_ANNOTATION), WorkloadId(workload)) if workload else None
    started = found.shapes[0] if found is not None and found.shapes else ""
    return Member(
        obj=obj,
        uid=str(metadata.get("uid") or ""),
        name=str(metadata.get("name") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        version=version_of(obj),
        workload=workload,
        gated=gated,
        phase=str(status.get("phase") or ""),
        terminating=bool(metadata.get("deletionTimestamp")),
        ready=conditions(obj).get("Ready") == "True",
        shape=started if workload else _shape(spec, annotations.get(TOPOLOGY_ANNOTATION)),
        admission=found,
        stopped_in=stop.attempt if stop is not None else 0,
        agreed=(*map(labels.get, AGREED_LABELS), *map(annotations.get, AGREED_ANNOTATIONS)),
        annotation_bytes=annotation_bytes(annotations, OURS),
    )


def version_of(obj: Json) -> int:
    """The resourceVersion of an object or a list; 0: it is no number."""
    text = str(mapping(obj, "metadata", "").get("resourceVersion"))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _shape(spec: Json, topology: object) -> str:
    """The same for a pod and for its template: without what the API server adds to all pods, and without the
    node selector for the label `topology`, which workers of a LeaderWorkerSet get."""
    shape: dict[str, Any] = {key: spec[key] for key in _SHAPE if spec.get(key)}
    containers = {
        key: [_of_container(one) for one in _objects(spec, key)] for key in ("containers", "initContainers")
    }
    requested = {name for listed in containers.values() for one in listed for name in one["requests"]}
    added = (*_EVERY_POD_TOLERATES, *requested)
    shape |= {
        **containers,
        "nodeSelector": {key: one for key, one in _fields(spec, "nodeSelector").items() if key != topology},
        "tolerations": [one for one in _objects(spec, "tolerations") if one.get("key") not in added],
        "resources": _requests(spec),
        "overhead": _amounts(_fields(spec, "overhead")),
    }
    return hashlib.sha256(orjson.dumps(shape, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _of_container(obj: Json) -> dict[str, Any]:
    ports = [(one.get("hostPort"), one.get("protocol") or "TCP") for one in _objects(obj, "ports")]
    return {
        "requests": _requests(obj),
        "claims": _fields(obj, "resources").get("claims") or [],
        "ports": [one for one in ports if one[0]],
        "restartPolicy": obj.get("restartPolicy"),
    }


def _requests(obj: Json) -> dict[str, Any]:
    """Those of a container or a pod: its limits where it says none."""
    resources = _fields(obj, "resources")
    return _amounts({**_fields(resources, "limits"), **_fields(resources, "requests")})


def _amounts(quantities: Json) -> dict[str, Any]:
    """In base units; as they are where they are no quantities."""
    found: dict[str, Any] = {}
    for name, value in quantities.items():
        found[name] = value
        with suppress(BadQuantity):
            found[name] = parse_quantity(value, name) if isinstance(value, str | int) else value
    return found


def _fields(obj: Json, key: str) -> Json:
    value = obj.get(key)
    return value if isinstance(value, Mapping) else {}


def _objects(obj: Json, key: str) -> list[Json]:
    listed = obj.get(key)
    return [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, Mapping)]


def absent(there: Iterable[Member], size: int, number: int) -> list[str]:
    """The names or indices of as many pods, by the indices of the others; empty: these do not tell."""
    found = {index_of(one): one for one in there}
    absent = [index for index in range(size) if index not in found]
    stems = {_stem(one, index) for index, one in found.items()}
    if len(absent) != number:  # a pod has no index, or that of another one, or is deleted
        return []
    return [f"index {one}" if len(stems) > 1 or "" in stems else f"{min(stems)}-{one}" for one in absent]


def index_of(one: Member) -> int | None:
    """Its place in its group, from 0; None: no label has it."""
    labels = labels_of(one.obj)
    found = str(next((labels[key] for key in _INDEX_LABELS if key in labels), ""))
    return int(found) if NUMBER.fullmatch(found) else None


def _stem(one: Member, index: int | None) -> str:
    """The names of its group without the index; empty: they do not end so."""
    if NAME_LABEL in labels_of(one.obj):
        return str(labels_of(one.obj).get(GROUP_LABEL))
    stem = one.name.removesuffix(f"-{index}")
    return stem if stem != one.name else ""


def names_of(members: Iterable[Member]) -> str:
    return listed([one.name for one in members])


def listed(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_NAMED])
    return listed if len(names) <= _NAMED else f"{listed} and {len(names) - _NAMED} more"


def metadata_of(obj: Json) -> Json:
    return mapping(obj, "metadata", "")


def labels_of(obj: Json) -> Json:
    return mapping(metadata_of(obj), "labels", "metadata")


def annotations_of(obj: Json) -> Json:
    return mapping(metadata_of(obj), "annotations", "metadata")
