"""The sandbox's tenant: its rights, and a check that the gate is in force for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.kube.errors import ApiError
from queuectl.kube.session import Session
from queuectl.sandbox.endpoints import SandboxError
from queuectl.sandbox.kubernetes.identities import TENANTS
from queuectl.sandbox.players.api import Object

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLE: Final = "sandbox-tenant"
_GATE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1


def rights(namespaces: Iterable[str] | None) -> list[Object]:
    """Edit rights for the tenant and for the group TENANTS in these namespaces, as on a real cluster.

    None: in all, also in those that are created later.
    """
    role: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _ROLE},
        "rules": [
            {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["*"]},
            {"apiGroups": ["queuectl.dev"], "resources": ["localqueues"], "verbs": ["get", "list", "watch"]},
        ],
    }
    places = [None] if namespaces is None else namespaces
    return [role, *(_binding(namespace, name) for namespace in places for name in ("edit", _ROLE))]


def _binding(namespace: str | None, role: str) -> Object:
    name: Object = {"name": f"sandbox-tenant-{role}"}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding" if namespace is None else "RoleBinding",
        "metadata": name if namespace is None else {**name, "namespace": namespace},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": _RBAC, "kind": "User", "name": "tenant"},
            {"apiGroup": _RBAC, "kind": "Group", "name": TENANTS},
        ],
    }


async def wait_for_gate(tenant: Session, *, mutating: bool) -> None:
    """A policy takes effect some seconds after it is stored: dry-run until it stops a labelled Job.

    `mutating`: such a Job is to be suspended, not refused. The same for a PyTorchJob if that is installed:
    the server answers 503 until its policies cover a new kind. Raises SandboxError.
    """
    last = ""
    try:
        async with asyncio.timeout(_GATE_SECONDS):
            for path, body in _LABELLED:
                while True:
                    last = await _past_gate(tenant, path, body, mutating=mutating)
                    if not last:
                        break
                    await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise SandboxError(f"the gate is not in force after {_GATE_SECONDS:g} s: {last}") from None


async def _past_gate(tenant: Session, path: str, body: Object, *, mutating: bool) -> str:
    """Why the gate is not in force yet; empty if it is."""
    try:
        answer = await tenant.request("POST", path, body, query={"dryRun": "All"})
    except ApiError as error:
        stopped = not mutating and "ValidatingAdmissionPolicy 'queuectl-" in str(error)
        return "" if stopped or error.status == 404 else str(error)
    spec = answer["spec"]
    suspended = spec.get("suspend") or spec.get("runPolicy", {}).get("suspend")
    return "" if suspended else f"a labelled {body['kind']} is let through"


def _labelled(kind: str, api_version: str, spec: Object) -> Object:
    metadata = {"name": "queuectl-gate-check", "labels": {QUEUE_LABEL: "none"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


_TEMPLATE: Final = {"spec": {"restartPolicy": "Never", "containers": [{"name": "pytorch", "image": "none"}]}}
_LABELLED: Final = (
    ("/apis/batch/v1/namespaces/default/jobs", _labelled("Job", "batch/v1", {"template": _TEMPLATE})),
    (
        "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
        _labelled(
            "PyTorchJob",
            "kubeflow.org/v1",
            {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _TEMPLATE}}},
        ),
    ),
)
