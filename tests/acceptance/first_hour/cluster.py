"""A new cluster: an API server, played nodes and pods, and the Deployments of queuectl as processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from queuectl.sandbox import example
from queuectl.sandbox.api_server import Plane, client_of, problems_of_policy
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.install import Installer
from queuectl.sandbox.kubernetes.server import SmallApi
from queuectl.sandbox.players import play
from tests.acceptance.e2e.exposing import own_address
from tests.acceptance.first_hour.database import Database
from tests.acceptance.first_hour.deployed import Deployed
from tests.integration.sandbox.cluster import WallClock


class _WithVolumes(ControlPlane):
    """With the controller that a namespace with claims of volumes needs to end."""

    def _manager_arguments(self, config: Path) -> list[str]:
        more = ",persistentvolumeclaim-protection-controller"
        given = super()._manager_arguments(config)
        return [f"{one}{more}" if one.startswith("--controllers=") else one for one in given]


@asynccontextmanager
async def cluster(
    folder: Path, kubeconfig: Path, kind: str, database: Database, machine: Mapping[str, str]
) -> AsyncIterator[Plane]:
    """Without queuectl, with its admin in `kubeconfig`. `kind`: small or real."""
    folder.mkdir()
    async with AsyncExitStack() as stack:
        plane = _plane(folder, kind)
        await stack.enter_async_context(plane)
        kubeconfig.parent.mkdir(exist_ok=True)
        plane.write_kubeconfig(kubeconfig)
        api = await stack.enter_async_context(client_of(plane, "admin"))
        await Installer(api).apply(example.nodes())
        address = own_address() if kind == "real" else "127.0.0.1"
        environment = {**machine, "HOME": "/nonexistent"}
        deployed = Deployed(api, plane, folder, kubeconfig.parent, address, database, environment)
        async with asyncio.TaskGroup() as tasks:
            playing = [
                tasks.create_task(play(api, WallClock(), controller_manager=kind == "small")),
                tasks.create_task(deployed.run()),
            ]
            yield plane
            for task in playing:
                task.cancel()


def _plane(folder: Path, kind: str) -> Plane:
    if kind == "small":
        return SmallApi(folder / "plane", check=problems_of_policy)
    assets = find_assets()
    assert assets is not None, "KUBEBUILDER_ASSETS is not set"
    return _WithVolumes(folder / "plane", assets, fsync=False)
