"""A real API server with manifests/ applied."""

from __future__ import annotations

import asyncio

from queuectl.sandbox.control_plane import ControlPlane
from queuectl.sandbox.players.api import Client
from tests.acceptance.manifests.rendered import NAMESPACE, Json, Right

OLDEST = "1.33"


class Applied:
    def __init__(self, plane: ControlPlane, admin: Client, *, old: bool) -> None:
        self.plane = plane
        self.admin = admin
        self.old = old

    async def kubectl(self, *arguments: str) -> str:
        """Run kubectl; returns all its output, and fails if kubectl fails."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.plane.kubectl), f"--kubeconfig={self.plane.folder / 'kubeconfig'}", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(120):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    async def may(self, user: str, right: Right, namespace: str = NAMESPACE) -> bool:
        group, resource, name, verb = right
        resource, _, subresource = resource.partition("/")
        attributes = {
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
            "name": name or "",
        }
        groups = ["system:authenticated"]
        if user.startswith("system:serviceaccount:"):
            groups += ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
        spec: Json = {"user": user, "groups": groups, "resourceAttributes": attributes}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self.admin.request("POST", path, {"spec": spec})
        return bool(answer["status"]["allowed"])
