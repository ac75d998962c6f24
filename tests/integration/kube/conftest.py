"""One server of each sort for all tests that only add objects to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.kube.sites import SITES, Site


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=sorted(SITES), ids="site={}".format)
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """Names of objects are unique across its files."""
    async with SITES[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found
