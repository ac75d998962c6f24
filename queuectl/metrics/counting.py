"""The controller's observer: counts its work."""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.core.decisions import Plan
from queuectl.core.model.capacity import FlavorCapacity
from queuectl.core.model.events import Result
from queuectl.core.model.workload import EffectKey
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.metrics.registry import Metrics


class Counting:
    """controller.reports.LoopObserver on metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._queues: dict[str, ClusterQueueReport] = {}

    def took_epoch(self, epoch: int) -> None:
        self._metrics.epoch(epoch)

    def committed(self, plan: Plan, *, seconds: float, sequence: int) -> None:
        self._metrics.observe_plan(plan)
        self._metrics.committed(decisions=len(plan.recorded), seconds=seconds, sequence=sequence)

    def ledger_unavailable(self) -> None:
        self._metrics.commit_failed("unavailable")

    def ledger_refused(self) -> None:
        self._metrics.commit_failed("refused")

    def set_aside(self) -> None:
        self._metrics.commit_failed("set-aside")

    def settled(self, key: EffectKey, result: Result, *, seconds: float) -> None:
        self._metrics.effect_settled(key.verb, result, seconds)

    def predicted(self, admissions: int, misses: int) -> None:
        self._metrics.room_predicted(admissions, misses)

    def capacity(self, flavors: Sequence[FlavorCapacity]) -> None:
        self._metrics.flavor_capacity(flavors)

    def reported(
        self,
        local_queues: Sequence[LocalQueueReport],
        cluster_queues: Sequence[ClusterQueueReport],
        gone: Sequence[str],
    ) -> None:
        for name in gone:
            self._queues.pop(name, None)
        self._queues |= {report.name: report for report in cluster_queues}
        if cluster_queues or gone:
            self._metrics.observe_reports(list(self._queues.values()), gone)
