"""/metrics, /healthz and /readyz, on a port of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from queuectl.metrics.exposition import CONTENT_TYPE, Exposition

Check = Callable[[], str | None]
"""None: good; else what is wrong."""

STOP_SECONDS = 2.0
IDLE_SECONDS = 75.0


async def serve(
    metrics: Exposition,
    *,
    host: str,
    port: int,
    healthy: Check,
    ready: Check,
    started: Callable[[str], None] | None = None,
) -> None:
    """Answer until cancelled. Port 0 takes a free one; `started` gets the base URL. Raises OSError when it
    can't listen there."""
    runner = web.AppRunner(
        application(metrics, healthy=healthy, ready=ready),
        access_log=None,
        handle_signals=False,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=STOP_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        if started is not None:
            bound_host, bound_port = runner.addresses[0][:2]
            bound_host = f"[{bound_host}]" if ":" in bound_host else bound_host
            started(f"http://{bound_host}:{bound_port}")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def application(metrics: Exposition, *, healthy: Check, ready: Check) -> web.Application:
    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    def probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            problem = check()
            return web.Response(status=200 if problem is None else 503, text=f"{problem or 'ok'}\n")

        return answer

    app = web.Application()
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/healthz", probe(healthy))
    app.router.add_get("/readyz", probe(ready))
    return app
