"""Helpers of tests for objects on an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH, Session
from queuectl.sandbox.players.api import Object
from queuectl.sandbox.players.kubelet import FAKE_NODE
from tests.integration.sandbox.polling import eventually


class WallClock:
    """The clock of players in these tests: real time, with pods that run for tenths of a second."""

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - the clock of the players

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Cluster:
    """One namespace on a server."""

    def __init__(self, api: Session, namespace: str, *, jobs_are_played: bool) -> None:
        self.api = api
        self.jobs_are_played = jobs_are_played
        """By players: there is no real Job controller."""
        self.namespace = namespace
        self._nodes: list[str] = []

    async def begin(self) -> None:
        body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.api.request("POST", "/api/v1/namespaces", body)

    async def end(self) -> None:
        for kind in ("jobs", "pytorchjobs"):
            for thing in await self.items(kind):
                await self.delete(kind, thing["metadata"]["name"])
        await eventually(self._empty, f"the end of all pods in {self.namespace}")
        for node in self._nodes:
            await self.api.request("DELETE", f"/api/v1/nodes/{node}")

    async def _empty(self) -> bool:
        for pod in await self.items("pods"):
            if not pod["metadata"].get("deletionTimestamp"):
                await self.delete("pods", pod["metadata"]["name"])
        return not await self.items("pods")

    def path(self, kind: str, name: str = "") -> str:
        group = {"jobs": "apis/batch/v1", "pytorchjobs": "apis/kubeflow.org/v1"}.get(kind, "api/v1")
        return f"/{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    async def items(self, kind: str) -> list[Object]:
        items: list[Object] = (await self.api.request("GET", self.path(kind)))["items"]
        return items

    async def get(self, kind: str, name: str) -> Object:
        return await self.api.request("GET", self.path(kind, name))

    async def patch(self, kind: str, name: str, body: Object) -> Object:
        return await self.api.request("PATCH", self.path(kind, name), body, content_type=MERGE_PATCH)

    async def create(self, kind: str, body: Object) -> Object:
        return await self.api.request("POST", self.path(kind), body)

    async def delete(self, kind: str, name: str) -> None:
        try:
            await self.api.request("DELETE", self.path(kind, name), {"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status not in (404, 410):
                raise

    async def node(
        self,
        name: str,
        gpus: int = 8,
        labels: Mapping[str, str] = {},
        taints: tuple[Object, ...] = (),
    ) -> None:
        """A fake node that accepts pods, deleted after the test."""
        self._nodes.append(name)
        room = {"cpu": "64", "memory": "256Gi", "pods": "100", "nvidia.com/gpu": str(gpus)}
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {FAKE_NODE: "true", **labels}},
            "spec": {"taints": list(taints)} if taints else {},
            "status": {"capacity": room, "allocatable": room},
        }
        await self.api.request("POST", "/api/v1/nodes", node)

    async def resize(self, name: str, gpus: int) -> None:
        body: Object = {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}
        await self.api.request("PATCH", f"/api/v1/nodes/{name}/status", body, content_type=MERGE_PATCH)

    async def until(self, kind: str, name: str, condition: Callable[[Object], object], what: str) -> Object:
        """The object once `condition` holds for it."""
        last: Object = {}

        async def look() -> bool:
            nonlocal last
            last = await self.get(kind, name)
            return bool(condition(last))

        try:
            await eventually(look, f"{kind}/{name} {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status is {last.get('status')}") from None
        return last

    async def pods_of(self, owner: str) -> list[Object]:
        return [
            pod
            for pod in await self.items("pods")
            if any(reference["name"] == owner for reference in pod["metadata"].get("ownerReferences", ()))
        ]


def pod_template(
    *,
    run: float | None = 0.2,
    gpus: int = 1,
    exit_code: int = 0,
    selector: Mapping[str, str] = {},
    tolerations: tuple[Object, ...] = (),
    annotations: Mapping[str, str] = {},
) -> Object:
    """`run`: seconds; None: until the test ends."""
    container: Object = {
        "name": "main",
        "image": "train:1",
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "metadata": {
            "annotations": {
                "sandbox.queuectl.dev/run-seconds": str(600 if run is None else run),
                "sandbox.queuectl.dev/exit-code": str(exit_code),
                **annotations,
            }
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "nodeSelector": dict(selector),
            "tolerations": list(tolerations),
        },
    }


def job(name: str, template: Object, **spec: object) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def pod(name: str, template: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **template["metadata"]},
        "spec": template["spec"],
    }


def pytorchjob(name: str, template: Object, workers: int = 3, **policy: object) -> Object:
    def replica(count: int) -> Object:
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(workers)},
        },
    }


def condition(thing: Object, kind: str) -> str:
    """Status of a condition; empty if there is none."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")
