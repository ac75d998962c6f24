"""The HTTP server of the webhook: one path, which answers admission reviews."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web

from queuectl.kinds.jobs import KindRegistry
from queuectl.net.listener import ConnectionLimits, body_of, connection_of
from queuectl.webhook.mutation import BadReview, answered

log = logging.getLogger(__name__)

PATH: Final = "/mutate"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits(ConnectionLimits):
    work: int = 16
    """Reviews whose body is read or answered at one time."""
    work_wait_seconds: float = 1.0
    """How long a review waits to be one of them; then it is refused."""
    body_bytes: int = 7 << 20
    """The API server sends old and new object, each of at most 3 MiB."""


class ReviewObserver(Protocol):
    """Is called for each answer."""

    def reviewed(self, result: str, seconds: float) -> None:
        """`result`: changed, unchanged, or refused."""


def reviews(kinds: KindRegistry, limits: ReviewLimits, observer: ReviewObserver) -> web.Application:
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
                body = await body_of(request)
                answer, changed = answered(body, kinds)
            result = "changed" if changed else "unchanged"
            return web.Response(body=answer, content_type="application/json")
        except BadReview as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        finally:
            observer.reviewed(result, loop.time() - begun)

    app.router.add_post(PATH, review)
    return app


def _check_form(request: web.Request) -> None:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="a review must have the content type application/json\n")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(text="a review must not be compressed\n")


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


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """After each answer, its connection is idle."""
    connection = connection_of(request)
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception:
        log.exception("a review failed")
        return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="internal error: see the log\n")
    finally:
        if connection is not None:
            connection.answered()


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if response.status >= HTTPStatus.BAD_REQUEST:
        # The rest of the refused body need not be read.
        response.headers["Connection"] = "close"
        response.force_close()
