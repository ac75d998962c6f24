"""Real API servers with the gate: current, current with the mutating policy, and an emulated older one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import tests.conftest
from queuectl.sandbox.control_plane import find_assets
from tests.gate.site import OLDEST, Site, served

NO_ASSETS = "KUBEBUILDER_ASSETS is not set: the real kube-apiserver tier is skipped"


@pytest.fixture(scope="session")
def assets() -> Path:
    found = find_assets()
    if found is None:
        pytest.skip(NO_ASSETS)
    return found


@pytest.fixture(scope="session")
def pytorch_crd() -> Path:
    return tests.conftest.pytorch_crd()


@pytest_asyncio.fixture(
    scope="session",
    loop_scope="session",
    params=["validating", "mutating", f"as-{OLDEST}"],
    ids=lambda name: f"site={name.removeprefix('as-')}",
)
async def site(
    request: pytest.FixtureRequest,
    assets: Path,
    pytorch_crd: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Site]:
    """manifests/ in force, and on `mutating` also manifests/mutating."""
    emulated = OLDEST if request.param == f"as-{OLDEST}" else None
    folder = tmp_path_factory.mktemp("plane")
    mutating = request.param == "mutating"
    async with served(folder, assets, pytorch_crd, emulated=emulated, mutating=mutating) as found:
        yield found
