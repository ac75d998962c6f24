"""A Postgres as a site has it: on an address of its own, with passwords and a superuser, without TLS."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import asyncpg

from queuectl.sandbox.postgres import DATABASE, USER, EmbeddedPostgres

_ACCESS: Final = "local all all trust\nhost all all all scram-sha-256\n"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """No role and no database but those of the superuser, `postgres`."""

    host: str
    sockets: str
    """Folder of the socket, by which the superuser connects."""

    async def cleared(self) -> None:
        """Drop database and role `queuectl`: the next cluster has a ledger of its own."""
        connection = await asyncpg.connect(host=self.sockets, user="postgres", database="postgres")
        try:
            await connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            await connection.execute(f"DROP ROLE IF EXISTS {USER}")
        finally:
            await connection.close()

    async def with_owner(self, password: str) -> str:
        """Create database and role `queuectl`, if they are not there; set its password. Returns the host."""
        connection = await asyncpg.connect(host=self.sockets, user="postgres", database="postgres")
        try:
            with contextlib.suppress(asyncpg.DuplicateObjectError):
                await connection.execute(f"CREATE ROLE {USER} LOGIN")
            await connection.execute(f"ALTER ROLE {USER} PASSWORD '{password}'")
            with contextlib.suppress(asyncpg.DuplicateDatabaseError):
                await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}")
        finally:
            await connection.close()
        return self.host


@asynccontextmanager
async def database(folder: Path) -> AsyncIterator[Database]:
    """A server on port 5432 of a loopback address that no other run of these tests uses."""
    pid = os.getpid()
    host = f"127.{100 + next(_numbers) % 100}.{pid >> 8 & 255}.{pid & 255 or 1}"
    folder.mkdir()
    folder.chmod(0o711)
    access = folder / "access.conf"
    access.write_text(_ACCESS)
    settings = {"listen_addresses": host, "fsync": "off", "hba_file": str(access)}
    async with EmbeddedPostgres(folder / "postgres", settings=settings) as server:
        for user, statements in (
            (USER, ["CREATE ROLE first SUPERUSER LOGIN"]),
            ("first", [f"ALTER ROLE {USER} RENAME TO postgres", f"DROP DATABASE {DATABASE}"]),
            ("postgres", ["DROP ROLE first"]),
        ):
            sockets = parse_qs(urlsplit(server.url).query)["host"][0]
            connection = await asyncpg.connect(host=sockets, user=user, database="postgres")
            for statement in statements:
                await connection.execute(statement)
            await connection.close()
        yield Database(host, sockets)
