"""A REST server on a thread of its own, for commands that run to their end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web

from queuectl.api.server import serve
from tests.api.canned import CannedReadings

DEADLINE_SECONDS = 20.0

Found = TypeVar("Found")


def eventually(look: Callable[[], Found], good: Callable[[Found], bool]) -> Found:
    """What `look` gives once it is good."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        found = look()
        if good(found):
            return found
        assert time.monotonic() < deadline, found


@contextmanager
def rest(readings: CannedReadings) -> Iterator[str]:
    """Base URL of queuectl's server over `readings`."""

    def work(started: Callable[[str], None]) -> Coroutine[Any, Any, None]:
        return serve(
            readings, host="127.0.0.1", port=0, cursor_key=b"k" * 32, refresh_seconds=0.05, started=started
        )

    with _running(work) as url:
        yield url


@contextmanager
def replying(status: int, body: bytes, content_type: str = "application/json") -> Iterator[str]:
    """Base URL of a server that says the same to everything."""

    async def work(started: Callable[[str], None]) -> None:
        async def answer(request: web.BaseRequest) -> web.Response:
            return web.Response(status=status, body=body, content_type=content_type)

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            started(f"http://127.0.0.1:{runner.addresses[0][1]}")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    with _running(work) as url:
        yield url


@contextmanager
def _running(work: Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]) -> Iterator[str]:
    url: Future[str] = Future()
    loop = asyncio.new_event_loop()
    task: list[asyncio.Task[None]] = []

    def run() -> None:
        try:
            task.append(loop.create_task(work(url.set_result)))
            loop.run_until_complete(asyncio.gather(*task, return_exceptions=True))
        finally:
            loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield url.result(DEADLINE_SECONDS)
    finally:
        loop.call_soon_threadsafe(task[0].cancel)
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
