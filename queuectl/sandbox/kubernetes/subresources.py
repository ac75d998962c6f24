"""Answers that are no stored object: the log of a pod, a token, and reviews of the caller's rights."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from queuectl.sandbox.kubernetes.identities import Identities, ResourceAttributes, UserInfo, allowed
from queuectl.sandbox.kubernetes.resources import Catalog, ServedKind
from queuectl.sandbox.kubernetes.wire import Json, StatusCause, StatusError

_DEFAULT_SECONDS = 3600
_LEAST_SECONDS = 600
_NO_PROGRAM = "no program runs in a pod of the sandbox"


def log(pod: Json, container: str) -> bytes:
    """One line about the pod, as no program runs in it; empty before it has a node.

    Raises StatusError 400.
    """
    name, names = pod["metadata"]["name"], [found["name"] for found in pod["spec"]["containers"]]
    if container and container not in names:
        raise StatusError(400, f"container {container} is not valid for pod {name}")
    if not (node := pod["spec"].get("nodeName")):
        return b""
    container = container or names[0]
    phase = pod["status"].get("phase", "Unknown")
    if phase == "Pending":
        message = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
        raise StatusError(400, message)
    states = {s["name"]: s.get("state") or {} for s in pod["status"].get("containerStatuses") or ()}
    ended = states.get(container, {}).get("terminated")
    code = f", exit code {ended['exitCode']}" if ended else ""
    return f"{name}: {_NO_PROGRAM} (node {node}, {phase}{code})\n".encode()


def connect(pod: Json) -> StatusError:
    """Why there is no exec, attach or port-forward."""
    name = pod["metadata"]["name"]
    if not pod["spec"].get("nodeName"):
        return StatusError(400, f"pod {name} does not have a host assigned")
    return StatusError(400, f"pod {name}: {_NO_PROGRAM}")


def token(kind: ServedKind, account: Json, request: Json, identities: Identities, now: datetime) -> Json:
    """A TokenRequest with a token of the account. Raises StatusError 422."""
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    seconds = (request.get("spec") or {}).get("expirationSeconds") or _DEFAULT_SECONDS
    if seconds < _LEAST_SECONDS:
        message = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise kind.invalid(name, StatusCause("spec.expirationSeconds", message))
    end = now + timedelta(seconds=seconds)
    status = {
        "token": identities.issue(namespace, name, int(end.timestamp())),
        "expirationTimestamp": end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": None}
    return {**head, "metadata": metadata, "spec": {"expirationSeconds": seconds}, "status": status}


_ALL = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
_ALL_URLS = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
_URLS = [{"verbs": ["get"], "nonResourceURLs": ["/api*", "/apis*", "/healthz", "/openapi*", "/version"]}]


def review(catalog: Catalog, kind: ServedKind, user: UserInfo, body: Json) -> Json:
    """`body` with its status."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"creationTimestamp": None}}
    spec = body.get("spec") or {}
    status: Json
    if kind.kind == "SelfSubjectReview":
        status = {"userInfo": {"username": user.name, "groups": user.groups}}
    elif kind.kind == "SelfSubjectAccessReview":
        status = {"allowed": _allowed(user, spec)}
    else:
        rules = _ALL if user.is_admin else list(_rules(catalog, user, spec.get("namespace", "")))
        urls = _ALL_URLS if user.is_admin else _URLS
        status = {"resourceRules": rules, "nonResourceRules": urls, "incomplete": False}
    return {**head, "spec": spec, "status": status}


def _allowed(user: UserInfo, spec: Json) -> bool:
    asked = spec.get("resourceAttributes")
    if asked is None:
        # Discovery is open to every caller, other paths are not.
        path = (spec.get("nonResourceAttributes") or {}).get("path", "")
        return user.is_admin or path.startswith(tuple(url.rstrip("*") for url in _URLS[0]["nonResourceURLs"]))
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    return allowed(user, ResourceAttributes(**{name: asked.get(name, "") for name in names}))


def _rules(catalog: Catalog, user: UserInfo, namespace: str) -> Iterator[Json]:
    for group, versions in catalog.versions().items():
        for kind in catalog.of_version(group, versions[0]):
            where = namespace if kind.namespaced else ""
            verbs = [
                v for v in kind.verbs if allowed(user, ResourceAttributes(v, group, kind.plural, "", where))
            ]
            if verbs:
                yield {"verbs": verbs, "apiGroups": [group], "resources": [kind.plural]}
