"""The kinds that are watched: the path to list each, and the events that its objects become."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from queuectl.core.model.devices import DeviceTaintRule
from queuectl.core.model.events import ContextGone, Event, PodGone, PolicyGone, WorkloadGone
from queuectl.core.model.policy import Node
from queuectl.core.model.workload import ConfigKey, WorkloadId
from queuectl.kinds.context import CONTEXT_KINDS, ContextKind
from queuectl.kinds.devices import GROUP, DeviceSlices, device_taint_rule
from queuectl.kinds.gate import BINDING, GATE_LABEL, POLICY, GateWatch
from queuectl.kinds.group_owners import GROUP_OWNERS
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.json_fields import Json
from queuectl.kinds.labels import OWN, QueueLabels, selection
from queuectl.kinds.pods import POD_QUERY, pod_event
from queuectl.kinds.policy import POLICY_KINDS, PolicyKind, policy_event
from queuectl.kinds.policy_objects import GROUP as POLICY_GROUP
from queuectl.kinds.policy_objects import VERSION
from queuectl.kinds.single_pod import POD, maker
from queuectl.kinds.stop_annotations import keeps_place
from queuectl.kinds.workloads import observe
from queuectl.kube.objects import child_row, read_child
from queuectl.kube.places import PodPlaces
from queuectl.kube.pod_groups import LedgerGroups, PodGroups, owner_key
from queuectl.kube.session import Session, api_path
from queuectl.kube.statuses import QueueStatuses

_log: Final = logging.getLogger(__name__)

WITH_STATUS: Final = ("ClusterQueue", "LocalQueue")
Classes = Sequence[tuple[str, str]]
Key = Hashable
"""Identifies an object of one source for as long as it exists."""
E = TypeVar("E")


class Resource(NamedTuple):
    group: str
    version: str
    plural: str


@dataclass(frozen=True, slots=True)
class ChildSource(Generic[E]):
    """The child of each object of a source that has its podsets."""

    read: Callable[[Session, Json], Awaitable[Json | None]]
    """Raises ApiError."""
    seen: Callable[[Json, Json | None], E | None]
    """In the place of that of the source, from the object and its child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[E]):
    """One collection of objects, which become events of type E."""

    name: str
    """Its kind."""
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    key: Callable[[Json], Key]
    seen: Callable[[Json], E | list[E] | None]
    """None: the object is not relevant, or no longer. Empty: it says nothing itself."""
    gone: Callable[[Key, str], E | list[E]]
    """From the key and the resourceVersion of the deletion; empty: not known."""
    others: Callable[[int], list[E]] | None = None
    """Takes the events of up to so many objects of other sources which what was seen or is gone changes;
    empty: none is left."""
    ready: Callable[[], Awaitable[None]] | None = None
    """Returns when `others` may be called; None: at once."""
    workloads: bool = False
    """Its keys are workloads, unless it has `present`."""
    present: Callable[[], frozenset[WorkloadId]] | None = None
    """The workloads of its objects, where one is of several objects."""
    optional: bool = False
    """The others do not wait for it if it may not be read."""
    metadata_only: bool = False
    child: ChildSource[E] | None = None
    """None: objects have their podsets themselves."""
    defined: Resource | None = None
    """It is there if a CustomResourceDefinition says so; None: it is not of a custom kind."""


def sources(
    kinds: KindRegistry,
    honoured: QueueLabels = OWN,
    *,
    devices: Classes = (),
    nodes: bool = True,
    statuses: QueueStatuses | None = None,
    heard: set[str] | None = None,
    ledger: LedgerGroups | None = None,
) -> tuple[Source[Event], ...]:
    """All sources of the core, policy first.

    `devices`: (DeviceClass, resource) pairs; if there are any, `nodes` are with their devices. `nodes`: with
    nodes and their pods. `statuses`: those of queues, where they are written. `heard`: of `KubeCluster`.
    `ledger`: what it has of pod groups, for which their source waits; None: nothing.
    """
    spoken = set[str]() if heard is None else heard
    return (
        *(_policy(kind, statuses) for kind in POLICY_KINDS.values()),
        *(_context(kind) for kind in CONTEXT_KINDS.values() if nodes or kind.type is not Node),
        *_gate(GateWatch(kinds, honoured)),
        *((_pods(),) if nodes else ()),
        *(device_sources(devices) if nodes and devices else ()),
        *chain.from_iterable(
            _groups(kind, kinds, ledger) if kind.composed_of else (_jobs(kind, kinds, honoured, spoken),)
            for kind in kinds
        ),
    )


