"""Connections to REST in a WebSocket: TLS from end to end, the deadlines of every other one, no rights."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.authorization import bearer_token
from queuectl.api.http import Answering
from queuectl.api.requests import Caller, Identify, Unrestricted
from queuectl.api.server import application
from queuectl.api.view import View
from queuectl.kinds.policy import parse_policy
from queuectl.net import listener
from queuectl.net.relay import relay
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import two_teams

NAME = "queuectl-api.queuectl-system.svc"
SECONDS = 20.0


async def by_token(request: web.Request) -> Caller:
    assert bearer_token(request, ["queuectl"]) == "right"
    return Unrestricted()


@asynccontextmanager
async def serving(
    identify: Identify | None, tls: ssl.SSLContext | None = None, **limits: Any
) -> AsyncIterator[str]:
    readings = two_teams()
    view = View(readings, parse_policy)
    await view.refresh()
    app = application(
        view, readings, kinds=JOB_KINDS, what_ifs=TriedWhatIfs(), cursor_key=b"k" * 32, identify=identify
    )
    async with (
        asyncio.timeout(SECONDS),
        listener.serving(
            app,
            host="127.0.0.1",
            port=0,
            limits=listener.ConnectionLimits(**limits),
            context=tls,
            handler=Answering,
        ) as url,
    ):
        yield url


async def test_a_connection_in_a_tunnel_has_its_own_tls_and_all_its_headers() -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME).configure_cert(context)
    trust = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    # As the service proxy does: whatever certificate, and without the header.
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    async with serving(by_token, context) as url, aiohttp.ClientSession() as session:
        socket = await session.ws_connect(f"{url}/tunnel", ssl=blind)

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await relay(socket, reader, writer)

        local = await asyncio.start_server(carry, "127.0.0.1", 0)
        async with local:
            port = local.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAME)
            headers = ["Host: x", "Authorization: Bearer right", "Connection: close"]
            writer.write("\r\n".join(["GET /api/v1/clusterqueues HTTP/1.1", *headers, "", ""]).encode())
            answer = await reader.read()
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"team-a" in answer


async def test_without_authentication_there_is_no_tunnel() -> None:
    """The bytes in it could claim the host name that keeps pages of a browser out."""
    async with serving(None) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{url}/tunnel")
        assert refused.value.status == 404


async def test_only_a_websocket_is_answered() -> None:
    async with (
        serving(by_token) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/tunnel") as answer,
    ):
        assert answer.status == 426
        assert "WebSocket" in (await answer.json(content_type=None))["detail"]


@pytest.mark.parametrize("sent", [None, "text", b"x" * 100_000])
async def test_a_tunnel_without_a_request_ends_with_its_connection(sent: str | bytes | None) -> None:
    async with (
        serving(by_token, header_seconds=0.2) as url,
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/tunnel") as socket,
    ):
        if isinstance(sent, bytes):
            await socket.send_bytes(sent)
        elif sent is not None:
            await socket.send_str(sent)
        found = await socket.receive()
        assert found.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_idle_tunnels_give_way_to_a_new_client() -> None:
    """Each is two connections, of which the inner one has no request."""
    async with serving(by_token, connections=8) as url, aiohttp.ClientSession() as session:
        opened = [await session.ws_connect(f"{url}/tunnel") for _ in range(4)]
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        for socket in opened:
            await socket.close()
