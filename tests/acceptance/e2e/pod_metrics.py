"""The API metrics.k8s.io of a cluster on loopback: the real aggregator calls this server, and the real
horizontal-pod-autoscaler-controller reads from it. Every pod that runs uses `cpu`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

from queuectl.sandbox.endpoints import choose_ports
from tests.acceptance.e2e.site import Json, eventually
from tests.acceptance.e2e.world import World
from tests.unit.certificates.issuing import DAY, issue, key_pem, new_key, pem

_GROUP = "metrics.k8s.io"
_SERVED = f"/apis/{_GROUP}/v1beta1"
_REGISTERED = "/apis/apiregistration.k8s.io/v1/apiservices"


class PodMetrics:
    """The amount of cpu that each pod uses is the same."""

    def __init__(self, world: World) -> None:
        self.cpu = "1"
        self.reads = 0
        self._world = world

    @classmethod
    @asynccontextmanager
    async def served(cls, world: World, folder: Path) -> AsyncIterator[PodMetrics]:
        """Until the block ends; the aggregator says that it is available."""
        found, (port,) = cls(world), choose_ports([(0, 0)])
        routes = web.Application()
        routes.router.add_get(_SERVED, found._resources)
        routes.router.add_get(f"{_SERVED}/namespaces/{{namespace}}/pods", found._pods)
        runner = web.AppRunner(routes, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=_certificate(folder)).start()
            async with _registered(world, port):
                yield found
        finally:
            await runner.cleanup()

    async def _resources(self, request: web.Request) -> web.Response:
        pods: Json = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{_GROUP}/v1beta1"}
        return web.json_response({**body, "resources": [pods]})

    async def _pods(self, request: web.Request) -> web.Response:
        self.reads += 1
        query = {"labelSelector": request.query.get("labelSelector", "")}
        path = f"/api/v1/namespaces/{request.match_info['namespace']}/pods"
        pods = (await self._world.api.request("GET", path, query=query))["items"]
        runs = [one for one in pods if (one.get("status") or {}).get("phase") == "Running"]
        items = [self._of(one) for one in runs]
        return web.json_response(
            {"kind": "PodMetricsList", "apiVersion": f"{_GROUP}/v1beta1", "metadata": {}, "items": items}
        )

    def _of(self, pod: Json) -> Json:
        now = datetime.now(UTC)  # noqa: TID251 (the clock of the metrics server)
        names = [one["name"] for one in pod["spec"]["containers"]]
        return {
            "metadata": {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")},
            "timestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "window": "1s",
            "containers": [{"name": name, "usage": {"cpu": self.cpu, "memory": "1Mi"}} for name in names],
        }


@asynccontextmanager
async def _registered(world: World, port: int) -> AsyncIterator[None]:
    """By a Service that is another name of this machine: there are no pods to route to."""
    services, name = f"/api/v1/namespaces/{world.namespace}/services", f"v1beta1.{_GROUP}"
    service: Json = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": "metrics"}
    await world.api.request(
        "POST", services, {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}
    )
    spec: Json = {
        "group": _GROUP,
        "version": "v1beta1",
        "service": {"name": "metrics", "namespace": world.namespace, "port": port},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    body: Json = {"kind": "APIService", "metadata": {"name": name}, "spec": spec}
    await world.api.request("POST", _REGISTERED, {"apiVersion": "apiregistration.k8s.io/v1", **body})

    async def available() -> bool:
        found = (await world.api.request("GET", f"{_REGISTERED}/{name}")).get("status") or {}
        return ("Available", "True") in [
            (one["type"], one["status"]) for one in found.get("conditions") or ()
        ]

    try:
        await eventually("the aggregator reaches it", available)
        yield
    finally:
        await world.api.request("DELETE", f"{_REGISTERED}/{name}")
        await world.api.request("DELETE", f"{services}/metrics")


def _certificate(folder: Path) -> ssl.SSLContext:
    key, now = new_key(), datetime.now(UTC)  # noqa: TID251 (the aggregator compares it with its clock)
    chain, private = folder / "tls.crt", folder / "tls.key"
    chain.write_bytes(pem(issue("localhost", key, begins=now - DAY, ends=now + timedelta(days=30))))
    private.write_bytes(key_pem(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, private)
    return context
