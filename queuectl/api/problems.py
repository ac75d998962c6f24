"""Errors as application/problem+json (RFC 9457), whatever went wrong and wherever."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from queuectl.api.schemas import Problem

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"
MAX_DETAIL: Final = 2000


class Refusal(Exception):
    """An answer other than the one asked for. `detail` says what to do about it."""

    def __init__(self, status: HTTPStatus, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after = retry_after
        """Seconds after which asking again makes sense."""


def bad_request(detail: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, detail)


def not_found() -> Refusal:
    """The same for what is not there and for what the caller may not see."""
    return Refusal(HTTPStatus.NOT_FOUND, "there is no such object, or you may not read it")


def unavailable(problem: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the ledger can't be read: {problem}", retry_after=2)


def respond(refusal: Refusal) -> web.Response:
    problem = Problem(
        type="about:blank",
        title=refusal.status.phrase,
        status=refusal.status.value,
        detail=refusal.detail[:MAX_DETAIL],
    )
    headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
    return web.Response(
        status=refusal.status.value,
        body=problem.model_dump_json().encode(),
        content_type=CONTENT_TYPE,
        headers=headers,
    )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return respond(refusal)
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
