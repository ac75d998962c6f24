"""The webhook, called by an API server and by attackers in the cluster."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from queuectl.certificates.tls_context import FromFiles, Serving
from queuectl.net.listener import serving
from queuectl.webhook.server import PATH, ReviewLimits, reviews
from tests.job_kinds import JOB_KINDS
from tests.unit.certificates.issuing import NOW, Mounted
from tests.unit.webhook.reviews import MAKERS, review, set_suspend

SLOW = 60
"""Seconds that no test waits: deadlines under test are far below, and all others have this value."""


@dataclass
class Heard:
    results: list[str] = field(default_factory=list)

    def reviewed(self, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.results.append(result)


@dataclass
class Webhook:
    url: str
    heard: Heard
    trust: ssl.SSLContext

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        return host, int(port)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address, ssl=self.trust)


@asynccontextmanager
async def webhook(folder: Path, **limits: Any) -> AsyncIterator[Webhook]:
    mounted = Mounted(folder)
    tls = Serving(FromFiles(mounted.chain, mounted.key, None), now=lambda: NOW)
    await tls.start()
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    heard = Heard()
    bounds = ReviewLimits(**{"header_seconds": SLOW, "body_seconds": SLOW, "idle_seconds": SLOW, **limits})
    app = reviews(JOB_KINDS, bounds, heard)
    async with (
        asyncio.timeout(SLOW),
        serving(app, host="127.0.0.1", port=0, limits=bounds, context=tls.context) as url,
    ):
        yield Webhook(url, heard, trust)


@asynccontextmanager
async def caller(hook: Webhook) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=hook.trust)
    async with aiohttp.ClientSession(hook.url, connector=connector, trust_env=False) as session:
        yield session


def labelled() -> bytes:
    return json.dumps(review(set_suspend(MAKERS["Job"]("train"), False))).encode()


async def accepted(session: aiohttp.ClientSession) -> bool:
    async with session.post(PATH, data=labelled(), headers={"Content-Type": "application/json"}) as answer:
        return bool((await answer.json())["response"]["patch"])


HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {{length}}\r\n\r\n"
)


async def test_a_review_is_answered_over_tls_and_the_connection_is_reused(tmp_path: Path) -> None:
    async with webhook(tmp_path) as hook, caller(hook) as session:
        assert [await accepted(session) for _ in range(3)] == [True, True, True]
        assert hook.heard.results == ["changed"] * 3


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", PATH, {"Content-Type": "application/json"}, b"rubbish", 400),
        ("POST", PATH, {"Content-Type": "application/json"}, b"", 400),
        ("POST", PATH, {"Content-Type": "text/plain"}, labelled(), 415),
        ("POST", PATH, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"\x1f\x8b", 415),
        ("POST", PATH, {"Content-Type": "application/json"}, b"[" * (8 << 20), 413),
        ("GET", PATH, {}, None, 405),
        ("DELETE", PATH, {}, b"x", 405),
        ("POST", "/", {}, labelled(), 404),
        ("GET", "/metrics", {}, None, 404),
    ],
)
async def test_any_other_request_gets_a_short_refusal(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], body: bytes | None, status: int
) -> None:
    sent = io.BytesIO(body) if body is not None else None
    async with webhook(tmp_path) as hook, caller(hook) as session:
        async with session.request(method, path, headers=headers, data=sent) as answer:
            assert answer.status == status
            assert len(await answer.read()) < 200
        assert await accepted(session)


async def test_a_body_just_below_the_limit_is_read(tmp_path: Path) -> None:
    body = labelled()
    padded = body + b" " * ((7 << 20) - len(body) - 1)
    headers = {"Content-Type": "application/json"}
    async with (
        webhook(tmp_path) as hook,
        caller(hook) as session,
        session.post(PATH, data=io.BytesIO(padded), headers=headers) as answer,
    ):
        assert answer.status == 200


async def ended(reader: asyncio.StreamReader) -> None:
    """The server closes the connection, with or without a response."""
    try:
        await reader.read()
    except (ConnectionError, ssl.SSLError):
        return


async def test_a_silent_client_and_one_with_slow_headers_are_disconnected(tmp_path: Path) -> None:
    async with webhook(tmp_path, header_seconds=0.3) as hook:
        silent, quiet = await hook.raw()
        reader, writer = await hook.raw()
        for byte in b"POST /mu":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        await ended(silent)
        await ended(reader)
        for one in (writer, quiet):
            one.close()


async def test_a_client_with_a_slow_body_is_disconnected(tmp_path: Path) -> None:
    async with webhook(tmp_path, body_seconds=0.3) as hook:
        reader, writer = await hook.raw()
        writer.write(HEAD.format(length=100).encode() + b"{")
        await ended(reader)
        writer.close()


async def test_an_idle_client_is_disconnected_and_an_active_one_is_not(tmp_path: Path) -> None:
    async with webhook(tmp_path, idle_seconds=1.0) as hook:
        reader, writer = await hook.raw()
        body = labelled()
        for _ in range(4):
            writer.write(HEAD.format(length=len(body)).encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            length = int(next(line for line in head.split(b"\r\n") if b"Content-Length" in line).split()[1])
            await reader.readexactly(length)
            await asyncio.sleep(0.4)
        await ended(reader)
        writer.close()
        assert hook.heard.results == ["changed"] * 4


async def test_a_client_without_a_handshake_is_disconnected(tmp_path: Path) -> None:
    async with webhook(tmp_path, handshake_seconds=0.3) as hook:
        reader, writer = await asyncio.open_connection(*hook.address)
        writer.write(b"\x16\x03\x01")
        await ended(reader)
        writer.close()


async def test_five_hundred_slow_connections_do_not_keep_a_review_waiting(tmp_path: Path) -> None:
    """The API server's connection is accepted: the oldest one without a review in progress is closed."""
    async with webhook(tmp_path, connections=64) as hook:
        plain = [await asyncio.open_connection(*hook.address) for _ in range(250)]
        dribbling = []
        for _ in range(10):
            dribbling.append(await hook.raw())
            dribbling[-1][1].write(b"POST /mutate HTTP/1.1\r\nHost:")
        plain += [await asyncio.open_connection(*hook.address) for _ in range(240)]
        async with caller(hook) as session:
            assert await accepted(session)
        await ended(plain[0][0])
        for _, writer in [*plain, *dribbling]:
            writer.transport.abort()


async def test_reviews_above_the_limit_are_refused_at_once_and_not_queued(
    tmp_path: Path,
) -> None:
    async with webhook(tmp_path, work=2, work_wait_seconds=0.2) as hook:
        slow = [await hook.raw() for _ in range(2)]
        for _, writer in slow:
            writer.write(HEAD.format(length=10).encode() + b"{")
        async with caller(hook) as session:
            status = 200
            while status == 200:  # until both are in progress
                async with session.post(
                    PATH, data=labelled(), headers={"Content-Type": "application/json"}
                ) as answer:
                    status = answer.status
            assert status == 503
            for _, writer in slow:
                writer.transport.abort()
            while status == 503:
                async with session.post(
                    PATH, data=labelled(), headers={"Content-Type": "application/json"}
                ) as answer:
                    status = answer.status
            assert status == 200
