"""What a row of the registry says about a kind of job, and the rows themselves.

Adding a kind is a row, plus the functions that find its podsets and read its status.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model import Outcome
from queuectl.kinds.fields import MAX_COUNT, BadField, Json, integer, mapping, objects, text, timestamp

QUEUE_LABEL: Final = "queuectl.dev/queue-name"
PRIORITY_LABEL: Final = "queuectl.dev/priority-class"

Path = tuple[str | int, ...]
"""Keys and indexes from the root of an object."""

MAX_CONDITIONS: Final = 64


class Pods(NamedTuple):
    """One podset of an object."""

    name: str
    pods: int
    path: str
    """Of its pod template, for messages."""
    spec: Json
    """The pod spec."""
    metadata: Json
    """That of its pod template."""
    priority_class: str | None = None
    """PriorityClass that the object names for all its pods; None: that of the pod spec."""


class Status(NamedTuple):
    """Data from an object's status."""

    finished: Outcome | None
    quiet: bool | None
    """True: the status guarantees that no pod is alive. False: some pod is alive. None: unknown."""
    ready: bool | None = None
    """Are all its pods ready or succeeded? None: the status does not say."""
    reclaimable: tuple[tuple[str, int], ...] = ()
    """By podset, how many pods have ended and are not replaced; empty if the status does not guarantee it."""
    pods_ready: int | None = None
    """How many of its pods are ready, or run where the status has no more; None: the status does not say."""


class Replicas(NamedTuple):
    """The podsets of a kind, as the policies of the gate and of the small API find them."""

    field: str
    """Field of the spec: from a replica type to `{replicas, template}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One kind of job."""

    name: str
    """Unique in a registry: its Kubernetes kind, or `KIND.VERSION.GROUP` where another row has that name.

    Ledger, REST and command line identify a kind by this name.
    """
    group: str
    version: str
    plural: str
    names: tuple[str, ...]
    """Short names for the command line, in lower case."""
    suspend: tuple[str, ...]
    """Path of the field that suspends it."""
    find: Callable[[Json], list[Pods]]
    """Its podsets in their fixed order. Raises BadField."""
    template: Callable[[str, int], Path]
    """Path of the pod template of the podset of this name at this place in the order."""
    status: Callable[[Json], Status]
    """Raises nothing."""
    pod_label: str
    """Label of its pods whose value is the object's UID or name."""
    pod_label_is_uid: bool
    managed_by: tuple[tuple[str, ...], tuple[str, ...]]
    """Path of the field naming another controller, and the values that leave it to the usual one."""

    replicas: Replicas | None = None
    """None: it has one pod template, `spec.template`, with a number of pods as in a Job."""
    scale: bool = False
    """Its CRD has a scale subresource, which writes the number of pods."""
    start_time_binds: bool = False
    """API servers before 1.36 accept no new node selector while `status.startTime` is set."""

    @property
    def kind(self) -> str:
        """Its Kubernetes kind."""
        return self.name.partition(".")[0]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def resource(self) -> str:
        """The name in RBAC and kubectl, such as `pytorchjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}"

    def pod_selector(self, name: str, uid: str) -> str:
        """Label selector of its pods. If its value is a name, the caller must check the owner's UID too."""
        return f"{self.pod_label}={uid if self.pod_label_is_uid else name}"

    def suspended(self, obj: Json) -> bool:
        value: Any = obj
        for key in self.suspend:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is True


def conditions(obj: Json) -> dict[str, str]:
    """Status by type of the object's conditions; malformed ones are left out."""
    found: dict[str, str] = {}
    try:
        listed = objects(mapping(obj, "status", ""), "conditions", "status", MAX_CONDITIONS)
    except BadField:
        return found
    for condition in listed:
        kind, status = condition.get("type"), condition.get("status")
        if isinstance(kind, str) and isinstance(status, str):
            found[kind] = status
    return found


_OVER: Final = ("Complete", "Succeeded", "Failed")


def run_times(obj: Json) -> tuple[datetime | None, datetime | None]:
    """Start and end of its run, from its status; None if unknown."""
    try:
        status = mapping(obj, "status", "")
        listed = objects(status, "conditions", "status", MAX_CONDITIONS)
    except BadField:
        return None, None
    # Failed ones have no completionTime.
    ended = [
        found.get("lastTransitionTime")
        for found in listed
        if found.get("type") in _OVER and found.get("status") == "True"
    ]
    return _time(status.get("startTime")), _time(ended[0]) if ended else None


