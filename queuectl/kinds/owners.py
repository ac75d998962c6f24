"""Which object controls another one, by its ownerReferences. They are written by whatever creates it."""

from __future__ import annotations

from typing import Final, NamedTuple

from queuectl.kinds.jobs import JobKind, KindRegistry
from queuectl.kinds.json_fields import BadField, Json, checked, mapping, objects

MAX_OWNERS: Final = 1 << 15
"""ownerReferences that are read: an object of the size that the API server accepts has fewer. Users may add
some to their pods and objects, and the one of the controller must not be missed behind them."""


class Owner(NamedTuple):
    """What an object says of the object of a queued kind that controls it."""

    kind: JobKind
    name: str
    uid: str


def controlling(kinds: KindRegistry, obj: Json) -> Owner | None:
    """The owner of `obj` with `controller: true`, in its namespace.

    None if there is none, if it is of a kind that does not queue, or if the reference is malformed: then the
    object is the topmost one that queues.
    """
    try:
        found = controller(obj)
        if found is None:
            return None
        api_version, kind, name, uid = (
            checked(found.get(key), f"metadata.ownerReferences.{key}")
            for key in ("apiVersion", "kind", "name", "uid")
        )
    except BadField:
        return None
    row = kinds.of_group(api_version, kind)
    return Owner(row, name, uid) if row is not None and name and uid else None


def controls(uid: str, obj: Json) -> bool:
    """Is the object with this UID the owner of `obj` with `controller: true`?"""
    try:
        found = controller(obj)
    except BadField:
        return False
    return found is not None and found.get("uid") == uid


def controller(obj: Json) -> Json | None:
    """The ownerReference of `obj` with `controller: true`; None: there is none. Raises BadField."""
    listed = objects(mapping(obj, "metadata", ""), "ownerReferences", "metadata", MAX_OWNERS)
    return next((one for one in listed if one.get("controller") is True), None)
