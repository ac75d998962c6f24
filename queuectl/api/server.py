"""HTTP around the routes: identity, limits, problem+json, probes."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import web

from queuectl.api import identity, openapi, query
from queuectl.api.identity import Caller
from queuectl.api.problems import Handler, Refusal, bad_request, problems, unavailable
from queuectl.api.query import Cursors
from queuectl.api.routes import Endpoint, Question, Routes
from queuectl.api.schemas import Committed, Health
from queuectl.api.view import View
from queuectl.kinds.policy import parse_policy
from queuectl.ports import Readings

Authenticate = Callable[[web.Request], Awaitable[Caller]]

IDLE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 1.0
"""How long a body that nobody wants is still read, so that the answer arrives."""
STOP_SECONDS: Final = 2.0
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]+)?")
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


async def serve(
    readings: Readings,
    *,
    host: str,
    port: int,
    cursor_key: bytes,
    refresh_seconds: float = 0.5,
    started: Callable[[str], None] | None = None,
) -> None:
    """Answer until cancelled. Port 0 takes a free one; `started` gets the base URL.

    `cursor_key`: 16 to 64 secret bytes, the same in every replica. Raises OSError when it can't listen there,
    and ValueError for an address that is not loopback.
    """
    if not _is_loopback(host):
        raise ValueError(f"{host} is not loopback: callers are not asked who they are yet")
    view = View(readings, parse_policy)
    app = application(view, readings, cursor_key=cursor_key)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=LINGER_SECONDS,
        auto_decompress=False,
        shutdown_timeout=STOP_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await view.refresh()
        if started is not None:
            bound_host, bound_port = runner.addresses[0][:2]
            bound_host = f"[{bound_host}]" if ":" in bound_host else bound_host
            started(f"http://{bound_host}:{bound_port}")
        await view.run(refresh_seconds)
    finally:
        await runner.cleanup()


def application(
    view: View, readings: Readings, *, cursor_key: bytes, authenticate: Authenticate = identity.local
) -> web.Application:
    """The app without a socket. Whoever calls keeps `view` up to date."""
    app = web.Application(middlewares=[problems, _guard])
    app.on_response_prepare.append(_prepare)
    endpoints = Routes(view, readings, Cursors(cursor_key)).endpoints()
    for endpoint in endpoints:
        app.router.add_get(endpoint.path, _handler(endpoint, authenticate))
    description = json.dumps(openapi.document(endpoints)).encode()

    async def describe(request: web.Request) -> web.Response:
        return _json(description)

    async def healthy(request: web.Request) -> web.Response:
        return _json(Health(status="ok").model_dump_json(exclude_none=True).encode())

    async def ready(request: web.Request) -> web.Response:
        if view.sight() is None:
            raise unavailable(view.problem or "not read yet")
        detail = None if view.problem is None else f"answers are stale: {view.problem}"
        return _json(Health(status="ok", detail=detail).model_dump_json(exclude_none=True).encode())

    app.router.add_get("/openapi.json", describe)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)
    return app


def _handler(endpoint: Endpoint, authenticate: Authenticate) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller = await authenticate(request)
        raw = request.raw_path.partition("?")[2]
        values = query.parse(raw, endpoint.parameters)
        filters = sorted((name, str(v)) for name, v in values.items() if name not in ("limit", "next"))
        question = Question(
            caller=caller,
            path=dict(request.match_info),
            values=values,
            scope=json.dumps([caller.name, request.path, filters]),
        )
        return _json(_body(await endpoint.answer(question)))

    return handle


def _body(answer: Committed) -> bytes:
    exclude = None if answer.stale else {"stale"}
    return answer.model_dump_json(by_alias=True, exclude=exclude).encode()


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    # A page in a browser may be made to call us under a name of its own that resolves to loopback.
    host = _HOST.fullmatch(request.host.lower())
    name = (host[1] or host[2]) if host else ""
    if not _is_loopback(name):
        raise Refusal(
            HTTPStatus.MISDIRECTED_REQUEST, "this server answers to localhost, 127.0.0.1 and [::1] only"
        )
    if request.body_exists and request.method in ("GET", "HEAD"):
        raise bad_request("a request body has no meaning here: leave it out")
    return await handler(request)


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if request.body_exists:
        response.force_close()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
