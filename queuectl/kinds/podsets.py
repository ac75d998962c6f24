"""Where the podsets of an object are: read by the controller, steered by a start, compared by the gate.

A kind either has pod templates in its objects, and says where (`Templates`), or has functions (`Computed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple

from queuectl.core.model.workload import Effect
from queuectl.kinds.json_fields import MAX_COUNT, BadField, Json, checked, integer, mapping, objects, text
from queuectl.kinds.requests import with_init_container

Path = tuple[str | int, ...]
"""Keys and indexes from the root of an object."""


class Each(NamedTuple):
    """A step to every entry: of a list of objects with a name at `key`; without a key, of a map."""

    key: str = ""


class Numbered(NamedTuple):
    """A step to every entry of a list whose entries have no name."""

    limit: int
    """Most entries that an object may have."""


class Own(NamedTuple):
    """A step to queuectl's own entry of a list that others write too: a start adds or replaces it."""

    key: str
    value: str
    """Of the field at `key`, of that entry alone."""
    holds: tuple[tuple[Any, ...], ...]
    """All that it may hold."""


Step = str | Each | Numbered | Own
Place = tuple[Step, ...]
"""Steps from the root of an object."""
Operation = dict[str, Any]
"""One step of a JSON patch (RFC 6902)."""

MAX_ENTRIES: Final = 512
"""Podsets of one object that are read."""
STEERED: Final = ("nodeSelector", "tolerations")
"""Fields of a pod spec that a start writes."""


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

    def with_init(self, requests: Json) -> Pods:
        """With an init container that its controller adds. Raises BadField."""
        return self._replace(spec=with_init_container(self.spec, f"{self.path}.spec", requests))


