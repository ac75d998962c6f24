"""A Unix socket proxy in front of Postgres that can drop the response to a COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"


class CommitProxy:
    """Forwards everything. `drop_answers`: number of COMMITs that are carried out without a response."""

    def __init__(self) -> None:
        self.drop_answers = 0
        self.commits = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Path) -> None:
        theirs, ours = await asyncio.open_unix_connection(str(server / _SOCKET))
        dropping = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forth(reader, ours, dropping))
                group.create_task(self._back(theirs, writer, dropping))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            for stream in (writer, ours):
                stream.close()
                with contextlib.suppress(ConnectionError):
                    await stream.wait_closed()

    async def _forth(
        self, reader: asyncio.StreamReader, ours: asyncio.StreamWriter, dropping: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if b"COMMIT;" in data:
                self.commits += 1
                if self.drop_answers > 0:
                    self.drop_answers -= 1
                    dropping.set()
            ours.write(data)
            await ours.drain()
        raise ConnectionResetError("the client is gone")

    async def _back(
        self, theirs: asyncio.StreamReader, writer: asyncio.StreamWriter, dropping: asyncio.Event
    ) -> None:
        while data := await theirs.read(65536):
            if dropping.is_set():
                raise ConnectionResetError("the answer is lost")
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the server is gone")


@contextlib.asynccontextmanager
async def commit_proxy(folder: Path, server: Path) -> AsyncIterator[CommitProxy]:
    """Listens in `folder` as Postgres does in `server`."""
    proxy = CommitProxy()
    listening = await asyncio.start_unix_server(
        lambda reader, writer: proxy.serve(reader, writer, server), str(folder / _SOCKET)
    )
    try:
        yield proxy
    finally:
        listening.close()
