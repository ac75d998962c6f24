"""A transport without sockets: requests are calls of an API server in this process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit


class Answer(Protocol):
    """The server's answer: the whole body, or its chunks for a watch."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes | AsyncIterator[bytes]: ...


Handle = Callable[[str, str, Mapping[str, str], Mapping[str, str], bytes], Awaitable[Answer]]
"""Method, decoded path, query, headers with names in lower case, body."""


class InProcessResponse:
    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._body = answer.body

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        if isinstance(self._body, bytes):
            yield self._body
            return
        async for chunk in self._body:
            yield chunk

    async def close(self) -> None:
        if isinstance(self._body, AsyncGenerator):
            await self._body.aclose()


class InProcessTransport:
    """Carries requests to `handle`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> InProcessResponse:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        lower = {name.lower(): value for name, value in headers.items()}
        return InProcessResponse(await self._handle(method, unquote(parts.path), query, lower, body or b""))

    async def close(self) -> None:
        return None
