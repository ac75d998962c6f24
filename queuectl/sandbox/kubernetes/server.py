"""The small API on a port of its own, with TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

import trustme
from aiohttp import web

from queuectl.sandbox.control_plane import write_kubeconfig
from queuectl.sandbox.kubernetes.handler import RequestHandler
from queuectl.sandbox.kubernetes.identities import Identities
from queuectl.sandbox.kubernetes.store import ObjectStore
from queuectl.sandbox.kubernetes.wire import Request, ServerResponse, StatusError
from queuectl.sandbox.kubernetes.writes import Check

_MAX_BODY = 3 * 1024 * 1024
_STOP_SECONDS = 2.0


def wall_clock() -> datetime:
    """UTC. The API server is the source of a cluster's time: it uses the machine's clock."""
    return datetime.now(UTC)  # noqa: TID251


class SmallApi:
    """`async with SmallApi(folder) as api:` serves until the block ends; its data is in `folder`.

    Without a folder the data is in memory. Port 0 takes a free one. `clock` returns aware datetimes; `check`
    returns problems of an object of a custom kind beyond its schema.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        clock: Callable[[], datetime] = wall_clock,
        check: Check | None = None,
        bookmark_seconds: float = 60.0,
    ) -> None:
        self.folder = folder
        self.url = ""
        self.tokens: dict[str, str] = {}
        """By identity: admin, tenant, controller."""
        self._port = port
        self._clock = clock
        self._check = check
        self._bookmark_seconds = bookmark_seconds
        self._until_exit = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._until_exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._until_exit.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        if self.folder is None:
            self._certificates = Path(stack.enter_context(TemporaryDirectory(prefix="queuectl-")))
        else:
            self._certificates = self.folder / "certificates"
        identities = Identities(self.folder)
        self.tokens = identities.tokens
        self.store = ObjectStore(self.folder)
        self.api = RequestHandler(
            self.store,
            identities,
            clock=self._clock,
            check=self._check,
            bookmark_seconds=self._bookmark_seconds,
        )
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_STOP_SECONDS, handler_cancellation=True
        )
        stack.push_async_callback(runner.cleanup)
        stack.callback(self.store.close)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port, ssl_context=self._certificate())
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"

    @property
    def ca_file(self) -> Path:
        return self._certificates / "ca.pem"

    def write_kubeconfig(self, path: Path) -> None:
        """Contexts admin (current), tenant and controller."""
        write_kubeconfig(path, self.url, self.ca_file, self.tokens, current="admin")

    def ssl_context(self) -> ssl.SSLContext:
        """Trusts only this API."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def _certificate(self) -> ssl.SSLContext:
        """The authority is the same at each start on a folder: a kubeconfig stays valid."""
        folder = self._certificates
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        chain = folder / "server.pem"
        if not (chain.exists() and (folder / "ca.pem").exists()):
            authority = trustme.CA(organization_name="queuectl sandbox")
            authority.cert_pem.write_to_path(folder / "ca.pem")
            certificate = authority.issue_cert("127.0.0.1", "localhost")
            chain.touch(mode=0o600)
            certificate.private_key_and_cert_chain_pem.write_to_path(chain)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain)
        return context

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _plain(StatusError(413, f"Request entity too large: limit is {_MAX_BODY}").response())
        # A header that is sent several times is one list.
        headers = {name.lower(): ",".join(request.headers.getall(name)) for name in request.headers}
        asked = Request(request.method, request.path, dict(request.query), headers, body)
        response = await self.api.handle(asked)
        if isinstance(response.body, bytes):
            return _plain(response)
        return await _stream(request, response, response.body)


def _plain(response: ServerResponse) -> web.Response:
    assert isinstance(response.body, bytes)
    headers = {"Content-Type": response.content_type, **response.headers}
    return web.Response(status=response.status, body=response.body, headers=headers)


async def _stream(
    request: web.Request, response: ServerResponse, chunks: AsyncIterator[bytes]
) -> web.StreamResponse:
    stream = web.StreamResponse(status=response.status, headers={"Content-Type": response.content_type})
    await stream.prepare(request)
    try:
        async for chunk in chunks:
            await stream.write(chunk)
        await stream.write_eof()
    except ConnectionResetError:
        pass  # the caller has disconnected
    return stream
