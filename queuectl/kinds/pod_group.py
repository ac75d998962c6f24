"""A pod group: pods of a namespace with one value of the label queuectl.dev/pod-group-name, as one workload.

It has no object of its own. What stands for it is composed of its pods as they are read, and of the workers
that their LeaderWorkerSet is to create, and depends on nothing else, so that each reader finds the same:
`units` tells which pods are one workload, and `composed` makes an object of them. A podset is the pods of one
shape: what they request and where they may run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from queuectl.core.model.workload import (
    Effect,
    StoredWorkload,
    names_claim,
)
from queuectl.kinds.admission import AdmissionAnnotation
from queuectl.kinds.group_owners import OwnerOfGroup, Replicas, stateful_set_of
from queuectl.kinds.jobs import JobKind, Status, value_at
from queuectl.kinds.json_fields import BadField, Json, mapping, shown
from queuectl.kinds.leader_worker_set import (
    LaterWorkers,
    is_leader,
)
from queuectl.kinds.pod_group_members import (
    AGREED_ANNOTATIONS,
    AGREED_LABELS,
    NUMBER,
    OURS,
    Member,
    absent,
    annotations_of,
    index_of,
    labels_of,
    listed,
    member,
    metadata_of,
    names_of,
    pod_set_of,
)
from queuectl.kinds.podsets import Computed, NotYet, Operation, Pods
from queuectl.kinds.reserved_keys import (
    ADMISSION_ANNOTATION,
    GROUP_LABEL,
    GROUP_SIZE,
    SCHEDULING_GATE,
    STOPPED_ANNOTATION,
)
from queuectl.kinds.single_pod import POD
from queuectl.kinds.start_patch import STARTED
from queuectl.kinds.workloads import (
    HOLD_ANNOTATION,
    MAX_ANNOTATIONS,
    REASON_ANNOTATION,
)

MAX_PODS: Final = 1000
MAX_SHAPES: Final = 32


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
    """Those that are created after its start."""
    replicas: int | None = None
    """Its pods, of a StatefulSet that has their number; None: an annotation has it."""
    most: Mapping[str, int] = field(default_factory=dict)
    """By podset, how many of those of its admission it may still have; not in it: all."""

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
        counts = {one.name: one.count for one in pod_sets if not names_claim(one.name)}
        return {name: min(count, self.most.get(name, count)) for name, count in counts.items()}

    @property
    def size(self) -> int:
        """Raises BadField."""
        if self.replicas is not None and self.replicas > MAX_PODS:
            raise BadField("StatefulSet: spec.replicas", f"{self.replicas} is more than {MAX_PODS}")
        if self.to_come or self.replicas is not None:
            return len(self.held) + len(self.to_come)
        value = annotations_of(self.first.obj).get(GROUP_SIZE)
        if isinstance(value, str) and NUMBER.fullmatch(value) and 1 <= int(value) <= MAX_PODS:
            return int(value)
        problem = f"{shown(value)} is not the number of pods of the group, 1 to {MAX_PODS}"
        raise BadField(f"pod {self.first.name}: metadata.annotations[{GROUP_SIZE}]", problem)

    @property
    def free(self) -> dict[str, int]:
        """By podset, the places of pods that do not exist."""
        held = Counter(one.pod_set for one in self.held)
        return self.room(
            {
                name: count - len(self.succeeded.get(name, ())) - held[name]
                for name, count in self.counts.items()
            }
        )

    @property
    def missing(self) -> str:
        """The pods that do not exist while it runs; empty: none is missing."""
        free = {name: count for name, count in self.free.items() if count > 0} if self.active else {}
        there = [one for one in self.started if one.alive or one.phase == "Succeeded"]
        names = absent((*there, *self.held), sum(self.counts.values()), sum(free.values()))
        return listed(names or [f"{count} of podset {name}" for name, count in free.items()])

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
        first = self.first
        if self.replicas is None and (name := stateful_set_of([first.obj])) is not None:
            raise NotYet(f"StatefulSet {name}, which has the number of the pods of the group, was not read")
        size = self.size
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
            raise NotYet(f"{places}: {names_of(self.held)} wait")
        if len(self.held) + len(self.to_come) < size:
            there = f"{len(self.held)} of {size} pods of the group exist ({names_of(self.held)})"
            missing = size - len(self.held)
            which = listed(absent(self.held, size, missing)) or str(missing)
            raise NotYet(f"{there}: {which} {'is' if missing == 1 else 'are'} missing")


def _differs(one: Member, first: Member) -> BadField:
    names = (*AGREED_LABELS, *AGREED_ANNOTATIONS)
    entries = zip(names, one.agreed, first.agreed, strict=True)
    key, value, other = next(entry for entry in entries if entry[1] != entry[2])
    where = "labels" if key in AGREED_LABELS else "annotations"
    problem = f"{shown(value)} differs from {shown(other)} of pod {first.name} of its group"
    return BadField(f"pod {one.name}: metadata.{where}[{key}]", problem)


Past = Mapping[str, Mapping[str, tuple[str, bool]]]
"""By workload and `short_uid` of a pod: its podset, and whether it succeeded."""
NO_PAST: Final[Past] = {}
Most = Mapping[str, Mapping[str, int]]
"""By workload and podset: how many pods of its admission it may still have, with those that have ended."""
NO_MOST: Final[Most] = {}


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


def recorded_most(stored: Iterable[StoredWorkload]) -> Most:
    """What the ledger has of the groups that have started."""
    return {
        one.id: {pods.name: pods.count + len(pods.ended) for pods in one.attempt.assignment.pod_sets}
        for one in stored
        if one.ref.kind == POD_GROUP.name and one.attempt is not None
    }


def units(
    members: Iterable[Member],
    past: Past = NO_PAST,
    known: Container[str] = (),
    owner: OwnerOfGroup | None = None,
    most: Most = NO_MOST,
) -> list[Unit]:
    """The workloads of the pods of one group; the pods that no start has reached are the last one.

    A workload that runs takes in pods that are held back, in the place of those that have failed or are gone,
    and of those that its start has not reached yet: alike in shape, in the order of their creation. It does
    not after a stop, nor once none of its pods runs. `past`: ended pods, also those that are gone.

    `known`: ids that workloads of the group have. They do not change while the pod of that UID is there: one
    that is created in the same second may come before it. They take in pods before the others. `owner`: what
    says how many pods the group has. `most`: what was known before.
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
    apart: Container[str] = ()
    if isinstance(owner, Replicas):
        waiting.sort(key=_ordinal)
        apart = known
    found = [
        _running(_unit(workload, pods, past.get(workload, {}), most.get(workload, {})), waiting, apart)
        for workload, pods in sorted(started.items(), key=lambda entry: entry[0] not in known)
        if workload
    ]
    if "" in started:  # a user let them past the gate
        found.append(_unit(_unused(started[""], started, known), started[""]))
    if isinstance(owner, Replicas):
        found = _scaled(found, owner.number - len(waiting))
        return found + _of_replicas(waiting, found, owner.number, started, known)
    if waiting:
        runs = any(one.active for one in found)
        held, excess = _first(waiting)
        to_come = _to_come(held, owner) if owner is not None else ()
        found.append(Unit(_unused(held, started, known), (), held, beside=runs, to_come=to_come))
        if excess:
            found.append(Unit(_unused(excess, started, known), (), excess, beside=True))
    return found


