from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.sandbox.postgres_folder import PostgresFailed
from tests.integration.ledger.places import reachable_folder

OWNER_SCRIPT = """
import asyncio, sys, asyncpg
from queuectl.sandbox.postgres import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres(sys.argv[1]) as server:
        connection = await asyncpg.connect(server.url)
        await connection.execute("create table kept (n int); insert into kept values (7)")
        print(server.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as place:
        yield place


async def ask(server: EmbeddedPostgres, question: str) -> object:
    connection = await asyncpg.connect(server.url, timeout=5)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_data_survives_a_restart_in_a_path_with_a_space(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "a space") as server:
        await ask(server, "create table kept as select 5 as n")
        assert await ask(server, "show data_checksums") == "on"
        assert await ask(server, "show fsync") == "on"
        assert await ask(server, "show server_encoding") == "UTF8"
        pid = server.pid
    assert not alive(pid)
    async with EmbeddedPostgres(folder / "a space") as server:
        assert await ask(server, "select n from kept") == 5


async def test_sigkill_of_the_parent_leaves_no_server_and_loses_no_commit(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((os.getcwd(), *sys.path))}
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER_SCRIPT, folder / "pg", stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert owner.stdout is not None
    async with asyncio.timeout(60):
        pid = int(await owner.stdout.readline())
    assert alive(pid)
    owner.kill()
    await owner.communicate()
    # Start at once: the old server may still be shutting down.
    async with EmbeddedPostgres(folder / "pg") as server:
        assert await ask(server, "select n from kept") == 7
        assert server.pid != pid
    await until(lambda: not alive(pid))


async def test_a_killed_server_recovers_at_the_next_start(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "pg") as server:
        await ask(server, "create table kept as select 3 as n")
        os.kill(server.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            await server.wait()
        with pytest.raises(PostgresFailed, match="ended"):
            _ = server.pid
    async with EmbeddedPostgres(folder / "pg") as server:
        assert await ask(server, "select n from kept") == 3


async def test_a_pid_file_that_names_another_process_is_ignored(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "pg") as server:
        data = server.folder / "data"
        leftover = (data / "postmaster.pid").read_text().splitlines()
    owner = data.stat()
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *leftover[1:]]) + "\n")
        os.chown(data / "postmaster.pid", owner.st_uid, owner.st_gid)
        async with EmbeddedPostgres(folder / "pg") as server:
            assert await ask(server, "select 1") == 1
        assert stranger.returncode is None
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_path_too_long_for_a_socket_gets_a_short_link_that_is_removed(folder: Path) -> None:
    async with EmbeddedPostgres(folder / ("long" * 25)) as server:
        assert await ask(server, "select 1") == 1
        sockets = Path(str(await ask(server, "show unix_socket_directories")).strip('"'))
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert not sockets.exists()


async def test_other_users_cannot_access_data_or_socket(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "pg") as server:
        for name in ("data", "socket"):
            assert stat.S_IMODE((server.folder / name).stat().st_mode) == 0o700


async def test_a_folder_of_another_version_is_refused_and_both_versions_are_named(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "pg") as server:
        version_file = server.folder / "data" / "PG_VERSION"
    version_file.write_text("9\n")
    with pytest.raises(PostgresFailed, match=r"made by Postgres 9, but .* is Postgres 1\d"):
        async with EmbeddedPostgres(folder / "pg"):
            pass


async def test_a_folder_in_use_is_refused(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "pg") as server:
        with pytest.raises(PostgresFailed, match="in use"):
            async with EmbeddedPostgres(folder / "pg"):
                pass
        assert await ask(server, "select 1") == 1


async def test_a_server_that_will_not_start_shows_its_log(folder: Path) -> None:
    with pytest.raises(PostgresFailed, match="no_such_setting"):
        async with EmbeddedPostgres(folder / "pg", settings={"no_such_setting": "1"}):
            pass


async def test_a_folder_without_binaries_is_named(folder: Path) -> None:
    with pytest.raises(PostgresFailed, match="has no postgres and initdb"):
        async with EmbeddedPostgres(folder / "pg", binaries=folder):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand its server to another account")
async def test_root_uses_another_folder_if_its_own_cannot_be_reached(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    places = []
    try:
        for answer in ("create table kept as select 9 as n", "select n from kept"):
            async with EmbeddedPostgres(closed / "pg") as server:
                places.append(server.folder)
                value = await ask(server, answer)
        assert value == 9
        assert places[0] == places[1] != closed / "pg"
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    finally:
        for place in set(places):
            shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand its server to another account")
async def test_binaries_that_only_root_can_access_are_copied_beside_the_data(folder: Path) -> None:
    async with EmbeddedPostgres(folder / "first") as server:
        running = Path(f"/proc/{server.pid}/exe").resolve().parent
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    package = running.parent.parent
    shutil.copytree(package, hidden / package.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
    if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        shutil.copytree(libraries, hidden / libraries.name)
    binaries = hidden / package.name / running.parent.name / "bin"
    async with EmbeddedPostgres(folder / "pg", binaries=binaries) as server:
        assert await ask(server, "select 1") == 1
        used = Path(f"/proc/{server.pid}/exe").resolve()
    assert used.is_relative_to(server.folder)
