"""A pod group: pods of a namespace with one value of the label queuectl.dev/pod-group-name, as one workload.

It has no object of its own. What stands for it is composed of its pods as they are read, and of the workers
that their LeaderWorkerSet is to create, and depends on nothing else, so that each reader finds the same:
`units` tells which pods are one workload, and `composed` makes an object of them. A podset is the pods of one
shape: what they request and where they may run.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from queuectl.core.model.resources import BadQuantity, parse_quantity
from queuectl.core.model.workload import (
    Effect,
    ObjectRef,
    StoredWorkload,
    WorkloadId,
    names_claim,
)
from queuectl.kinds.admission import AdmissionAnnotation, parse
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL, JobKind, Status, conditions, value_at
from queuectl.kinds.json_fields import BadField, Json, mapping, shown
from queuectl.kinds.labels import MAX_RUN_LABEL
from queuectl.kinds.leader_worker_set import TOPOLOGY_ANNOTATION, LaterWorkers, is_leader
from queuectl.kinds.node_constraints import NodeConstraints, read_constraints
from queuectl.kinds.podsets import Computed, NotYet, Operation, Pods
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    GROUP_LABEL,
    GROUP_SIZE,
    SCHEDULING_GATE,
    STOPPED_ANNOTATION,
    SUBMITTER_ANNOTATION,
    USER_ANNOTATION,
    WORKLOAD_LABEL,
)
from queuectl.kinds.single_pod import POD
from queuectl.kinds.start_patch import STARTED
from queuectl.kinds.stop_annotations import recorded_stop
from queuectl.kinds.workloads import (
    HOLD_ANNOTATION,
    MAX_ANNOTATIONS,
    REASON_ANNOTATION,
    annotation_bytes,
)

MAX_PODS: Final = 1000
MAX_SHAPES: Final = 32
_NUMBER: Final = re.compile("[0-9]{1,4}")
_NAMED: Final = 10
"""Pods that a message names."""
_AGREED_LABELS: Final = (QUEUE_LABEL, PRIORITY_LABEL, MAX_RUN_LABEL)
_AGREED_ANNOTATIONS: Final = (GROUP_SIZE, SUBMITTER_ANNOTATION, USER_ANNOTATION)
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
_OURS: Final = (ADMISSION_ANNOTATION, STOPPED_ANNOTATION)


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
        return ObjectRef(str(_metadata(self.obj).get("namespace")), POD.name, self.name, self.uid)


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
        agreed=(*map(labels.get, _AGREED_LABELS), *map(annotations.get, _AGREED_ANNOTATIONS)),
        annotation_bytes=annotation_bytes(annotations, _OURS),
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


@dataclass(frozen=True)
class Unit:
    """The pods of a group that are one workload."""

    id: str
    started: tuple[Member, ...]
    """In the order of their creation: past their gate, or ended."""
    held: tuple[Member, ...]
    """Those that its start is to let past their gate, or that wait for it."""
    succeeded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By podset, those that have succeeded, also if they are gone, as `short_uid` of each, sorted."""
    failed: bool = False
    beside: bool = False
    """Another workload of the group has its places."""
    to_come: tuple[Member, ...] = ()
    """Workers that are created after its start."""

    @property
    def first(self) -> Member:
        return (self.started or self.held)[0]

    @cached_property
    def admission(self) -> AdmissionAnnotation | None:
        """That of its start."""
        return next((one.admission for one in self.started if one.admission is not None), None)

    @cached_property
    def active(self) -> bool:
        return any(one.active for one in self.started)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of pods by podset: those of its admission, or those that are there."""
        if self.admission is None:
            return Counter(one.pod_set for one in (*self.started, *self.held, *self.to_come))
        pod_sets = self.admission.attempt.assignment.pod_sets
        return {one.name: one.count for one in pod_sets if not names_claim(one.name)}

    @property
    def size(self) -> int:
        """Raises BadField."""
        if self.to_come:
            return len(self.held) + len(self.to_come)
        value = _annotations(self.first.obj).get(GROUP_SIZE)
        if isinstance(value, str) and _NUMBER.fullmatch(value) and 1 <= int(value) <= MAX_PODS:
            return int(value)
        problem = f"{shown(value)} is not the number of pods of the group, 1 to {MAX_PODS}"
        raise BadField(f"pod {self.first.name}: metadata.annotations[{GROUP_SIZE}]", problem)

    def room(self, alive_at_most: Mapping[str, int]) -> dict[str, int]:
        """By podset, how many more may be started, if so many may be alive."""
        alive = Counter(one.pod_set for one in self.started if one.alive)
        return {name: most - alive[name] for name, most in alive_at_most.items()}

    @property
    def shapes(self) -> tuple[str, ...]:
        """Of the pods that its start is for."""
        return tuple(dict.fromkeys(one.shape for one in (*self.held, *self.to_come)))

    @property
    def ended(self) -> int:
        return sum(map(len, self.succeeded.values()))

    def check(self) -> None:
        """Whether it can be queued. Raises BadField, and NotYet."""
        first, size = self.first, self.size
        for one in (*self.held, *self.to_come):
            if one.agreed != first.agreed:
                raise _differs(one, first)
            if one.annotation_bytes > MAX_ANNOTATIONS:
                problem = f"{one.annotation_bytes} bytes leave no room for {ADMISSION_ANNOTATION}"
                raise BadField(f"pod {one.name}: metadata.annotations", problem)
        shapes = set(self.shapes)
        if len(shapes) > MAX_SHAPES or len({pod_set_of(one) for one in shapes}) < len(shapes):
            problem = (
                f"the pods of the group have {len(shapes)} different specs, at most {MAX_SHAPES} are queued"
            )
            raise BadField("spec", problem)
        if self.beside:
            places = f"another workload of the group has its {size} places until it has ended"
            raise NotYet(f"{places}: {_listed(self.held)} wait")
        if len(self.held) + len(self.to_come) < size:
            there = f"{len(self.held)} of {size} pods of the group exist ({_listed(self.held)})"
            missing = size - len(self.held)
            raise NotYet(f"{there}: {missing} {'is' if missing == 1 else 'are'} missing")


def _differs(one: Member, first: Member) -> BadField:
    names = (*_AGREED_LABELS, *_AGREED_ANNOTATIONS)
    entries = zip(names, one.agreed, first.agreed, strict=True)
    key, value, other = next(entry for entry in entries if entry[1] != entry[2])
    where = "labels" if key in _AGREED_LABELS else "annotations"
    problem = f"{shown(value)} differs from {shown(other)} of pod {first.name} of its group"
    return BadField(f"pod {one.name}: metadata.{where}[{key}]", problem)


def _listed(members: Sequence[Member]) -> str:
    names = ", ".join(one.name for one in members[:_NAMED])
    return names if len(members) <= _NAMED else f"{names} and {len(members) - _NAMED} more"


Past = Mapping[str, Mapping[str, tuple[str, bool]]]
"""By workload and `short_uid` of a pod: its podset, and whether it succeeded."""
NO_PAST: Final[Past] = {}


def short_uid(uid: str) -> str:
    """48 random bits of a UID: enough to tell apart the pods of one group, in each row of the ledger."""
    return uid[:13]


def recorded_past(stored: Iterable[StoredWorkload]) -> Past:
    """What the ledger has of its groups: those that have not started, too."""
    groups = (one for one in stored if one.ref.kind == POD_GROUP.name)
    return {
        one.id: {
            pod: (pods.name, True)
            for pods in (one.attempt.assignment.pod_sets if one.attempt is not None else ())
            for pod in pods.ended
        }
        for one in groups
    }


def units(
    members: Iterable[Member],
    past: Past = NO_PAST,
    known: Container[str] = (),
    workers: LaterWorkers | None = None,
) -> list[Unit]:
    """The workloads of the pods of one group; the pods that no start has reached are the last one.

    A workload that runs takes in pods that are held back, in the place of those that have failed or are gone,
    and of those that its start has not reached yet: alike in shape, in the order of their creation. It does
    not after a stop, nor once none of its pods runs. `past`: ended pods, also those that are gone.

    `known`: ids that workloads of the group have. They do not change while the pod of that UID is there: one
    that is created in the same second may come before it. `workers`: of the LeaderWorkerSet of the pods.
    """
    ordered = sorted(members, key=lambda one: (one.created, one.name, one.uid))
    started: dict[str, list[Member]] = {}
    waiting: list[Member] = []
    for one in ordered:
        if one.gated:
            if not one.terminating:
                waiting.append(one)
        else:
            started.setdefault(one.workload, []).append(one)
    found = [
        _running(workload, pods, waiting, past.get(workload, {}))
        for workload, pods in started.items()
        if workload
    ]
    if "" in started:  # a user let them past the gate
        found.append(_unit(_unused(started[""], started, known), started[""], ()))
    if waiting:
        runs = any(one.active for one in found)
        held, excess = _first(waiting)
        to_come = _to_come(held, workers) if workers is not None else ()
        found.append(Unit(_unused(held, started, known), (), held, beside=runs, to_come=to_come))
        if excess:
            found.append(Unit(_unused(excess, started, known), (), excess, beside=True))
    return found


def _running(
    workload: str, pods: Sequence[Member], waiting: list[Member], past: Mapping[str, tuple[str, bool]]
) -> Unit:
    """Takes the pods that it takes in out of `waiting`."""
    found = _unit(workload, pods, (), past)
    admission = found.admission
    if admission is None or not found.active:
        return found
    if any(one.stopped_in >= admission.attempt.number for one in pods):
        return found
    left = {name: count - len(found.succeeded.get(name, ())) for name, count in found.counts.items()}
    room, shapes, agreed = found.room(left), admission.shapes, found.first.agreed
    held = []
    for one in waiting:
        if room.get(one.pod_set, 0) > 0 and one.shape in shapes and one.agreed == agreed:
            room[one.pod_set] -= 1
            held.append(one)
    taken = {one.uid for one in held}
    waiting[:] = [one for one in waiting if one.uid not in taken]
    return _unit(workload, pods, held, past)


def _unit(
    workload: str,
    pods: Sequence[Member],
    held: Sequence[Member],
    past: Mapping[str, tuple[str, bool]] = MappingProxyType({}),
) -> Unit:
    ended = {short_uid(one.uid): (one.pod_set, one.phase == "Succeeded") for one in pods if not one.alive}
    ended = {**past, **ended}
    return Unit(
        workload,
        tuple(pods),
        tuple(held),
        succeeded=succeeded_of(ended),
        failed=not all(well for _, well in ended.values()),
    )


def succeeded_of(ended: Mapping[str, tuple[str, bool]]) -> dict[str, tuple[str, ...]]:
    """By podset, those pods of one workload of a `Past` that have succeeded."""
    found: dict[str, list[str]] = {}
    for pod, (pod_set, well) in sorted(ended.items()):
        if well:
            found.setdefault(pod_set, []).append(pod)
    return {name: tuple(pods) for name, pods in sorted(found.items())}


def _first(waiting: Sequence[Member]) -> tuple[tuple[Member, ...], tuple[Member, ...]]:
    """As many as the first one says that there are, and the others."""
    try:
        size = Unit("", (), tuple(waiting)).size
    except BadField:
        size = len(waiting)
    return tuple(waiting[:size]), tuple(waiting[size:])


def _to_come(held: Sequence[Member], workers: LaterWorkers) -> tuple[Member, ...]:
    """Those that a replica lacks while its leader waits."""
    leader = next((one for one in held if is_leader(one.obj)), None)
    if leader is None:
        return ()
    with suppress(BadField):
        return (member(workers.pod(leader.obj)),) * (workers.size - len(held))
    return ()


def _unused(members: Sequence[Member], started: Mapping[str, object], known: Container[str]) -> str:
    """The UID of the first pod that no start of the group has taken as the id of its workload."""
    ids = [one.uid for one in members if one.uid not in started]
    if ids:
        return next((one for one in ids if one in known), ids[0])
    digest = hashlib.sha256(members[0].uid.encode(errors="replace")).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def composed(unit: Unit, version: int) -> dict[str, Any]:
    """The object of a workload. `version`: the latest resourceVersion of its group that is known."""
    first, metadata = unit.first, _metadata(unit.first.obj)
    annotations = {key: value for key, value in _annotations(first.obj).items() if key not in _OURS}
    for one in (*unit.started, *unit.held):
        if _annotations(one.obj).get(HOLD_ANNOTATION) == "true":
            annotations |= {
                HOLD_ANNOTATION: "true",
                REASON_ANNOTATION: _annotations(one.obj).get(REASON_ANNOTATION),
            }
    for key, found in (
        (ADMISSION_ANNOTATION, (one for one in unit.started if one.admission is not None)),
        (STOPPED_ANNOTATION, (one for one in unit.started if one.stopped_in)),
    ):
        if (holder := next(found, None)) is not None:
            annotations[key] = _annotations(holder.obj)[key]
    phase = _phase(unit)
    times = [str(value_at(one.obj, ("status", "startTime")) or "") for one in unit.started]
    return {
        "apiVersion": "v1",
        "kind": "PodGroup",
        "metadata": {
            "namespace": metadata.get("namespace"),
            "name": _labels(first.obj).get(GROUP_LABEL),
            "uid": unit.id,
            "creationTimestamp": first.created,
            "resourceVersion": str(version),
            "generation": version,
            "labels": _labels(first.obj),
            "annotations": annotations,
            **({"deletionTimestamp": "now"} if not phase else {}),
        },
        "spec": {} if unit.started else {"schedulingGates": [{"name": SCHEDULING_GATE}]},
        "status": {"phase": phase, **({"startTime": min(times)} if times and all(times) else {})},
        "unit": unit,
    }


def _phase(unit: Unit) -> str:
    """As that of a pod; empty: what was left of it is deleted."""
    if not unit.started:
        return "Pending"
    if unit.active:
        return "Running"
    if any(one.alive for one in unit.started):
        return ""
    if unit.ended >= sum(unit.counts.values()):
        return "Succeeded"
    return "Failed" if unit.failed else ""


def of_pods_like(obj: Json) -> Json:
    """The object of a whole group of pods like this one, which need not exist. Raises BadField."""
    one = member(obj)._replace(gated=True)
    unit = Unit(one.uid, (), (one,))
    with suppress(BadField):  # the podsets say it
        unit = replace(unit, held=(one,) * unit.size)
    return composed(unit, one.version)


def _find(obj: Json, child: Json | None) -> list[Pods]:
    unit = obj.get("unit")
    if not isinstance(unit, Unit):  # one that a user has written
        raise BadField("kind", "a PodGroup has no object of its own: create its pods")
    if not unit.started:
        unit.check()
    there: dict[str, Member] = {}
    for one in (*unit.started, *unit.held, *unit.to_come):
        there.setdefault(one.pod_set, one)
    return [
        Pods(
            name,
            unit.counts[name],
            f"pods[{one.name}]",
            mapping(one.obj, "spec", ""),
            mapping(one.obj, "metadata", ""),
        )
        for name, one in sorted(there.items())
        if name in unit.counts
    ]


def _status(obj: Json) -> Status:
    unit = obj.get("unit")
    if not isinstance(unit, Unit):
        return Status()
    phase = obj["status"]["phase"]
    if phase == "Pending":
        return Status(quiet=True, ready=False, pods_ready=0)
    ready = sum(one.ready and one.active for one in unit.started)
    succeeded = unit.succeeded if unit.admission is not None else {}
    return Status(
        quiet=not any(one.alive for one in unit.started),
        ready=ready + unit.ended >= sum(unit.counts.values()),
        pods_ready=ready,
        reclaimable=tuple((name, len(pods)) for name, pods in succeeded.items()),
        pods_ended=tuple(succeeded.items()),
        unstarted=bool(unit.held),
    )


def _metadata(obj: Json) -> Json:
    return mapping(obj, "metadata", "")


def _labels(obj: Json) -> Json:
    return mapping(_metadata(obj), "labels", "metadata")


def _annotations(obj: Json) -> Json:
    return mapping(_metadata(obj), "annotations", "metadata")


def _steer(effect: Effect) -> list[Operation]:
    raise AssertionError("its pods are started one by one")


POD_GROUP: Final = JobKind(
    name="PodGroup",
    group="",
    version="v1",
    plural="pods",
    names=("podgroups", "pg"),
    suspend=POD.suspend,
    podsets=Computed(
        find=_find,
        steer=_steer,
        scheduling_gate=SCHEDULING_GATE,
        composed_of=POD.name,
        writes=POD.podsets.writes,
    ),
    status=_status,
    seen=POD.seen,
    ends=POD.ends,
    pods=(STARTED,),
)