def device_sources(classes: Classes) -> tuple[Source[Event], ...]:
    """The devices of nodes. Where one of the kinds is not served or may not be read, nothing waits for it."""
    slices = DeviceSlices(classes)

    def of_class(obj: Json) -> list[Event]:
        slices.observe_class(obj)
        if (problem := slices.problems.get(name_of(obj))) is not None:
            _log.error("DeviceClass %s selects no devices: %s", name_of(obj), problem)
        return []

    def class_gone(name: str) -> list[Event]:
        slices.forget_class(name)
        return []

    def source(
        kind: str,
        plural: str,
        seen: Callable[[Json], Event | list[Event] | None],
        gone: Callable[[str], Event | list[Event]],
        others: Callable[[int], list[Event]] | None = None,
    ) -> Source[Event]:
        return Source(
            name=kind,
            path=api_path(GROUP, "v1", plural),
            key=name_of,
            seen=seen,
            gone=lambda name, _: gone(str(name)),
            others=others,
            optional=True,
        )

    return (
        source("DeviceClass", "deviceclasses", of_class, class_gone, lambda most: [*slices.again(most)]),
        source("ResourceSlice", "resourceslices", slices.observe_slice, slices.forget_slice),
        source(
            "DeviceTaintRule",
            "devicetaintrules",
            device_taint_rule,
            lambda name: ContextGone(DeviceTaintRule, name),
        ),
    )


def _pods() -> Source[Event]:
    """The pods that have not ended, of all namespaces."""
    return Source(
        name="NodePod",
        path=api_path("", "v1", "pods"),
        query=POD_QUERY,
        key=_uid,
        seen=pod_event,
        gone=lambda uid, _: PodGone(str(uid)),
    )


def _jobs(kind: JobKind, kinds: KindRegistry, honoured: QueueLabels, heard: set[str]) -> Source[Event]:
    places = PodPlaces()

    def seen(obj: Json, child: Json | None) -> Event | None:
        if kind.name not in heard and kind.speaks(obj):
            heard.add(kind.name)
        found = observe(kind, obj, honoured, child, owners=kinds)
        if found is None or kind is not POD:
            return found
        return places.placed(found, maker(obj), stopped=keeps_place(obj))

    def gone(uid: Key, version: str) -> Event:
        workload = WorkloadId(str(uid))
        if kind is POD:
            places.forget(workload)
        return WorkloadGone(workload, version)

    row = child_row(kinds, kind)
    return Source(
        name=kind.name,
        path=api_path(kind.group, kind.version, kind.plural),
        # When an object loses the label it leaves the selection: the server sends that as a deletion. Where
        # all objects are selected, `observe` finds it.
        query=selection(kind, honoured),
        key=_uid,
        seen=lambda obj: seen(obj, None),
        gone=gone,
        workloads=True,
        optional=True,
        child=ChildSource(partial(read_child, row), seen) if row else None,
        defined=Resource(kind.group, kind.version, kind.plural) if kind.custom else None,
    )


def _groups(kind: JobKind, kinds: KindRegistry, ledger: LedgerGroups | None) -> Iterator[Source[Event]]:
    groups = PodGroups(kind, kinds, ledger)
    ready = ledger.restored if ledger is not None else None
    yield Source(
        name=kind.name,
        path=api_path(kind.group, kind.version, kind.plural),
        query=selection(kind, OWN),
        key=_uid,
        seen=groups.observe,
        gone=lambda uid, version: groups.forget(str(uid), version),
        others=groups.take,
        ready=ready,
        workloads=True,
        present=groups.present,
        optional=True,
    )
    for owner in GROUP_OWNERS.values():
        yield Source(
            name=owner.kind,
            path=api_path(*owner.resource),
            key=owner_key,
            seen=partial(groups.observe_owner, owner),
            gone=partial(groups.forget_owner, owner),
            others=groups.take_listed,
            ready=ready,
            optional=True,
            defined=Resource(*owner.resource) if owner.custom else None,
        )


