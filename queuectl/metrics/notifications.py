"""Metrics of `queuectl notifier`."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.metrics.exposition import Exposition


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
