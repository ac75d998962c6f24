"""The child of an object that has its podsets: the JobSet of a TrainJob."""

from __future__ import annotations

from queuectl.kinds.fields import Json
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.podsets import Computed
from queuectl.kinds.registry import KindRegistry
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Object, Session, api_path


def child_row(kinds: KindRegistry, kind: JobKind) -> JobKind | None:
    """The kind of the child; None: objects of this kind have none."""
    podsets = kind.podsets
    return kinds[podsets.child] if isinstance(podsets, Computed) and podsets.child else None


async def read_child(row: JobKind, session: Session, obj: Json) -> Object | None:
    """The child of `obj` of the kind `row`, by a consistent read; None: there is none, or it is another's.

    Raises ApiError.
    """
    metadata = obj.get("metadata") or {}
    path = api_path(row.group, row.version, row.plural, metadata.get("namespace"), metadata.get("name"))
    try:
        child = await session.get(path)
    except NotFound:
        return None
    owners = (child.get("metadata") or {}).get("ownerReferences") or ()
    owned = any(one.get("controller") is True and one.get("uid") == metadata.get("uid") for one in owners)
    return child if owned else None