def _time(value: object) -> datetime | None:
    try:
        return None if value is None else timestamp(value, "")
    except BadField:
        return None


SUSPENDED: Final = "Suspended"
"""The condition that the controllers of all kinds set after they have seen a suspension."""


def says_suspended(obj: Json) -> bool:
    """Does its status say that its controller has seen it suspended? It may be older than the spec."""
    return conditions(obj).get(SUSPENDED) == "True"


# --- batch/v1 Job -----------------------------------------------------------------------------------

_INDEXES: Final = re.compile(r"(?:\d{1,6}(?:-\d{1,6})?,){0,100000}\d{1,6}(?:-\d{1,6})?", re.ASCII)
_INDEX_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


def _job_pod_sets(obj: Json) -> list[Pods]:
    spec = mapping(obj, "spec", "")
    count = integer(spec, "parallelism", "spec", default=1)
    count = min(count, integer(spec, "completions", "spec", default=count))
    return [Pods("main", count, "spec.template", *_template(spec, "spec"))]


def _job_status(obj: Json) -> Status:
    found = conditions(obj)
    # From 1.31 on these two are set only when all pods have ended.
    if found.get("Complete") == "True":
        return Status(Outcome.SUCCEEDED, True)
    if found.get("Failed") == "True":
        return Status(Outcome.FAILED, True)
    alive = _count(obj, "active") + _count(obj, "terminating")
    return Status(None, False if alive else None, *_job_progress(obj, alive))


def _job_progress(obj: Json, alive: int) -> tuple[bool | None, tuple[tuple[str, int], ...], int | None]:
    """Whether its pods are ready, how many of them have ended for good, and how many are ready."""
    try:
        spec, status = mapping(obj, "spec", ""), mapping(obj, "status", "")
        parallel = integer(spec, "parallelism", "spec", default=1)
        wanted = integer(spec, "completions", "spec", default=parallel)
        ready = integer(status, "ready", "status", default=None) if "ready" in status else None
    except BadField:
        return None, (), None
    succeeded, whole = _count(obj, "succeeded"), min(parallel, wanted)
    over = succeeded + (_failed_indexes(status) if spec.get("backoffLimitPerIndex") is not None else 0)
    # The pods of a suspended Job are terminating: the pods of its next run count.
    left = max(wanted - over, alive if spec.get("suspend") is not True else 0, 0)
    ended = whole - min(whole, left)
    reclaimable = (("main", ended),) if ended else ()
    return None if ready is None else ready + succeeded >= whole, reclaimable, ready


def _failed_indexes(status: Json) -> int:
    """The number of indexes in a list such as `1,3-5`; 0 if it is malformed."""
    listed = status.get("failedIndexes")
    if not isinstance(listed, str) or not _INDEXES.fullmatch(listed):
        return 0
    ranges = _INDEX_RANGE.findall(listed)
    return sum(max(0, int(last or first) - int(first) + 1) for first, last in ranges)


