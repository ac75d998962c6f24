"""What would let a waiting workload run, in one sentence, from its reason alone."""

from __future__ import annotations

from typing import Final

from queuectl.core.model import Phase
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import format_amount

_BY_CODE: Final = {
    Code.NO_MATCHING_FLAVOR: "Waiting will not help: change its node selector, affinity or tolerations so "
    "that a flavor of its queue matches, or ask the admin for a flavor that does.",
    Code.MISCONFIGURED: "Waiting will not help: its queue can't admit anything until the admin mends it; "
    "`queuectl get clusterqueues` says what is wrong.",
    Code.QUEUE_NOT_FOUND: "Waiting will not help: label it with a LocalQueue of its own namespace "
    "(`queuectl get localqueues`), or have that queue created.",
    Code.NAMESPACE_NOT_ALLOWED: "Waiting will not help: the ClusterQueue's namespaceSelector does not select "
    "its namespace; use another queue or ask the admin.",
    Code.QUANTITY_OUT_OF_RANGE: "Waiting will not help: correct the quantity and create it again.",
    Code.NEGATIVE_REQUEST: "Waiting will not help: correct the request and create it again.",
    Code.PRIORITY_NOT_FOUND: "Waiting will not help: name a priority class that exists, or have it created.",
    Code.PENDING_EVALUATION: "Nothing to do: it has not been looked at yet.",
    Code.WAITING_FOR_HEAD: "It runs after those ahead of it: this queue is StrictFIFO, so the first in line "
    "holds up the rest.",
    Code.WAITING_FOR_PREEMPTED_WORKLOADS: "Nothing to do: its place is being cleared.",
    Code.MIN_RUN_TIME_PROTECTED: "Nothing to do: it is tried again when the protection of those that hold "
    "its place ends.",
    Code.BACKING_OFF: "Nothing to do: it is tried again when its pause is over; an edit of its spec ends it.",
    Code.ON_HOLD: "Remove the annotation queuectl.dev/hold to let it queue again.",
    Code.SUSPENDED: "The admin stopped its queue; it runs once stopPolicy is None again.",
    Code.DEACTIVATED: "Waiting will not help: hold it and release it again (`queuectl hold`, then "
    "`queuectl release`) to let it queue; the reason says what else would.",
    Code.LEDGER_MISMATCH: "The admin must look at `queuectl verify`: admission is frozen for its queues.",
    Code.USER_HOLD: "Remove the annotation queuectl.dev/hold to let it queue again.",
    Code.CLUSTER_QUEUE_STOPPED: "The admin stopped its queue; it runs once stopPolicy is None again.",
    Code.LOCAL_QUEUE_STOPPED: "Its LocalQueue is stopped; it runs once stopPolicy is None again.",
}


def advice(phase: Phase, reason: Reason | None) -> str | None:
    """None for what does not wait."""
    if phase is not Phase.PENDING or reason is None:
        return None
    match reason.code:
        case Code.WAITING_FOR_QUOTA:
            return _quota(reason)
        case Code.EXCEEDS_MAX_QUOTA:
            return _too_large(reason)
        case Code.RESOURCE_NOT_COVERED:
            what = f"{reason.resource} is" if reason.resource else "a resource that it requests is"
            return f"Waiting will not help: {what} not covered by its queue; leave it out or ask the admin."
        case code:
            return _BY_CODE.get(code)


def _quota(reason: Reason) -> str:
    if reason.resource is None or reason.short_by is None:
        return "It runs when enough quota comes free."
    short = f"{format_amount(reason.resource, reason.short_by)} {reason.resource}"
    where = f" of flavor {reason.flavor}" if reason.flavor else ""
    at = f" at {reason.node}" if reason.node else ""
    return f"It runs when {short}{where} more come free{at}; a smaller request or more quota helps at once."


def _too_large(reason: Reason) -> str:
    text = "Waiting will not help: it asks for more than its queue can ever give. "
    if reason.resource is None or reason.requested is None or reason.short_by is None:
        return text + "Ask for less, or ask the admin for more quota."
    most = format_amount(reason.resource, max(0, reason.requested - reason.short_by))
    short = format_amount(reason.resource, reason.short_by)
    field = f"{reason.limit} of {reason.node}" if reason.limit and reason.node else "the quota"
    return f"{text}Ask for at most {most} {reason.resource} in all, or have {field} raised by {short}."
