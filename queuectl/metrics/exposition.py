"""The registry of a process, its port, and the metrics of every process, REST, notifier and webhook."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from queuectl import __version__
from queuectl.net.listener import ConnectionLimits, guarded, serving

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Creation timestamps are not used and double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Exposition:
    """The metrics of one process, CPU, memory and files included. Names begin with `queuectl_`."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._gauge("build_info", "Always 1; the version is a label.", "version").labels(__version__).set(1)

    def render(self) -> bytes:
        """Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    def observe_certificate(
        self, *, not_after: Callable[[], datetime], problem: Callable[[], str | None]
    ) -> None:
        """Called at each scrape: when the certificate in use expires, and why there is no better one."""
        expiry = self._gauge("certificate_expiry_timestamp_seconds", "When the certificate in use expires.")
        expiry.set_function(lambda: not_after().timestamp())
        wrong = self._gauge(
            "certificate_problem",
            "1 while the certificate cannot be renewed and the last good one stays in use; the log says why.",
        )
        wrong.set_function(lambda: 0 if problem() is None else 1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"queuectl_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"queuectl_{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS
    ) -> Histogram:
        return Histogram(f"queuectl_{name}", text, labels, buckets=buckets, registry=self._registry)

    def _register(self, collector: Collector) -> None:
        self._registry.register(collector)


class Requesting(Exposition):
    """Metrics of a process that calls the API server."""

    def __init__(self) -> None:
        super().__init__()
        self._kubernetes = self._counter(
            "kubernetes_requests",
            "Requests to the API server, by RBAC verb and resource; code 0: no answer.",
            *("verb", "resource", "code"),
        )
        self._kubernetes_seconds = self._histogram(
            "kubernetes_request_duration_seconds", "Time to the headers of the API server's answer.", "verb"
        )

    def kubernetes_answered(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """kube.session.Answered. `code`: HTTP status, 0 without an answer. From any thread."""
        self._kubernetes.labels(verb, resource, str(code)).inc()
        self._kubernetes_seconds.labels(verb).observe(seconds)


class NotifierMetrics(Exposition):
    """notifications.delivery.DeliveryObserver on metrics. Called from one event loop."""

    def __init__(self, sinks: Iterable[str]) -> None:
        super().__init__()
        self._sent = self._counter("notifications_sent", "Messages that a sink accepted.", "sink")
        self._failed = self._counter(
            "notification_failures", "Tries that a sink did not accept; each is repeated.", "sink"
        )
        self._behind = self._gauge(
            "notification_lag_decisions",
            "Decisions in the ledger that a sink was not told of yet, also those that no rule selects.",
            "sink",
        )
        for sink in sinks:
            self._sent.labels(sink)
            self._failed.labels(sink)
            self._behind.labels(sink)

    def sent(self, sink: str) -> None:
        self._sent.labels(sink).inc()

    def failed(self, sink: str) -> None:
        self._failed.labels(sink).inc()

    def behind(self, sink: str, decisions: int) -> None:
        self._behind.labels(sink).set(decisions)


_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RestMetrics(Requesting):
    """Called from one event loop."""

    def __init__(self, *, age: Callable[[], float | None]) -> None:
        """`age`, called at each scrape: seconds since the ledger last confirmed the state in memory; None:
        before the first read."""
        super().__init__()
        self._requests = self._counter(
            "api_requests", "Requests answered, by endpoint and HTTP status.", "endpoint", "code"
        )
        self._seconds = self._histogram(
            "api_request_duration_seconds", "Time to a complete answer.", "endpoint", buckets=_SECONDS
        )
        self._identity = self._counter(
            "api_identity_lookups",
            "Lookups of a caller's token or right, by whether the answer was cached.",
            "kind",
            "remembered",
        )
        for kind in ("token", "access"):
            for remembered in ("false", "true"):
                self._identity.labels(kind, remembered)
        state = self._gauge(
            "api_state_age_seconds",
            "Since the ledger last confirmed the state that answers come from; +Inf: it was never read.",
        )
        state.set_function(lambda: math.inf if (found := age()) is None else found)

    def answered(self, endpoint: str, code: int, seconds: float) -> None:
        """`endpoint`: the pattern of the route, never the path of a request."""
        self._requests.labels(endpoint, str(code)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def reviewed(self, kind: str, remembered: bool) -> None:
        """`kind`: `token` or `access`. Without a cached answer, the API server was asked."""
        self._identity.labels(kind, str(remembered).lower()).inc()


_REVIEW_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_RESULTS: Final = ("changed", "unchanged", "refused")


class WebhookMetrics(Exposition):
    """webhook.server.ReviewObserver on metrics. Called from one event loop."""

    def __init__(self, *, not_after: Callable[[], datetime], problem: Callable[[], str | None]) -> None:
        """Called at each scrape: when the certificate in use expires, and why there is no better one."""
        super().__init__()
        self._reviews = self._counter("webhook_reviews", "Admission reviews answered, by result.", "result")
        for result in _RESULTS:
            self._reviews.labels(result)
        self._seconds = self._histogram(
            "webhook_review_duration_seconds",
            "Time for an admission review, reading its body included.",
            buckets=_REVIEW_SECONDS,
        )
        self.observe_certificate(not_after=not_after, problem=problem)

    def reviewed(self, result: str, seconds: float) -> None:
        self._reviews.labels(result).inc()
        self._seconds.observe(seconds)


Check = Callable[[], str | None]
"""None: passed; else the problem."""


async def serve(metrics: Exposition, address: tuple[str, int], ready: Check = lambda: None) -> None:
    """Answer until cancelled. `address`: host and port, of which 0 takes a free one. Raises OSError if it
    cannot listen there."""
    host, port = address
    async with serving(application(metrics, ready), host=host, port=port, limits=ConnectionLimits()) as url:
        log.info("metrics and probes at %s", url)
        await asyncio.Event().wait()


def application(metrics: Exposition, ready: Check = lambda: None) -> web.Application:
    """The paths for Prometheus and for kubelets. `ready`: of /readyz."""

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    def probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            problem = check()
            return web.Response(status=200 if problem is None else 503, text=f"{problem or 'ok'}\n")

        return answer

    app = web.Application(client_max_size=1024, middlewares=[guarded])
    app.router.add_get("/metrics", scrape)
    app.router.add_get("/healthz", probe(lambda: None))
    app.router.add_get("/readyz", probe(ready))
    return app
