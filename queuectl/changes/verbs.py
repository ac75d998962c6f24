"""The changes of one workload by their verbs: the same for command line and REST."""

from __future__ import annotations

from collections.abc import Callable

from queuectl.changes import consequences, edit
from queuectl.changes.edit import EditedField, WorkloadTarget
from queuectl.changes.move import move, set_priority
from queuectl.kinds.json_fields import Json
from queuectl.kube.session import Session
from queuectl.ports.changes import Verb


async def change_workload(
    session: Session,
    target: WorkloadTarget,
    verb: Verb,
    confirm: Callable[[str], None],
    *,
    to: str | None = None,
    reason: str | None = None,
) -> tuple[EditedField, str]:
    """Hold, release, move, set the priority class, or cancel. Return the change, and what it means.

    `to`: the LocalQueue of a move, the WorkloadPriorityClass of a priority. `confirm` gets what the change
    ends, and raises if that must not be. Raises ChangeBlocked, and as functions of `edit` and `move` do.
    """
    lost = {"hold": consequences.lost_by_hold, "cancel": consequences.lost_by_cancel}.get(verb)
    check = {"move": consequences.waits, "priority": consequences.may_have_priority}.get(verb)

    def allowed(now: Json) -> None:
        if check is not None:
            check(target, now)
        if lost is not None and (loss := lost(target, now)):
            confirm(loss)

    match verb:
        case "move":
            change = await move(session, target, to or "", allowed, reason)
            return change, consequences.move_means(change)
        case "priority":
            change = await set_priority(session, target, to, allowed, reason)
            return change, consequences.priority_means(change, target)
        case "cancel":
            before = await edit.delete(session, target, allowed)
            change = EditedField(target, "object", "exists", "deleted", before)
            return change, consequences.cancel_means(ran=edit.runs(before, target.row))
        case _:
            held = verb == "hold"
            change = await edit.hold(session, target, held, allowed, reason)
            return change, consequences.hold_means(change, target, held)
