"""HTTP requests to an API server, small or real, and the objects that the tests send."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
DEADLINE = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """What SmallApi and ControlPlane have in common."""

    sort: str
    url: str
    tokens: Mapping[str, str]
    context: ssl.SSLContext
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class Client:
    """A client with one identity on one server, in its own namespace."""

    server: Server
    session: aiohttp.ClientSession
    namespace: str

    @property
    def configmaps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def pytorchjobs(self) -> str:
        return f"/apis/kubeflow.org/v1/namespaces/{self.namespace}/pytorchjobs"

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> tuple[int, Json]:
        """Status and decoded body; `{"text": ...}` if it is not JSON."""
        data = None if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"Content-Type": media, **(headers or {})}
        async with (
            asyncio.timeout(DEADLINE),
            self.session.request(method, path, data=data, params=query, headers=sent) as response,
        ):
            text = await response.read()
            try:
                return response.status, orjson.loads(text)
            except orjson.JSONDecodeError:
                return response.status, {"text": text.decode()}

    async def get(self, path: str, **query: Any) -> Json:
        status, body = await self.call("GET", path, **query)
        assert status == 200, body
        return body

    async def create(self, path: str, body: Json, **query: Any) -> Json:
        status, created = await self.call("POST", path, body, **query)
        assert status == 201, created
        return created

    async def patch(self, path: str, body: object, media: str = MERGE, **query: Any) -> Json:
        status, patched = await self.call("PATCH", path, body, media=media, **query)
        assert status == 200, patched
        return patched

    async def refused(self, method: str, path: str, body: object = None, **rest: Any) -> Json:
        """Send a request that must fail; returns its Status object."""
        status, answer = await self.call(method, path, body, **rest)
        assert answer.get("kind") == "Status", (status, answer)
        assert answer["status"] == "Failure"
        assert answer["code"] == status
        return answer

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Events]:
        params = {"watch": "1", "timeoutSeconds": "60", **{name: str(value) for name, value in query.items()}}
        async with self.session.get(path, params=params) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


class Events:
    """The lines of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self, end: tuple[str, Json] | None = None) -> tuple[str, Json]:
        """Type and object of the next event; at the end of the watch `end` or EOFError."""
        async with asyncio.timeout(DEADLINE):
            line = await self._response.content.readline()
        if not line:
            if end is None:
                raise EOFError
            return end
        event = orjson.loads(line)
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(kind, obj["metadata"]["name"]) for kind, obj in events]


async def eventually(condition: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until the condition is true; fails with `what` after the deadline."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not await condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE:g} s in vain for {what}") from None


def configmap(name: str, data: Mapping[str, str] | None = None, **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": dict(data or {}),
    }


def job(name: str, *, suspend: bool = True, **spec: object) -> Json:
    container = {"name": "main", "image": "registry/image:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": suspend, "template": template, **spec},
    }


def pod(name: str, **metadata: object) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "registry/image:1"}]},
    }


def owned_by(owner: Json, *, controller: bool = False) -> list[Json]:
    metadata = owner["metadata"]
    reference = {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], **reference, "controller": controller}]


def pytorchjob(name: str, **spec: object) -> Json:
    container = {
        "name": "pytorch",
        "image": "registry/image:1",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": replica}, **spec},
    }
