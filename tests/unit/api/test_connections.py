"""Connections of REST: bodies arrive in time, and few callers do not take them all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from queuectl.api import http, limits
from queuectl.api import server as rest
from queuectl.api.authorization import Reviewer
from tests.unit.api.canned import two_teams
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_server import serving

NAMES = {"{namespace}": "default", "{kind}": "job", "{name}": "waits"}
ACCOUNT = "system:serviceaccount:{}:{}"


@asynccontextmanager
async def reviewed() -> AsyncIterator[str]:
    """A server that knows the service accounts a0 to a9 of the namespaces evil and good, without a right."""
    reviews = CannedReviews()
    for namespace in ("evil", "good"):
        for number in range(10):
            reviews.add(f"{namespace}{number}", name=ACCOUNT.format(namespace, f"a{number}"))
    reviewer = Reviewer(reviews, ["queuectl"], time.monotonic)
    async with serving(two_teams(), reviewer=reviewer) as url:
        yield url


async def posted(url: str, path: str, token: str | None = None) -> tuple[asyncio.StreamReader, Any]:
    """A request whose body does not arrive."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    given = "" if token is None else f"Authorization: Bearer {token}\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nQueuectl-Request: change\r\n{given}"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    await writer.drain()
    return reader, writer


async def paths_with_bodies(url: str) -> list[str]:
    async with aiohttp.ClientSession(url) as client, client.get("/openapi.json") as answer:
        document = await answer.json()
    paths = [path for path, methods in document["paths"].items() if "post" in methods]
    for variable, value in NAMES.items():
        paths = [path.replace(variable, value) for path in paths]
    return paths


async def test_a_body_that_does_not_arrive_ends_its_connection_on_every_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest, "LISTENING", replace(rest.LISTENING, body_seconds=0.3))
    async with serving(two_teams()) as url:
        paths = await paths_with_bodies(url)
        assert {"/api/v1/quote", "/api/v1/plan"} < set(paths)
        held = [await posted(url, path) for path in paths]
        for path, (reader, writer) in zip(paths, held, strict=True):
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(10):
                    assert await reader.read() == b"", path
            writer.close()


async def test_the_service_accounts_of_one_namespace_have_16_requests_in_work_together() -> None:
    async with reviewed() as url, aiohttp.ClientSession(url) as client:
        held = [await posted(url, "/api/v1/quote", f"evil{number % 4}") for number in range(limits.IN_WORK)]
        for token, status in (("evil0", 429), ("evil9", 429), ("good0", 404)):
            headers = {"Authorization": f"Bearer {token}"}
            async with client.get("/api/v1/workloads?namespace=x", headers=headers) as answer:
                assert answer.status == status, token
                if status == 429:
                    assert "16 requests" in (await answer.json(content_type=None))["detail"]
                    assert int(answer.headers["Retry-After"]) >= 1
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(10):
            while True:  # the server sees the end of these connections
                headers = {"Authorization": "Bearer evil8"}
                async with client.get("/api/v1/workloads?namespace=x", headers=headers) as answer:
                    if answer.status == 404:
                        break


async def test_all_callers_together_leave_connections_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rest.LISTENING.connections > limits.IN_WORK_IN_ALL + http.MOST_TUNNELS
    monkeypatch.setattr(limits, "IN_WORK_IN_ALL", 6)
    async with reviewed() as url, aiohttp.ClientSession(url) as client:
        held = [await posted(url, "/api/v1/quote", token) for token in ("evil0", "good0") * 3]
        headers = {"Authorization": "Bearer good1"}
        async with client.get("/api/v1/workloads?namespace=x", headers=headers) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        for _, writer in held:
            writer.close()


async def test_tunnels_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_TUNNELS", 3)
    async with reviewed() as url, aiohttp.ClientSession(url) as client:
        held = [await client.ws_connect("/tunnel") for _ in range(3)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect("/tunnel")
        assert refused.value.status == 503
        for socket in held:
            await socket.close()
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(aiohttp.WSServerHandshakeError):
                    await (await client.ws_connect("/tunnel")).close()
                    break
