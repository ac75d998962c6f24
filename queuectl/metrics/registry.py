"""All metrics of the controller.

Label values come from closed lists and from objects of admins, never from names that tenants choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from prometheus_client import Counter, Histogram

from queuectl.core.decisions import Admit, Evict, Keep, Plan, Release, Retire
from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.device_use import UseFinding
from queuectl.core.model.events import Result
from queuectl.core.model.workload import EffectKey, Verb, WorkloadId
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.metrics.collectors import (
    BoundedNames,
    CapacityCollector,
    HealthCollector,
    LocalQueueCollector,
    ReportCollector,
    Sampled,
)
from queuectl.metrics.exposition import Requesting

_SIZES: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
_WAITS: Final = (1, 5, 15, 60, 300, 900, 3600, 14_400, 43_200, 86_400, 259_200)


class _Evictions:
    """How many there are, and how long evicted workloads hold quota."""

    def __init__(self, count: Counter, seconds: Histogram) -> None:
        self._count = count
        self._seconds = seconds
        self.open: dict[WorkloadId, tuple[str, datetime]] = {}
        """Reason and time of each eviction that this leader decided, until its quota is released."""

    def evicted(self, evict: Evict, now: datetime) -> None:
        reason, cause = evict.reason.code.value, evict.reason.cause
        self._count.labels(reason, cause.value if cause else "").inc()
        self.open[evict.workload] = (reason, now)

    def released(self, workload: WorkloadId, now: datetime) -> None:
        if (evicted := self.open.pop(workload, None)) is not None:
            reason, since = evicted
            self._seconds.labels(reason).observe(max(0.0, (now - since).total_seconds()))


class Metrics(Requesting):
    """controller.reports.LoopObserver on metrics.

    Called from the controller's one event loop, `kubernetes_answered` from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, of_local_queues: bool = False) -> None:
        """`clock`: monotonic, in seconds. `of_local_queues`: each LocalQueue has figures too."""
        super().__init__()
        self._names = BoundedNames()
        self._decide()
        self._commit()
        self._act()
        self._lag = self._histogram("event_loop_lag_seconds", "Delay of a timer.")
        self._epoch = self._gauge("leadership_epoch", "Epoch of this process' leadership; 0: none.")
        self._capacity = CapacityCollector()
        self._reports = ReportCollector(self._names)
        self._health = HealthCollector(clock)
        for collector in (self._capacity, self._reports, self._health):
            self._register(collector)
        if of_local_queues:
            self._reports.of_local_queues = LocalQueueCollector(self._reports)
            self._register(self._reports.of_local_queues)

    def _decide(self) -> None:
        self._decisions = self._counter(
            "decisions", "Decisions, by verdict and reason code, if there is one.", "verdict", "reason"
        )
        self._evaluated = (
            self._counter("workloads_evaluated", "Workloads evaluated by admission cycles."),
            self._histogram("cycle_duration_seconds", "Time of an admission cycle that evaluated workloads."),
        )
        self._admissions = self._counter("admissions", "Workloads admitted.", "cluster_queue")
        self._room = (
            self._counter(
                "room_admissions",
                "Workloads admitted for which nodes had room, where nodes limit admissions.",
            ),
            self._counter("room_misses", "Those of which kube-scheduler found no node for a pod."),
        )
        self._waits = self._histogram(
            "admission_wait_seconds",
            "From the creation of an object to its first admission.",
            "cluster_queue",
            buckets=_WAITS,
        )
        self._evictions = _Evictions(
            self._counter("evictions", "Workloads evicted; for preemptions also by rule.", "reason", "cause"),
            self._histogram(
                "eviction_duration_seconds",
                "From an eviction until its quota is returned.",
                "reason",
                buckets=_WAITS,
            ),
        )

    def _commit(self) -> None:
        self._commits = self._counter("ledger_commits", "Transactions of the ledger, by result.", "result")
        self._commit_seconds = self._histogram("ledger_commit_duration_seconds", "Time of a transaction.")
        self._commit_size = self._histogram(
            "ledger_commit_decisions", "Decisions in a transaction.", buckets=_SIZES
        )
        self._sequence = self._gauge("ledger_sequence", "Last committed decision.")
        self._devices = (
            self._gauge(
                "judged_devices",
                "GPUs of admitted workloads, by the verdict of the attempt.",
                "cluster_queue",
                "verdict",
            ),
            self._gauge("idle_devices", "GPUs of admitted workloads that are idle or hang.", "cluster_queue"),
        )
        self._verified = (
            self._gauge("ledger_findings", "Differences between the ledger and its history."),
            self._gauge(
                "ledger_default_partitions_used",
                "Tables of history with rows outside every month's partition.",
            ),
        )
        for result in ("committed", "refused", "unavailable"):
            self._commits.labels(result)

    def _act(self) -> None:
        self._effects = self._counter("effects", "Kubernetes writes that are finished.", "verb", "result")
        self._effect_seconds = self._histogram(
            "effect_duration_seconds", "From the commit of a Kubernetes write until it is finished.", "verb"
        )
        # Series that are 0 from the start give correct rates from the first event on.
        for verb in Verb:
            for result in Result:
                self._effects.labels(verb.value, result.value)

    # --- deciding

    def evaluated(self, workloads: int, *, seconds: float) -> None:
        """Count the workloads that an admission cycle evaluated."""
        count, duration = self._evaluated
        count.inc(workloads)
        duration.observe(seconds)

    def committed(self, plan: Plan, *, seconds: float, sequence: int) -> None:
        """Count the decisions of a committed plan, and the transaction."""
        for decision in plan.recorded:
            reason = decision.reason.code.value if isinstance(decision, Keep | Evict) else ""
            self._decisions.labels(decision.verdict.value, reason).inc()
            if isinstance(decision, Admit):
                self._admitted(decision, plan.now)
            elif isinstance(decision, Evict):
                self._evictions.evicted(decision, plan.now)
            elif isinstance(decision, Release | Retire):
                self._evictions.released(decision.workload, plan.now)
        self._commits.labels("committed").inc()
        self._commit_seconds.observe(seconds)
        self._commit_size.observe(len(plan.recorded))
        self._sequence.set(sequence)
        self._health.mark_commit()

    def _admitted(self, admit: Admit, now: datetime) -> None:
        queue = self._names.label(admit.attempt.assignment.cluster_queue)
        self._admissions.labels(queue).inc()
        if admit.created_at is not None and admit.attempt.number == 1:
            self._waits.labels(queue).observe(max(0.0, (now - admit.created_at).total_seconds()))

    def reported(
        self,
        local_queues: Sequence[LocalQueueReport],
        cluster_queues: Sequence[ClusterQueueReport],
        gone: Sequence[str],
    ) -> None:
        """The reports of queues that changed; the series of the ClusterQueues in `gone` end."""
        for queue in gone:
            self._reports.reports.pop(queue, None)
            if self._names.forget(queue):
                for metric in (self._admissions, self._waits):
                    metric.remove_by_labels({"cluster_queue": queue})
        self._reports.reports |= {report.name: report for report in cluster_queues}
        if self._reports.of_local_queues is not None:
            self._reports.of_local_queues.reports |= {report.name: report for report in local_queues}

    def predicted(self, admissions: int, misses: int) -> None:
        """Of these admissions and of earlier ones, so many are not scheduled."""
        for counter, number in zip(self._room, (admissions, misses), strict=True):
            counter.inc(number)

    def capacity(self, flavors: Sequence[FlavorCapacity]) -> None:
        """What the nodes of each flavor have; replaces the figures before."""
        self._capacity.flavors = tuple(flavors)

    # --- ledger

    def ledger_unavailable(self) -> None:
        self._commits.labels("unavailable").inc()

    def ledger_refused(self) -> None:
        self._commits.labels("refused").inc()

    def set_aside(self) -> None:
        self._commits.labels("set-aside").inc()

    def ledger_findings(self, codes: Sequence[str]) -> None:
        """The findings of the last comparison of the ledger with its history: a code each."""
        used = sum(code == "DefaultPartition" for code in codes)
        findings, defaults = self._verified
        findings.set(len(codes) - used)
        defaults.set(used)
        self._health.mark_verification()

    def devices_used(self, found: Iterable[tuple[str, UseFinding]]) -> None:
        """Each attempt that holds GPUs, as last checked: its ClusterQueue and its finding."""
        judged, idle = self._devices
        judged.clear()
        idle.clear()
        for cluster_queue, finding in found:
            name = self._names.label(cluster_queue)
            judged.labels(name, finding.verdict.value).inc(finding.devices)
            idle.labels(name).inc(finding.idle_devices)

    # --- Kubernetes writes

    def settled(self, key: EffectKey, result: Result, *, seconds: float) -> None:
        self._effects.labels(key.verb.value, result.value).inc()
        self._effect_seconds.labels(key.verb.value).observe(seconds)

    # --- leadership

    def loop_lag(self, seconds: float) -> None:
        self._lag.observe(seconds)

    def took_epoch(self, epoch: int) -> None:
        self._epoch.set(epoch)

    def observe(self, sampled: Sampled) -> None:
        """What to sample at each scrape."""
        self._reports.sampled = self._health.sampled = sampled

    def stepped_down(self) -> None:
        """Another process may lead: the series of queues, flavors and sources end, and counters stay."""
        self._reports.sampled = self._health.sampled = None
        self._reports.reports = {}
        if self._reports.of_local_queues is not None:
            self._reports.of_local_queues.reports = {}
        self._capacity.flavors = ()
        self._evictions.open.clear()
        self.devices_used(())
