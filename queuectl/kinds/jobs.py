"""The kinds of jobs that queuectl manages: the registry, and what a row of it says about a kind.

Adding a kind is a row, plus the functions that find its podsets and read its status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from queuectl.core.model.workload import WorkloadOutcome
from queuectl.kinds.cel import first_true
from queuectl.kinds.json_fields import BadField, Json, mapping, objects, time_or_none
from queuectl.kinds.podsets import Computed, Templates

QUEUE_LABEL: Final = "queuectl.dev/queue-name"
PRIORITY_LABEL: Final = "queuectl.dev/priority-class"

MAX_CONDITIONS: Final = 64
PASSED: Final = 1
"""Seconds of a deadline that whatever runs has passed."""


class Status(NamedTuple):
    """Data from an object's status."""

    quiet: bool | None = None
    """True: the status guarantees that no pod is alive. False: some pod is alive. None: unknown."""
    ready: bool | None = None
    """Are all its pods ready or succeeded? None: the status does not say."""
    reclaimable: tuple[tuple[str, int], ...] = ()
    """By podset, how many pods have ended and are not replaced; empty if the status does not guarantee it."""
    pods_ready: int | None = None
    """How many of its pods are ready, or run where the status has no more; None: the status does not say."""
    held_back: int = 0
    """How many of its pods its own order does not let run yet. `ready` is about the others."""
    ended: int = 0
    """How many of its pods have succeeded and are made again by a restart: not in `reclaimable`."""
    unstarted: bool = False
    """It runs, and pods of it that have quota are held back: its start is not complete."""
    pods_ended: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By podset, which pods those in `reclaimable` are, where no object keeps their number."""
    pods_missing: str = ""
    """Which pods do not exist while it runs, where nothing makes them again; empty: none is known to."""


class Sign(NamedTuple):
    """A text of an object's status: a field, or the status of a condition."""

    of: str | tuple[str, ...]
    """The type of the condition, or the path of the field from the root."""
    value: str = "True"

    def shows(self, obj: Json, found: Mapping[str, str]) -> bool:
        """`found`: the object's conditions."""
        return (found.get(self.of) if isinstance(self.of, str) else value_at(obj, self.of)) == self.value


class Ending(NamedTuple):
    """What an object's status shows from its end on."""

    sign: Sign
    outcome: WorkloadOutcome
    unless: Sign | None = None
    """It has not ended while its status shows this."""
    deadline: tuple[str, ...] = ()
    """Path of the seconds after which its controller ends it so, also if set while it runs; empty: none."""

    def shows(self, obj: Json, found: Mapping[str, str]) -> bool:
        """`found`: the object's conditions."""
        return self.sign.shows(obj, found) and not (self.unless and self.unless.shows(obj, found))


class SuspensionSeen(NamedTuple):
    """What a controller says once it has seen that an object is suspended."""

    sign: Sign = Sign("Suspended")
    asked: str = "Unknown"
    """The value in its place that makes the controller say it again.

    Empty: its place has the generation that the controller has seen, and there is nothing to ask.
    """


BY_CONDITION: Final = SuspensionSeen()


class PodLabel(NamedTuple):
    """A label of pods of an object."""

    key: str
    uid: bool = False
    """Its value is the object's UID: so it marks its pods by itself. Otherwise it is the object's name."""
    path: tuple[str, ...] = ()
    """Where the object has the value, if that is neither its name nor its UID."""
    prefix: bool = False
    """Its value is the object's name, a hyphen and more. Only for pods that queuectl has not labelled."""
    sure: bool = False
    """Every pod with it counts, whatever owns the pod."""


REQUEST_SECONDS: Final = 60.0
"""The API server ends a request after this time, unless it was started with another --request-timeout."""


