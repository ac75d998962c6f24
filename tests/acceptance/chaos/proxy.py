"""An HTTP proxy between the controllers and the API server, which a test tells what to do to requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal, NamedTuple, Self

import aiohttp
from aiohttp import web

from queuectl.sandbox.endpoints import listen_on_free_port


class Fault(NamedTuple):
    """What happens to a request.

    refused: answered with `status` unsent; lost: sent, and answered with `status` instead of its answer; cut:
    sent, then the connection is closed; dropped: the connection is closed; late: sent after `seconds`.
    """

    kind: Literal["refused", "lost", "cut", "dropped", "late"]
    status: int = 500
    seconds: float = 0.0


Rule = Callable[[str, str], Fault | None]
"""By method and path with query; None: the request passes."""

_NOT_PASSED_ON = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class Proxy:
    """`async with Proxy(url, trust) as proxy:` serves plain HTTP at `proxy.url`."""

    def __init__(self, target: str, trust: ssl.SSLContext) -> None:
        self.url = ""
        self.rule: Rule = lambda _method, _path: None
        self.watches_say_nothing = False
        """Open watches stay open and send no more."""
        self._target = target
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{rest:.*}", self._handle)
        # Like a network, it carries out what was sent even if the sender is gone.
        self._runner = web.AppRunner(app, handler_cancellation=False, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        listener = listen_on_free_port()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await web.SockSite(self._runner, listener).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = self.rule(request.method, request.raw_path)
        match fault:
            case Fault("refused"):
                return _status(fault.status)
            case Fault("dropped"):
                return _closed(request)
            case Fault("late"):
                await asyncio.sleep(fault.seconds)
            case _:
                pass
        try:
            answer = await self._send(request, body)
        except aiohttp.ClientError:
            return _closed(request)
        async with answer:
            if "watch=" in request.raw_path and answer.status == 200:
                return await self._stream(request, answer)
            content = await answer.read()
        if fault is not None and fault.kind == "lost":
            return _status(fault.status)
        if fault is not None and fault.kind == "cut":
            return _closed(request)
        return web.Response(status=answer.status, body=content, headers=_headers(answer.headers.items()))

    async def _send(self, request: web.Request, body: bytes) -> aiohttp.ClientResponse:
        assert self._session is not None
        return await self._session.request(
            request.method,
            self._target + request.raw_path,
            data=body or None,
            headers=_headers(request.headers.items()),
            skip_auto_headers=("Content-Type",),
        )

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        out = web.StreamResponse(status=answer.status, headers=_headers(answer.headers.items()))
        await out.prepare(request)
        try:
            async for chunk in answer.content.iter_any():
                while self.watches_say_nothing:
                    await asyncio.sleep(0.2)
                await out.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            pass
        return out


def _headers(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in given if name.lower() not in _NOT_PASSED_ON}


def _status(code: int) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "message": "said by the proxy"}
    return web.json_response(body, status=code, headers={"Retry-After": "1"} if code == 429 else None)


def _closed(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=502)
