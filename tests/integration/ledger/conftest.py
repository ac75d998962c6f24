from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.pool import create_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import DATABASE, EmbeddedPostgres
from tests.integration.ledger.edits import World, write_each_kind
from tests.integration.ledger.places import reachable_folder

_TEMPLATE = "migrated"
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[EmbeddedPostgres]:
    """One server for all tests, with one migrated database, in which each test has its own cluster id."""
    with reachable_folder() as folder:
        settings = {"fsync": "off", "full_page_writes": "off"}
        async with EmbeddedPostgres(folder / "pg", settings=settings) as postgres:
            await migrate(postgres.url)
            await _execute(postgres, f'CREATE DATABASE "{_TEMPLATE}" TEMPLATE "{DATABASE}"')
            yield postgres


@pytest.fixture
async def fresh(server: EmbeddedPostgres, cluster: str) -> AsyncIterator[str]:
    """URL of an empty database with a name that must be quoted."""
    async with _database(server, f"a b%{cluster}", "template1") as url:
        yield url


@pytest.fixture
async def migrated(server: EmbeddedPostgres, cluster: str) -> AsyncIterator[str]:
    """URL of a migrated database for one test, with a name that must be quoted."""
    async with _database(server, f"m b%{cluster}", _TEMPLATE) as url:
        yield url


@asynccontextmanager
async def _database(server: EmbeddedPostgres, name: str, template: str) -> AsyncIterator[str]:
    # Half the CPU of the default, which writes all of it to the WAL.
    await _execute(server, f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    yield server.database_url(name)
    await _execute(server, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _execute(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.database_url("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


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
