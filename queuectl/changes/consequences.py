"""What a change of a workload or queue means, and which change must not be made now, in words."""

from __future__ import annotations

from queuectl.changes.edit import EditedField, WorkloadTarget, counted, over, runs, still_running
from queuectl.core.features.nodes.modes import is_device
from queuectl.core.model.workload import PodSet
from queuectl.kinds.json_fields import Json
from queuectl.kinds.pod_sizes import Fitted


class ChangeBlocked(ValueError):
    """The change must not be made now."""


def not_over(target: WorkloadTarget, now: Json, what: str) -> None:
    """Raises Refused; `what`: the change, such as `a hold`."""
    if over(now, target.row):
        raise ChangeBlocked(f"{target} is over: {what} would change nothing any more")


def waits(target: WorkloadTarget, now: Json) -> None:
    """For a move. Raises Refused for a workload that runs or is over."""
    not_over(target, now, "a move")
    _not_running(target, now, "runs, and is charged in its queue", "be moved", "after the move")


def can_fit(target: WorkloadTarget, now: Json) -> None:
    """For another size. Raises Refused for a workload that runs, is being stopped, or is over."""
    not_over(target, now, "another size")
    _not_running(target, now, "runs", "get another size", "after that")
    if (left := still_running(now, target.row)) is not None:
        raise ChangeBlocked(f"{target} is being stopped: {left}; try again then")


def _not_running(target: WorkloadTarget, now: Json, runs_so: str, change: str, later: str) -> None:
    if runs(now, target.row):
        where = named(target)
        raise ChangeBlocked(
            f"{target} {runs_so}: only a workload that waits can {change}\n"
            f"`queuectl hold {where} --wait` stops it, `queuectl release {where}` lets it queue {later}"
        )


def lost_by_hold(target: WorkloadTarget, now: Json) -> str | None:
    """What a hold ends; None: nothing. Raises Refused for one that is over."""
    not_over(target, now, "a hold")
    return (
        f"{target} runs, and a hold evicts it: what it has not saved is lost"
        if runs(now, target.row)
        else None
    )


def lost_by_cancel(target: WorkloadTarget, now: Json) -> str | None:
    """What its deletion ends; None: nothing. Raises Refused for one that is over."""
    if over(now, target.row):
        raise ChangeBlocked(
            f"{target} is over: there is nothing to cancel; "
            f"`kubectl delete {target.resource} {target.name} -n {target.namespace}` deletes the object"
        )
    runs_now = runs(now, target.row)
    return f"{target} runs: its pods end, and what it has not saved is lost" if runs_now else None


def cancel_means(*, ran: bool) -> str:
    return "Its quota is released once its pods are gone." if ran else "It leaves its pending queue."


def named(target: WorkloadTarget) -> str:
    """As arguments of the command line."""
    return f"{target.kind.lower()}/{target.name} -n {target.namespace}"


def hold_means(change: EditedField, target: WorkloadTarget, held: bool) -> str:
    if not change.written:
        return f"It was {'on hold already' if held else 'not on hold'}: nothing is written."
    if over(change.object, target.row):
        return "It is over: this changes nothing any more."
    if not held:
        return "It is in the pending queue again, ordered by priority and creation time."
    undone = f"`queuectl release {named(target)}` lets it queue again."
    if runs(change.object, target.row):
        return f"It runs: it is evicted, and its quota is released once its pods are gone. {undone}"
    return f"It is pending: it leaves the pending queue. {undone}"


def stop_means(change: EditedField) -> str:
    if not change.written:
        return "It was so already: nothing is written."
    pending, admitted = counted(change.object)
    runs, waits = f"{admitted} admitted", f"{pending} pending"
    match change.after:
        case "None":
            return f"It admits again: its {waits} workloads are evaluated in order."
        case "Hold":
            return f"It admits no more: {waits} workloads wait, {runs} ones continue."
        case _:
            return f"It admits no more: {waits} workloads wait, {runs} ones are evicted and queue again."


def move_means(change: EditedField) -> str:
    if not change.written:
        return "It is in that queue already: nothing is written."
    if change.before == change.after:
        return "It is in that queue already."
    return (
        f"It waits in LocalQueue {change.after} now, ordered by its priority and creation time, which stay."
    )


def priority_means(change: EditedField, target: WorkloadTarget) -> str:
    if change.before == change.after:
        return "It was so already: nothing is written." if not change.written else "It was so already."
    if runs(change.object, target.row):
        return "It runs on. The new priority decides from now on which workloads may preempt it."
    return "It waits, ordered by the new priority and its creation time, which stays."


def fit_means(found: Fitted, *, written: bool) -> str:
    """`written`: with the size, or without another size its reason."""
    if not found.fields:
        return "It is so large already." if written else "It is so large already: nothing is written."
    return "It keeps its place: its priority and creation time, which stay, order it."


def still_completes(found: Fitted) -> str | None:
    """For a Job that goes on completing more often than it has pods, without the full stop."""
    if found.completions is None:
        return None
    return f"It still completes {found.completions} times, at most {found.after.count} pods at a time"


def size(pods: PodSet) -> str:
    """Such as `2 pods with 4 nvidia.com/gpu each`."""
    each = ", ".join(f"{amount} {name}" for name, amount in pods.requests if is_device(name))
    many = f"{pods.count} {'pod' if pods.count == 1 else 'pods'}"
    return f"{many} with {each}{' each' if pods.count != 1 else ''}" if each else many
