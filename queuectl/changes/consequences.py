"""What a change of a workload or queue means, which change must not be made now, and refusals, in words."""

from __future__ import annotations

import re
from typing import Final

from queuectl.changes.edit import (
    EditedField,
    EditTarget,
    NoSuchObject,
    WorkloadTarget,
    counted,
    over,
    part,
    runs,
    still_running,
)
from queuectl.changes.fit import NotPermitted
from queuectl.core.features.nodes.inventory import is_device
from queuectl.core.model.workload import PodSet
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kinds.json_fields import Json
from queuectl.kinds.pod_sizes import CannotFit, Fitted
from queuectl.kinds.reserved_keys import GROUP_LABEL
from queuectl.kube.errors import ApiError


class ChangeBlocked(ValueError):
    """The change must not be made now."""


class AlreadyOver(ChangeBlocked):
    """It has ended: there is nothing to change."""


def not_over(target: WorkloadTarget, now: Json, what: str) -> None:
    """Raises Refused; `what`: the change, such as `a hold`."""
    if over(now, target.row):
        raise AlreadyOver(f"{target} is over: {what} would change nothing any more")


def waits(target: WorkloadTarget, now: Json) -> None:
    """For a move. Raises Refused for a workload that runs or is over."""
    not_over(target, now, "a move")
    _not_of_group(target, now, QUEUE_LABEL, "queue")
    _not_running(target, now, "runs, and is charged in its queue", "be moved", "after the move")


def may_have_priority(target: WorkloadTarget, now: Json) -> None:
    """For another priority class. Raises Refused for a workload that is over."""
    not_over(target, now, "another priority")
    _not_of_group(target, now, PRIORITY_LABEL, "priority class")


def _not_of_group(target: WorkloadTarget, now: Json, label: str, what: str) -> None:
    if (group := _group(target, now)) is not None:
        raise ChangeBlocked(
            f"{target} is one pod of the group {group}, whose pods have the same {what}\n"
            f"`kubectl label pods -n {target.namespace} -l {GROUP_LABEL}={group} --overwrite {label}=NAME` "
            "changes all of them"
        )


def _group(target: WorkloadTarget, now: Json) -> str | None:
    found = part(now, "metadata", "labels").get(GROUP_LABEL) if target.row.scheduling_gate else None
    return str(found) if found is not None else None


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
    if not runs(now, target.row):
        return None
    if (group := _group(target, now)) is not None:
        lost = "what they have not saved is lost"
        return f"{target} runs, and a hold deletes all pods of its group {group}: {lost}"
    evicts = "deletes" if target.row.scheduling_gate else "evicts"
    return f"{target} runs, and a hold {evicts} it: what it has not saved is lost"


def lost_by_cancel(target: WorkloadTarget, now: Json) -> str | None:
    """What its deletion ends; None: nothing. Raises Refused for one that is over."""
    if over(now, target.row):
        raise AlreadyOver(
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
    if runs(change.object, target.row) and target.row.scheduling_gate:
        them = (
            "it is deleted" if _group(target, change.object) is None else "all pods of its group are deleted"
        )
        return f"It runs: {them}, and its quota is released once its pods are gone."
    if runs(change.object, target.row):
        return f"It runs: it is evicted, and its quota is released once its pods are gone. {undone}"
    return f"It is pending: it leaves the pending queue. {undone}"


def stop_means(change: EditedField) -> str:
    if not change.written:
        return "It was so already: nothing is written."
    pending, admitted = counted(change.object)
    match change.after:
        case "None":
            return f"It admits again. Pending workloads, evaluated in order: {pending}."
        case "Hold":
            return f"It admits no more. Workloads that wait: {pending}; that continue: {admitted}."
        case _:
            text = f"It admits no more. Workloads that wait: {pending}; that are evicted and queue again"
            return f"{text}: {admitted}."


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
    count = found.after.count
    pods = "1 pod" if count == 1 else f"{count} pods"
    return f"It still completes {found.completions} times, at most {pods} at a time"


def size(pods: PodSet) -> str:
    """Such as `2 pods with 4 nvidia.com/gpu each`."""
    each = ", ".join(f"{amount} {name}" for name, amount in pods.requests if is_device(name))
    many = f"{pods.count} {'pod' if pods.count == 1 else 'pods'}"
    return f"{many} with {each}{' each' if pods.count != 1 else ''}" if each else many


_DENIED: Final = "denied request"
"""In the message of a refusal by an admission policy; one for a missing right does not have it."""
_DUMPED: Final = re.compile(r"Invalid value: [\w.&]*\{.*", re.DOTALL)
"""In a refusal: the whole field as it was sent, such as a pod template."""
_SINCE: Final = (
    "What the pods of a suspended Job request can be changed from Kubernetes 1.36 on (feature gate"
    " MutablePodResourcesForSuspendedJobs), once its status says that it is suspended; the number of its pods"
    " alone can be changed on every version"
)
_VERB: Final = re.compile(r"cannot (\w+) ")


def forbidden(of: EditTarget, problem: ApiError) -> str:
    """For a missing right."""
    found = _VERB.search(str(problem))
    verb = found[1] if found else "get"
    where = f"in namespace {of.namespace}" if of.namespace else "in the cluster"
    if of.resource.endswith(".queuectl.dev"):
        grants = "ClusterRole queuectl-admin has it; a cluster admin binds it"
    elif of.resource.endswith(".batch"):
        grants = "ClusterRole edit has it; an admin of the namespace binds it"
    else:
        grants = f"a Role with {verb} on {of.resource} has it; its operator or a cluster admin adds one"
    return f"you may not {verb} {of.resource} {where} ({grants})\n{problem}"


def denied(of: EditTarget, problem: ApiError) -> str | None:
    """For a refusal by an admission policy; None: it is another one."""
    if _DENIED not in str(problem):
        return None
    return f"an admission policy refuses the change of {of}: {problem}"


def missing(of: EditTarget, problem: NoSuchObject, near: str = "") -> str:
    """`near`: a hint on names that are similar."""
    where = f"namespace {of.namespace}" if problem.kind == "LocalQueue" else "the cluster"
    there = ", ".join(sorted(problem.known)) or "none"
    return f"{where} has no {problem.kind} {problem.name}{near}\nThere are: {there}. Nothing is written"


def replaced(of: EditTarget) -> str:
    """For a conflict: the UID is another one, or the object changes all the time."""
    return f"{of} was changed or replaced meanwhile: nothing is written; try again"


def not_fitted(of: EditTarget, problem: CannotFit) -> str:
    return f"{of}: {problem}; nothing is written"


def not_permitted(of: EditTarget, problem: NotPermitted) -> str:
    """For another size that the API server refuses."""
    hint = f"\n{_SINCE}" if of.kind == "Job" else ""
    return f"the API server does not permit it: {_DUMPED.sub('Invalid value', str(problem))}{hint}"
