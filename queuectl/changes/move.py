"""The labels of a workload for its LocalQueue and priority class, changed with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from queuectl.changes.edit import (
    EditedField,
    WorkloadTarget,
    check_exists,
    must_queue_itself,
    notes_beside_hold,
    part,
    uid,
)
from queuectl.kinds.json_fields import Json
from queuectl.kinds.labels import KUEUES_TOO
from queuectl.kinds.workloads import REASON_ANNOTATION
from queuectl.kube.session import Session

_QUEUE: Final = ("move", KUEUES_TOO.queue)
_PRIORITY: Final = ("priority", KUEUES_TOO.priority)

Allowed = Callable[[Json], None]
"""Gets the object before it is changed, and raises if it must not be."""


async def move(
    session: Session, target: WorkloadTarget, queue: str, allowed: Allowed, reason: str | None = None
) -> EditedField:
    """Queue it in another LocalQueue of its namespace. One patch, or none if nothing changes.

    Raises ApiError, NotQueued, and NoSuchObject if there is no such LocalQueue.
    """
    now = await session.get(target.path)
    must_queue_itself(now, target, "a move would have no effect")
    await check_exists(session, "LocalQueue", target.namespace, queue)
    return await _set(session, target, now, _QUEUE, queue, allowed, reason)


async def set_priority(
    session: Session, target: WorkloadTarget, name: str | None, allowed: Allowed, reason: str | None = None
) -> EditedField:
    """Give it another WorkloadPriorityClass; None: the one of its pods counts (rule O3).

    One patch, or none if nothing changes. Raises ApiError, NotQueued, and NoSuchObject for an unknown class.
    """
    now = await session.get(target.path)
    must_queue_itself(now, target, "a priority would have no effect")
    if name is not None:
        await check_exists(session, "WorkloadPriorityClass", None, name)
    return await _set(session, target, now, _PRIORITY, name, allowed, reason)


async def _set(
    session: Session,
    target: WorkloadTarget,
    now: Json,
    setting: tuple[str, tuple[str, ...]],
    value: str | None,
    allowed: Allowed,
    reason: str | None,
) -> EditedField:
    """`setting`: the verb of the change, and the labels of which the first on the object counts."""
    verb, labels = setting
    found = part(now, "metadata", "labels")
    label = _label(labels, found)
    before = found.get(label)
    field = f"metadata.labels[{label}]"
    if before == value and not reason:
        return EditedField(target, field, before, value, now)
    if before != value:
        allowed(now)
    noted = await notes_beside_hold(session, now, verb, reason)
    # Without a value none of them is left: a second one would count then.
    new = {label: value} if value is not None else {name: None for name in labels if name in found}
    patch = {"metadata": {"uid": uid(now), "labels": new, **({"annotations": noted} if noted else {})}}
    changed = await session.patch(target.path, patch)
    return EditedField(target, field, before, value, changed, noted.get(REASON_ANNOTATION))


def _label(labels: tuple[str, ...], found: Json) -> str:
    """The one that counts on an object; if it has none, the one that goes with its queue label."""
    queued = next(place for place, name in enumerate(KUEUES_TOO.queue) if name in found)
    return next((name for name in labels if name in found), labels[queued])
