"""The same suite on the small API and on a real kube-apiserver; each test has its own namespace."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.kubernetes.server import SmallApi
from tests import definitions
from tests.definitions import PYTORCH
from tests.integration.kube_api.client import Client, Server, eventually
from tests.integration.kube_api.kubectl import Kubectl

NO_ASSETS = "KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NUMBERS = itertools.count(1)


@asynccontextmanager
async def _small(folder: Path) -> AsyncIterator[Server]:
    async with SmallApi(folder) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        yield Server("small", api.url, api.tokens, api.ssl_context(), folder / "kubeconfig")


@asynccontextmanager
async def _real(folder: Path) -> AsyncIterator[Server]:
    assets = find_assets()
    assert assets is not None
    async with ControlPlane(folder, assets, fsync=False) as plane:
        plane.write_kubeconfig(folder / "kubeconfig")
        yield Server("real", plane.url, plane.tokens, plane.ssl_context(), folder / "kubeconfig")


_SERVERS = {"small": _small, "real": _real} if find_assets() else {"small": _small}
"""Without the binaries the tests on real servers are not collected; test_tiers.py then says so once."""


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=_SERVERS, ids="site={}".format)
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    async with _SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


@asynccontextmanager
async def client_of(server: Server, identity: str, namespace: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {server.tokens[identity]}"}
    connector = aiohttp.TCPConnector(ssl=server.context)
    async with aiohttp.ClientSession(
        server.url, headers=headers, connector=connector, trust_env=False
    ) as session:
        yield Client(server, session, namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> AsyncIterator[Client]:
    """A client as admin, with a new namespace."""
    async with client_of(server, "admin", f"test-{next(_NUMBERS)}") as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": client.namespace}}
        await client.create("/api/v1/namespaces", body)
        yield client


@pytest.fixture
def kubectl(api: Client, tmp_path: Path) -> Kubectl:
    return Kubectl.of(api, tmp_path)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pytorch(server: Server) -> None:
    """Install the real definition of PyTorchJob."""
    definition = definitions.read(PYTORCH.stem)
    name = definition["metadata"]["name"]
    async with client_of(server, "admin", "") as client:
        await client.create(DEFINITIONS, definition)

        async def served() -> bool:
            status, _ = await client.call("GET", "/apis/kubeflow.org/v1/pytorchjobs")
            found = await client.get(f"{DEFINITIONS}/{name}")
            held = {
                c["type"] for c in found.get("status", {}).get("conditions") or () if c["status"] == "True"
            }
            return status == 200 and "Established" in held

        await eventually(served, "PyTorchJobs to be served")
