"""Limits of one client: sizes, rates and connections."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from queuectl.api import server as rest
from queuectl.api.http import Refusal
from queuectl.api.limits import BURST, WAITING, Buckets, Turns
from tests.unit.api.canned import two_teams
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews
from tests.unit.api.test_server import serving

WORKLOADS = "/api/v1/workloads"
HISTORY = "/api/v1/workloads/default/job/waits/history"
STORY = "/api/v1/workloads/default/job/waits/story"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def asked(serve: Serve, clock: Clock) -> Rest:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.tenant("bob", "other")
    return await serve(two_teams(), reviews, clock)


async def test_a_caller_has_30_requests_at_once_and_10_a_second(asked: Rest, clock: Clock) -> None:
    found = [await asked.status(WORKLOADS, token="alice") for _ in range(40)]
    assert found == [200] * int(BURST) + [429] * (40 - int(BURST))
    answer = await asked.client.get(WORKLOADS, headers=bearer("alice"))
    assert answer.headers["Retry-After"] == "1"
    assert "10 a second" in await asked.refused(asked.client.get(WORKLOADS, headers=bearer("alice")), 429)
    assert await asked.status(WORKLOADS, token="bob") == 200
    clock.now += 0.5
    found = [await asked.status(WORKLOADS, token="alice") for _ in range(6)]
    assert found == [200] * 5 + [429]


async def test_history_and_use_of_limits_may_be_requested_twice_a_second(asked: Rest, clock: Clock) -> None:
    paths = (HISTORY, STORY, "/api/v1/decisions", f"{WORKLOADS}?phase=Finished", "/api/v1/usagelimits")
    for path in paths:
        clock.now += 60
        found = [await asked.status(path, token="alice") for _ in range(33)]
        assert found.count(200) == BURST
        clock.now += 1
        found = [await asked.status(path, token="alice") for _ in range(3)]
        assert found == [200, 200, 429]
        assert await asked.status(WORKLOADS, token="alice") == 200


async def test_local_callers_are_not_limited(rest: Rest) -> None:
    assert {await rest.status(WORKLOADS) for _ in range(100)} == {200}


def test_a_bucket_refills_up_to_its_size() -> None:
    clock = Clock()
    buckets = Buckets(2, 0.5, clock)
    for seconds, good in ((0, 2), (1, 0), (1, 1), (1000, 2)):
        clock.now += seconds
        taken = 0
        with contextlib.suppress(Refusal):
            for _ in range(10):
                buckets.take("a")
                taken += 1
        assert taken == good


async def test_a_caller_may_have_few_requests_that_wait_for_changes(asked: Rest) -> None:
    last = asked.readings.sequence
    path = f"/api/v1/decisions?namespace=default&after={last}&wait=1"
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(asked.status(path, token="alice") for _ in range(WAITING + 3)))
    assert sorted(found) == [200] * WAITING + [429] * 3
    assert await asked.status(path.replace("wait=1", "wait=0"), token="alice") == 200


# --- connections --------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, int]]:
    async with serving(two_teams()) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


async def raw(server: tuple[str, int], *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes; returns status, headers and body of the response."""
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*server)
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        writer.close()
        return int(status.split()[1]), headers, body


@pytest.mark.parametrize("header", ["Authorization: Bearer ", "X-Anything: ", "Cookie: "])
async def test_48_a_header_of_64_kib_is_too_large(server: tuple[str, int], header: str) -> None:
    request = f"GET {WORKLOADS} HTTP/1.1\r\nHost: localhost\r\n{header}{'x' * 65_536}\r\n\r\n".encode()
    status, headers, body = await raw(server, request)
    assert (status, headers["content-type"]) == (431, "application/problem+json")
    assert json.loads(body)["status"] == 431


