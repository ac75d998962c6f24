"""Consistent reads of the objects of queued kinds, and of the children that have their podsets."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from queuectl.core.decisions import ChildToCheck
from queuectl.core.features.ownership import MAX_OWNERS
from queuectl.core.model.events import Event, OwnerRead, WorkloadGone
from queuectl.core.model.workload import ObjectRef, WorkloadId
from queuectl.kinds.group_owners import GROUP_OWNERS, OwnerOfGroup, owner_of
from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.json_fields import BadField, Json
from queuectl.kinds.labels import QueueLabels, selection
from queuectl.kinds.owners import controlling, controls
from queuectl.kinds.pod_group import Unit, composed, units
from queuectl.kinds.pod_group_members import Member, member, version_of
from queuectl.kinds.podsets import Computed
from queuectl.kinds.reserved_keys import GATED_LABEL, GROUP_LABEL
from queuectl.kinds.workloads import identity, is_queued, observe
from queuectl.kube.errors import Forbidden, NotFound
from queuectl.kube.session import Object, Session, api_path


def object_path(kind: JobKind, ref: ObjectRef, subresource: str = "") -> str:
    return api_path(kind.group, kind.version, kind.plural, ref.namespace, ref.name, subresource)


async def read_object(session: Session, kind: JobKind, ref: ObjectRef) -> Object | None:
    """The object; None if it is gone, or another one has its name now. Raises ApiError."""
    if kind.composed_of:
        units = await read_units(session, kind, ref)
        return next((obj for unit, obj in units if unit.id == ref.uid), None)
    try:
        obj = await session.get(object_path(kind, ref))
    except NotFound:
        return None
    return obj if (obj.get("metadata") or {}).get("uid") == ref.uid else None


async def read_units(session: Session, kind: JobKind, ref: ObjectRef) -> list[tuple[Unit, Object]]:
    """The workloads of the pods of a group, and the object of each. Raises ApiError.

    Their version is that of the list: no earlier than the deletion of a pod that is not in it.
    """
    selector = {"labelSelector": f"{GATED_LABEL},{GROUP_LABEL}={ref.name}"}
    path = api_path(kind.group, kind.version, kind.plural, ref.namespace)
    members, version = [], 0
    async for page in session.pages(path, query=selector):
        version = max(version, version_of(page))
        for item in page.get("items") or ():
            with suppress(BadField):
                members.append(member(item))
    version = max((version, *(one.version for one in members)))
    owner = await _owner_of_group(session, ref, members)
    return [(unit, composed(unit, version)) for unit in units(members, known={ref.uid}, owner=owner)]


async def _owner_of_group(session: Session, ref: ObjectRef, members: list[Member]) -> OwnerOfGroup | None:
    """What says how many pods a group has; None: their annotation does. Raises ApiError."""
    with suppress(BadField, NotFound, Forbidden):
        if (found := owner_of(one.obj for one in members)) is not None:
            kind, name = found
            owner = GROUP_OWNERS[kind]
            return owner.read(await session.get(api_path(*owner.resource, ref.namespace, name)))
    return None


def child_row(kinds: KindRegistry, kind: JobKind) -> JobKind | None:
    """The kind of the child that has the podsets, the JobSet of a TrainJob; None: there is none."""
    podsets = kind.podsets
    return kinds[podsets.child] if isinstance(podsets, Computed) and podsets.child else None


async def read_child(row: JobKind, session: Session, obj: Json) -> Object | None:
    """The child of `obj` of the kind `row`; None: there is none, or it is another's. Raises ApiError."""
    metadata = obj.get("metadata") or {}
    path = api_path(row.group, row.version, row.plural, metadata.get("namespace"), metadata.get("name"))
    try:
        child = await session.get(path)
    except NotFound:
        return None
    return child if controls(str(metadata.get("uid")), child) else None


_NO_LABEL: Final = "has no queue label"


async def read_owned(
    session: Session, kinds: KindRegistry, honoured: QueueLabels, child: ChildToCheck
) -> list[Event]:
    """The events of consistent reads, that of the owners last. Raises ApiError."""
    events = await _family(session, kinds, honoured, child)
    kind = kinds[child.ref.kind]
    obj = await read_object(session, kind, child.ref)
    if obj is None:
        return [*events, WorkloadGone(child.workload)]
    return [*events, await _owner(session, kinds, honoured, child, obj)]


async def _owner(
    session: Session, kinds: KindRegistry, honoured: QueueLabels, child: ChildToCheck, obj: Object
) -> OwnerRead:
    for above in range(MAX_OWNERS):
        owner = controlling(kinds, obj)
        if owner is None and above == 0:
            return OwnerRead(child.workload, None)
        if owner is None:
            # Its topmost object does not queue, so nothing stops and starts the two of them together.
            return OwnerRead(child.workload, None, _NO_LABEL, stop=False)
        ref = ObjectRef(child.ref.namespace, owner.kind.name, owner.name, owner.uid)
        found = await read_object(session, owner.kind, ref)
        if found is None:
            return OwnerRead(child.workload, None, "is not there")
        if is_queued(found, honoured):
            return OwnerRead(child.workload, WorkloadId(owner.uid))
        obj = found
    return OwnerRead(child.workload, None, f"has {MAX_OWNERS} or more owners above it")


async def _family(
    session: Session, kinds: KindRegistry, honoured: QueueLabels, child: ChildToCheck
) -> list[Event]:
    events: list[Event] = []
    missing = {ref.uid: ref for ref in child.family}
    for name in sorted({ref.kind for ref in child.family}):
        kind = kinds[name]
        path = api_path(kind.group, kind.version, kind.plural, child.ref.namespace)
        async for page in session.pages(path, query=selection(kind, honoured)):
            for item in page.get("items") or ():
                if missing.pop(identity(item)[0], None) is not None:
                    seen = observe(kind, item, honoured, owners=kinds)
                    events += [seen] if seen is not None else []
    return [*events, *(_gone(ref) for ref in missing.values())]


def _gone(ref: ObjectRef) -> WorkloadGone:
    return WorkloadGone(WorkloadId(ref.uid))
