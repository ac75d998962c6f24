"""Connections: as many as there is room for, none that idles in its headers, and every refusal a problem."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from queuectl.api.problems import Refusal, respond

MOST: Final = 512
"""Connections at one time; one more takes the place of the oldest that asks nothing."""
HEADER_SECONDS: Final = 10.0
"""Until the first request of a connection must have come whole."""
IDLE_SECONDS: Final = 75.0
WRITE_SECONDS: Final = 60.0
"""How long a client may take to read one answer."""
LINGER_SECONDS: Final = 1.0
"""How long a body that nobody wants is still read, so that the answer arrives."""
STOP_SECONDS: Final = 2.0
HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 512

log = logging.getLogger(__name__)


class Connections:
    """Those of one server, oldest first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> None:
        """Close another one if there are too many, or this one where all others are at work."""
        self._open[connection] = None
        if len(self._open) > self._most:
            idle = next(one for one in self._open if not one.busy)
            del self._open[idle]
            idle.abort()

    def forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)


class Connection(web.RequestHandler):
    """One client's."""

    def __init__(self, connections: Connections, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
        )
        self._connections = connections
        self._late: asyncio.TimerHandle | None = None
        self._wire: asyncio.BaseTransport | None = None
        self._asked = False
        self.busy = False
        """A request is being answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wire = transport
        self._late = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up)
        self._connections.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.forget(self)
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    def abort(self) -> None:
        if isinstance(self._wire, asyncio.WriteTransport):
            self._wire.abort()

    def _give_up(self) -> None:
        if not self._asked:
            self.abort()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While a request is at work."""
        self._asked = self.busy = True
        try:
            yield
        finally:
            self.busy = False

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self.abort()
            return resp, True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What can't even be read as a request, and defects outside all handlers."""
        self._asked = True
        if isinstance(exc, LineTooLong):
            refusal = Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request line or a header is too long"
            )
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal = Refusal(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request that can be understood")
        else:
            log.error("a request failed", exc_info=exc)
            refusal = Refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this is a defect; the server's log says more"
            )
        answer = respond(refusal)
        answer.force_close()
        return answer


@asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[str]:
    """Serve `app` there; the base URL. Raises OSError where it can't listen."""
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        server, connections = runner.server, Connections()
        assert server is not None
        loop = asyncio.get_running_loop()
        how: dict[str, Any] = {"ssl": tls, "ssl_handshake_timeout": HANDSHAKE_SECONDS} if tls else {}
        sockets = await loop.create_server(
            lambda: Connection(connections, server, loop),
            host,
            port,
            backlog=_BACKLOG,
            reuse_address=True,
            **how,
        )
        try:
            bound_host, bound_port = sockets.sockets[0].getsockname()[:2]
            bound_host = f"[{bound_host}]" if ":" in bound_host else bound_host
            yield f"{'https' if tls else 'http'}://{bound_host}:{bound_port}"
        finally:
            sockets.close()
    finally:
        await runner.cleanup()
