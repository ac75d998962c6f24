"""The bytes of one connection as messages of a WebSocket, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from aiohttp import ClientWebSocketResponse, WSMsgType, web

CHUNK: Final = 64 << 10
"""Bytes of one message, at most."""
SEND_SECONDS: Final = 60.0
"""How long the other side may take to accept one message."""

WebSocket = ClientWebSocketResponse | web.WebSocketResponse


class _Ended(Exception):
    """One direction has ended."""


async def relay(socket: WebSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends; then both are closed. A message that is not bytes ends it too."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_inwards(socket, writer))
            tasks.create_task(_outwards(socket, reader))
    except* (_Ended, OSError):  # TimeoutError is one
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await socket.close()


async def _inwards(socket: WebSocket, writer: asyncio.StreamWriter) -> None:
    while (message := await socket.receive()).type is WSMsgType.BINARY:
        writer.write(message.data)
        async with asyncio.timeout(SEND_SECONDS):
            await writer.drain()
    raise _Ended


async def _outwards(socket: WebSocket, reader: asyncio.StreamReader) -> None:
    while chunk := await reader.read(CHUNK):
        async with asyncio.timeout(SEND_SECONDS):
            await socket.send_bytes(chunk)
    raise _Ended
