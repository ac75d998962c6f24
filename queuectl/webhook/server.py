"""HTTP around the mutation: one path that answers reviews, and apart from it probes and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from queuectl.webhook.listener import Connection, Limits, Listener, listening
from queuectl.webhook.mutation import BadReview, answered

log = logging.getLogger(__name__)

PATH: Final = "/mutate"
STOP_SECONDS: Final = 2.0
_LINGER_SECONDS: Final = 1.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Check = Callable[[], str | None]
"""None: good; else what is wrong."""


class Observer(Protocol):
    """Hears what was answered."""

    def reviewed(self, result: str, seconds: float) -> None:
        """`result`: changed, unchanged, or refused."""


@asynccontextmanager
async def serving(
    app: web.Application, *, host: str, port: int, limits: Limits, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Answer while the block lasts; gives the base URL. Raises OSError when it can't listen there."""
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=limits.idle_seconds,
        lingering_time=_LINGER_SECONDS,
        auto_decompress=False,
        shutdown_timeout=STOP_SECONDS,
    )
    await runner.setup()
    try:
        with contextlib.closing(listening(host, port)) as accepting:
            assert runner.server is not None
            listener = Listener(runner.server, limits, context)
            async with asyncio.TaskGroup() as tasks:
                accepts = tasks.create_task(listener.accept(accepting))
                try:
                    shown = f"[{host}]" if ":" in host else host
                    scheme = "http" if context is None else "https"
                    yield f"{scheme}://{shown}:{accepting.getsockname()[1]}"
                finally:
                    accepts.cancel()
    finally:
        await runner.cleanup()  # what is under way is answered


def reviews(limits: Limits, observer: Observer) -> web.Application:
    """The app that the API server calls."""
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[_errors])
    app.on_response_prepare.append(_prepare)
    places = asyncio.Semaphore(limits.work)

    async def review(request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        result = "refused"
        try:
            _check_form(request)
            async with _place(places, limits.work_wait_seconds):
                body = await _body(request)
                answer, changed = answered(body)
            result = "changed" if changed else "unchanged"
            return web.Response(body=answer, content_type="application/json")
        except BadReview as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        finally:
            observer.reviewed(result, loop.time() - begun)

    app.router.add_post(PATH, review)
    return app


def probes(*, ready: Check, metrics: Callable[[], tuple[bytes, str]]) -> web.Application:
    """`metrics`: what there is to scrape and its content type."""
    app = web.Application(client_max_size=1024, middlewares=[_errors])

    async def healthy(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(request: web.Request) -> web.Response:
        problem = ready()
        return web.Response(status=200 if problem is None else 503, text=f"{problem or 'ok'}\n")

    async def scrape(request: web.Request) -> web.Response:
        body, content_type = metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", readiness)
    app.router.add_get("/metrics", scrape)
    return app


def _check_form(request: web.Request) -> None:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="reviews come as application/json\n")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(text="reviews come as they are, not compressed\n")


@asynccontextmanager
async def _place(places: asyncio.Semaphore, wait: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(wait):
            await places.acquire()
    except TimeoutError:
        raise web.HTTPServiceUnavailable(
            text="too many reviews at one time\n", headers={"Retry-After": "1"}
        ) from None
    try:
        yield
    finally:
        places.release()


async def _body(request: web.Request) -> bytes:
    connection = _connection(request)
    if connection is not None:
        connection.reading()
    body = await request.read()
    if connection is not None:
        connection.working()
    return body


def _connection(request: web.Request) -> Connection | None:
    found = request.transport.get_protocol() if request.transport is not None else None
    return found if isinstance(found, Connection) else None


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every answer ends what is under way on its connection."""
    connection = _connection(request)
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception:
        log.exception("a review could not be answered")
        return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="a defect: see the log\n")
    finally:
        if connection is not None:
            connection.answered()


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if response.status >= HTTPStatus.BAD_REQUEST:
        # What is left of a body that nobody wants need not be read.
        response.headers["Connection"] = "close"
        response.force_close()
