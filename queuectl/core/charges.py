"""What the pods of a workload are charged, and why they cannot be created or charged (H1 to H9, G9).

A pod is charged what its containers request, and the overhead of its RuntimeClass, in the form that is
configured. Features add to that: defaults of a namespace, devices of claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, Protocol

from queuectl.core.flavors.queue_flavors import Charge
from queuectl.core.model.devices import MAPPINGS
from queuectl.core.model.policy import PriorityClass, RuntimeClass
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import (
    MAX_AMOUNT,
    NO_FORMS,
    Amounts,
    Charging,
    PodResources,
    ResourceForms,
    amounts,
    requested,
)
from queuectl.core.model.workload import PodSet, Workload, names_claim


class PodRequests(NamedTuple):
    """What one pod of a podset requests, or what a claim that its pods share does."""

    pod_set: PodSet
    requests: Amounts
    """A sum may be above MAX_AMOUNT."""


class ChargeRule(Protocol):
    """What is added to the pods of workloads."""

    charges_claims: ClassVar[bool]
    """It charges claims, or has a problem that says why not."""

    def completed(self, namespace: str, pod: PodResources) -> PodResources:
        """Return the pod as the API server creates it."""

    def requests(self, workload: Workload, pods: list[PodRequests]) -> list[PodRequests]:
        """Return `pods`, those of `workload`, with all that is requested beside their containers."""

    def problem(self, workload: Workload, pods: list[PodRequests], cluster_queue: str) -> Reason | None:
        """Return why `pods`, those of `workload`, cannot be created or charged there; None: they can."""

    def recorded(self, workload: Workload, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return its podsets, so far `pod_sets`, as the ledger has them."""


class PodCharges:
    """Reads workloads with what the cluster adds to their pods."""

    def __init__(self, forms: ResourceForms = NO_FORMS) -> None:
        self._charging = Charging(forms)
        self.runtimes: dict[str, RuntimeClass] = {}
        self.default_priority: PriorityClass | None = None
        """The PriorityClass of pods that name none."""
        self.rules: Sequence[ChargeRule] = ()
        """Those of active features."""

    def charges(self, workload: Workload) -> tuple[Charge, ...]:
        """Return the charge of one pod per podset, and that of each claim that pods share (H1 to H9, N1)."""
        found = []
        for pod_set, requests in self.requests(workload):
            pod = _cut(requests)
            # Workloads with equal charges are alike: the podset is left without what its charge says.
            if pod_set.pod is not None or pod_set.claims:
                pod_set = replace(pod_set, pod=None, claims=())
            charged = self._charging.of(pod) if self._charging.changes else pod
            found.append(Charge(pod_set, charged, () if names_claim(pod_set.name) else pod))
        return tuple(found)

    def form(self, requests: Amounts) -> Amounts:
        """Return these requests in the form that is charged (H8)."""
        return self._charging.of(_cut(requests))

    def total(self, workload: Workload) -> dict[str, int]:
        """Return what all pods request together, in the form that is charged, in base units."""
        return self.total_of(self.requests(workload))

    def total_of(self, pods: Iterable[PodRequests]) -> dict[str, int]:
        """Return what these pods request together, in the form that is charged, in base units."""
        total: dict[str, int] = {}
        for pod_set, requests in pods:
            for resource, amount in self.form(requests):
                total[resource] = total.get(resource, 0) + amount * pod_set.count
        return total

    def requests(self, workload: Workload) -> list[PodRequests]:
        """Return what each pod requests with all that is added to it."""
        namespace = workload.ref.namespace
        pods = [PodRequests(pod_set, self.of_pod(namespace, pod_set)) for pod_set in workload.pod_sets]
        for rule in self.rules:
            pods = rule.requests(workload, pods)
        return pods

    def of_pod(self, namespace: str, pod_set: PodSet) -> Amounts:
        """Return what the containers of a pod request, and its overhead."""
        requests = pod_set.requests
        if (pod := pod_set.pod) is not None:
            for rule in self.rules:
                pod = rule.completed(namespace, pod)
            requests = requests if pod is pod_set.pod else requested(pod)
        overhead = self.overhead(pod_set) if pod_set.runtime_class else ()
        return plus(requests, overhead) if overhead else requests

    def overhead(self, pod_set: PodSet) -> Amounts:
        runtime = self.runtimes.get(pod_set.runtime_class) if pod_set.runtime_class else None
        return runtime.overhead if runtime is not None else ()

    def recorded(self, workload: Workload) -> tuple[PodSet, ...]:
        """Return its podsets as the ledger has them."""
        pod_sets = workload.pod_sets
        for rule in self.rules:
            pod_sets = rule.recorded(workload, pod_sets)
        return pod_sets

    def problem(self, workload: Workload, cluster_queue: str) -> Reason | None:
        """Return why its pods cannot be created or charged there; None: they can (G9 to G11)."""
        for pod_set in workload.pod_sets:
            if pod_set.runtime_class and pod_set.runtime_class not in self.runtimes:
                detail = f"RuntimeClass {pod_set.runtime_class} of podset {pod_set.name} not found"
                return Reason(code=Code.MISCONFIGURED, detail=detail)
        for pod_set in workload.pod_sets:
            for claim in pod_set.claims:
                if not any(rule.charges_claims for rule in self.rules):
                    detail = f"{claim.path} cannot be charged: its DeviceClass is in no {MAPPINGS}"
                    return Reason(code=Code.RESOURCE_NOT_COVERED, detail=detail)
        pods = self.requests(workload)
        problem = self._too_much(workload, pods)
        for rule in self.rules:
            problem = problem or rule.problem(workload, pods, cluster_queue)
        return problem

    def _too_much(self, workload: Workload, pods: Iterable[PodRequests]) -> Reason | None:
        """Overhead, a default, a claim or a transformation can make a charge too large (H5)."""
        for pod_set, requests in pods:
            for resource, amount in requests:
                if amount > MAX_AMOUNT:
                    detail = f"a pod of podset {pod_set.name} is charged more than {MAX_AMOUNT} of it"
                    return Reason(code=Code.QUANTITY_OUT_OF_RANGE, resource=resource, detail=detail)
        for charge in self.charges(workload) if self._charging.changes else ():
            for resource, amount in charge.requests:
                if amount >= MAX_AMOUNT:
                    detail = f"a pod of podset {charge.pod_set.name} is charged {MAX_AMOUNT} or more of it"
                    return Reason(code=Code.QUANTITY_OUT_OF_RANGE, resource=resource, detail=detail)
        return None


def plus(one: Amounts, other: Iterable[tuple[str, int]]) -> Amounts:
    """Return the sum of amounts."""
    total = dict(one)
    for resource, amount in other:
        total[resource] = total.get(resource, 0) + amount
    return amounts(total)


def _cut(requests: Amounts) -> Amounts:
    """Return `requests` with no amount above MAX_AMOUNT: as much as a row can hold is charged (H5)."""
    for _, amount in requests:
        if amount > MAX_AMOUNT:
            return amounts({resource: min(amount, MAX_AMOUNT) for resource, amount in requests})
    return requests
