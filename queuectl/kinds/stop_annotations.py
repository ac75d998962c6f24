"""The reserved annotations of a stop.

reserved-stopped: why queuectl stopped a workload, by which rule and at what cost. reserved-release: an admin
releases the quota of an attempt although pods of it exist (L28).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import orjson

from queuectl.core.model.reasons import Code, Reason, redacted
from queuectl.core.model.workload import Effect, ForcedRelease, RecordedStop, WorkloadId, WorkloadOutcome
from queuectl.kinds.admission import rfc3339
from queuectl.kinds.jobs import conditions
from queuectl.kinds.json_fields import BadField, Json, clean, integer

MAX_STOPPED = 4_000
"""Longest annotation that is read, in characters."""
ENDS: Final = {
    Code.MAXIMUM_EXECUTION_TIME_EXCEEDED: WorkloadOutcome.TIMED_OUT,
    Code.IDLE_CANCELLED: WorkloadOutcome.CANCELLED,
}
"""What is over by a stop."""
DISRUPTED: Final = "DisruptionTarget"
"""The condition of a pod that is to be deleted. Its reason has this before the code of a stop."""
REASON_PREFIX: Final = "Queuectl"
_KEEP_PLACE: Final = (
    Code.PREEMPTED,
    Code.USER_HOLD,
    Code.LOCAL_QUEUE_STOPPED,
    Code.CLUSTER_QUEUE_STOPPED,
    Code.NODE_FAILURES,
)
_MAX_DETAIL = 300
_SECOND = timedelta(seconds=1)


def render_stop(effect: Effect) -> str:
    """The annotation's text for a stop, compact and in a fixed order."""
    attempt, eviction = effect.attempt, effect.eviction
    found: dict[str, Any] = {"workload": attempt.workload, "attempt": attempt.number}
    if eviction is not None:
        seconds = max(timedelta(), eviction.at - attempt.admitted_at) // _SECOND
        devices = _devices(effect)
        found |= {
            "at": rfc3339(eviction.at),
            **_words(redacted(eviction.reason, (effect.workload.ref.namespace,))),
            "ranSeconds": seconds,
            "deviceSeconds": {name: amount * seconds for name, amount in devices.items()},
        }
    return orjson.dumps(found).decode()


def _words(reason: Reason) -> dict[str, str]:
    words = {"code": reason.code.value}
    if reason.cause is not None:
        words["rule"] = reason.cause.value
    if reason.by is not None:
        words["by"] = reason.by
    if reason.node is not None:
        words["node"] = reason.node
    if reason.detail is not None and reason.code is not Code.PREEMPTED:
        words["detail"] = clean(reason.detail, _MAX_DETAIL)
    return words


def _devices(effect: Effect) -> dict[str, int]:
    """What it held of extended resources, such as GPUs."""
    held = effect.attempt.assignment.resources()
    return {name: amount for name, amount in sorted(held.items()) if "/" in name}


def keeps_place(pod: Json) -> bool:
    """Whether it was stopped for what lets a workload keep its place (O6)."""
    reason = conditions(pod, "reason").get(DISRUPTED)
    return reason in [f"{REASON_PREFIX}{code.value}" for code in _KEEP_PLACE]


def recorded_stop(annotation: object, workload: WorkloadId) -> RecordedStop | None:
    """The stop that it records; None if there is no annotation."""
    if not isinstance(annotation, str):
        return None
    unread = RecordedStop(0, text=annotation[: MAX_STOPPED + 1])
    if len(annotation) > MAX_STOPPED:
        return unread
    try:
        read = orjson.loads(annotation)
        if not isinstance(read, Mapping) or read.get("workload") != workload:
            return unread
        attempt = integer(read, "attempt", "", default=None, low=1)
    except (orjson.JSONDecodeError, UnicodeEncodeError, BadField, RecursionError):
        return unread
    outcome = next((one for code, one in ENDS.items() if read.get("code") == code), None)
    return unread if attempt is None else RecordedStop(attempt, outcome, annotation)


MAX_RELEASE: Final = 1_000
"""Longest annotation that is read, in characters."""
_TEXT: Final = re.compile(r"([^/]+)/([1-9][0-9]{0,8}) by (.+?): (.+)", re.DOTALL)


def render_release(workload: WorkloadId, release: ForcedRelease) -> str:
    """The text of the annotation: `WORKLOAD/ATTEMPT by USER: REASON`."""
    return f"{workload}/{release.attempt} by {release.by}: {release.reason}"


def forced_release(annotation: object, workload: WorkloadId) -> ForcedRelease | None:
    """None if it is malformed, or about another workload."""
    if not isinstance(annotation, str) or len(annotation) > MAX_RELEASE:
        return None
    found = _TEXT.fullmatch(clean(annotation, MAX_RELEASE))
    if found is None or found[1] != workload:
        return None
    return ForcedRelease(int(found[2]), found[3], found[4])
