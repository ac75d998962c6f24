"""The mutation of labelled objects: the same as the policy in manifests/mutating on 1.36 and later.

It grants no rights: the validating policies check the result.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import orjson

from queuectl.kinds.admission import CONTROLLER_USER
from queuectl.kinds.jobs import QUEUE_LABEL, JobKind, KindRegistry
from queuectl.kinds.json_fields import BadField, Json, mapping, text
from queuectl.kinds.labels import KUEUES_TOO, may_queue
from queuectl.kinds.podsets import Operation
from queuectl.kinds.reserved_keys import (
    BYPASS_ANNOTATION,
    GROUPS_ANNOTATION,
    SUBMITTER_ANNOTATION,
    USER_ANNOTATION,
)
from queuectl.kinds.single_pod import gate_operations
from queuectl.kinds.start_patch import pointer

API_VERSION: Final = "admission.k8s.io/v1"
_MAX_UID: Final = 253


class BadReview(ValueError):
    """The body is not a valid AdmissionReview. The message names the field."""


def answered(body: bytes, kinds: KindRegistry) -> tuple[bytes, bool]:
    """The response to an AdmissionReview, and whether it changes the object. Raises BadReview.

    It always allows: an object that is not queued here, or is malformed, is left to the API server.
    """
    request = _request(body)
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _MAX_UID:
        raise BadReview(f"request.uid: must be a text of 1 to {_MAX_UID} characters")
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    patch = mutations(request, kinds)
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    return orjson.dumps(review), bool(patch)


def _request(body: bytes) -> Json:
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadReview(f"not JSON: {error}") from None
    if not isinstance(review, Mapping):
        raise BadReview("not an object")
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "AdmissionReview":
        raise BadReview(f"not an AdmissionReview of {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, Mapping):
        raise BadReview("request: must be an object")
    return request


def mutations(request: Json, kinds: KindRegistry) -> list[Operation]:
    """The JSON patch for a request; empty if there is nothing to change, or the object is malformed."""
    try:
        return _mutations(request, kinds)
    except BadField:
        return []


def _mutations(request: Json, kinds: KindRegistry) -> list[Operation]:
    # Whether Kueue's label counts is in the webhook configuration: it selects the objects sent here.
    kind = _kind(request, kinds)
    user = text(mapping(request, "userInfo", "request"), "username", "request.userInfo")
    new, old = mapping(request, "object", "request"), mapping(request, "oldObject", "request")
    if kind is None or not user or user == CONTROLLER_USER or not (may_queue(new) or may_queue(old)):
        return []
    if request.get("operation") == "CREATE":
        return [*_suspended(kind, new), *_annotated(new, _creator(request, new, user))]
    if request.get("operation") == "UPDATE" and kind.suspended(old) and not kind.suspended(new):
        return _annotated(new, {BYPASS_ANNOTATION: user})
    if request.get("operation") == "UPDATE" and not kind.scheduling_gate and _queued_later(new, old):
        return _annotated(new, _creator(request, new, user))
    return []


def _queued_later(new: Json, old: Json) -> bool:
    """It gets its first queue, and no submitter is recorded on it."""
    metadata = mapping(new, "metadata", "")
    labels = mapping(metadata, "labels", "metadata")
    before = mapping(mapping(old, "metadata", ""), "labels", "metadata")
    return (
        QUEUE_LABEL not in before
        and any(label in labels and label not in before for label in KUEUES_TOO.queue)
        and SUBMITTER_ANNOTATION not in mapping(metadata, "annotations", "metadata")
    )


def _kind(request: Json, kinds: KindRegistry) -> JobKind | None:
    if request.get("subResource"):
        return None
    resource = mapping(request, "resource", "request")
    return kinds.served_at(resource.get("group"), resource.get("version"), resource.get("resource"))


def _suspended(kind: JobKind, obj: Json) -> list[Operation]:
    """Sets the field and creates missing parents. Raises BadField if a parent is not an object."""
    if kind.scheduling_gate:
        return gate_operations(obj)
    if kind.suspended(obj):
        return []
    at = obj
    for depth, key in enumerate(kind.suspend[:-1]):
        if at.get(key) is None:
            value: Any = True
            for missing in reversed(kind.suspend[depth + 1 :]):
                value = {missing: value}
            return [{"op": "add", "path": pointer(kind.suspend[: depth + 1]), "value": value}]
        at = mapping(at, key, ".".join(kind.suspend[:depth]))
    return [{"op": "add", "path": pointer(kind.suspend), "value": True}]


def _creator(request: Json, obj: Json, user: str) -> dict[str, str]:
    """The annotations that say who creates it, with the groups if it is for that user."""
    annotations = mapping(mapping(obj, "metadata", ""), "annotations", "metadata")
    groups = mapping(request, "userInfo", "request").get("groups")
    own = [
        one
        for one in (groups if isinstance(groups, list) else ())
        if isinstance(one, str) and one and not one.startswith("system:") and "," not in one
    ]
    if not own or annotations.get(USER_ANNOTATION, user) != user:
        return {SUBMITTER_ANNOTATION: user}
    return {SUBMITTER_ANNOTATION: user, GROUPS_ANNOTATION: ",".join(own)}


def _annotated(obj: Json, values: Mapping[str, str]) -> list[Operation]:
    metadata = mapping(obj, "metadata", "")
    if metadata.get("annotations") is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(values)}]
    there = mapping(metadata, "annotations", "metadata")
    return [
        {"op": "add", "path": pointer(("metadata", "annotations", name)), "value": value}
        for name, value in values.items()
        if there.get(name) != value
    ]
