"""Pods of the cluster as values of the core, from JSON: where they are, and what they take there."""

from __future__ import annotations

import sys
from typing import Final, TypeVar

from queuectl.core.model.devices import PodClaim
from queuectl.core.model.events import PodObserved
from queuectl.core.model.pods import Pod, PodOwner
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.devices import held_claims
from queuectl.kinds.json_fields import BadField, Json, clean, mapping, objects
from queuectl.kinds.owners import controller, controls
from queuectl.kinds.requests import RequestProblem, pod_requests, readable_requests
from queuectl.kinds.reserved_keys import GATED_LABEL, WORKLOAD_LABEL

MAX_CONDITIONS: Final = 64
MAX_MESSAGE: Final = 1024
_MOST_KEPT: Final = 10_000

_SELECTION: Final = ("status.phase!=Succeeded", "status.phase!=Failed")
POD_QUERY: Final = {"fieldSelector": ",".join(_SELECTION)}
"""Selects the pods that have not ended: the server sends the end of one as a deletion."""

T = TypeVar("T", Amounts, tuple[PodClaim, ...], PodOwner)
_requests: dict[Amounts, Amounts] = {}
_known_claims: dict[tuple[PodClaim, ...], tuple[PodClaim, ...]] = {}
_owners: dict[PodOwner, PodOwner] = {}


def pod_event(obj: Json) -> PodObserved | None:
    """Return the pod as an event; None: it takes nothing from a node, and belongs to no workload."""
    try:
        pod = _pod(obj)
    except BadField:
        return None
    return PodObserved(pod) if pod is not None else None


def _pod(obj: Json) -> Pod | None:
    metadata, spec = mapping(obj, "metadata", ""), mapping(obj, "spec", "")
    status = mapping(obj, "status", "")
    node = spec.get("nodeName")
    label = str(mapping(metadata, "labels", "metadata").get(WORKLOAD_LABEL) or "")
    if (not node and not label) or status.get("phase") in ("Succeeded", "Failed"):
        return None
    return Pod(
        uid=str(metadata.get("uid") or ""),
        namespace=_shared(metadata.get("namespace")),
        name=clean(str(metadata.get("name") or ""), 512),
        node=_shared(node) if node else None,
        requests=_amounts(spec),
        workload=WorkloadId(label) if label else None,
        owner=_owner(obj, label) if label else None,
        terminating=bool(metadata.get("deletionTimestamp")),
        unschedulable=None if node else _unschedulable(status),
        claims=_claims(obj),
    )


def _owner(obj: Json, workload: str) -> PodOwner | None:
    """Its controller; None: that is the object of its label, or the pod is that object.

    A reference to a pod never is that object, whatever its UID: the gate lets service accounts write it.
    """
    found = controller(obj) or {}
    if GATED_LABEL in mapping(mapping(obj, "metadata", ""), "labels", "metadata"):
        return None  # it queues by itself, or with its group: the gate refuses its label to all others
    if controls(workload, obj) and (found.get("apiVersion"), found.get("kind")) != ("v1", "Pod"):
        return None
    fields = (clean(str(found.get(key) or ""), 512) for key in ("apiVersion", "kind", "name", "uid"))
    return _once(_owners, PodOwner(*fields))


def _once(known: dict[T, T], value: T) -> T:
    """The same object for equal values."""
    if len(known) >= _MOST_KEPT:
        known.clear()
    return known.setdefault(value, value)


def _shared(name: object) -> str:
    return sys.intern(clean(str(name or ""), 512))


def _amounts(spec: Json) -> Amounts:
    """Of each resource that can be read: it runs, although no workload could be queued with that spec."""
    try:
        found = pod_requests(spec, "spec")
    except (RequestProblem, BadField):
        found = readable_requests(spec)
    return _once(_requests, found)


def _claims(obj: Json) -> tuple[PodClaim, ...]:
    """Nothing, if they cannot be read."""
    if "resourceClaims" not in mapping(obj, "spec", ""):
        return ()
    try:
        return _once(_known_claims, held_claims(obj))
    except BadField:
        return ()


def _unschedulable(status: Json) -> str | None:
    for condition in objects(status, "conditions", "status", MAX_CONDITIONS):
        if (condition.get("type"), condition.get("reason")) == ("PodScheduled", "Unschedulable"):
            return clean(str(condition.get("message") or "Unschedulable"), MAX_MESSAGE)
    return None