def _count(obj: Json, name: str) -> int:
    """A number of its status; 0 if it is missing."""
    status = obj.get("status")
    count = status.get(name) if isinstance(status, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MAX_COUNT else 0


# --- kubeflow.org/v1 ----------------------------------------------------------------------------------


def _replica_pod_sets(specs: str, order: tuple[str, ...]) -> Callable[[Json], list[Pods]]:
    """Podsets of a Kubeflow v1 job: one per replica type, in a fixed order whatever the object's."""

    def find(obj: Json) -> list[Pods]:
        spec = mapping(obj, "spec", "")
        replicas = mapping(spec, specs, "spec")
        strange = next((name for name in replicas if name not in order), None)
        if strange is not None:
            raise BadField(f"spec.{specs}", f"replica type {strange[:40]!r}, known are {', '.join(order)}")
        if not replicas:
            raise BadField(f"spec.{specs}", "no replicas")
        policy = mapping(mapping(spec, "runPolicy", "spec"), "schedulingPolicy", "spec.runPolicy")
        priority_class = text(policy, "priorityClass", "spec.runPolicy.schedulingPolicy")
        pod_sets = []
        for name in order:
            if name in replicas:
                path = f"spec.{specs}.{name}"
                replica = mapping(replicas, name, f"spec.{specs}")
                count = integer(replica, "replicas", path, default=1)
                template = _template(replica, path)
                pod_sets.append(Pods(name.lower(), count, f"{path}.template", *template, priority_class))
        return pod_sets

    return find


def _replica_template(specs: str, order: tuple[str, ...]) -> Callable[[str, int], Path]:
    keys = {name.lower(): name for name in order}
    return lambda pod_set, _: ("spec", specs, keys[pod_set], "template")


def _kubeflow_status(specs: str) -> Callable[[Json], Status]:
    def status(obj: Json) -> Status:
        found = conditions(obj)
        # Whether pods remain depends on its cleanPodPolicy: only the pods themselves show it.
        if found.get("Succeeded") == "True":
            return Status(Outcome.SUCCEEDED, None)
        if found.get("Failed") == "True":
            return Status(Outcome.FAILED, None)
        # An ended pod is created again if it is deleted: no quota is released before the end of the job.
        return Status(
            None,
            None,
            _replicas_run(obj, specs, found.get("Running") == "True"),
            pods_ready=_replicas_active(obj, specs),
        )

    return status


def _replicas_run(obj: Json, specs: str, running: bool) -> bool | None:
    """Whether all replicas run or have succeeded; `running`: the job's condition Running."""
    try:
        replicas = mapping(mapping(obj, "spec", ""), specs, "spec")
        statuses = mapping(mapping(obj, "status", ""), "replicaStatuses", "status")
        if not statuses or not replicas.keys() <= statuses.keys():
            return True if running else None
        for name in replicas:
            told = mapping(statuses, name, "status.replicaStatuses")
            up = sum(integer(told, key, "status", default=0) for key in ("active", "succeeded"))
            if up < integer(mapping(replicas, name, f"spec.{specs}"), "replicas", "spec", default=1):
                return False
    except BadField:
        return None
    return True


def _replicas_active(obj: Json, specs: str) -> int | None:
    """How many of its replicas run; None if the status does not say."""
    try:
        replicas = mapping(mapping(obj, "spec", ""), specs, "spec")
        statuses = mapping(mapping(obj, "status", ""), "replicaStatuses", "status")
        told = [mapping(statuses, name, "status.replicaStatuses") for name in replicas if name in statuses]
        return sum(integer(one, "active", "status", default=0) for one in told) if told else None
    except BadField:
        return None


def _template(parent: Json, path: str) -> tuple[Json, Json]:
    """Spec and metadata of its pod template."""
    template, path = mapping(parent, "template", path), f"{path}.template"
    spec = mapping(template, "spec", path)
    if not spec:
        raise BadField(f"{path}.spec", "no pod spec")
    return spec, mapping(template, "metadata", path)


def _kubeflow(
    name: str, specs: str, order: tuple[str, ...], names: tuple[str, ...], *, scale: bool = False
) -> JobKind:
    return JobKind(
        name=name,
        group="kubeflow.org",
        version="v1",
        plural=f"{name.lower()}s",
        names=names,
        suspend=("spec", "runPolicy", "suspend"),
        find=_replica_pod_sets(specs, order),
        template=_replica_template(specs, order),
        status=_kubeflow_status(specs),
        pod_label="training.kubeflow.org/job-name",
        pod_label_is_uid=False,
        managed_by=(("spec", "runPolicy", "managedBy"), ("kubeflow.org/training-operator",)),
        replicas=Replicas(specs),
        scale=scale,
    )


ROWS: Final = (
    JobKind(
        name="Job",
        group="batch",
        version="v1",
        plural="jobs",
        names=(),
        suspend=("spec", "suspend"),
        find=_job_pod_sets,
        template=lambda _, __: ("spec", "template"),
        status=_job_status,
        pod_label="batch.kubernetes.io/controller-uid",
        pod_label_is_uid=True,
        managed_by=(("spec", "managedBy"), ("kubernetes.io/job-controller",)),
        start_time_binds=True,
    ),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs", ("Master", "Worker"), ("pytorch",), scale=True),
)
"""The kinds that need no configuration."""
