"""Subresources that are not a part of their object: the log of a pod, the token of a service account."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queuectl.sandbox.kubernetes.identities import Identities
from queuectl.sandbox.kubernetes.resources import ServedKind
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
