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

from queuectl.api.http import Refusal
from queuectl.net.relay import CHUNK, relay

PATH: Final = "/tunnel"
MOST: Final = 96
"""Tunnels at one time. Each is two connections of this server, of which the outer one is always in work."""
CLOSE_SECONDS: Final = 2.0
"""How long a client may take to confirm the end of its WebSocket."""
_OPEN: Final = web.AppKey("tunnels", set[web.WebSocketResponse])


def add_tunnel(app: web.Application) -> None:
    app[_OPEN] = set()
    app.router.add_get(PATH, tunnel)


async def tunnel(request: web.Request) -> web.StreamResponse:
    """The connection in the WebSocket has the deadlines of every other one: when it ends, so does this."""
    opened = request.app[_OPEN]
    socket = web.WebSocketResponse(compress=False, max_msg_size=CHUNK, timeout=CLOSE_SECONDS)
    if not socket.can_prepare(request):
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, "only a WebSocket is answered here")
    if len(opened) >= MOST:
        raise Refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST} tunnels are open on this server", retry_after=2
        )
    opened.add(socket)
    try:
        return await _carried(request, socket)
    finally:
        opened.discard(socket)


async def _carried(request: web.Request, socket: web.WebSocketResponse) -> web.StreamResponse:
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
