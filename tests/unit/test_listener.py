"""Which connections a full listener closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from queuectl.net.event_loop import new_event_loop
from queuectl.net.listener import ConnectionLimits, guarded, serving

DEADLINE = 60.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """Accepts three connections. Each request stays in work until `release` is set."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self.release = asyncio.Event()
        self.working = asyncio.Semaphore(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application(middlewares=[guarded])
        app.router.add_get("/", self._answer)
        async with (
            asyncio.timeout(DEADLINE),
            serving(app, host="127.0.0.1", port=0, limits=ConnectionLimits(connections=3)) as url,
        ):
            host, _, port = url.removeprefix("http://").rpartition(":")
            self.address = (host, int(port))
            yield

    async def _answer(self, request: web.Request) -> web.Response:
        self.working.release()
        await self.release.wait()
        return web.Response(text="done")

    async def connect(self) -> Streams:
        return await asyncio.open_connection(*self.address)

    async def ask(self, streams: Streams) -> None:
        """Returns once the request is in work."""
        streams[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await self.working.acquire()


async def closed(streams: Streams) -> None:
    """Returns once the server has closed the connection without an answer."""
    with contextlib.suppress(ConnectionError):
        assert await streams[0].read() == b""
    streams[1].close()


async def test_51_one_connection_too_many_closes_the_oldest_one_without_a_request_in_work() -> None:
    server = Server()
    async with server.running():
        busy, oldest, idle = [await server.connect() for _ in range(3)]
        await server.ask(busy)
        newest = await server.connect()
        await closed(oldest)
        await server.ask(idle)
        await server.ask(newest)
        server.release.set()
        for reader, writer in (busy, idle, newest):
            assert await reader.readuntil(b"done")
            writer.close()


def test_the_event_loop_of_the_servers_serves_and_closes_connections_as_that_of_asyncio() -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(test_51_one_connection_too_many_closes_the_oldest_one_without_a_request_in_work())


def test_bytes_for_a_connection_that_is_closed_are_no_error_of_the_event_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = new_event_loop()
    closed = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
    try:
        for error in (closed, RuntimeError("another"), ValueError("the handler is closed")):
            loop.call_exception_handler({"message": "Fatal error on SSL protocol", "exception": error})
    finally:
        loop.close()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "another",
        "the handler is closed",
    ]


async def test_51_while_all_connections_have_a_request_in_work_a_new_one_is_closed() -> None:
    server = Server()
    async with server.running():
        busy = [await server.connect() for _ in range(3)]
        for one in busy:
            await server.ask(one)
        await closed(await server.connect())
        server.release.set()
        for reader, writer in busy:
            assert await reader.readuntil(b"done")
            writer.close()


async def test_an_error_while_serving_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="of the caller"):
        async with Server().running():
            raise ValueError("of the caller")
