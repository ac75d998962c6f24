"""The pods of workloads as the API server would create them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from queuectl.core.charges import PodCharges, plus
from queuectl.core.features.namespace_quota.limit_ranges import LimitRanges
from queuectl.core.features.namespace_quota.resource_quotas import EqualPods
from queuectl.core.model.resources import PodResources
from queuectl.core.model.workload import PodSet, Workload


class CreatedPods:
    """With the defaults of LimitRanges, the overhead of their RuntimeClass, and the default PriorityClass."""

    def __init__(self, charges: PodCharges, limit_ranges: LimitRanges) -> None:
        self._charges = charges
        self._limit_ranges = limit_ranges

    def of(self, workload: Workload) -> Iterator[EqualPods]:
        """Yield the pods of a workload, as few as it may start with (F9)."""
        for pod_set in workload.pod_sets:
            if pod_set.pod is not None:
                count = pod_set.count if pod_set.min_count is None else pod_set.min_count
                pod = self._limit_ranges.completed(workload.ref.namespace, pod_set.pod)
                yield EqualPods(pod_set.name, count, self._as_created(pod_set, pod))

    def _as_created(self, pod_set: PodSet, pod: PodResources) -> PodResources:
        overhead, default = self._charges.overhead(pod_set), self._charges.default_priority
        if overhead:
            pod = replace(pod, overhead=plus(pod.overhead, overhead))
        if pod.priority_class is None and default is not None:
            pod = replace(pod, priority_class=default.name)
        return pod
