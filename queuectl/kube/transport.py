"""How a request reaches the API server: over sockets, or by a call in this process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Final, Protocol

import aiohttp
from yarl import URL

from queuectl.kube.errors import Unavailable, from_answer
from queuectl.net.failures import why
from queuectl.net.relay import CHUNK

CONNECT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
"""How long a WebSocket waits for the other side to close it too."""


class Response(Protocol):
    """An answer whose body is still to be read. It must be closed."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in the case of RFC 9110, such as `Retry-After`, unless the mapping ignores case."""

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body in chunks as they arrive. Raises Unavailable when the connection breaks."""

    async def close(self) -> None:
        """Release the connection; if the body is not read to its end, close it."""


class Transport(Protocol):
    """Sends requests to one API server. The caller limits waits by cancellation."""

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        """Send to `target` (path and query, encoded); a `stream` may stay open for minutes.

        Raises Unavailable when there is no answer.
        """

    async def close(self) -> None: ...


class HttpResponse:
    """A response of aiohttp."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the answer broke off: {why(error)}") from error

    async def close(self) -> None:
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()


class HttpTransport:
    """aiohttp with separate connections for watches and for other requests: neither can starve the other."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        watches: int = 64,
        connections: int = 32,
    ) -> None:
        self._server = server.rstrip("/")
        self._tls = tls
        self._server_name = server_name
        self._proxy = proxy
        self._limits = {True: watches, False: connections}
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> HttpResponse:
        try:
            response = await self._session(stream).request(
                method,
                URL(self._server + target, encoded=True),
                headers=headers,
                data=body,
                proxy=self._proxy,
                server_hostname=self._server_name,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{method} {self._server}{target}: {why(error)}") from error
        return HttpResponse(response)

    async def websocket(self, target: str, headers: Mapping[str, str]) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket at `target`. Raises ApiError."""
        try:
            return await self._session(True).ws_connect(
                URL(self._server + target, encoded=True),
                headers=headers,
                proxy=self._proxy,
                server_hostname=self._server_name,
                max_msg_size=CHUNK,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise from_answer(f"GET {target}", error.status, error.headers or {}, b"") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"GET {self._server}{target}: {why(error)}") from error

    async def close(self) -> None:
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()
        # The loop's next callbacks close TLS connections.
        await asyncio.sleep(0)

    def _session(self, stream: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(stream)
        if session is None or session.closed:
            connector = aiohttp.TCPConnector(
                limit=self._limits[stream], ssl=self._tls if self._tls is not None else True
            )
            # trust_env would look up a netrc file in a thread at every request.
            session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                read_bufsize=2**18,
            )
            self._sessions[stream] = session
        return session
