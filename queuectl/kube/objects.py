"""Consistent reads of the objects of queued kinds, and of the children that have their podsets."""

from __future__ import annotations

from queuectl.core.model.workload import ObjectRef
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.json_fields import Json
from queuectl.kinds.owners import controls
from queuectl.kinds.podsets import Computed
from queuectl.kinds.registry import KindRegistry
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Object, Session, api_path


def object_path(kind: JobKind, ref: ObjectRef, subresource: str = "") -> str:
    return api_path(kind.group, kind.version, kind.plural, ref.namespace, ref.name, subresource)


async def read_object(session: Session, kind: JobKind, ref: ObjectRef) -> Object | None:
    """The object; None if it is gone, or another one has its name now. Raises ApiError."""
    try:
        obj = await session.get(object_path(kind, ref))
    except NotFound:
        return None
    return obj if (obj.get("metadata") or {}).get("uid") == ref.uid else None


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
