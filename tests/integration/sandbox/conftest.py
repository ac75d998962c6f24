"""One API server per module, small or real, with players on it; a namespace per test."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.example import pytorchjob_crd
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players import play
from queuectl.sandbox.players.api import Client
from tests.integration.sandbox.cluster import Cluster, WallClock


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Client]:
    async with (
        SmallApi(folder) as server,
        Client(server.url, server.ssl_context(), server.tokens["admin"]) as api,
    ):
        yield api


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Client]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real API server is not tried")
    async with (
        ControlPlane(folder, assets, fsync=False) as plane,
        Client(plane.url, plane.ssl_context(), plane.tokens["admin"]) as api,
    ):
        yield api


SERVERS = {"small": small, "real": real}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["small", "real"])
async def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """A server with players."""
    folder = tmp_path_factory.mktemp("server")
    async with SERVERS[request.param](folder) as api:
        await api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", pytorchjob_crd())
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(play(api, WallClock(), controller_manager=request.param == "small"))
            yield api
            playing.cancel()


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(served: Client, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A namespace for the test, and no nodes but those it creates."""
    name = re.sub("[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_"))[:50].strip("-")
    here = Cluster(served, name, jobs_are_played=request.node.callspec.params["served"] == "small")
    await here.begin()
    yield here
    await here.end()
