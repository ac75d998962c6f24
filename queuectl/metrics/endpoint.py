"""/metrics, /healthz and /readyz, on a port of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from queuectl.metrics.exposition import CONTENT_TYPE, Exposition
from queuectl.net.listener import ConnectionLimits, guarded, serving

Check = Callable[[], str | None]
"""None: passed; else the problem."""


async def serve(
    metrics: Exposition,
    *,
    host: str,
    port: int,
    healthy: Check,
    ready: Check,
    started: Callable[[str], None] | None = None,
) -> None:
    """Answer until cancelled. Port 0 takes a free one; `started` gets the base URL. Raises OSError if it
    cannot listen there."""
    app = application(metrics, healthy=healthy, ready=ready)
    async with serving(app, host=host, port=port, limits=ConnectionLimits()) as url:
        if started is not None:
            started(url)
        await asyncio.Event().wait()


def application(metrics: Exposition, *, healthy: Check, ready: Check) -> web.Application:
    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    def probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            problem = check()
            return web.Response(status=200 if problem is None else 503, text=f"{problem or 'ok'}\n")

        return answer

    app = web.Application(client_max_size=1024, middlewares=[guarded])
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/healthz", probe(healthy))
    app.router.add_get("/readyz", probe(ready))
    return app
