"""The registry of a process, and the metrics that every process exports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

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
