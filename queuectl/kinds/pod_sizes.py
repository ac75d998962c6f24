"""Another number or size of the pods of an object that waits (docs/answers.md, A24 and A25)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

from queuectl.core.features.nodes.inventory import is_device
from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.workload import PodSet
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.json_fields import Json
from queuectl.kinds.labels import KUEUES_TOO
from queuectl.kinds.podsets import Path, PodSetGroup, Templates, put
from queuectl.kinds.workloads import observe

COMPLETIONS: Final = ("spec", "completions")


class CannotFit(ValueError):
    """The object cannot get this size. The message says why, without the name of the object."""


class Size(NamedTuple):
    """What one podset is to be."""

    pod_set: str
    pods: int
    resource: str | None = None
    """The device of which each pod is to request another amount; None: its requests stay."""
    each: int = 0


class FieldChange(NamedTuple):
    """One field of the object."""

    path: Path
    before: Any
    """None: there was none."""
    after: int | str

    @property
    def name(self) -> str:
        return "".join(_step(key) for key in self.path).removeprefix(".")


class Fitted(NamedTuple):
    """A podset before and after, and what of its object has to change for it."""

    before: PodSet
    after: PodSet
    fields: tuple[FieldChange, ...]
    patch: dict[str, Any]
    """A merge patch (RFC 7386)."""
    completions: int | None
    """Of a Job that goes on completing more often than it has pods at a time; None: it does not."""


def sized(
    pod_sets: Sequence[PodSet], devices: int | None, pods: int | None, pod_set: str | None = None
) -> Size:
    """The size of a podset with this many devices in all its pods, or this many pods, or both (A24).

    Raises CannotFit.
    """
    own = _chosen(pod_sets, pod_set, with_devices=devices is not None)
    if devices is None:
        return Size(own.name, own.count if pods is None else pods)
    resource, each = _device(own)
    if pods is None and own.count == 1:
        return Size(own.name, 1, resource, devices)
    if pods is not None:
        if devices % pods:
            raise CannotFit(f"{devices} {resource} cannot be divided equally among {pods} pods")
        return Size(own.name, pods, resource, devices // pods)
    if devices % each:
        raise CannotFit(
            f"each of its {own.count} pods requests {each} {resource}, and {devices} is no multiple of that: "
            "the number of pods beside it says how many each of them requests"
        )
    return Size(own.name, devices // each)


class Smaller(NamedTuple):
    """A change with which the workload starts, as it was tried (A10)."""

    pod_set: str
    resource: str | None
    """Of which each pod requests less; None: there are fewer pods."""
    before: int
    after: int


def largest(pod_sets: Sequence[PodSet], tried: Iterable[Smaller]) -> Size:
    """Of these changes the one that keeps most devices, of several one with fewer pods (A24).

    Only pods and devices can be changed. Raises CannotFit: there is no such change, or it was tried with
    another size than these podsets have.
    """
    known = {one.name: one for one in pod_sets}
    sizes = [_size_after(known, one) for one in tried if one.resource is None or is_device(one.resource)]
    if not sizes:
        raise CannotFit("with no smaller number of pods or devices would it start now")
    return max(sizes, key=lambda size: (_devices_with(pod_sets, size), size.resource is None))


@dataclass(frozen=True, slots=True)
class Fit:
    """Another size of its pods (A24): the body of `POST …/fit`, and the options of `queuectl fit`."""

    gpus: int | None
    """Devices of all its pods together."""
    pods: int | None
    pod_set: str | None
    """Null: it need not be named."""


def asked(kind: JobKind, pod_sets: Sequence[PodSet], tried: Smaller) -> Fit | None:
    """How to ask for this change, with the fewest words; None: it cannot be asked for, or not of this kind.

    An object can still refuse it, such as one whose pods are a multiple of a number in it (A25).
    """
    known = {one.name: (place, one) for place, one in enumerate(pod_sets)}
    try:
        wanted = _size_after({name: one for name, (_, one) in known.items()}, tried)
        place, own = known[wanted.pod_set]
        group, _ = _entry(kind, own, place)
    except (CannotFit, KeyError):
        return None
    if wanted.pods != own.count and not group.counts:
        return None
    total = _devices_with((own,), wanted)
    words = ((total, None), (None, wanted.pods), (total, wanted.pods))
    ways = (Fit(devices, pods, name) for name in (None, own.name) for devices, pods in words)
    return next((way for way in ways if _means(pod_sets, way, wanted)), None)


def _means(pod_sets: Sequence[PodSet], way: Fit, wanted: Size) -> bool:
    try:
        return sized(pod_sets, way.gpus, way.pods, way.pod_set) == wanted
    except CannotFit:
        return False


def _size_after(known: Mapping[str, PodSet], tried: Smaller) -> Size:
    own = known.get(tried.pod_set)
    if own is not None:
        if tried.resource is None and own.count == tried.before:
            return Size(own.name, tried.after)
        if tried.resource is not None and dict(own.requests).get(tried.resource) == tried.before:
            return Size(own.name, own.count, tried.resource, tried.after)
    raise CannotFit("it has another size than the one that was tried: try again")


def _devices_with(pod_sets: Sequence[PodSet], size: Size) -> int:
    total = 0
    for one in pod_sets:
        count, requests = one.count, _devices(one)
        if one.name == size.pod_set:
            count, requests = size.pods, requests | ({size.resource: size.each} if size.resource else {})
        total += count * sum(requests.values())
    return total


def _chosen(pod_sets: Sequence[PodSet], name: str | None, *, with_devices: bool) -> PodSet:
    names = ", ".join(one.name for one in pod_sets)
    found = [one for one in pod_sets if one.name == name] if name is not None else list(pod_sets)
    if not found:
        raise CannotFit(f"it has no podset {name!r}, only {names}")
    if name is None and with_devices:
        found = [one for one in pod_sets if _devices(one)] or found
    if len(found) > 1:
        raise CannotFit(f"it has the podsets {', '.join(one.name for one in found)}: name one of them")
    return found[0]


def _device(own: PodSet) -> tuple[str, int]:
    """The one device that its pods request, and how many one pod requests."""
    found = _devices(own)
    if len(found) != 1:
        what = " and ".join(sorted(found)) or "no devices by resource name"
        raise CannotFit(f"the pods of podset {own.name} request {what}: change their number instead")
    return next(iter(found.items()))


def _devices(own: PodSet) -> dict[str, int]:
    return {name: amount for name, amount in own.requests if amount and is_device(name)}


def fitted(
    kind: JobKind, obj: Json, size: Callable[[Sequence[PodSet]], Size], *, completions: bool = False
) -> Fitted:
    """What makes a suspended object of `kind` as large as `size` says for its podsets (A25).

    `completions`: those of an Indexed Job change with the number of its pods. Raises CannotFit.
    """
    now = _read(kind, obj)
    wanted = size(now.workload.pod_sets)
    place, own = next(
        (place, one) for place, one in enumerate(now.workload.pod_sets) if one.name == wanted.pod_set
    )
    group, entry = _entry(kind, own, place)
    changes = (
        *_count_changes(kind, obj, now, (group, entry), wanted, completions=completions),
        *_request_changes(obj, (*entry, *group.template, "spec", "containers"), own, wanted),
    )
    changed: Json = obj
    for change in changes:
        changed = put(changed, change.path, change.after)
    after = _checked(now, _read(kind, changed), wanted)
    return Fitted(own, after, changes, _difference(obj, changed), _completions(changed, after, changes))


def _read(kind: JobKind, obj: Json) -> WorkloadObserved:
    found = observe(kind, obj, KUEUES_TOO)
    if found is None:
        raise CannotFit("metadata: namespace, name or labels are malformed")
    if not found.workload.pod_sets:
        problem = found.workload.problem
        raise CannotFit(problem.message if problem is not None else "it has no podsets")
    if found.observation.reduced:
        raise CannotFit("its stop has not given it back all its pods yet: try again")
    return found


def _entry(kind: JobKind, own: PodSet, place: int) -> tuple[PodSetGroup, Path]:
    if kind.kept:
        raise CannotFit(f"pods of a {kind.kind} that waits cannot be changed: {kind.kept}")
    found = kind.podsets.entry(own.name, place) if isinstance(kind.podsets, Templates) else None
    if found is None:
        raise CannotFit(f"podset {own.name} has no pod template of its own in the {kind.kind}")
    return found


def _count_changes(
    kind: JobKind,
    obj: Json,
    now: WorkloadObserved,
    at: tuple[PodSetGroup, Path],
    wanted: Size,
    *,
    completions: bool,
) -> Iterator[FieldChange]:
    group, entry = at
    own = next(one for one in now.workload.pod_sets if one.name == wanted.pod_set)
    if wanted.pods == own.count:
        return
    if not group.counts:
        raise CannotFit(f"podset {own.name} always has {own.count} pods")
    holder = _get(obj, entry)
    others = prod(count.read(holder, ".".join(map(str, entry))) for count in group.counts[1:])
    if wanted.pods % others:
        raise CannotFit(f"the number of pods of podset {own.name} is a multiple of {others}")
    # Those that a start with fewer pods would change (F9); they differ only in completions.
    paths = {field.path for field in now.observation.elastic if field.pod_set == own.name}
    first: Path = (*entry, *group.counts[0].path)
    if completions and COMPLETIONS not in kind.counts:
        raise CannotFit(f"a {kind.kind} has no completions")
    yield FieldChange(first, _get(obj, first), wanted.pods // others)
    if completions or COMPLETIONS in paths:
        yield FieldChange(COMPLETIONS, _get(obj, COMPLETIONS), wanted.pods)


def _request_changes(obj: Json, at: Path, own: PodSet, wanted: Size) -> Iterator[FieldChange]:
    name = wanted.resource
    if name is None or dict(own.requests).get(name) == wanted.each:
        return
    containers = _get(obj, at) or ()
    found = [
        (place, container)
        for place, container in enumerate(containers)
        if any(name in (_get(container, ("resources", part)) or ()) for part in ("requests", "limits"))
    ]
    if len(found) != 1:
        asking = ", ".join(str(one.get("name")) for _, one in found) or "none"
        raise CannotFit(f"one container of a pod must request {name} for this, and here do {asking}")
    place, container = found[0]
    for part in ("requests", "limits"):
        before = (_get(container, ("resources", part)) or {}).get(name)
        if before is not None:
            yield FieldChange((*at, place, "resources", part, name), before, str(wanted.each))


def _checked(now: WorkloadObserved, then: WorkloadObserved, wanted: Size) -> PodSet:
    """The podset as it is read from the changed object. Raises CannotFit if that is not what is wanted."""
    problem = then.workload.problem
    if problem is not None and problem != now.workload.problem:
        raise CannotFit(problem.message)
    found = next(one for one in then.workload.pod_sets if one.name == wanted.pod_set)
    if found.count != wanted.pods:
        raise CannotFit(f"it would have {found.count} pods, not {wanted.pods}: another field limits them")
    if wanted.resource is not None:
        each = dict(found.requests).get(wanted.resource, 0)
        if each != wanted.each:
            raise CannotFit(
                f"each pod would request {each} {wanted.resource}, not {wanted.each}: an init container does"
            )
    return found


def _completions(obj: Json, after: PodSet, changes: Sequence[FieldChange]) -> int | None:
    found = _get(obj, COMPLETIONS)
    counted = any(change.path == ("spec", "parallelism") for change in changes)
    return found if counted and isinstance(found, int) and found > after.count else None


# --- objects ------------------------------------------------------------------------------------------


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f"[{key}]"


def _get(holder: Any, path: Path) -> Any:
    """What is at a path, None if there is nothing."""
    for key in path:
        if holder is None:
            return None
        holder = holder[key] if isinstance(key, int) else holder.get(key)
    return holder


def _difference(old: Json, new: Json) -> dict[str, Any]:
    """The merge patch from `old` to `new`, which has all its keys. A list is replaced as a whole."""
    return {
        key: _difference(old[key], value) if isinstance(value, dict) and key in old else value
        for key, value in new.items()
        if old.get(key) != value
    }
