from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import create_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.edits import World, write_each_kind
from tests.integration.ledger.places import reachable_folder

_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[EmbeddedPostgres]:
    """One server for all tests, with one migrated database; each test has its own cluster id."""
    with reachable_folder() as folder:
        async with EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as postgres:
            await migrate(postgres.url)
            yield postgres


@pytest.fixture
def cluster() -> str:
    return f"cluster-{next(_numbers)}"


@pytest.fixture
async def pool(server: EmbeddedPostgres) -> AsyncIterator[AsyncEngine]:
    """A pool to which every connection must be returned by the end of the test."""
    pool = create_pool(server.url)
    yield pool
    out = pool.pool.checkedout()  # type: ignore[attr-defined]
    await pool.dispose()
    assert out == 0, f"{out} connections were not given back"


@pytest.fixture
async def world(pool: AsyncEngine, server: EmbeddedPostgres, cluster: str) -> World:
    ledger = PostgresLedger(pool, cluster)
    return World(pool, server.url, cluster, ledger, await ledger.take_epoch("test"))


@pytest.fixture
async def busy(world: World) -> World:
    await write_each_kind(world)
    assert await world.codes() == set()
    return world
