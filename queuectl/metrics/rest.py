"""Metrics of `queuectl api`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from queuectl.metrics.exposition import Requesting

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
