"""ResourceQuotas: which pods the API server will refuse in a namespace, however long they wait (N3, N4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from queuectl.core.charges import PodCharges, plus
from queuectl.core.features.namespace_quota.limit_ranges import ByNamespace, LimitRanges
from queuectl.core.model.pod_limits import Counts, HardLimit, NamespaceQuota, QuotaScope
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.resources import CPU, PodResources, requested, total_limits_with_overhead
from queuectl.core.model.values import value
from queuectl.core.model.workload import PodSet, Workload

_REQUIRED = (CPU, "memory")
"""A ResourceQuota that counts one of these refuses pods with a container that does not name it."""


@value(frozen=True, slots=True)
class EqualPods:
    """Equal pods of a workload, completed as the API server creates them."""

    name: str
    count: int
    pod: PodResources


class ResourceQuotas:
    """The ResourceQuotas of all namespaces."""

    def __init__(self) -> None:
        self._known = ByNamespace[NamespaceQuota]()

    def observe(self, quota: NamespaceQuota) -> bool:
        """Return whether anything but what is used has changed."""
        before = self._known.put(quota)
        return before is None or _as_set(before) != _as_set(quota)

    def forget(self, name: str) -> bool:
        """Return whether it was there."""
        return self._known.forget(name)

    def of(self, namespace: str) -> Sequence[NamespaceQuota]:
        """Return those of a namespace, by name."""
        return self._known.of(namespace)

    def refusal(self, namespace: str, pods: Sequence[EqualPods]) -> Reason | None:
        """Return why a ResourceQuota can never hold all of `pods`; None: each can."""
        for quota in self.of(namespace):
            counted = [group for group in pods if group.count and matches(quota.scopes, group.pod)]
            for limit in quota.limits:
                reason = _unnamed(quota, limit, counted) or _too_many(quota, limit, counted)
                if reason is not None:
                    return reason
        return None


def _as_set(quota: NamespaceQuota) -> NamespaceQuota:
    return replace(quota, limits=tuple(replace(limit, used=0) for limit in quota.limits))


def matches(scopes: Sequence[QuotaScope], pod: PodResources) -> bool:
    """Return whether a ResourceQuota with `scopes` counts the pod; False also where that is not known."""
    return all(_meets(scope, pod) for scope in scopes)


def _meets(scope: QuotaScope, pod: PodResources) -> bool:
    match scope.name:
        case "Terminating":
            return pod.deadline
        case "NotTerminating":
            return not pod.deadline
        case "BestEffort":
            return _best_effort(pod)
        case "NotBestEffort":
            return not _best_effort(pod)
        case "PriorityClass":
            return _has_priority(scope, pod.priority_class)
        case _:
            return False


def _has_priority(scope: QuotaScope, name: str | None) -> bool:
    match scope.operator:
        case "Exists":
            return name is not None
        case "DoesNotExist":
            return name is None
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case _:
            return False


def _best_effort(pod: PodResources) -> bool:
    named = (*pod.requests, *pod.limits)
    if not named:
        named = tuple(item for one in pod.containers for item in (*one.requests, *one.limits))
    return not any(amount for name, amount in named if name in _REQUIRED)


def demand(limit: HardLimit, pods: Sequence[EqualPods]) -> int:
    """Return how much of `limit` all of `pods` use, in base units."""
    return sum(_of_pod(limit, group.pod) * group.count for group in pods)


def _of_pod(limit: HardLimit, pod: PodResources) -> int:
    match limit.counts:
        case Counts.PODS:
            return 1
        case Counts.REQUESTS:
            return dict(requested(pod)).get(limit.resource, 0)
        case Counts.LIMITS:
            return total_limits_with_overhead(pod).get(limit.resource, 0)


def _unnamed(quota: NamespaceQuota, limit: HardLimit, pods: Sequence[EqualPods]) -> Reason | None:
    """The API server refuses pods in which a container does not name what the quota counts (N4)."""
    if limit.resource not in _REQUIRED or limit.counts is Counts.PODS:
        return None
    field = "limit" if limit.counts is Counts.LIMITS else "request"
    for group in pods:
        for name in _without(limit, group.pod):
            detail = f"container {name} of podset {group.name} has no {limit.resource} {field}"
            return Reason(
                code=Code.MISCONFIGURED,
                node=f"ResourceQuota/{quota.name}",
                detail=f"spec.hard[{limit.key}] requires one: {detail}",
            )
    return None


def _without(limit: HardLimit, pod: PodResources) -> Iterator[str]:
    if pod.requests or pod.limits:
        return
    for one in pod.containers:
        listed = one.limits if limit.counts is Counts.LIMITS else one.requests
        if limit.resource not in dict(listed):
            yield one.name


def _too_many(quota: NamespaceQuota, limit: HardLimit, pods: Sequence[EqualPods]) -> Reason | None:
    asked = demand(limit, pods)
    if asked <= limit.hard:
        return None
    return Reason(
        code=Code.EXCEEDS_RESOURCE_QUOTA,
        resource=limit.resource,
        requested=asked,
        available=limit.hard,
        short_by=asked - limit.hard,
        limit=Limit.HARD,
        node=f"ResourceQuota/{quota.name}",
        detail=f"spec.hard[{limit.key}]",
    )


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
