"""Listening sockets of the HTTP servers: a bounded number of connections, each with deadlines.

aiohttp bounds the size of a request, but neither how slowly it arrives nor how many connections are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web

log = logging.getLogger(__name__)

_STOP_SECONDS: Final = 2.0
"""How long requests may still take once the server stops."""
_LINGER_SECONDS: Final = 1.0
"""How long the rest of a refused request's body is read, so that the client gets the answer."""
_RETRY_SECONDS: Final = 0.1
_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    connections: int = 64
    """Open at one time, TLS handshakes included. One more takes the place of the oldest one without a request
    in work; without such a one it is closed."""
    handshake_seconds: float = 10.0
    header_seconds: float = 10.0
    """For the TLS handshake and the headers of a request together."""
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    """From the end of the work on a request to the first byte of the next one."""


@asynccontextmanager
async def serving(
    app: web.Application,
    *,
    host: str,
    port: int,
    limits: ConnectionLimits,
    context: ssl.SSLContext | None = None,
    handler: type[web.RequestHandler] = web.RequestHandler,
) -> AsyncIterator[str]:
    """Serve `app` for the duration of the block and yield the base URL; port 0 takes a free port.

    `app` has to report the work on its requests to their connections: by the middleware `guarded`, or itself
    (`connection_of`). `handler`: parses and answers the requests of one connection. Raises OSError.
    """
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=_STOP_SECONDS)
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None

    def requests() -> web.RequestHandler:
        return handler(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=limits.idle_seconds,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
        )

    listener = Listener(requests, limits, context)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)  # requests in work are answered
        listening = await _listening(host, port)
        for one in listening:
            stack.callback(one.close)
        bound_host, bound_port = listening[0].getsockname()[:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        failure = None
        async with asyncio.TaskGroup() as tasks:
            accepting = [tasks.create_task(listener.accept(one)) for one in listening]
            try:
                yield f"{'http' if context is None else 'https'}://{shown}:{bound_port}"
            except Exception as error:
                failure = error  # raised outside the group, which would wrap it
            finally:
                for task in accepting:
                    task.cancel()
        if failure is not None:
            raise failure


async def _listening(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of `host`. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    found: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            found.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
            found[-1].setblocking(False)
    except OSError:
        for one in found:
            one.close()
        raise
    return found


def connection_of(request: web.Request) -> Connection | None:
    """None: the client is gone, or this server has another listener (in tests)."""
    found = request.transport.get_protocol() if request.transport is not None else None
    return found if isinstance(found, Connection) else None


@web.middleware
async def guarded(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The outermost middleware. Handlers read bodies by `body_of`."""
    connection = connection_of(request)
    if connection is None:
        return await handler(request)
    connection.working()
    try:
        return await handler(request)
    finally:
        connection.answered()


async def body_of(request: web.Request) -> bytes:
    """The body of a request. The connection ends if the body does not arrive within `Limits.body_seconds`.

    Raises aiohttp's and OSError where the client is gone.
    """
    connection = connection_of(request)
    if connection is None:
        return await request.read()
    connection.reading()
    body = await request.read()
    connection.working()
    return body


class Connection(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol, and aborts the connection when a deadline passes."""

    def __init__(
        self, inner: asyncio.Protocol, limits: ConnectionLimits, lost: Callable[[Connection], None]
    ) -> None:
        self._inner = inner
        self._limits = limits
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False
        self.busy = False
        """A request of it is in work."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._within(self._limits.header_seconds)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self._idle = False
            self._within(self._limits.header_seconds)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._disarm()
        self._lost(self)
        self._inner.connection_lost(error)

    def reading(self) -> None:
        """The work on a request has begun with its body, which is still to arrive."""
        self.busy, self._idle = True, False
        self._within(self._limits.body_seconds)

    def working(self) -> None:
        """A request is in work, and all of it has arrived."""
        self.busy, self._idle = True, False
        self._disarm()

    def answered(self) -> None:
        """The work on the request is over; its answer may still be under way to the client."""
        self.busy, self._idle = False, True
        self._within(self._limits.idle_seconds)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _within(self, seconds: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Listener:
    """Accepts the connections of one HTTP server."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], limits: ConnectionLimits, context: ssl.SSLContext | None
    ) -> None:
        """`make`: a new aiohttp protocol for each connection. `context` None: plain HTTP."""
        self._make = make
        self._limits = limits
        self._context = context
        self._open: dict[Connection, asyncio.Task[None]] = {}
        """Oldest first, each with the task of its TLS handshake."""

    async def accept(self, listener: socket.socket) -> None:
        """Until cancelled; open connections go on."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listener)
                except OSError as error:  # no file descriptors left, or gone before it was accepted
                    log.warning("no connection accepted: %s", error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                self._take(accepted, tasks)

    def _take(self, accepted: socket.socket, tasks: asyncio.TaskGroup) -> None:
        if len(self._open) >= self._limits.connections and not self._make_room():
            accepted.close()
            return
        connection = Connection(self._make(), self._limits, self._forget)
        self._open[connection] = tasks.create_task(self._connect(connection, accepted))

    def _make_room(self) -> bool:
        """End the oldest one without a request in work; False: there is none."""
        waiting = next((connection for connection in self._open if not connection.busy), None)
        if waiting is None:
            return False
        self._open[waiting].cancel()
        waiting.end()
        self._forget(waiting)
        return True

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        tls = (
            {
                "ssl": self._context,
                "ssl_handshake_timeout": self._limits.handshake_seconds,
                "ssl_shutdown_timeout": 1.0,
            }
            if self._context is not None
            else {}
        )
        loop = asyncio.get_running_loop()
        open_ = False
        try:
            with contextlib.suppress(OSError):  # no TLS, closed by the client, or too slow
                accepted.setblocking(False)
                await loop.connect_accepted_socket(lambda: connection, accepted, **tls)  # type: ignore[arg-type]
                open_ = True
        finally:
            if not open_:
                self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)