def _context(kind: ContextKind) -> Source[Event]:
    return Source(
        name=kind.name,
        path=api_path(kind.group, kind.version, kind.plural),
        key=kind.name_of,
        seen=kind.event,
        gone=lambda name, _: kind.gone(str(name)),
        optional=kind.namespaced,  # without them, pods may be refused after an admission
    )


def _gate(watch: GateWatch) -> Iterator[Source[Event]]:
    """The policies of the gate, and their bindings."""

    def source(kind: str, plural: str) -> Source[Event]:
        def seen(obj: Json) -> list[Event]:
            if (problem := watch.problem(kind, obj)) is not None:
                _log.error("the gate is not in force: %s %s: %s", kind, name_of(obj), problem)
            return watch.observe(kind, obj)

        def gone(name: Key, _: str) -> list[Event]:
            _log.error("%s %s of the gate was removed", kind, name)
            return watch.gone(kind, str(name))

        return Source(
            name=kind,
            path=api_path("admissionregistration.k8s.io", "v1", plural),
            query={"labelSelector": GATE_LABEL},
            key=name_of,
            seen=seen,
            gone=gone,
        )

    yield source(POLICY, "validatingadmissionpolicies")
    yield source(BINDING, "validatingadmissionpolicybindings")


def _policy(kind: PolicyKind, statuses: QueueStatuses | None) -> Source[Event]:
    def key(obj: Json) -> Key:
        metadata = _metadata(obj)
        return ConfigKey(kind.name, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))

    def seen(obj: Json) -> Event | None:
        # Items of a list may lack their kind.
        if not _metadata(obj).get("name"):
            return None
        event = policy_event({**obj, "kind": kind.name})
        if statuses is not None and kind.name in WITH_STATUS and statuses.lost(kind.name, obj):
            return replace(event, status_lost=True)
        return event

    def gone(key: Key, _: str) -> Event:
        assert isinstance(key, ConfigKey)
        return PolicyGone(key)

    return Source(
        name=kind.name,
        path=api_path(POLICY_GROUP, VERSION, kind.plural),
        key=key,
        seen=seen,
        gone=gone,
    )


def name_of(obj: Json) -> str:
    return str(_metadata(obj).get("name") or "")


def _uid(obj: Json) -> Key:
    return str(_metadata(obj).get("uid") or "")


def _metadata(obj: Json) -> Json:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def version_of(obj: Json) -> str:
    """resourceVersion; empty if there is none."""
    value = _metadata(obj).get("resourceVersion")
    return value if isinstance(value, str) else ""


def changed(source: Source[E], obj: Json, known: Mapping[Key, str]) -> bool:
    """Is it another version of the object than the known one?"""
    key, version = source.key(obj), version_of(obj)
    return bool(key) and (not version or known.get(key) != version)


def events_of(source: Source[E], obj: Json, known: dict[Key, str], child: Json | None = None) -> Sequence[E]:
    """Events of an object that exists, if it changed; updates `known` (resourceVersion by key)."""
    key, version = source.key(obj), version_of(obj)
    if not changed(source, obj, known):
        return ()
    try:
        event = source.seen(obj) if source.child is None else source.child.seen(obj, child)
    except Exception:
        # A bug. One object must not stop the source: its last known state stays.
        _log.exception("%s %s can't be read", source.name, key)
        known[key] = version
        return ()
    if event is None:
        return leave(source, key, known, version)
    known[key] = version
    return event if isinstance(event, list) else (event,)


def leave(source: Source[E], key: Key, known: dict[Key, str], version: str) -> Sequence[E]:
    """Events of an object that is gone; none if it was never relevant."""
    if known.pop(key, None) is None:
        return ()
    event = source.gone(key, version)
    return event if isinstance(event, list) else (event,)
