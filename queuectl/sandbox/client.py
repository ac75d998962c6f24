"""The sandbox's client of its API server, as admin."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from queuectl.sandbox.players.api import Object, PlayerRequestError

_REQUEST_SECONDS: Final = 30
_WATCH_SECONDS: Final = 330
"""Longer than any requested watch: ends the watch of a server that sends nothing more."""


class Client:
    """`async with Client(url, ssl_context, token) as api:`; implements players.api.Api."""

    def __init__(self, url: str, trust: ssl.SSLContext, token: str) -> None:
        self._url = url
        self._trust = trust
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self._url,
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=self._trust, limit=64),
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("enter the client before you use it")
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Object | list[Object] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """The body of a 2xx answer. Raises ApiError."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        try:
            async with self._open.request(method, path, params=query, data=data, headers=headers) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PlayerRequestError(0, f"{method} {path}: {type(error).__name__} {error}") from error
        found = _decoded(content)
        if answer.status >= 300:
            raise _refusal(method, path, answer.status, found, content)
        return found

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Object]]:
        """The events of a watch, each {type, object}, until the server ends it. Raises ApiError."""
        timeout = aiohttp.ClientTimeout(total=_WATCH_SECONDS, sock_connect=_REQUEST_SECONDS)
        try:
            async with self._open.get(path, params=query, timeout=timeout) as answer:
                if answer.status >= 300:
                    content = await answer.read()
                    raise _refusal("WATCH", path, answer.status, _decoded(content), content)
                yield _events(answer.content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PlayerRequestError(0, f"WATCH {path}: {type(error).__name__} {error}") from error


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[Object]:
    """Lines of any length: the stream's own line reader has a limit."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield orjson.loads(line)


def _decoded(content: bytes) -> Object:
    try:
        found: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(method: str, path: str, status: int, found: Object, content: bytes) -> PlayerRequestError:
    message = str(found.get("message") or content[:200].decode(errors="replace"))
    return PlayerRequestError(status, f"{method} {path}: {status} {message}", str(found.get("reason") or ""))
