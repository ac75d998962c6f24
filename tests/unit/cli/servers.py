"""A REST server on its own thread, for commands that run to their end."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from aiohttp import web

from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.api.server import serve
from queuectl.app.api import rate_card
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import CannedReadings

DEADLINE_SECONDS = 20.0

Found = TypeVar("Found")
Document = dict[str, Any]


def eventually(look: Callable[[], Found], good: Callable[[Found], bool]) -> Found:
    """Wait until the result of `look` is true; returns it."""
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
            readings,
            kinds=JOB_KINDS,
            what_ifs=TriedWhatIfs(),
            address=("127.0.0.1", 0),
            cursor_key=b"k" * 32,
            refresh_seconds=0.05,
            started=started,
            forecasts=readings,
            statements=readings.statements,
            card_of=rate_card,
            device_use=readings.device_use,
            budgets=readings.budgets,
        )

    with _running(work) as url:
        yield url


@contextmanager
def replying(status: int, body: bytes, content_type: str = "application/json") -> Iterator[str]:
    """Base URL of a server that sends the same response to every request."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, body=body, content_type=content_type)

    with answering(answer) as url:
        yield url


@contextmanager
def answering(
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    *,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Base URL of a server that sends the result of `answer`."""

    async def work(started: Callable[[str], None]) -> None:
        transports: set[asyncio.Transport] = set()

        async def noted(request: web.BaseRequest) -> web.StreamResponse:
            assert request.transport is not None
            transports.add(request.transport)
            return await answer(request)

        server = web.Server(noted)
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
            await site.start()
            started(f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
            # A connection that was accepted just before is passed to the server only now.
            for _ in range(5):
                await asyncio.sleep(0)
            await server.shutdown(0)
            for transport in transports:
                if not transport.is_closing():
                    transport.abort()
            await asyncio.sleep(0.01)

    with _running(work) as url:
        yield url


class Script:
    """Responses of a REST server by path below /api/v1/, and the requests that it got."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Mapping[str, str]], tuple[int, Document]]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.tokens: list[str | None] = []
        self.accepts: str | None = None
        """The only token that is accepted."""
        self.audiences: list[str] = ["queuectl"]

    def page(self, path: str, *items: Document, sequence: int = 9, next: str | None = None) -> None:
        self.say(path, {"items": list(items), "next": next, "sequence": sequence, "ageSeconds": 0.1})

    def say(self, path: str, document: Document, status: int = 200) -> None:
        self.answers[path] = lambda query: (status, document)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        path = request.path.removeprefix("/api/v1/")
        header = request.headers.get("Authorization")
        self.asked.append((path, dict(request.query)))
        self.tokens.append(header)
        if self.accepts is not None and header != f"Bearer {self.accepts}":
            problem = {"title": "Unauthorized", "detail": "no token", "audiences": self.audiences}
            return web.json_response(problem, status=401, content_type="application/problem+json")
        if path not in self.answers:
            return web.json_response({"title": "Not Found", "detail": "no such object"}, status=404)
        status, document = self.answers[path](request.query)
        retry = {"Retry-After": "0"} if status == 429 else {}
        return web.json_response(document, status=status, headers=retry)


@contextmanager
def ended_in_time(process: subprocess.Popen[str]) -> Iterator[None]:
    """Reads of its output end: it is killed after three times the deadline."""
    timer = threading.Timer(3 * DEADLINE_SECONDS, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()


@contextmanager
def _running(work: Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]) -> Iterator[str]:
    url: Future[str] = Future()
    stop: Future[Callable[[], object]] = Future()

    async def until_told() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        stop.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        with suppress(asyncio.CancelledError):
            await work(url.set_result)

    def run() -> None:
        # A connection that was accepted last is a task of the loop: the runner ends those too.
        with asyncio.Runner() as runner:
            runner.run(until_told())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield url.result(DEADLINE_SECONDS)
    finally:
        stop.result(DEADLINE_SECONDS)()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()
