"""REST on a real Postgres: foreign databases, other schema versions, and a database that fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
import pytest_asyncio
from click.testing import CliRunner

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.server import serve
from queuectl.app.api import scheduling
from queuectl.app.forecasts import Forecaster
from queuectl.cli import main
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger import plans
from tests.integration.ledger.places import reachable_folder
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import queue_spec
from tests.unit.api.conftest import KEY

SLOTS = 12
RESUMED = 30.0
"""Seconds after the end of an outage within which REST must be up to date: five on an idle machine."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    few = {"max_connections": str(SLOTS), "superuser_reserved_connections": "0", "fsync": "off"}
    with reachable_folder() as folder:
        async with EmbeddedPostgres(folder / "pg", settings=few) as found:
            await schema.migrate(found.url)
            yield found


# --- 56 -----------------------------------------------------------------------------------------------


def _execute(url: str, *statements: str) -> list[Any]:
    async def run() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [await connection.fetchval(statement) for statement in statements]
        finally:
            await connection.close()

    return asyncio.run(run())


def _older(patch: pytest.MonkeyPatch) -> None:
    newest, known = schema._revisions()
    patch.setattr(schema, "_revisions", lambda: ("0999", known | {newest, "0999"}))


def _as_it_is(patch: pytest.MonkeyPatch) -> None:
    return


@pytest.mark.parametrize(
    ("spoiled", "change", "told"),
    [
        ("SELECT 1", _as_it_is, "has no ledger in it"),
        ("CREATE TABLE public.leadership (epoch int)", _as_it_is, "has no ledger in it"),
        ("migrated", _older, "this program needs 0999"),
        ("UPDATE queuectl.schema_version SET version_num = '9999'", _as_it_is, "9999 is newer"),
        ("DROP", _as_it_is, "does not exist"),
    ],
    ids=["empty", "another program's", "older", "newer", "missing"],
)
def test_56_a_foreign_database_is_recognized_and_not_changed(
    postgres: EmbeddedPostgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoiled: str,
    change: Callable[[pytest.MonkeyPatch], None],
    told: str,
) -> None:
    admin, url = postgres.database_url("postgres"), postgres.database_url("spoiled")
    _execute(admin, "CREATE DATABASE spoiled")
    try:
        if spoiled == "DROP":
            _execute(admin, "DROP DATABASE spoiled")
        else:
            if "schema_version" in spoiled or spoiled == "migrated":
                asyncio.run(schema.migrate(url))
            _execute(url, "SELECT 1" if spoiled == "migrated" else spoiled)
        before = None if spoiled == "DROP" else _execute(url, TABLES)
        change(monkeypatch)
        config = tmp_path / "queuectl.yaml"
        config.write_text("api: {identity: local, listen: '127.0.0.1:0'}")
        found = CliRunner().invoke(main, ["api", "--config", str(config), "--database-url", url])
        assert found.exit_code == 2, found.output
        assert told in found.output
        assert "queuectl migrate" in found.output or "newer queuectl" in found.output
        assert spoiled == "DROP" or _execute(url, TABLES) == before
    finally:
        _execute(admin, "DROP DATABASE IF EXISTS spoiled WITH (FORCE)")


TABLES = "SELECT string_agg(schemaname || '.' || tablename, ' ' ORDER BY 1) FROM pg_tables"


# --- 61 -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _rest(url: str, cluster: str) -> AsyncIterator[aiohttp.ClientSession]:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with (
        connection_pool(url, read_only=True) as pool,
        asyncio.timeout(90),
        asyncio.TaskGroup() as tasks,
    ):
        serving = tasks.create_task(
            serve(
                LedgerReadings(pool, cluster),
                kinds=JOB_KINDS,
                what_ifs=TriedWhatIfs(),
                address=("127.0.0.1", 0),
                cursor_key=KEY,
                refresh_seconds=0.05,
                started=started.set_result,
                forecasts=Forecaster(LedgerPast(pool, cluster, scheduling), scheduling),
            )
        )
        async with aiohttp.ClientSession(await started) as client:
            yield client
        serving.cancel()


async def _look(client: aiohttp.ClientSession) -> dict[str, Any]:
    async with client.get("/api/v1/workloads") as answer:
        assert answer.status == 200
        found: dict[str, Any] = await answer.json()
        return found