async def test_48_a_thousand_headers_are_too_many(server: tuple[str, int]) -> None:
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(1000))
    status, headers, _ = await raw(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")
    assert status in (400, 431)
    assert headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "request_",
    [
        b"HELO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_http_get_a_problem_document_too(
    server: tuple[str, int], request_: bytes
) -> None:
    status, headers, _ = await raw(server, request_)
    assert (status, headers["content-type"]) == (400, "application/problem+json")


DEEP = b"[" * 100_000 + b"]" * 100_000
BODIES = {
    "xml": (b"Content-Type: application/xml\r\n", b"<a/>"),
    "10 MiB": (b"Content-Type: application/json\r\n", b'"' + b"x" * (10 << 20) + b'"'),
    "deep": (b"Content-Type: application/json\r\n", DEEP),
    "not a number": (b"Content-Type: application/json\r\n", b'{"a": NaN, "a": Infinity}'),
    "5000 digits": (b"Content-Type: application/json\r\n", b'{"a": ' + b"9" * 5000 + b"}"),
    "gzip": (
        b"Content-Encoding: gzip\r\nContent-Type: application/json\r\n",
        gzip.compress(b"0" * (16 << 20)),
    ),
}


@pytest.mark.parametrize(
    ("method", "body"),
    [
        *(("POST", body) for body in BODIES),
        *((method, "xml") for method in ("PUT", "PATCH", "DELETE", "GET", "OPTIONS", "TRACE", "PROPFIND")),
    ],
)
async def test_50_a_body_is_refused_and_not_read(server: tuple[str, int], method: str, body: str) -> None:
    headers, content = BODIES[body]
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s" % (method.encode(), WORKLOADS.encode(), headers)
    status, answered, text = await raw(server, head + b"Content-Length: %d\r\n\r\n" % len(content), content)
    assert status == (400 if method == "GET" else 405)
    assert answered["content-type"] == "application/problem+json"
    assert len(text) < 1000


async def test_50_an_endless_body_is_answered_and_disconnected(server: tuple[str, int]) -> None:
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*server)
        writer.write(
            b"POST /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert b" 405 " in await _first_line_while_sending(reader, writer)
        # The connection ends although the body continues.
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"400\r\n" + b"x" * 0x400 + b"\r\n")
                await writer.drain()
                await reader.read(1)
        writer.close()


async def _first_line_while_sending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"400\r\n" + b"x" * 0x400 + b"\r\n")
    await writer.drain()
    return await reader.readline()


async def test_50_other_clients_are_served_while_large_bodies_arrive(server: tuple[str, int]) -> None:
    headers, content = BODIES["10 MiB"]
    sizes = (headers, len(content))
    head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % sizes
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        pouring = [tasks.create_task(raw(server, head, content)) for _ in range(8)]
        async with aiohttp.ClientSession(f"http://{server[0]}:{server[1]}") as client:
            for _ in range(10):
                async with client.get(WORKLOADS) as answer:
                    assert answer.status == 200
    assert {task.result()[0] for task in pouring} == {404}


async def test_51_idle_and_slow_connections_are_closed_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest, "LISTENING", replace(rest.LISTENING, header_seconds=0.5))
    async with asyncio.timeout(60), serving(two_teams()) as url:
        port = int(url.rpartition(":")[2])
        reader, slow = await asyncio.open_connection("127.0.0.1", port)
        idle, unused = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 10_000:
                slow.write(bytes([byte]))
                await slow.drain()
                await asyncio.sleep(0.05)
                if reader.at_eof() or reader.exception() is not None:
                    break
        for closed in (reader, idle):
            with contextlib.suppress(ConnectionError):
                assert await closed.read() == b""
        for writer in (slow, unused):
            writer.close()
        async with aiohttp.ClientSession(url) as client, client.get(WORKLOADS) as answer:
            assert answer.status == 200


@pytest.mark.acceptance
async def test_51_thousands_of_idle_sockets_do_not_block_other_clients(server: tuple[str, int]) -> None:
    """The server never keeps more of them open than its limit."""
    crowd: list[asyncio.StreamWriter] = []
    async with asyncio.timeout(120):
        async with aiohttp.ClientSession(f"http://{server[0]}:{server[1]}") as client:
            for number in range(2500):
                _, writer = await asyncio.open_connection(*server)
                crowd.append(writer)
                if len(crowd) > 800:
                    crowd.pop(0).close()
                if number % 500 == 499:
                    async with client.get(WORKLOADS) as answer:
                        assert answer.status == 200
        for writer in crowd:
            writer.close()


# --- turns --------------------------------------------------------------------------------------------


async def test_tenants_take_turns_however_many_requests_of_one_wait() -> None:
    turns, order = Turns(), list[str]()
    goes_on = asyncio.Event()

    async def ask(tenant: str) -> None:
        async with turns.turn(tenant):
            order.append(tenant)
            await goes_on.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for tenant in ("evil",) * 5 + ("a", "b", "a"):
            tasks.create_task(ask(tenant))
            await asyncio.sleep(0)
        goes_on.set()
    assert order == ["evil", "evil", "a", "b", "evil", "a", "evil", "evil"]


@pytest.mark.parametrize("handed", [False, True])
async def test_a_turn_of_a_request_that_ends_while_it_waits_is_passed_on(handed: bool) -> None:
    turns, order = Turns(), list[str]()
    goes_on = asyncio.Event()

    async def ask(name: str) -> None:
        async with turns.turn(name):
            order.append(name)
            await goes_on.wait()
        if handed and name == "first":
            begun["ends"].cancel()  # its turn is handed to it, and it has not run yet

    begun: dict[str, asyncio.Task[None]] = {}
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        for name in ("first", "ends", "last"):
            begun[name] = tasks.create_task(ask(name))
            await asyncio.sleep(0)
        if not handed:
            begun["ends"].cancel()
        goes_on.set()
    assert order == ["first", "last"]
    async with asyncio.timeout(30), turns.turn("later"):
        pass