class Count(NamedTuple):
    """A number in an object. The paths are relative to an entry of a `PodSetGroup`."""

    path: tuple[str, ...]
    default: int = 1
    """Where there is none."""
    at_least: tuple[str, ...] = ()
    at_most: tuple[str, ...] = ()
    """Numbers that bound it, if they are there."""

    def read(self, entry: Json, where: str) -> int:
        """Of the entry at `where`. Raises BadField."""
        value = _number(entry, self.path, where, self.default)
        if self.at_least:
            value = max(value, _number(entry, self.at_least, where, value))
        return min(value, _number(entry, self.at_most, where, value)) if self.at_most else value


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetGroup:
    """Podsets that are found alike: one, or those in a map or list."""

    at: Place
    """Of what has a number of pods and a pod template: the podset's entry."""
    name: str = ""
    """Of the podset. Empty: `at` ends with `Each`, and the podset has the name of the entry."""
    types: tuple[str, ...] = ()
    """Keys of the map, in the order of the podsets, which have them in lower case. Empty: any key."""
    counts: tuple[Count, ...] = ()
    """Their product is the number of pods."""
    template: tuple[str, ...] = ("template",)
    """Path of the pod template in the entry."""
    optional: bool = False
    """Whether the object may do without."""

    def __post_init__(self) -> None:
        many = bool(self.at) and isinstance(self.at[-1], Each)
        if many == bool(self.name) or any(isinstance(step, Each) for step in self.at[:-1]):
            raise ValueError(f"{self.at}: one podset has a name, each of several that of its entry")

    @property
    def each(self) -> Each | None:
        """How to find several entries; None: there is one."""
        return self.at[-1] if isinstance(self.at[-1], Each) else None

    @property
    def parent(self) -> tuple[str, ...]:
        """Path of the entry, or of the map or list with the entries."""
        return tuple(step for step in self.at if isinstance(step, str))

    def find(self, obj: Json) -> Iterator[Pods]:
        """Its podsets in their order. Raises BadField."""
        for name, where, entry in self.entries(obj):
            found, path = _at(entry, self.template, where)
            spec = mapping(found, "spec", path)
            if not spec:
                raise BadField(f"{path}.spec", "no pod spec")
            yield Pods(name, self.pods(entry, where), path, spec, mapping(found, "metadata", path))

    def entries(self, obj: Json) -> Iterator[tuple[str, str, Json]]:
        """Name of the podset, path and content of each entry. Raises BadField."""
        holder, path = _at(obj, self.parent[:-1], "")
        last = self.parent[-1]
        where = _join(path, last)
        if self.each is None:
            found = mapping(holder, last, path)
            if found or not self.optional:
                yield self.name, where, found
        elif self.each.key:
            for place, entry in enumerate(objects(holder, last, path, MAX_ENTRIES)):
                here = f"{where}[{place}]"
                yield checked(entry.get(self.each.key), f"{here}.{self.each.key}"), here, entry
        else:
            yield from self._typed(mapping(holder, last, path), where)

    def _typed(self, found: Json, where: str) -> Iterator[tuple[str, str, Json]]:
        strange = next((key for key in found if key not in self.types), None)
        if self.types and strange is not None:
            raise BadField(where, f"replica type {strange[:40]!r}, known are {', '.join(self.types)}")
        if len(found) > MAX_ENTRIES:
            raise BadField(where, f"{len(found)} entries, at most {MAX_ENTRIES} are read")
        for key in self.types or sorted(checked(key, where) for key in found):
            if key in found:
                yield key.lower() if self.types else key, f"{where}.{key}", mapping(found, key, where)

    def pods(self, entry: Json, where: str) -> int:
        """The number of pods of an entry. Raises BadField."""
        sizes = [count.read(entry, where) for count in self.counts]
        if (pods := prod(sizes)) > MAX_COUNT:
            path = ".".join((where, *self.counts[0].path))
            raise BadField(path, f"{' x '.join(map(str, sizes))} are more than {MAX_COUNT} pods")
        return pods

    def places(self, below: Place) -> Place:
        """Of a field of its pod templates."""
        return (*self.at, *self.template, *below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """Podsets that have their pod templates in the object.

    Raises ValueError where the path of a template cannot be told from name and place of its podset.
    """

    groups: tuple[PodSetGroup, ...]
    writes: tuple[Place, ...] = ()
    """Fields that a start or a stop writes besides the suspend field and those of pod templates."""
    completed: Callable[[Json, list[Pods]], list[Pods]] | None = field(default=None, compare=False)
    """From an object and its podsets, these with what its controller adds. Raises BadField.

    Not a part of the form that the gate compares.
    """
    made: tuple[str, ...] = ()
    """Podsets that are only added so: they have no pod template, are charged, and are not steered."""

    def __post_init__(self) -> None:
        first = self._open()
        before, after = self.groups[:first], self.groups[first + 1 :]
        unsure = first < len(self.groups) and any(group.each or group.optional for group in before)
        if unsure or any(group.each and not group.types for group in after):
            raise ValueError("one list or map of any podsets, and none that may be missing before it")

    def _open(self) -> int:
        """Place of the group whose podsets have any names; the number of groups if there is none."""
        places = (at for at, group in enumerate(self.groups) if group.each and not group.types)
        return next(places, len(self.groups))

    def find(self, obj: Json, child: Json | None = None) -> list[Pods]:
        """The podsets of an object in their order. Raises BadField."""
        found: list[Pods] = []
        taken = set(self.made)
        for group in self.groups:
            where, before = ".".join(group.parent), len(found)
            for pods in group.find(obj):
                if pods.name in taken:
                    raise BadField(where, f"two podsets have the name {pods.name}")
                taken.add(pods.name)
                found.append(pods)
            if len(found) == before and not group.optional:
                raise BadField(where, "no podsets")
        return self.completed(obj, found) if self.completed else found

    def template(self, name: str, place: int) -> Path | None:
        """Path of the pod template of the podset of this name at this place in the order; None without.

        Raises KeyError for a name that no podset has.
        """
        found = self.entry(name, place)
        return None if found is None else (*found[1], *found[0].template)

    def entry(self, name: str, place: int) -> tuple[PodSetGroup, Path] | None:
        """The group of such a podset, and the path of its entry; None without a pod template.

        Raises KeyError for a name that no podset has.
        """
        if name in self.made:
            return None
        for group in self.groups:
            if group.name == name:
                return group, group.parent
            key = next((key for key in group.types if key.lower() == name), None)
            if key is not None:
                return group, (*group.parent, key)
        first = self._open()
        if first == len(self.groups):
            raise KeyError(name)
        group = self.groups[first]
        listed = group.each is not None and group.each.key
        return group, (*group.parent, place - first if listed else name)

    def written(self) -> tuple[Place, ...]:
        """Fields that a start or a stop writes, besides the suspend field and queuectl's labels of pods."""
        steered = [group.places(("spec", key)) for group in self.groups for key in STEERED]
        return (*steered, *self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Podsets whose scheduling fields are not in pod templates of the object."""

    find: Callable[[Json, Json | None], list[Pods]]
    """The podsets of an object, with its child if that has them, in order. Raises BadField, and NotYet."""
    steer: Callable[[Effect], list[Operation]]
    """What a start adds to its patch: the scheduling fields of all podsets, and labels where it can."""
    writes: tuple[Place, ...]
    """Fields that `steer` writes: queuectl's own account may write these and the suspend field."""
    child: str = ""
    """Row of the child that has the podsets: the object is its controller, and has the same name."""
    scheduling_gate: str = ""
    """Name of the scheduling gate that `steer` removes, of an object that is a pod; empty: there is none."""
    composed_of: str = ""
    """As JobKind.composed_of."""

    def written(self) -> tuple[Place, ...]:
        return self.writes

    def own_entry(self, obj: Json) -> int | None:
        """Place of queuectl's own entry in its list, -1 if there is none; None if there is no list."""
        for *path, own in self.writes:
            if isinstance(own, Own):
                holder, where = _at(obj, tuple(str(step) for step in path[:-1]), "")
                key = str(path[-1])
                listed = objects(holder, key, where, MAX_ENTRIES)
                places = (place for place, entry in enumerate(listed) if entry.get(own.key) == own.value)
                return next(places, -1) if holder.get(key) is not None else None
        return None


class NotYet(Exception):
    """The podsets cannot be told yet. The message says what they wait for."""


def put(holder: Any, path: Path, value: object) -> Any:
    """A copy with another value at `path`, whose parents exist."""
    key, rest = path[0], path[1:]
    new = put(holder[key], rest, value) if rest else value
    if isinstance(key, int):
        return [*holder[:key], new, *holder[key + 1 :]]
    return {**holder, key: new}


def _at(holder: Json, keys: tuple[str, ...], where: str) -> tuple[Json, str]:
    """The object at a path, empty if it is missing, and its path. Raises BadField."""
    for key in keys:
        holder, where = mapping(holder, key, where), _join(where, key)
    return holder, where


def _number(entry: Json, path: tuple[str, ...], where: str, default: int) -> int:
    holder, where = _at(entry, path[:-1], where)
    return integer(holder, path[-1], where, default=default)


def text_at(obj: Json, path: tuple[str, ...]) -> str | None:
    """The text at a path; None if it is missing or empty. Raises BadField."""
    holder, where = _at(obj, path[:-1], "")
    return text(holder, path[-1], where)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
