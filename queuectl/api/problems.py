"""Errors as application/problem+json (RFC 9457), whatever went wrong and wherever."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import web

from queuectl.api.schemas import Problem

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"
MAX_DETAIL: Final = 2000


class Refusal(Exception):
    """An answer other than the one asked for. `detail` says what to do about it."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        inside: str = "",
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        audiences: Sequence[str] | None = None,
    ) -> None:
        """`inside`: what is for those who run the server, such as the address of its database.
        `retry_after`: seconds after which asking again makes sense."""
        super().__init__(f"{detail}: {inside}" if inside else detail)
        self.status = status
        self.detail = detail
        self.inside = inside
        self.audiences = None if audiences is None else tuple(audiences)
        """One of which a token must be for."""
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)


def bad_request(detail: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, detail)


def not_found() -> Refusal:
    """The same for what is not there and for what the caller may not see."""
    return Refusal(HTTPStatus.NOT_FOUND, "there is no such object, or you may not read it")


def unavailable(problem: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the ledger can't be read", inside=problem, retry_after=2)


def no_identity() -> Refusal:
    return Refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the API server can't be asked who you are and what you may read",
        retry_after=2,
    )


def respond(refusal: Refusal, *, candid: bool = True) -> web.Response:
    """`candid`: to somebody who runs the server."""
    detail = str(refusal) if candid else refusal.detail
    problem = Problem(
        type="about:blank",
        title=refusal.status.phrase,
        status=refusal.status.value,
        detail=detail[:MAX_DETAIL],
        audiences=refusal.audiences,
    )
    return web.Response(
        status=refusal.status.value,
        body=problem.model_dump_json(exclude_none=True).encode(),
        content_type=CONTENT_TYPE,
        headers=refusal.headers,
    )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CANDID: Final = web.AppKey("candid", bool)
"""Whoever asks runs the server: tell him all."""


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return respond(refusal, candid=request.app[CANDID])
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = respond(Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"this API is read-only: use {allowed}"))
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        status = HTTPStatus(error.status)
        return respond(not_found() if status is HTTPStatus.NOT_FOUND else Refusal(status, status.description))
    except Exception:
        log.exception("request failed: %s %s", request.method, ascii(request.path))
        return respond(
            Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a defect; the server's log says more")
        )
