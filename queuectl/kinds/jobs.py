"""What a row of the registry says about a kind of job.

Adding a kind is a row, plus the functions that find its podsets and read its status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model import Outcome
from queuectl.kinds.fields import BadField, Json, mapping, objects, timestamp

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
    """Field of the spec: from a replica type to `{replicas, template}`, or a list."""
    listed: bool = False
    """The list is of `{name, replicas, template}`, and each template is that of a Job."""


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
    has_jobs: bool = False
    """Some of its pods belong to Jobs that belong to it."""
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


OVER: Final = ("Complete", "Completed", "Succeeded", "Failed")
"""Conditions of which one is True once an object has finished, whatever its kind."""


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
        if found.get("type") in OVER and found.get("status") == "True"
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


def pod_template(parent: Json, path: str) -> tuple[Json, Json]:
    """Spec and metadata of its pod template."""
    template, path = mapping(parent, "template", path), f"{path}.template"
    spec = mapping(template, "spec", path)
    if not spec:
        raise BadField(f"{path}.spec", "no pod spec")
    return spec, mapping(template, "metadata", path)
