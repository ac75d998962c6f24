"""Connections to a service through the API server's service proxy, with the rights of a kubeconfig's user.

`ReachedCluster` is a cluster and the REST server in it, for code that runs no event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import ClientWebSocketResponse

from queuectl.kube import account
from queuectl.kube.connections import account_of
from queuectl.kube.errors import ApiError, BadKubeconfig, Forbidden, NotFound, Unauthorized, Unavailable
from queuectl.kube.session import Session, api_path
from queuectl.kube.transport import HttpTransport
from queuectl.net.relay import relay

TOKEN_SECONDS: Final = 600
"""Lifetime of a token that is requested here, the shortest that API servers accept."""


class Proxied:
    """One API server, its objects (`session`), and WebSockets to services behind it."""

    def __init__(self, identity: account.Account) -> None:
        self.identity = identity
        self._transport = HttpTransport(
            identity.server, tls=identity.tls, server_name=identity.server_name, proxy=identity.proxy
        )
        self.session = Session(self._transport, identity)

    async def websocket(self, namespace: str, service: str, path: str) -> ClientWebSocketResponse:
        """At `path` of a service, which is named as in its proxy: SCHEME:NAME:PORT. Raises ApiError."""
        target = f"/api/v1/namespaces/{namespace}/services/{service}/proxy{path}"
        token = await self.session.authorization()
        try:
            return await self._open(target, token)
        except Unauthorized:
            try:
                await self.identity.refresh(token)
            except BadKubeconfig as error:
                raise Unauthorized(str(error), status=401) from error
            return await self._open(target, await self.session.authorization())

    async def _open(self, target: str, token: str | None) -> ClientWebSocketResponse:
        headers = {"User-Agent": "queuectl", **({"Authorization": token} if token else {})}
        try:
            async with asyncio.timeout(self.session.deadlines.unary):
                return await self._transport.websocket(target, headers)
        except TimeoutError as error:
            raise Unavailable(f"GET {target}: no answer in time") from error


async def requested_token(session: Session, namespace: str, name: str, audience: str) -> str:
    """A token of a service account that expires after TOKEN_SECONDS. Raises ApiError."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    spec = {"audiences": [audience], "expirationSeconds": TOKEN_SECONDS}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await session.create(path, body)
    token = (answer.get("status") or {}).get("token")
    if not isinstance(token, str):
        raise Unavailable(f"POST {path}: an answer without a token")
    return token


__all__ = ["ApiError", "BadKubeconfig", "Forbidden", "NotFound", "ReachedCluster", "Unavailable"]

NAMESPACE: Final = "queuectl-system"
SERVICE: Final = "queuectl-api"
HOST: Final = f"{SERVICE}.{NAMESPACE}.svc"
"""A name in the certificate of REST."""
AUTHORITY: Final = "queuectl-api-ca"
VIEWER: Final = "queuectl-viewer"
"""Service account whose tokens read REST: the one in NAMESPACE all, others what is granted to them."""
_TUNNEL: Final = (NAMESPACE, f"https:{SERVICE}:rest", "/tunnel")
SECONDS: Final = 40.0
"""More than all deadlines of one request together: credentials, and the request itself."""

Found = TypeVar("Found")


class ReachedCluster:
    """The cluster of a kubeconfig's context. Its own thread runs the event loop, until `close`."""

    def __init__(self, kubeconfig: Path | None, context: str | None, seconds: float = SECONDS) -> None:
        """Reads the credentials, which may run a plugin. Raises BadKubeconfig.

        This and every other method raises Unavailable after `seconds`.
        """
        self._seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._relays: set[Future[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._proxied = self._do(_open(kubeconfig, context))
        except BaseException:
            self._end()
            raise

    def authority(self) -> str | None:
        """The CA certificates of REST, as PEM; None: not published yet. Raises ApiError."""
        path = api_path("", "v1", "configmaps", NAMESPACE, AUTHORITY)
        found = self._do(self._proxied.session.get(path))
        return (found.get("data") or {}).get("ca.crt") or None

    def connect(self) -> socket.socket:
        """A connection to the port of REST: TLS is still to be begun on it. Raises ApiError."""
        ours, theirs = socket.socketpair()
        try:
            ends = self._do(self._tunnel(theirs))
        except BaseException:
            ours.close()
            theirs.close()
            raise
        relaying = asyncio.run_coroutine_threadsafe(relay(*ends), self._loop)
        self._relays.add(relaying)
        relaying.add_done_callback(self._relays.discard)
        return ours

    def own_token(self) -> str | None:
        """The bearer token of the kubeconfig; None if it has another kind of credentials."""
        header = self._do(self._proxied.identity.authorization())
        return header.removeprefix("Bearer ") if header else None

    def account_token(self, namespace: str, name: str, audience: str) -> str:
        """A token of a service account, for ten minutes. Raises ApiError."""
        return self._do(requested_token(self._proxied.session, namespace, name, audience))

    def close(self) -> None:
        with contextlib.suppress(ApiError):
            self._do(self._finish())
        self._end()

    async def _finish(self) -> None:
        relaying = asyncio.all_tasks() - {asyncio.current_task()}
        for task in relaying:
            task.cancel()
        await asyncio.gather(*relaying, return_exceptions=True)
        await self._proxied.session.close()

    async def _tunnel(self, end: socket.socket) -> Any:
        websocket = await self._proxied.websocket(*_TUNNEL)
        reader, writer = await asyncio.open_connection(sock=end)
        return websocket, reader, writer

    def _do(self, work: Coroutine[Any, Any, Found]) -> Found:
        try:
            return asyncio.run_coroutine_threadsafe(_within(self._seconds, work), self._loop).result()
        except TimeoutError as error:
            raise Unavailable("no answer in time") from error

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _within(seconds: float, work: Coroutine[Any, Any, Found]) -> Found:
    async with asyncio.timeout(seconds):
        return await work


async def _open(kubeconfig: Path | None, context: str | None) -> Proxied:
    return Proxied(await account_of(kubeconfig, context))
