"""What the pods of a workload are charged, and why the API server would refuse them (H1 to H9, N1 to N4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from queuectl.core.features.devices.claims import DeviceClaims
from queuectl.core.features.namespace_quota.limit_ranges import LimitRanges
from queuectl.core.features.namespace_quota.resource_quotas import EqualPods, ResourceQuotas
from queuectl.core.flavors.queue_flavors import Charge
from queuectl.core.model.devices import ResourceClaim, ResourceClaimTemplate
from queuectl.core.model.pod_limits import LimitRange, NamespaceQuota
from queuectl.core.model.policy import Context, OfNamespace, PriorityClass, RuntimeClass
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import (
    MAX_AMOUNT,
    NO_FORMS,
    Amounts,
    Charging,
    PodResources,
    ResourceForms,
    amounts,
    format_amount,
    requested,
)
from queuectl.core.model.workload import CLAIM, Assignment, PodSet, Workload

NO_LABELS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType({})


class PodCharges:
    """Reads workloads with what the cluster adds to their pods: overhead, defaults, forms of resources."""

    def __init__(
        self, forms: ResourceForms = NO_FORMS, namespaces: Mapping[str, Mapping[str, str]] = NO_LABELS
    ) -> None:
        """`namespaces`: the labels of each."""
        self._charging = Charging(forms)
        self.runtimes: dict[str, RuntimeClass] = {}
        self.limit_ranges = LimitRanges()
        self.quotas = ResourceQuotas()
        self.claims = DeviceClaims(dict(forms.device_classes), namespaces)
        self.default_priority: PriorityClass | None = None
        """The PriorityClass of pods that name none."""

    def observe(self, value: OfNamespace) -> bool:
        """Return whether it matters to workloads of its namespace that are not judged by what is used now."""
        match value:
            case LimitRange():
                return self.limit_ranges.observe(value)
            case NamespaceQuota():
                return self.quotas.observe(value)
            case ResourceClaim() | ResourceClaimTemplate():
                return self.claims.observe(value)

    def forget(self, kind: type[Context], name: str) -> bool:
        """Return whether it was there."""
        if kind is LimitRange:
            return self.limit_ranges.forget(name)
        if kind is NamespaceQuota:
            return self.quotas.forget(name)
        claims = ResourceClaim if kind is ResourceClaim else ResourceClaimTemplate
        return self.claims.forget(claims, name)

    def charges(self, workload: Workload) -> tuple[Charge, ...]:
        """Return the charge of one pod per podset, and that of each claim that pods share."""
        shared = list(self.claims.shared(workload)) if _has_claims(workload) else ()
        together = {pod_set.name for pod_set, _, _ in shared}
        found = [self._of_pods(workload, pod_set, pod_set.name in together) for pod_set in workload.pod_sets]
        for pod_set, name, devices in shared:
            claim = replace(_plain(pod_set, grouped=True), name=f"{pod_set.name}{CLAIM}{name}")
            claim = replace(claim, count=1, min_count=None, requests=())
            found.append(Charge(claim, self._charging.of(amounts(devices))))
        return tuple(found)

    def _of_pods(self, workload: Workload, pod_set: PodSet, grouped: bool) -> Charge:
        requests = _cut(self._of_each_pod(workload.ref.namespace, pod_set))
        return Charge(_plain(pod_set, grouped=grouped), self._charging.of(requests), requests)

    def _of_each_pod(self, namespace: str, pod_set: PodSet) -> Amounts:
        """Return what one pod requests with all that is added to it. A sum may be above MAX_AMOUNT."""
        requests = self._requests(namespace, pod_set)
        if pod_set.claims:
            requests = _sum(requests, self.claims.of_each_pod(namespace, pod_set).items())
        return requests

    def grown(self, workload: Workload, assignment: Assignment, recorded: Iterable[PodSet]) -> str | None:
        """Return what its claims add beyond what an attempt with `assignment` holds quota for (L22).

        None: nothing. What else a charge follows from does not count: a LimitRange, a RuntimeClass.
        `recorded`: its podsets as the ledger has them; empty: the ledger has none.
        """
        if not _has_claims(workload):
            return None
        namespace, pod_sets = workload.ref.namespace, {one.name: one for one in workload.pod_sets}
        for pod_set in (*recorded,) or workload.pod_sets:
            if (why := self.claims.uncharged(namespace, pod_set.claims)) is not None:
                return why
        held = {one.name: dict(one.requests) for one in assignment.pod_sets}
        for charge in self.charges(workload):
            name, of_pods = charge.pod_set.name, pod_sets.get(charge.pod_set.name)
            without = self._charged(self._requests(namespace, of_pods)) if of_pods else {}
            asked = self._charged(of_pods.requests) if of_pods else {}
            for resource, amount in charge.requests:
                had = held.get(name, {}).get(resource, 0)
                if amount - without.get(resource, 0) > max(0, had - asked.get(resource, 0)):
                    now, before = (format_amount(resource, each) for each in (amount, had))
                    return (
                        f"podset {name} has {now} of {resource} with its claims, it holds quota for {before}"
                    )
        return None

    def _charged(self, requests: Amounts) -> dict[str, int]:
        return dict(self._charging.of(_cut(requests)))

    def problem(self, workload: Workload) -> Reason | None:
        """Return why its pods cannot be created or charged; None: they can (G9 to G11)."""
        return (
            self._unknown_runtime(workload)
            or (self.claims.problem(workload) if _has_claims(workload) else None)
            or self._too_much(workload)
            or self._refused_by_limit_range(workload)
            or self._refused_by_quota(workload)
        )

    def pods(self, workload: Workload) -> Iterator[EqualPods]:
        """Yield its pods as the API server would create them, as few as it may start with (F9)."""
        for pod_set in workload.pod_sets:
            pod = self._created(workload.ref.namespace, pod_set)
            if pod is not None:
                count = pod_set.count if pod_set.min_count is None else pod_set.min_count
                yield EqualPods(pod_set.name, count, pod)

    def _requests(self, namespace: str, pod_set: PodSet) -> Amounts:
        if pod_set.pod is None:
            requests = pod_set.requests
        else:
            completed = self.limit_ranges.completed(namespace, pod_set.pod)
            requests = pod_set.requests if completed is pod_set.pod else requested(completed)
        overhead = self._overhead(pod_set)
        return _sum(requests, overhead) if overhead else requests

    def _created(self, namespace: str, pod_set: PodSet) -> PodResources | None:
        if pod_set.pod is None:
            return None
        pod = self.limit_ranges.completed(namespace, pod_set.pod)
        overhead, default = self._overhead(pod_set), self.default_priority
        if overhead:
            pod = replace(pod, overhead=_sum(pod.overhead, overhead))
        if pod.priority_class is None and default is not None:
            pod = replace(pod, priority_class=default.name)
        return pod

    def _overhead(self, pod_set: PodSet) -> Amounts:
        runtime = self.runtimes.get(pod_set.runtime_class) if pod_set.runtime_class else None
        return runtime.overhead if runtime is not None else ()

    def _unknown_runtime(self, workload: Workload) -> Reason | None:
        for pod_set in workload.pod_sets:
            if pod_set.runtime_class and pod_set.runtime_class not in self.runtimes:
                detail = f"RuntimeClass {pod_set.runtime_class} of podset {pod_set.name} not found"
                return Reason(code=Code.MISCONFIGURED, detail=detail)
        return None

    def _too_much(self, workload: Workload) -> Reason | None:
        """Overhead, a default, a claim or a transformation can make a charge too large (H5)."""
        for pod_set in workload.pod_sets:
            for resource, amount in self._of_each_pod(workload.ref.namespace, pod_set):
                if amount > MAX_AMOUNT:
                    detail = f"a pod of podset {pod_set.name} is charged more than {MAX_AMOUNT} of it"
                    return Reason(code=Code.QUANTITY_OUT_OF_RANGE, resource=resource, detail=detail)
        for charge in self.charges(workload) if self._charging else ():
            for resource, amount in charge.requests:
                if amount >= MAX_AMOUNT:
                    detail = f"a pod of podset {charge.pod_set.name} is charged {MAX_AMOUNT} or more of it"
                    return Reason(code=Code.QUANTITY_OUT_OF_RANGE, resource=resource, detail=detail)
        return None

    def _refused_by_limit_range(self, workload: Workload) -> Reason | None:
        namespace = workload.ref.namespace
        if not self.limit_ranges.exist(namespace):
            return None
        for group in self.pods(workload):
            found = self.limit_ranges.refusal(namespace, group.pod)
            if found is not None:
                name, why = found
                detail = f"refuses the pods of podset {group.name}: {why}"
                return Reason(code=Code.MISCONFIGURED, node=f"LimitRange/{name}", detail=detail)
        return None

    def _refused_by_quota(self, workload: Workload) -> Reason | None:
        namespace = workload.ref.namespace
        if not self.quotas.of(namespace):
            return None
        return self.quotas.refusal(namespace, tuple(self.pods(workload)))


def _has_claims(workload: Workload) -> bool:
    return any(pod_set.claims for pod_set in workload.pod_sets)


def _plain(pod_set: PodSet, *, grouped: bool) -> PodSet:
    """Return the podset without what its charge says: workloads with equal charges are alike.

    `grouped`: it gets the same flavors as the claims that its pods share.
    """
    if grouped:
        pod_set = replace(pod_set, group=pod_set.group or pod_set.name)
    if pod_set.pod is None and not pod_set.claims:
        return pod_set
    return replace(pod_set, pod=None, claims=())


def _sum(one: Amounts, other: Iterable[tuple[str, int]]) -> Amounts:
    total = dict(one)
    for resource, amount in other:
        total[resource] = total.get(resource, 0) + amount
    return amounts(total)


def _cut(requests: Amounts) -> Amounts:
    """Return `requests` with no amount above MAX_AMOUNT: as much as a row can hold is charged (H5)."""
    if all(amount <= MAX_AMOUNT for _, amount in requests):
        return requests
    return amounts({resource: min(amount, MAX_AMOUNT) for resource, amount in requests})