class Copies(NamedTuple):
    """Children to which the controller of an object copies its suspend field."""

    kind: str
    """Name of their row."""
    label: str
    """Their label with the name of the object."""
    observed: tuple[str, ...] = ()
    """Path of the generation that their own controller has seen; empty: there is none, and the time tells at
    which it said that they are suspended."""

    def over(self, seconds: float) -> bool:
        """Whether only pods count after so many seconds: times leave a doubt, and of an object that a tenant
        made in the name of the controller nothing may ever be said."""
        return not self.observed and seconds >= REQUEST_SECONDS


class KindRefusal(NamedTuple):
    """Objects that cannot be queued as they are: refused by the gate, not admitted by the controller."""

    rule: str
    """A CEL expression over `object`: true of an object that is refused."""
    field: str
    """Path of the field to change."""
    message: str
    """Why, and what to write instead."""


class CountAnnotations(NamedTuple):
    """Names of the annotations that allow fewer pods. Of each, the first that an object has counts."""

    least: tuple[str, ...]
    """Least number of pods that it may start with."""
    equal: tuple[str, ...]
    """`true`: completions stay equal to parallelism."""


class Elastic(NamedTuple):
    """A podset that may start with fewer pods than it requests."""

    pod_set: str
    least: int
    """At least 1, and fewer than requested."""
    fields: tuple[tuple[str, ...], ...]
    """Each is set to the number of pods that it starts with."""


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
    names: tuple[str, ...] = ()
    """Short names for the command line, in lower case."""
    suspend: tuple[str, ...]
    """Path of the field that suspends it: a boolean, or the list of scheduling gates."""
    podsets: Templates | Computed
    status: Callable[[Json], Status]
    """Raises nothing."""
    ordered: Callable[[Json], bool] | None = None
    """Does this object start parts of itself after others? None: no object of this kind does."""
    ends: tuple[Ending, ...]
    """The first one that its status shows applies."""
    pods: tuple[PodLabel, ...]
    """Labels by which its pods are found: each of its pods has one of them."""
    children: tuple[str, ...] = ()
    """Names of rows of which its controller makes objects: these, and their children, may own its pods."""
    managed_by: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Path of the field naming another controller, and the values for the usual one; empty: there is none."""

    suspends: Copies | None = None
    """Children that are suspended with it."""
    seen: SuspensionSeen = BY_CONDITION
    """What shows that its controller has seen it suspended."""
    end_time: tuple[str, ...] = ()
    """Path of the time at which it ended; empty: the time of the condition in `ends`."""
    priority_class: tuple[str, ...] = ()
    """Path of the PriorityClass of all its pods, before those of their templates; empty: there is none."""
    fixed: tuple[tuple[str, ...], ...] = ()
    """Further fields that determine number or requests of its pods: they do not change while it runs."""
    refuse: tuple[KindRefusal, ...] = ()
    scale: bool = False
    """Its CRD has a scale subresource, which writes the number of pods."""
    elastic: Callable[[Json, CountAnnotations], Elastic | None] | None = None
    """Its podset that may start with fewer pods, as the object and its annotations say. Raises BadField.

    None: it always starts with all pods.
    """
    counts: tuple[tuple[str, ...], ...] = ()
    """All fields that a start with fewer pods may reduce."""
    kept: str = ""
    """Why number and size of its pods cannot be changed while it is suspended; empty: its API permits it."""
    start_time_binds: bool = False
    """Before Kubernetes 1.36 its `status.startTime` outlasts a suspension. With it, API servers accept no new
    node selector, and the deadline of the next run counts from it."""

    @property
    def kind(self) -> str:
        """Its Kubernetes kind."""
        return self.name.partition(".")[0]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def scheduling_gate(self) -> str:
        """Name of the scheduling gate that suspends it; empty: none, `suspend` is a boolean.

        A gate is only ever removed, so that a stop deletes the object.
        """
        return self.podsets.scheduling_gate if isinstance(self.podsets, Computed) else ""

    @property
    def composed_of(self) -> str:
        """Name of the row of the objects that together are one of this kind, which has no object of its own;
        empty: it has one. Both rows have the same path in the API."""
        return self.podsets.composed_of if isinstance(self.podsets, Computed) else ""

    @property
    def deadline(self) -> tuple[str, ...]:
        """Path of the seconds after which its controller fails it; empty: there is none."""
        return next((end.deadline for end in self.ends if end.deadline), ())

    @property
    def custom(self) -> bool:
        """Its API is that of a CustomResourceDefinition: only their groups have a dot."""
        return "." in self.group

    @property
    def resource(self) -> str:
        """The name in RBAC and kubectl, such as `pytorchjobs.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def pod_selectors(self, obj: Json | None, name: str, uid: str) -> dict[str, PodLabel]:
        """Label selectors of its pods. `obj`: the object, None if it is gone.

        A pod that is found by a label without its UID may be another's.
        """
        found = {}
        for label in self.pods:
            value = uid if label.uid else value_at(obj or {}, label.path) if label.path else name
            if label.prefix:
                found[label.key] = label
            elif isinstance(value, str) and value:
                found[f"{label.key}={value}"] = label
        return found

    def suspended(self, obj: Json) -> bool:
        value = value_at(obj, self.suspend)
        if not self.scheduling_gate:
            return value is True
        gates = value if isinstance(value, list) else ()
        return any(isinstance(gate, Mapping) and gate.get("name") == self.scheduling_gate for gate in gates)

    def outcome(self, obj: Json) -> WorkloadOutcome | None:
        """How it ended; None: it has not."""
        end = self._ending(obj)
        return end.outcome if end is not None else None

    def _ending(self, obj: Json) -> Ending | None:
        found = conditions(obj)
        return next((end for end in self.ends if end.shows(obj, found)), None)

    def failure(self, obj: Json) -> str | None:
        """Why it failed, as is said beside what shows it; None: it has not, or its status does not say."""
        end = self._ending(obj)
        if end is None or end.outcome is not WorkloadOutcome.FAILED:
            return None
        of = end.sign.of
        if isinstance(of, str):
            beside = next((one for one in _conditions(obj) if one.get("type") == of), None)
        else:
            beside = value_at(obj, of[:-1])
        said = (beside.get(key) for key in ("reason", "message")) if isinstance(beside, Mapping) else ()
        return ": ".join(text for text in said if isinstance(text, str) and text) or None

    def refusal(self, obj: Json) -> BadField | None:
        """Why it cannot be queued as it is."""
        try:
            place = first_true((one.rule for one in self.refuse), obj)
        except BadField as problem:
            return problem
        return BadField(self.refuse[place].field, self.refuse[place].message) if place is not None else None

    def says_suspended(self, obj: Json) -> bool:
        """Does its status say that its controller has seen it suspended? It may be older than the spec."""
        sign, asked = self.seen
        if asked:
            return sign.shows(obj, conditions(obj))
        generation = value_at(obj, ("metadata", "generation"))
        return self.suspended(obj) and value_at(obj, tuple(sign.of)) == generation is not None

    def said_suspended_at(self, obj: Json) -> datetime | None:
        """When its controller began to say so, in whole seconds, UTC; None: no condition has the time."""
        of = self.seen.sign.of
        return time_or_none(conditions(obj, "lastTransitionTime").get(of)) if isinstance(of, str) else None

    def speaks(self, obj: Json) -> bool:
        """Has its controller said whether it is suspended?"""
        of = self.seen.sign.of
        return (of in conditions(obj)) if isinstance(of, str) else bool(value_at(obj, of))

    def run_times(self, obj: Json) -> tuple[datetime | None, datetime | None]:
        """Start and end of its run, from its status; None if unknown."""
        started = time_or_none(value_at(obj, ("status", "startTime")))
        if self.end_time:
            return started, time_or_none(value_at(obj, self.end_time)) if self.outcome(obj) else None
        signs = [end.sign.of for end in self.ends]
        # Failed ones have no completionTime.
        ended = [one for one in _conditions(obj) if one.get("type") in signs and one.get("status") == "True"]
        return started, time_or_none(ended[0].get("lastTransitionTime")) if ended else None


def value_at(obj: Json, path: tuple[str, ...]) -> Any:
    """What is at a path, None if there is nothing."""
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def conditions(obj: Json, field: str = "status") -> dict[str, str]:
    """This field by type of the object's conditions; malformed ones are left out."""
    found: dict[str, str] = {}
    for condition in _conditions(obj):
        kind, value = condition.get("type"), condition.get(field)
        if isinstance(kind, str) and isinstance(value, str):
            found[kind] = value
    return found


def _conditions(obj: Json) -> Sequence[Json]:
    try:
        return objects(mapping(obj, "status", ""), "conditions", "status", MAX_CONDITIONS)
    except BadField:
        return ()


@dataclass(frozen=True, slots=True)
class KindRegistry:
    """Rows in a fixed order, each with a name of its own.

    Raises ValueError for rows that cannot be in one registry.
    """

    rows: tuple[JobKind, ...]
    _by_name: Mapping[str, JobKind] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.rows)
        object.__setattr__(self, "_by_name", {row.name: row for row in self.rows})

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> JobKind:
        """The row of this name. Raises KeyError."""
        return self._by_name[name]

    def find(self, text: str) -> JobKind | None:
        """The row for a kind, plural, `plural.group`, `plural.version.group` or short name, in any case.

        The first row, where several have that kind.
        """
        wanted = text.lower()
        return next((row for row in self.rows if wanted in _names(row)), None)

    def of(self, api_version: object, kind: object) -> JobKind | None:
        """The row for a manifest."""
        return next((row for row in self.rows if (row.api_version, row.kind) == (api_version, kind)), None)

    def of_group(self, api_version: object, kind: object) -> JobKind | None:
        """The row for an object of any version: that of this version, else the first of its group."""
        group = str(api_version).rpartition("/")[0]
        same = (row for row in self.rows if (row.group, row.kind) == (group, kind))
        return self.of(api_version, kind) or next(same, None)

    def served_at(self, group: object, version: object, plural: object) -> JobKind | None:
        """The row for a resource."""
        wanted = (group, version, plural)
        return next((row for row in self.rows if (row.group, row.version, row.plural) == wanted), None)

    def below(self, row: JobKind) -> tuple[JobKind, ...]:
        """The kinds of objects that may stand between an object of this row and its pods."""
        found: dict[str, JobKind] = {}
        names = list(row.children)
        while names:
            child = self._by_name.get(names.pop())
            if child is not None and child.name not in found:
                found[child.name] = child
                names += child.children
        return tuple(found.values())

    def known(self) -> str:
        """All names, for messages."""
        return ", ".join(row.name for row in self.rows)


def _names(row: JobKind) -> tuple[str, ...]:
    names = (row.name, row.kind, row.plural, row.resource, _versioned(row.plural, row), *row.names)
    return tuple(name.lower() for name in names)


def _versioned(name: str, row: JobKind) -> str:
    return f"{name}.{row.version}.{row.group}"


def _check(rows: tuple[JobKind, ...]) -> None:
    names: set[str] = set()
    forms: dict[str, object] = {}
    for row in rows:
        if row.name not in (row.kind, _versioned(row.kind, row)):
            raise ValueError(f"{row.name} is not the name of a row for {row.kind} of {row.api_version}")
        if row.name in names:
            raise ValueError(f"two rows have the name {row.name}")
        names.add(row.name)
        if row.composed_of:
            continue  # a policy sees the objects that it is composed of
        # The policies of the gate know the resource of a request, whatever the version of its object.
        form = (row.suspend, row.podsets, row.ends, row.seen, row.fixed, row.refuse)
        if forms.setdefault(row.resource, form) != form:
            raise ValueError(f"{row.name} has another form than another version of {row.resource}")


NO_KINDS: Final = KindRegistry(())
