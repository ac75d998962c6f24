"""Connections to this server through the service proxy of the API server.

The proxy removes the header Authorization and does not verify the certificate of a service. So a client opens
a WebSocket through it, and in the WebSocket a connection of its own to this server: with TLS from end to end,
verified by the client, and with all headers. The WebSocket gives no rights: a client that can open it reaches
this server's port already.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from aiohttp import web

from queuectl.api.problems import Refusal
from queuectl.relaying import CHUNK, relay

PATH: Final = "/tunnel"


async def tunnel(request: web.Request) -> web.StreamResponse:
    """The connection in the WebSocket has the deadlines of every other one: when it ends, so does this."""
    socket = web.WebSocketResponse(compress=False, max_msg_size=CHUNK)
    if not socket.can_prepare(request):
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, "only a WebSocket is answered here")
    try:
        # None if the client is gone.
        host, port = request.get_extra_info("sockname", default=("", 0))[:2]
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        detail = "this server can't connect to itself"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, inside=str(error), retry_after=2) from None
    try:
        await socket.prepare(request)
    except BaseException:
        writer.close()
        raise
    await relay(socket, reader, writer)
    return socket