def _ordinal(one: Member) -> int:
    return index_of(one) or 0


def _scaled(units: Sequence[Unit], replicas: int) -> list[Unit]:
    """Without the places that nothing is to take: the StatefulSet was scaled down, or others of its pods have
    a workload of their own."""
    alive = {unit.id: sum(one.active for one in unit.started) + len(unit.held) for unit in units}
    found = []
    for unit in units:
        free = {name: max(0, count) for name, count in unit.free.items()} if unit.active else {}
        others = sum(alive.values()) - alive[unit.id]
        lost = max(0, sum(free.values()) - max(0, replicas - others - alive[unit.id]))
        there = Counter(one.pod_set for one in unit.started if one.alive)
        there.update({name: len(pods) for name, pods in unit.succeeded.items()})
        # More may be there than at an earlier look, when the two watches were not equally late.
        most = {name: max(count, there[name]) for name, count in unit.counts.items()}
        for name, count in sorted(free.items()):
            given_up = min(count, lost)
            most[name] -= given_up
            lost -= given_up
        found.append(replace(unit, most=most))
    return found


def _of_replicas(
    waiting: Sequence[Member],
    running: Iterable[Unit],
    replicas: int,
    started: Mapping[str, object],
    known: Container[str],
) -> list[Unit]:
    """The workloads of those pods of a StatefulSet that no start has reached. `waiting`: by ordinal."""
    active = [_ordinal(one) for unit in running for one in unit.started if one.active]
    if active and waiting and min(active) < _ordinal(waiting[0]):
        return [Unit(_unused((one,), started, known), (), (one,), replicas=1) for one in waiting]
    size = max(0, replicas - len(active))
    held, excess = tuple(waiting[:size]), tuple(waiting[size:])
    found = []
    if held:
        to_come = (held[-1],) * (size - len(held)) if size <= MAX_PODS else ()
        found.append(Unit(_unused(held, started, known), (), held, to_come=to_come, replicas=size))
    if excess:
        found.append(Unit(_unused(excess, started, known), (), excess, beside=True, replicas=len(excess)))
    return found


