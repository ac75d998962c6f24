"""The HTTP server: authentication, rate limits, problem+json, probes."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, Required, TypedDict, Unpack

from aiohttp import ClientError, web
from aiohttp.typedefs import Middleware

from queuectl.answers.state import Configure
from queuectl.api import docs_page, openapi, requests
from queuectl.api.answer_routes import AnswerRoutes
from queuectl.api.authorization import Reviewer, given_token
from queuectl.api.budget_routes import BudgetRoutes
from queuectl.api.capacity_routes import CapacityRoutes
from queuectl.api.change_routes import ChangeRoutes
from queuectl.api.count_routes import CountRoutes
from queuectl.api.forecast_routes import ForecastRoutes
from queuectl.api.http import (
    CANDID,
    SILENT,
    Answering,
    Handler,
    Refusal,
    RestObserver,
    add_tunnel,
    bad_request,
    check_own_page,
    problems,
    unavailable,
)
from queuectl.api.idle_routes import IdleRoutes
from queuectl.api.limit_routes import LimitRoutes
from queuectl.api.limits import RequestLimits
from queuectl.api.node_routes import NodeRoutes
from queuectl.api.page import add_page
from queuectl.api.past_usage_routes import PastUsageRoutes
from queuectl.api.preemption_routes import PreemptionRoutes
from queuectl.api.queue_routes import QueueRoutes
from queuectl.api.requests import Caller, Cursors, Endpoint, Identify, KnownKinds, Question, unrestricted
from queuectl.api.schemas import Committed, Health
from queuectl.api.statement_routes import CardOf, StatementRoutes
from queuectl.api.usage_routes import UsageRoutes
from queuectl.api.view import AnswerSource, PastStates, View, controller
from queuectl.api.what_if_routes import WhatIfRoutes
from queuectl.api.workload_routes import WorkloadRoutes
from queuectl.kinds.policy import parse_policy
from queuectl.net import listener
from queuectl.net.addresses import is_loopback
from queuectl.ports import SILENT_SECONDS
from queuectl.ports.budgets import BudgetReadings
from queuectl.ports.changes import Changes
from queuectl.ports.idle import UseReadings
from queuectl.ports.reader import Forecasts, Readings, WhatIfs
from queuectl.ports.statements import StatementReadings

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]+)?")
LISTENING: Final = listener.ConnectionLimits(connections=512, handshake_seconds=5.0)
_YAML: Final = "application/yaml"
_HEADERS: Final = {
    "Server": "queuectl",
    "X-Content-Type-Options": "nosniff",
}


class RestParts(TypedDict, total=False):
    """What endpoints need beside the ledger."""

    kinds: Required[KnownKinds]
    """Those that a path or query may name."""
    cursor_key: Required[bytes]
    """16 to 64 secret bytes, the same in every replica."""
    what_ifs: Required[WhatIfs]
    forecasts: Forecasts | None
    changes: Changes | None
    """None: callers change nothing."""
    configure: Configure | None
    """Reads the configuration of earlier states."""
    statements: StatementReadings | None
    card_of: CardOf | None
    """Reads rates in a configuration."""
    device_use: UseReadings | None
    budgets: BudgetReadings | None
    links: Mapping[str, str]
    """Templates of URLs of a workload, by title."""
    observer: RestObserver


async def serve(
    readings: Readings,
    *,
    address: tuple[str, int],
    refresh_seconds: float = 0.5,
    started: Callable[[str], None] | None = None,
    reviewer: Reviewer | None = None,
    tls: ssl.SSLContext | None = None,
    view: View | None = None,
    **parts: Unpack[RestParts],
) -> None:
    """Answer until cancelled. `address`: host and port, of which 0 takes a free one;
    `started` gets the base URL.

    `view`: over these readings, if the caller uses it too. Without `reviewer` any client may read all, on a
    loopback address only. Raises OSError if it cannot listen there, and ValueError for an address that is not
    loopback without both `reviewer` and `tls`.
    """
    host, port = address
    if not is_loopback(host) and reviewer is None:
        raise ValueError(f"{host} is not loopback: clients must authenticate there")
    if not is_loopback(host) and tls is None:
        raise ValueError(f"{host} is not loopback: tokens must not be sent there without TLS")
    view = view or View(readings, parse_policy)
    app = application(view, readings, identify=reviewer, **parts)
    async with listener.serving(
        app, host=host, port=port, limits=LISTENING, context=tls, handler=Answering
    ) as base:
        await view.refresh()
        if started is not None:
            started(base)
        await view.run(refresh_seconds)


def application(
    view: View,
    readings: Readings,
    *,
    identify: Identify | None = None,
    clock: Callable[[], float] = time.monotonic,
    **parts: Unpack[RestParts],
) -> web.Application:
    """The app without a socket; the caller keeps `view` up to date. Without `identify`: no access check."""
    app = web.Application(
        middlewares=[listener.guarded, _measured(parts.get("observer", SILENT)), problems, _bounded]
    )
    app[CANDID] = identify is None
    if identify is None:
        app.middlewares.append(_local_name)
    else:
        # Without authentication the bytes in a tunnel could claim any host name.
        add_tunnel(app)
    app.on_response_prepare.append(_prepare)
    past = PastStates(readings, parse_policy, parts.get("configure"))
    source = AnswerSource(view, readings, parts["kinds"], Cursors(parts["cursor_key"]), past)
    workloads = WorkloadRoutes(source, parts.get("links"))
    routes = (
        QueueRoutes(source),
        CapacityRoutes(source),
        NodeRoutes(source),
        workloads,
        CountRoutes(source),
        AnswerRoutes(source, workloads),
        UsageRoutes(source),
        PastUsageRoutes(source),
        StatementRoutes(source, parts.get("statements"), parts.get("card_of")),
        IdleRoutes(source, parts.get("device_use")),
        BudgetRoutes(source, parts.get("budgets")),
        LimitRoutes(source),
        PreemptionRoutes(source, workloads),
        WhatIfRoutes(source, workloads, parts["what_ifs"], parts.get("budgets")),
        ForecastRoutes(source, workloads, parts.get("forecasts")),
        ChangeRoutes(source, parts.get("changes")),
    )
    endpoints = [endpoint for part in routes for endpoint in part.endpoints()]
    limits = RequestLimits(clock)
    for endpoint in endpoints:
        handler = _handler(endpoint, identify or unrestricted, limits)
        if endpoint.body:
            app.router.add_post(endpoint.path, handler)
        else:
            app.router.add_get(endpoint.path, handler)
    _add_descriptions(app, endpoints)
    _add_probes(app, view)
    add_page(app)
    return app


def _handler(endpoint: Endpoint, identify: Identify, limits: RequestLimits) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        if endpoint.changes:
            check_own_page(request)
        caller = await identify(request)
        raw = request.raw_path.partition("?")[2]
        values = requests.parse(raw, endpoint.parameters)
        if not caller.limited:
            return await answer(request, caller, values)
        limits.take(caller.name, heavy=endpoint.heavy(values))
        with limits.in_work(caller.tenant):
            return await answer(request, caller, values)

    async def answer(request: web.Request, caller: Caller, values: dict[str, Any]) -> web.StreamResponse:
        async def again() -> Caller:
            return await identify(request)

        positions = ("limit", "next", "wait", "after")
        filters = sorted((name, str(v)) for name, v in values.items() if name not in positions)
        question = Question(
            caller=caller,
            path=dict(request.match_info),
            values=values,
            scope=json.dumps([caller.name, request.path, filters]),
            again=again,
            waiting=lambda: limits.waiting(caller.name),
            gone=lambda: request.transport is None or request.transport.is_closing(),
            body=await _read(request, endpoint) if endpoint.body else b"",
            yaml=request.content_type == _YAML,
            token=given_token(request) if endpoint.changes else None,
        )
        return _json(_body(await endpoint.answer(question)))

    return handle


async def _read(request: web.Request, endpoint: Endpoint) -> bytes:
    """The body. Raises a 411, 413 or 415 before it is read."""
    limits = {"application/json": endpoint.body, **({_YAML: endpoint.yaml} if endpoint.yaml else {})}
    most = limits.get(request.content_type)
    if most is None:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {' or '.join(limits)}")
    if request.content_length is None:
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "the request must say the length of its body")
    if request.content_length > most:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most} bytes")
    try:
        return await listener.body_of(request)
    except (ClientError, OSError):
        # The connection is closed: the status is for the metrics.
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from None


def _add_descriptions(app: web.Application, endpoints: Iterable[Endpoint]) -> None:
    document = openapi.document(endpoints)
    description, shown = json.dumps(document).encode(), docs_page.html(document).encode()

    async def describe(request: web.Request) -> web.Response:
        return _json(description)

    async def show(request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": docs_page.SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
        return web.Response(body=shown, content_type="text/html", charset="utf-8", headers=headers)

    app.router.add_get("/openapi.json", describe)
    app.router.add_get("/docs", show)


def _add_probes(app: web.Application, view: View) -> None:
    async def healthy(request: web.Request) -> web.Response:
        return _json(Health(status="ok").model_dump_json(exclude_none=True).encode())

    async def ready(request: web.Request) -> web.Response:
        sight = view.sight()
        if sight is None:
            raise unavailable(view.problem or "not read yet")
        detail = None
        if view.problem is not None:
            detail = f"answers are stale{f': {view.problem}' if app[CANDID] else ''}"
        elif sight.silent_seconds > SILENT_SECONDS:
            detail = f"no controller has committed for {sight.silent_seconds:.0f} s: nothing is decided"
        health = Health(status="ok", detail=detail, controller=controller(sight))
        return _json(health.model_dump_json(by_alias=True, exclude_none=True).encode())

    app.router.add_get("/healthz", healthy)
    app.router.add_get("/readyz", ready)


def _body(answer: Committed) -> bytes:
    exclude = {name for name in ("stale", "observed") if not getattr(answer, name)}
    return answer.model_dump_json(by_alias=True, exclude=exclude).encode()


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _measured(observer: RestObserver) -> Middleware:
    @web.middleware
    async def measured(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun = time.monotonic()
        answer = await handler(request)
        if isinstance(answer, web.WebSocketResponse):
            return answer  # the connection in it is measured, request by request
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else "other"
        observer.answered(route, answer.status, time.monotonic() - begun)
        return answer

    return measured


@web.middleware
async def _bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.body_exists and request.method in ("GET", "HEAD"):
        raise bad_request("requests must not have a body")
    return await handler(request)


@web.middleware
async def _local_name(request: web.Request, handler: Handler) -> web.StreamResponse:
    # A page in a browser can send requests to a host name of its own that resolves to loopback. With
    # authentication it would have no token.
    host = _HOST.fullmatch(request.host.lower())
    name = (host[1] or host[2]) if host else ""
    if not is_loopback(name):
        raise Refusal(
            HTTPStatus.MISDIRECTED_REQUEST, "this server answers to localhost, 127.0.0.1 and [::1] only"
        )
    return await handler(request)


async def _prepare(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    if request.can_read_body:  # it was refused before all of it was read
        response.headers["Connection"] = "close"
        response.force_close()
