"""The rigs of REST and of the gate; the tenant of the gate has ClusterRole edit in its own namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.gate.conftest import NO_ASSETS, defined  # noqa: F401 (a fixture)
from tests.acceptance.gate.site import NAMESPACE, Site, served
from tests.definitions import PYTORCH
from tests.rights import bind
from tests.unit.api.conftest import rest, serve  # noqa: F401 (fixtures)

_EDIT = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["mutating"], ids=["site=mutating"])
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A real API server with the gate in force: what is refused is the same without mutating policies."""
    assets = find_assets()
    if assets is None:
        pytest.skip(NO_ASSETS)
    folder = tmp_path_factory.mktemp("plane")
    async with served(folder, assets, PYTORCH, emulated=None, mutating=True) as found:
        # The roles that a controller aggregates to edit: there are no controllers here.
        await bind(
            found.admin, "tenant", "ClusterRole", "system:aggregate-to-edit", _EDIT, namespace=NAMESPACE
        )
        yield found