async def _until(client: aiohttp.ClientSession, good: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while not good(found := await _look(client)):
        await asyncio.sleep(0.02)
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_a_ledger_of_less_than_a_day_has_no_forecast(postgres: EmbeddedPostgres) -> None:
    async with connection_pool(postgres.url) as pool:
        ledger = PostgresLedger(pool, "young")
        epoch = await ledger.take_epoch("test")
        queue = replace(plans.configure("team-a", 8), spec=queue_spec(8))
        first = plans.plan(queue, plans.enqueue("one"), now=await ledger.now())
        await ledger.commit(first, [], epoch=epoch, batch="1")
    async with _rest(postgres.url, "young") as client:
        await _until(client, lambda found: "stale" not in found)
        async with client.get("/api/v1/workloads/ns/job/one/eta") as answer:
            assert answer.status == 200, await answer.text()
            found = await answer.json()
    assert (found["clusterQueue"], found["unknown"]) == ("team-a", "the history is shorter than a day")


@pytest.mark.asyncio(loop_scope="module")
async def test_61_without_a_free_connection_responses_are_stale_and_soon_up_to_date_again(
    postgres: EmbeddedPostgres,
) -> None:
    async with connection_pool(postgres.url) as pool:
        ledger = PostgresLedger(pool, "crowded")
        epoch = await ledger.take_epoch("test")
        now = await ledger.now()
        await ledger.commit(plans.plan(plans.enqueue("one"), now=now), [], epoch=epoch, batch="1")
    taken: list[asyncpg.Connection] = []
    async with _rest(postgres.url, "crowded") as client:
        assert [item["name"] for item in (await _until(client, lambda found: "stale" not in found))["items"]]
        try:
            taken.append(await asyncpg.connect(postgres.url))
            # A connection that REST gets back in between is taken from it again.
            while True:
                await taken[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'queuectl'"
                )
                with contextlib.suppress(asyncpg.TooManyConnectionsError):
                    while True:
                        taken.append(await asyncpg.connect(postgres.url))
                found = await _look(client)
                async with client.get("/api/v1/workloads/ns/job/one/history") as answer:
                    if "stale" in found and answer.status == 503:
                        assert "too many clients" in (await answer.json(content_type=None))["detail"]
                        break
            assert [item["name"] for item in found["items"]] == ["one"]
        finally:
            for connection in taken:
                await connection.close()
        async with asyncio.timeout(RESUMED):
            await _until(client, lambda found: "stale" not in found)


@pytest.mark.asyncio(loop_scope="module")
async def test_61_on_a_full_disk_nothing_is_admitted_and_reads_continue(postgres: EmbeddedPostgres) -> None:
    async with connection_pool(postgres.url) as pool:
        ledger = PostgresLedger(pool, "full")
        epoch = await ledger.take_epoch("test")
        now = await ledger.now()
        first = plans.plan(plans.configure("team-a", 8), plans.enqueue("one"), now=now)
        await ledger.commit(first, [], epoch=epoch, batch="1")
        admission = plans.plan(plans.admit("one", now=now), plans.enqueue("two", arrival=2), now=now)
        async with _rest(postgres.url, "full") as client:
            await _until(client, lambda found: len(found["items"]) == 1)
            async with _full_disk(postgres.url):
                for _ in range(3):
                    with pytest.raises(LedgerUnavailable, match="could not extend file"):
                        await ledger.commit(admission, [], epoch=epoch, batch="2")
                found = await _look(client)
                assert [(item["name"], item["phase"]) for item in found["items"]] == [("one", "Pending")]
            await ledger.commit(admission, [], epoch=epoch, batch="2")
            async with asyncio.timeout(RESUMED):
                found = await _until(client, lambda found: len(found["items"]) == 2)
            assert {item["name"]: item["phase"] for item in found["items"]} == {
                "one": "Admitted",
                "two": "Pending",
            }
    assert await verify(postgres.url) == []


@contextlib.asynccontextmanager
async def _full_disk(url: str) -> AsyncIterator[None]:
    """A full disk for writes of holds: in the middle of an admission's transaction."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "CREATE FUNCTION queuectl.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
            "'could not extend file' USING ERRCODE = 'disk_full'; END $$; CREATE TRIGGER full_disk BEFORE "
            "INSERT ON queuectl.hold_line FOR EACH ROW EXECUTE FUNCTION queuectl.full()"
        )
        yield
        await connection.execute("DROP FUNCTION queuectl.full CASCADE")
    finally:
        await connection.close()
