"""How REST speaks HTTP: errors as application/problem+json (RFC 9457), deadlines, and what metrics see."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from queuectl.api.schemas import Problem
from queuectl.net.relay import CHUNK, relay

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


# --- connections

WRITE_SECONDS: Final = 60.0
"""How long a client may take to read one answer."""


class Answering(web.RequestHandler):
    """The requests of one connection."""

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            return resp, True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """For what cannot be parsed as a request, and for defects outside all handlers."""
        if isinstance(exc, LineTooLong):
            refusal = Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request line or a header is too long"
            )
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal = Refusal(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP/1.1 request")
        else:
            log.error("a request failed", exc_info=exc)
            refusal = Refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the server's log has the details"
            )
        answer = respond(refusal)
        answer.force_close()
        return answer


# --- pages of other servers

OWN_PAGE_HEADER: Final = "Queuectl-Request"
OWN_PAGE_VALUE: Final = "change"


def check_own_page(request: web.Request) -> None:
    """Whether a request that changes something may come from a page of another server in a browser.

    Such a page can send requests with what a proxy or the network adds to them, but no header of its own
    without a question by OPTIONS, which this server does not answer (CORS). Raises a 403.
    """
    if request.headers.getall(OWN_PAGE_HEADER, []) != [OWN_PAGE_VALUE]:
        raise _foreign(f"a change needs the header `{OWN_PAGE_HEADER}: {OWN_PAGE_VALUE}`")
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site != "same-origin":
            raise _foreign(f"a page of another server sent it (Sec-Fetch-Site: {site[:20]})")
        return
    # Browsers leave it out without TLS. A proxy keeps the host, or its page has Sec-Fetch-Site.
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
        raise _foreign("a page of another server sent it (header Origin)")


def _foreign(why: str) -> Refusal:
    return Refusal(HTTPStatus.FORBIDDEN, f"{why}: nothing is changed")


# --- metrics


class RestObserver(Protocol):
    """Called on the event loop; must not block."""

    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        """`endpoint`: the path with its parameters in braces, `other` for paths that do not exist. A long
        `seconds` may be a request that waited for changes as it was asked to."""

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        """An identity or a right was looked up. `remembered`: without a request to the API server."""


class _Silent:
    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        return

    def reviewed(self, kind: Literal["token", "access"], remembered: bool) -> None:
        return


SILENT: Final = _Silent()


# --- tunnels

PATH: Final = "/tunnel"
MOST_TUNNELS: Final = 96
"""Tunnels at one time. Each is two connections of this server, of which the outer one is always in work."""
CLOSE_SECONDS: Final = 2.0
"""How long a client may take to confirm the end of its WebSocket."""
_OPEN: Final = web.AppKey("tunnels", set[web.WebSocketResponse])


def add_tunnel(app: web.Application) -> None:
    """Serve connections through the service proxy of the API server.

    The proxy removes the header Authorization and does not verify the certificate of a service. So a client
    opens a WebSocket through it, and in the WebSocket a connection of its own to this server: with TLS from
    end to end, verified by the client, and with all headers. The WebSocket gives no rights: a client that can
    open it reaches this server's port already.
    """
    app[_OPEN] = set()
    app.router.add_get(PATH, tunnel)


async def tunnel(request: web.Request) -> web.StreamResponse:
    """The connection in the WebSocket has the deadlines of every other one: when it ends, so does this."""
    opened = request.app[_OPEN]
    socket = web.WebSocketResponse(compress=False, max_msg_size=CHUNK, timeout=CLOSE_SECONDS)
    if not socket.can_prepare(request):
        raise Refusal(HTTPStatus.UPGRADE_REQUIRED, "only a WebSocket is answered here")
    if len(opened) >= MOST_TUNNELS:
        raise Refusal(
            HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_TUNNELS} tunnels are open on this server", retry_after=2
        )
    opened.add(socket)
    try:
        return await _carried(request, socket)
    finally:
        opened.discard(socket)


async def _carried(request: web.Request, socket: web.WebSocketResponse) -> web.StreamResponse:
    try:
        # None if the client is gone.
        host, port = request.get_extra_info("sockname", default=("", 0))[:2]
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        detail = "this server can't connect to itself"
        raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, detail, inside=str(error), retry_after=2) from None
    try:
        await socket.prepare(request)
    except BaseException:
        writer.close()
        raise
    await relay(socket, reader, writer)
    return socket
