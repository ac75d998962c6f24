"""Connections to a service through the API server's service proxy, with the rights of a kubeconfig's user."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import ClientWebSocketResponse

from queuectl.kube import account
from queuectl.kube.errors import BadKubeconfig, Unauthorized, Unavailable
from queuectl.kube.session import Session
from queuectl.kube.transport import HttpTransport

TOKEN_SECONDS: Final = 600
"""Lifetime of a token that is requested here, the shortest that API servers accept."""


class Proxied:
    """One API server, its objects (`session`), and WebSockets to services behind it."""

    def __init__(self, identity: account.Account) -> None:
        self._identity = identity
        self._transport = HttpTransport(
            identity.server, tls=identity.tls, server_name=identity.server_name, proxy=identity.proxy
        )
        self.session = Session(self._transport, identity)

    async def websocket(self, namespace: str, service: str, path: str) -> ClientWebSocketResponse:
        """At `path` of a service, which is named as in its proxy: SCHEME:NAME:PORT. Raises ApiError."""
        target = f"/api/v1/namespaces/{namespace}/services/{service}/proxy{path}"
        token = await self._token()
        try:
            return await self._open(target, token)
        except Unauthorized:
            try:
                await self._identity.refresh(token)
            except BadKubeconfig as error:
                raise Unauthorized(str(error), status=401) from error
            return await self._open(target, await self._token())

    async def close(self) -> None:
        await self.session.close()

    async def _token(self) -> str | None:
        try:
            return await self._identity.authorization()
        except BadKubeconfig as error:
            raise Unavailable(str(error)) from error

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
