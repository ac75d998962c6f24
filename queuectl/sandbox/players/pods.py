"""Pods and conditions: helpers of all players."""

from __future__ import annotations

from datetime import datetime

from queuectl.sandbox.players.api import Object, stamp

PODS = "/api/v1/pods"


def pod_path(pod: Object, subresource: str = "") -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"


def node_of(pod: Object) -> str | None:
    return pod["spec"].get("nodeName") or None


def phase_of(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def ended(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def terminating(pod: Object) -> bool:
    """Whether it is being deleted and has not ended."""
    return bool(pod["metadata"].get("deletionTimestamp")) and not ended(pod)


def active(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not ended(pod)


def ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def controller_of(thing: Object) -> Object | None:
    """The owner reference of its controller."""
    for reference in thing["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def controller_uid(thing: Object) -> str | None:
    reference = controller_of(thing)
    return str(reference["uid"]) if reference else None


def owner_reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_condition(
    conditions: list[Object],
    now: datetime,
    kind: str,
    status: bool,
    reason: str,
    message: str = "",
    *,
    clock_field: str = "lastProbeTime",
) -> list[Object]:
    """The list with this condition replaced or added; its transition time changes only with its status.

    `clock_field` is the kind's name of the condition's other time.
    """
    text = "True" if status else "False"
    made: Object = {"type": kind, "status": text, clock_field: stamp(now), "lastTransitionTime": stamp(now)}
    made |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
    result = []
    for condition in conditions:
        if condition["type"] != kind:
            result.append(condition)
            continue
        if condition["status"] == text:
            if condition.get("reason", "") == reason and condition.get("message", "") == message:
                return conditions
            made["lastTransitionTime"] = condition.get("lastTransitionTime", stamp(now))
        result.append(made)
    return result if made in result else [*result, made]


def holds(conditions: list[Object], kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)
