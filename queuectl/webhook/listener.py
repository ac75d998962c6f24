"""A listening socket that nobody can hold: so many connections, each with so much time for what it does.

The HTTP library bounds what a request holds, not how slowly it comes, nor how many come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.1
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections: int = 64
    """Open at one time, those still shaking hands included."""
    work: int = 16
    """Requests whose body is read or answered at one time."""
    work_wait_seconds: float = 1.0
    """For one of those places; then the request is refused."""
    body_bytes: int = 7 << 20
    """The API server sends old and new object, each of at most 3 MiB."""
    header_seconds: float = 10.0
    """For the TLS handshake, and for all headers of a request."""
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    """Between two requests."""


class Connection(asyncio.Protocol):
    """Passes everything on to the HTTP library's own, and ends what takes too long."""

    def __init__(self, inner: asyncio.Protocol, limits: Limits, lost: Callable[[Connection], None]) -> None:
        self._inner = inner
        self._limits = limits
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = False
        self.busy = False
        """A request of it has a place in work."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
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
        """A request has its place, and its body is to come."""
        self.busy, self._idle = True, False
        self._within(self._limits.body_seconds)

    def working(self) -> None:
        """All of it is here."""
        self._disarm()

    def answered(self) -> None:
        """Nothing is under way but the sending of the answer."""
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


def listening(host: str, port: int) -> socket.socket:
    """Port 0 takes a free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    found.setblocking(False)
    return found


class Listener:
    """Accepts connections for one HTTP server."""

    def __init__(
        self, make: Callable[[], asyncio.Protocol], limits: Limits, context: ssl.SSLContext | None
    ) -> None:
        """`make`: a new protocol of the HTTP library for each connection. `context` None: plain HTTP."""
        self._make = make
        self._limits = limits
        self._context = context
        self._open: dict[Connection, asyncio.Task[None]] = {}
        """In the order of their coming, with the task that shakes hands."""

    async def accept(self, listener: socket.socket) -> None:
        """Until cancelled; what is open then goes on."""
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
        """End the one that has been there longest without being worked for; False: all are worked for."""
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
                "ssl_handshake_timeout": self._limits.header_seconds,
                "ssl_shutdown_timeout": 1.0,
            }
            if self._context is not None
            else {}
        )
        loop = asyncio.get_running_loop()
        open_ = False
        try:
            with contextlib.suppress(OSError):  # no TLS, given up, too slow: nobody is there to be told
                accepted.setblocking(False)
                await loop.connect_accepted_socket(lambda: connection, accepted, **tls)  # type: ignore[arg-type]
                open_ = True
        finally:
            if not open_:
                self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)
