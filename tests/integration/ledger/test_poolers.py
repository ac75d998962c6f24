"""57: a pooler in front of Postgres is detected at the start, and the message says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from queuectl.ledger.admin.schema import check
from queuectl.ledger.pool import translated
from queuectl.ports.ledger import LedgerUnavailable, LedgerUnfit
from queuectl.sandbox.postgres import DATABASE, USER, EmbeddedPostgres
from tests.integration.ledger.places import reachable_folder

DEADLINE = 30.0
_SOCKET = ".s.PGSQL.5432"
_KEPT = (b"user", b"database", b"client_encoding", b"application_name")
"""Startup parameters that PgBouncer keeps; it refuses others, or drops them if configured so."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _listening(folder: Path, serve: Serve) -> AsyncIterator[str]:
    """A URL at which `serve` answers."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(served, str(folder / _SOCKET))
    try:
        yield f"postgresql://{USER}@/{DATABASE}?host={folder}"
    finally:
        server.close()


async def _startup(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    words = (await reader.readexactly(length - 4))[4:].split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False))


async def _refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As PgBouncer does without ignore_startup_parameters."""
    strange = next(name for name in await _startup(reader) if name and name not in _KEPT)
    fields = (b"SFATAL", b"C08P01", b"Munsupported startup parameter: " + strange, b"")
    body = b"\0".join(fields) + b"\0"
    writer.write(b"E" + struct.pack("!i", len(body) + 4) + body)
    await writer.drain()


def _dropping(postgres: Path) -> Serve:
    """As with PgBouncer: the parameters are dropped."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(str(postgres / _SOCKET))
        kept = {name: value for name, value in (await _startup(reader)).items() if name in _KEPT}
        body = b"".join(name + b"\0" + value + b"\0" for name, value in kept.items()) + b"\0"
        ours.write(struct.pack("!ii", len(body) + 8, 196608) + body)
        async with asyncio.TaskGroup() as both:
            both.create_task(_copy(reader, ours))
            both.create_task(_copy(theirs, writer))

    return serve


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_57_a_pooler_that_refuses_our_settings_is_named() -> None:
    with reachable_folder() as folder:
        async with asyncio.timeout(DEADLINE), _listening(folder, _refusing) as url:
            with pytest.raises(LedgerUnfit, match=r"unsupported startup parameter.*PgBouncer.*session mode"):
                await check(url, writing=True)


async def test_57_a_pooler_that_drops_our_settings_is_detected(server: EmbeddedPostgres) -> None:
    place = Path(unquote(server.url.partition("host=")[2].partition("&")[0]))
    await check(server.url, writing=True)
    with reachable_folder() as folder:
        async with asyncio.timeout(DEADLINE), _listening(folder, _dropping(place)) as url:
            with pytest.raises(LedgerUnfit, match=r"idle_in_transaction_session_timeout is 0 ms.*PgBouncer"):
                await check(url, writing=True)


class _Refused(OSError):
    sqlstate = "28P01"


def test_a_wrong_password_is_distinguished_from_an_unreachable_server() -> None:
    assert isinstance(translated(_Refused("password authentication failed")), LedgerUnfit)
    away = translated(OSError("connection refused"))
    assert isinstance(away, LedgerUnavailable)
    assert not isinstance(away, LedgerUnfit)
