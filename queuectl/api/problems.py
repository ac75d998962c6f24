"""All errors as application/problem+json (RFC 9457)."""

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
    """An error response. `detail` says what to do about it."""

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
        """`inside`: details for the operators of the server only, such as the address of its database.
        `retry_after`: seconds after which to repeat the request."""
        super().__init__(f"{detail}: {inside}" if inside else detail)
        self.status = status
        self.detail = detail
        self.inside = inside
        self.audiences = None if audiences is None else tuple(audiences)
        """A token must be for one of them."""
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)


def bad_request(detail: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, detail)


def not_found() -> Refusal:
    """The same answer for an object that does not exist and for one that the caller may not read."""
    return Refusal(HTTPStatus.NOT_FOUND, "there is no such object, or you may not read it")


def unavailable(problem: str) -> Refusal:
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the ledger can't be read", inside=problem, retry_after=2)


def no_identity() -> Refusal:
    return Refusal(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the API server does not answer, so the token and its rights cannot be checked",
        retry_after=2,
    )


def respond(refusal: Refusal, *, candid: bool = True) -> web.Response:
    """`candid`: the client is an operator of the server and gets `inside` too."""
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
"""Every client is an operator of the server: answers include `inside`."""


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return respond(refusal, candid=request.app[CANDID])
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = respond(Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"use {allowed}"))
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        status = HTTPStatus(error.status)
        return respond(not_found() if status is HTTPStatus.NOT_FOUND else Refusal(status, status.description))
    except Exception:
        log.exception("request failed: %s %s", request.method, ascii(request.path))
        return respond(
            Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the server's log has the details")
        )
