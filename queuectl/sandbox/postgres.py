"""A Postgres server over a data folder: finds binaries, starts and stops it, leaves nothing behind.

Clients connect through a Unix socket in a folder that only its owner can enter, so there is no password. If
this process is root, the server runs as an existing account without rights, in a folder that it can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import asyncpg

from queuectl.sandbox.postgres_folder import (
    PostgresFailed,
    SystemUser,
    choose_account,
    choose_folder,
    find_programs,
    locked,
    make_folder,
    socket_folder,
)
from queuectl.sandbox.processes import ChildProcess, spawn

log = logging.getLogger(__name__)

USER: Final = "queuectl"
DATABASE: Final = "queuectl"
_LOG_LIMIT: Final = 4 << 20
_DEADLINE: Final = 60.0
"""Seconds, for making the data folder and for starting or stopping each."""
_POLL: Final = 0.02
"""Seconds between two checks of a condition that sends no notification."""


class EmbeddedPostgres:
    """Async context manager: a running server over `folder`, with an empty or kept database `queuectl`.

    `url` is in the form of libpq; `folder` is the folder of the data, which is not the requested one if the
    server's account can't reach that. Raises PostgresFailed on entering.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        binaries: Path | str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._binaries = Path(binaries) if binaries is not None else None
        self._settings = dict(settings or {})
        self._stack = contextlib.AsyncExitStack()
        self._server: ChildProcess | None = None
        self._sockets = self.folder

    @property
    def url(self) -> str:
        return self.database_url(DATABASE)

    def database_url(self, database: str) -> str:
        """URL of another database of this server, in the form libpq takes."""
        return f"postgresql://{USER}@/{quote(database)}?host={quote(str(self._sockets), safe='')}&port=5432"

    @property
    def pid(self) -> int:
        """Process id of the server. Raises PostgresFailed when it does not run."""
        return self._running().pid

    def _running(self) -> ChildProcess:
        if self._server is None:
            raise PostgresFailed(f"no Postgres runs in {self.folder}")
        if self._server.returncode is not None:
            raise PostgresFailed(str(self._server.death()))
        return self._server

    async def wait(self) -> None:
        """Return when the server has ended for any reason."""
        await self._running().wait()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            asked = self.folder
            account = choose_account(asked)
            self.folder = choose_folder(asked, account)
            if self.folder != asked:
                log.warning("Postgres keeps its data in %s: its account cannot reach %s", self.folder, asked)
            stack.enter_context(locked(self.folder / "lock"))
            programs = find_programs(self._binaries, account, self.folder)
            self._sockets = stack.enter_context(socket_folder(self.folder, account))
            data = self.folder / "data"
            if not (data / "PG_VERSION").exists():
                await self._initdb(programs, data, account)
            await _check_version(programs, data)
            await stack.enter_async_context(self._serving(programs, data, account))
            await self._ready()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _initdb(self, programs: Path, data: Path, account: SystemUser | None) -> None:
        """Made under another name and renamed: an interrupted run leaves no incomplete data folder."""
        fresh = data.with_name("data.new")
        shutil.rmtree(fresh, ignore_errors=True)
        make_folder(fresh, account)
        options: list[str | Path] = ["-D", fresh, "-U", USER, "--auth=trust", "--locale=C", "-E", "UTF8"]
        command = [programs / "initdb", *options, "--data-checksums", "--no-sync"]
        child = await self._spawn(command, account, signal.SIGKILL)
        try:
            async with asyncio.timeout(_DEADLINE):
                status = await child.wait()
        except TimeoutError:
            raise PostgresFailed(f"initdb of {data} took over {_DEADLINE:g} s") from None
        finally:
            await child.stop(0)
        if status != 0:
            raise PostgresFailed(f"initdb of {data}: {child.death()}")
        fresh.rename(data)

    @contextlib.asynccontextmanager
    async def _serving(self, programs: Path, data: Path, account: SystemUser | None) -> AsyncIterator[None]:
        environment = await _clear_predecessor(data)
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": '"' + str(self._sockets).replace('"', '""') + '"',
            "unix_socket_permissions": "0700",
            "port": "5432",
            "max_connections": "100",
            "logging_collector": "off",
            **self._settings,
        }
        command: list[str | Path] = [programs / "postgres", "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        # However this process ends, the kernel then signals the server to do a fast shutdown.
        server = await self._spawn(command, account, signal.SIGINT, environment)
        self._server = server
        try:
            yield
        finally:
            self._server = None
            await server.stop(_DEADLINE, with_signal=signal.SIGINT)

    async def _ready(self) -> None:
        """Wait until it answers; create the database if it does not exist."""
        exists = "SELECT 1 FROM pg_database WHERE datname = $1"
        try:
            async with asyncio.timeout(_DEADLINE):
                connection = await self._first_connection()
                try:
                    if not await connection.fetchval(exists, DATABASE):
                        await connection.execute(f'CREATE DATABASE "{DATABASE}"')
                finally:
                    await connection.close()
        except TimeoutError:
            tail = self._running().tail()
            raise PostgresFailed(
                f"Postgres in {self.folder} did not answer in {_DEADLINE:g} s:\n{tail}"
            ) from None

    async def _first_connection(self) -> asyncpg.Connection:
        while True:
            self._running()
            try:
                return await asyncpg.connect(self.database_url("postgres"), timeout=5)
            except (OSError, asyncpg.PostgresError, asyncpg.InternalClientError):
                await asyncio.sleep(_POLL)

    async def _spawn(
        self,
        command: list[str | Path],
        account: SystemUser | None,
        death_signal: signal.Signals,
        environment: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        log_file = self.folder / "postgres.log"
        if log_file.exists() and log_file.stat().st_size > _LOG_LIMIT:
            log_file.unlink()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return await spawn(
            command,
            name="Postgres",
            log=log_file,
            env={**inherited, "LC_ALL": "C", "TZ": "UTC", **(environment or {})},
            cwd=self.folder,
            user=(account.uid, account.gid) if account else None,
            death_signal=death_signal,
        )


async def _check_version(programs: Path, data: Path) -> None:
    """Raises PostgresFailed if the data folder needs binaries of another major version."""
    made_by = (data / "PG_VERSION").read_text().strip()
    process = await asyncio.create_subprocess_exec(
        programs / "postgres", "--version", stdout=asyncio.subprocess.PIPE, cwd="/"
    )
    text = (await process.communicate())[0].decode()
    ours = text.rpartition("PostgreSQL)")[2].strip().split(".")[0]
    if ours != made_by:
        raise PostgresFailed(
            f"{data} was made by Postgres {made_by}, but {programs} is Postgres {ours or 'unknown'}: "
            f"use binaries of version {made_by}, or dump with those and restore into a new folder"
        )


async def _clear_predecessor(data: Path) -> dict[str, str]:
    """Handle the postmaster.pid of an earlier run; returns environment for the new server.

    A server that outlived its parent is stopped. If the process id belongs to another process now, the new
    server is told to ignore it: Postgres itself only checks that it is alive and of the same user.
    """
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, 0)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return {}
    except PermissionError:
        pass  # alive, and of another user
    if not _serves(pid, data):
        return {"PG_GRANDPARENT_PID": str(pid)}
    log.warning("stopping the Postgres (process %d) that an earlier run left in %s", pid, data)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGINT)
    end = asyncio.get_running_loop().time() + _DEADLINE
    while _serves(pid, data):
        if asyncio.get_running_loop().time() > end:
            raise PostgresFailed(f"Postgres (process {pid}) of an earlier run still runs in {data}")
        await asyncio.sleep(_POLL)
    return {}


def _serves(pid: int, data: Path) -> bool:
    """Whether process `pid` is a server over `data`: that is the working folder of Postgres."""
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == data.resolve()
    except OSError:
        return False
