"""All metrics of the controller, in a registry of its own.

Label values come from closed lists and from objects that admins make, never from tenants' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from queuectl import __version__
from queuectl.core.decisions import Evict, Keep, Plan
from queuectl.core.events import Result
from queuectl.core.model import Verb
from queuectl.core.report import ClusterQueueReport
from queuectl.core.resources import CPU, FlavorResource

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_CELL: Final = ("flavor", "resource")

# When each series began is of no use here, and doubles them.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Called from the controller's one event loop."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._decisions = self._counter(
            "decisions", "Decisions, by verdict and, where there is one, reason code.", "verdict", "reason"
        )
        self._looked_at = self._counter("workloads_evaluated", "Workloads looked at by admission cycles.")
        self._commits = self._counter("ledger_commits", "Transactions of the ledger, by result.", "result")
        self._commit_seconds = self._histogram("ledger_commit_duration_seconds", "Time of a transaction.")
        self._commit_size = self._histogram(
            "ledger_commit_decisions", "Decisions in a transaction.", buckets=_SIZES
        )
        self._sequence = self._gauge("ledger_sequence", "Last committed decision.")
        self._effects = self._counter("effects", "Kubernetes writes settled.", "verb", "result")
        self._effect_seconds = self._histogram(
            "effect_duration_seconds", "From the first sending of a Kubernetes write until settled.", "verb"
        )
        self._findings = self._gauge("ledger_findings", "Differences between the ledger and its history.")
        self._lag = self._histogram("event_loop_lag_seconds", "How late a timer fired.")
        self._epoch = self._gauge("leadership_epoch", "Epoch that this process writes under.")
        self._capacity = _Cells("queuectl_flavor_capacity", "Allocatable on nodes that match a flavor.")
        self._reports = _Reports()
        self._silence = _Silence()
        for collector in (self._capacity, self._reports, self._silence):
            self._registry.register(collector)
        self._gauge("build_info", "Always 1; the version is a label.", "version").labels(__version__).set(1)
        # Series that are 0 from the start make rates right from the first event on.
        for verb in Verb:
            for result in Result:
                self._effects.labels(verb.value, result.value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"queuectl_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"queuectl_{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"queuectl_{name}", text, labels, buckets=buckets, registry=self._registry)

    def observe_plan(self, plan: Plan) -> None:
        """Count the decisions of a committed plan."""
        for decision in plan.recorded:
            reason = decision.reason.code.value if isinstance(decision, Keep | Evict) else ""
            self._decisions.labels(decision.verdict.value, reason).inc()
        self._looked_at.inc(plan.work)

    def observe_reports(self, reports: Sequence[ClusterQueueReport]) -> None:
        """What all ClusterQueues amount to now; those that are not in it have no series any more."""
        self._reports.reports = tuple(reports)

    def committed(self, *, decisions: int, seconds: float, sequence: int) -> None:
        self._commits.labels("committed").inc()
        self._commit_seconds.observe(seconds)
        self._commit_size.observe(decisions)
        self._sequence.set(sequence)

    def commit_failed(self, result: str) -> None:
        """`result`: `refused`, `unavailable` or `deposed`."""
        self._commits.labels(result).inc()

    def effect_settled(self, verb: Verb, result: Result, seconds: float) -> None:
        self._effects.labels(verb.value, result.value).inc()
        self._effect_seconds.labels(verb.value).observe(seconds)

    def observe_reflectors(self, ages: Callable[[], Mapping[str, float | None]]) -> None:
        """`ages`: seconds since the API server was last heard, by kind; None: never. Asked at each scrape."""
        self._silence.ages = ages

    def ledger_findings(self, count: int) -> None:
        """What the last comparison of the ledger with its history found."""
        self._findings.set(count)

    def loop_lag(self, seconds: float) -> None:
        self._lag.observe(seconds)

    def epoch(self, number: int) -> None:
        self._epoch.set(number)

    def flavor_capacity(self, amounts: Mapping[FlavorResource, int]) -> None:
        """What nodes of each flavor have; it replaces what was there."""
        self._capacity.amounts = dict(amounts)

    def render(self) -> bytes:
        """Prometheus' text format (CONTENT_TYPE)."""
        return generate_latest(self._registry)


def _amount(cell: FlavorResource, amount: int) -> float:
    """In Prometheus' base units: cores, bytes, devices."""
    return amount / 1000 if cell.resource == CPU else float(amount)


def _cells(amounts: Iterable[tuple[FlavorResource, int]]) -> list[tuple[tuple[str, ...], float]]:
    return [(cell, _amount(cell, amount)) for cell, amount in amounts]


class _Cells(Collector):
    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self.amounts: Mapping[FlavorResource, int] = {}

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=_CELL)
        for cell, amount in sorted(self.amounts.items()):
            family.add_metric(cell, _amount(cell, amount))
        yield family


class _Reports(Collector):
    def __init__(self) -> None:
        self.reports: tuple[ClusterQueueReport, ...] = ()

    def collect(self) -> Iterator[Metric]:
        queue = ("cluster_queue",)
        yield self._family(
            "pending_workloads", "Workloads that wait.", queue, lambda report: [((), report.pending)]
        )
        yield self._family(
            "admitted_workloads",
            "Workloads that hold quota, those being evicted included.",
            queue,
            lambda report: [((), report.admitted)],
        )
        yield self._family(
            "cluster_queue_active",
            "1 if the queue can admit; else the label says why not.",
            (*queue, "reason"),
            lambda report: [((report.condition.reason,), float(report.condition.active))],
        )
        cell = (*queue, *_CELL)
        yield self._family("quota_nominal", "Its own quota.", cell, lambda r: _cells(r.nominal))
        yield self._family("quota_used", "Quota held by open attempts.", cell, lambda r: _cells(r.used))

    def _family(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Callable[[ClusterQueueReport], Iterable[tuple[tuple[str, ...], float]]],
    ) -> Metric:
        family = GaugeMetricFamily(f"queuectl_{name}", text, labels=labels)
        for report in self.reports:
            for more, value in values(report):
                family.add_metric((report.name, *more), value)
        return family


class _Silence(Collector):
    def __init__(self) -> None:
        self.ages: Callable[[], Mapping[str, float | None]] = dict

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "queuectl_reflector_silence_seconds",
            "Since the API server was last heard on a kind's watch; +Inf: never.",
            labels=("kind",),
        )
        for kind, age in sorted(self.ages().items()):
            family.add_metric((kind,), math.inf if age is None else age)
        yield family
