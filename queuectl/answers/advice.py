"""One sentence on what would let a pending workload run, made from its reason alone."""

from __future__ import annotations

from typing import Final

from queuectl.core.model import Phase
from queuectl.core.reasons import Code, Limit, Reason
from queuectl.core.resources import format_amount

_ON_HOLD: Final = "`queuectl release` lets it queue again: it removes the annotation queuectl.dev/hold."
_STOPPED: Final = "Its queue is stopped: it is evaluated again when stopPolicy is None (`queuectl resume`)."
_BY_CODE: Final = {
    Code.NO_MATCHING_FLAVOR: "Waiting will not help: change its node selector, affinity or tolerations so "
    "that a flavor of its queue matches, or ask the admin for a flavor that does.",
    Code.QUEUE_NOT_FOUND: "Waiting will not help: label it with a LocalQueue of its own namespace "
    "(`queuectl get localqueues`), or have that queue created.",
    Code.NAMESPACE_NOT_ALLOWED: "Waiting will not help: the ClusterQueue's namespaceSelector does not select "
    "its namespace; use another queue or ask the admin.",
    Code.QUANTITY_OUT_OF_RANGE: "Waiting will not help: correct the quantity and create it again.",
    Code.NEGATIVE_REQUEST: "Waiting will not help: correct the request and create it again.",
    Code.PRIORITY_NOT_FOUND: "Waiting will not help: name a priority class that exists, or have it created.",
    Code.PENDING_EVALUATION: "Nothing to do: it has not been evaluated yet.",
    Code.WAITING_FOR_HEAD: "It runs after the workloads before it: this queue is StrictFIFO, so its head "
    "blocks the others.",
    Code.WAITING_FOR_PREEMPTED_WORKLOADS: "Nothing to do: the workloads preempted for it are terminating. "
    "It starts earlier if other quota that becomes available suffices.",
    Code.WAITING_FOR_RESOURCE_QUOTA: "It is evaluated again when pods of its namespace end, or when the "
    "ResourceQuota is raised; the reason names it.",
    Code.CAPACITY_MISSING: "It is evaluated again when pods on its nodes end, or when nodes are added or "
    "become ready.",
    Code.NO_NODE_FITS: "It is evaluated again when pods on its nodes end: enough is free in all, but not on "
    "single nodes. Smaller pods fit sooner.",
    Code.MIN_RUN_TIME_PROTECTED: "Nothing to do: it is evaluated again when those that hold its quota are no "
    "longer protected.",
    Code.BACKING_OFF: "Nothing to do: it is evaluated again after its pause; an edit of its spec ends "
    "the pause.",
    Code.ON_HOLD: _ON_HOLD,
    Code.SUSPENDED: _STOPPED,
    Code.DEACTIVATED: "Waiting will not help: hold it and release it again (`queuectl hold`, then "
    "`queuectl release`) to let it queue; the reason says what else would.",
    Code.LEDGER_MISMATCH: "The ledger cannot store decisions about it or its cohort tree: the admin "
    "finds the cause in the controller's log.",
    Code.USER_HOLD: _ON_HOLD,
    Code.CLUSTER_QUEUE_STOPPED: _STOPPED,
    Code.LOCAL_QUEUE_STOPPED: _STOPPED,
}


_NOT_YET: Final = (Code.WAITING_FOR_QUOTA, Code.CAPACITY_MISSING, Code.NO_NODE_FITS)


def advice(phase: Phase, reason: Reason | None) -> str | None:
    """None for a workload that is not pending."""
    if phase is not Phase.PENDING or reason is None:
        return None
    found = _by_reason(reason)
    if found is not None and reason.until is not None and reason.code in _NOT_YET:
        found += " At the time in its reason it is evaluated again in any case."
    return found


def _by_reason(reason: Reason) -> str | None:
    match reason.code:
        case Code.WAITING_FOR_QUOTA:
            return _quota(reason)
        case Code.EXCEEDS_MAX_QUOTA:
            return _too_large(reason)
        case Code.EXCEEDS_RESOURCE_QUOTA:
            return (
                f"Waiting will not help: its namespace's {reason.node} can never hold its pods. "
                "Request less, or ask the admin to raise it."
            )
        case Code.MISCONFIGURED:
            return _misconfigured(reason)
        case Code.RESOURCE_NOT_COVERED:
            if reason.resource is None:
                return "Waiting will not help: leave out what the reason names, and create it again."
            what = f"{reason.resource} is not covered by its queue"
            return f"Waiting will not help: {what}; leave it out or ask the admin."
        case code:
            return _BY_CODE.get(code)


def _misconfigured(reason: Reason) -> str:
    if reason.node is None:
        return "Waiting will not help: correct what the reason names, in the workload or in the cluster."
    if reason.node.startswith(("LimitRange/", "ResourceQuota/")):
        return (
            f"Waiting will not help: the API server would refuse its pods. Correct what the reason names, or "
            f"ask the admin to change {reason.node}."
        )
    return (
        "Waiting will not help: its queue admits nothing until the admin corrects it; "
        "`queuectl get clusterqueues` says what is wrong."
    )


def _quota(reason: Reason) -> str:
    if reason.resource is None or reason.short_by is None:
        return "It runs when enough quota is available."
    short = f"{format_amount(reason.resource, reason.short_by)} {reason.resource}"
    where = f" of flavor {reason.flavor}" if reason.flavor else ""
    at = f" at {reason.node}" if reason.node else ""
    more = f"{short}{where} more are available{at}"
    return f"It runs when {more}; a smaller request or more quota helps at once."


def _too_large(reason: Reason) -> str:
    if reason.limit is Limit.CAPACITY_SHORTAGE:
        return (
            "It can run when nodes return: until then its cohort tree shares out what nodes have. A smaller "
            "request may run at once."
        )
    text = "Waiting will not help: it requests more than its queue can ever provide. "
    if reason.resource is None or reason.requested is None or reason.short_by is None:
        return text + "Request less, or ask the admin for more quota."
    most = format_amount(reason.resource, max(0, reason.requested - reason.short_by))
    short = format_amount(reason.resource, reason.short_by)
    field = f"{reason.limit} of {reason.node}" if reason.limit and reason.node else "the quota"
    if reason.limit is Limit.NOMINAL_QUOTA and (reason.node or "").startswith("Cohort/"):
        # It is the sum of what is below: the cohort itself may have none.
        field = f"the quota in {reason.node}"
    return f"{text}Request at most {most} {reason.resource} in all, or have {field} raised by {short}."
