from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import ControlPlane, find_assets
from queuectl.sandbox.players.api import Client
from tests.acceptance.manifests.applied import OLDEST, Applied
from tests.acceptance.manifests.rendered import MANIFESTS


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["today", OLDEST], ids="site={}".format)
async def applied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Applied]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped")
    folder = tmp_path_factory.mktemp(f"plane-{request.param}")
    old = request.param == OLDEST
    emulated = OLDEST if old else None
    async with (
        ControlPlane(folder, assets, emulated=emulated, fsync=False) as plane,
        Client(plane.url, plane.ssl_context(), plane.tokens["admin"]) as admin,
    ):
        plane.write_kubeconfig(folder / "kubeconfig")
        found = Applied(plane, admin, old=old)
        said = await found.kubectl("apply", "-k", str(MANIFESTS))
        assert "Warning" not in said
        yield found
