"""Metrics of the webhook."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from queuectl.metrics.exposition import Exposition

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
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
            buckets=_SECONDS,
        )
        self.observe_certificate(not_after=not_after, problem=problem)

    def reviewed(self, result: str, seconds: float) -> None:
        self._reviews.labels(result).inc()
        self._seconds.observe(seconds)