def _running(found: Unit, waiting: list[Member], apart: Container[str]) -> Unit:
    """With the pods that it takes in, out of `waiting`; not those that have a workload in `apart`."""
    admission = found.admission
    if admission is None or not found.active:
        return found
    if any(one.stopped_in >= admission.attempt.number for one in found.started):
        return found
    room, shapes, agreed = found.free, admission.shapes, found.first.agreed
    if not any(count > 0 for count in room.values()):
        return found
    held = []
    for one in waiting:
        if one.uid in apart and one.uid != found.id:
            continue
        if room.get(one.pod_set, 0) > 0 and one.shape in shapes and one.agreed == agreed:
            room[one.pod_set] -= 1
            held.append(one)
    taken = {one.uid for one in held}
    waiting[:] = [one for one in waiting if one.uid not in taken]
    return replace(found, held=tuple(held))


def _unit(
    workload: str,
    pods: Sequence[Member],
    past: Mapping[str, tuple[str, bool]] = MappingProxyType({}),
    most: Mapping[str, int] = MappingProxyType({}),
) -> Unit:
    """Of pods that have started."""
    ended = {short_uid(one.uid): (one.pod_set, one.phase == "Succeeded") for one in pods if not one.alive}
    ended = {**past, **ended}
    return Unit(
        workload,
        tuple(pods),
        (),
        succeeded=succeeded_of(ended),
        failed=not all(well for _, well in ended.values()),
        most=most,
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
    first, metadata = unit.first, metadata_of(unit.first.obj)
    annotations = {key: value for key, value in annotations_of(first.obj).items() if key not in OURS}
    for one in (*unit.started, *unit.held):
        if annotations_of(one.obj).get(HOLD_ANNOTATION) == "true":
            annotations |= {
                HOLD_ANNOTATION: "true",
                REASON_ANNOTATION: annotations_of(one.obj).get(REASON_ANNOTATION),
            }
    for key, found in (
        (ADMISSION_ANNOTATION, (one for one in unit.started if one.admission is not None)),
        (STOPPED_ANNOTATION, (one for one in unit.started if one.stopped_in)),
    ):
        if (holder := next(found, None)) is not None:
            annotations[key] = annotations_of(holder.obj)[key]
    phase = _phase(unit)
    times = [str(value_at(one.obj, ("status", "startTime")) or "") for one in unit.started]
    return {
        "apiVersion": "v1",
        "kind": "PodGroup",
        "metadata": {
            "namespace": metadata.get("namespace"),
            "name": labels_of(first.obj).get(GROUP_LABEL),
            "uid": unit.id,
            "creationTimestamp": first.created,
            "resourceVersion": str(version),
            "generation": version,
            "labels": labels_of(first.obj),
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
        pods_missing=unit.missing,
    )


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
