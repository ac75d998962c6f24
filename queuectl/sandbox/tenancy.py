"""The sandbox's tenant: what he may do, and whether the gate holds for him yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.sandbox.endpoints import SandboxError
from queuectl.sandbox.players.api import Api, ApiError, Object

_RBAC: Final = "rbac.authorization.k8s.io"
_ROLE: Final = "sandbox-tenant"
_GATE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1


def rights(namespaces: Iterable[str]) -> list[Object]:
    """Edit rights in these namespaces, for him as on a real cluster."""
    role: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _ROLE},
        "rules": [
            {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["*"]},
            {"apiGroups": ["queuectl.dev"], "resources": ["localqueues"], "verbs": ["get", "list", "watch"]},
        ],
    }
    return [role, *(_binding(namespace, name) for namespace in namespaces for name in ("edit", _ROLE))]


def _binding(namespace: str, role: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"sandbox-tenant-{role}", "namespace": namespace},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "tenant"}],
    }


async def wait_for_gate(tenant: Api, *, mutating: bool) -> None:
    """A policy takes effect some seconds after it is stored: ask until a labelled Job is stopped by it.

    `mutating`: such a Job is to be suspended, not refused. Raises SandboxError.
    """
    pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "queuectl-gate-check", "labels": {QUEUE_LABEL: "none"}},
        "spec": {"template": {"spec": pod}},
    }
    last = ""
    try:
        async with asyncio.timeout(_GATE_SECONDS):
            while True:
                try:
                    path = "/apis/batch/v1/namespaces/default/jobs"
                    answer = await tenant.request("POST", path, job, query={"dryRun": "All"})
                    if answer["spec"].get("suspend"):
                        return
                    last = "a labelled Job is let through"
                except ApiError as error:
                    last = str(error)
                    if not mutating and "queuectl-jobs" in last:
                        return
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise SandboxError(f"the gate is not in force after {_GATE_SECONDS:g} s: {last}") from None
