"""Nodes of a test cluster that come, go and fail, pods that a scheduler binds to them, and pods of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from queuectl.core.features.nodes.inventory import mode_of
from queuectl.core.model.events import ContextGone, ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import (
    CapacityMode,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    Node,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import Attempt, WorkloadId
from tests.unit.core.reference import Cell, Policy

if TYPE_CHECKING:
    from tests.unit.core.driver import Driver


class NeededPod(NamedTuple):
    """A pod that a running workload has or will have."""

    owner: WorkloadId
    requests: Amounts
    flavors: dict[str, str]
    pod_set: str = ""


class NodePool:
    """The Node and Pod objects of a driver; without nodes, nothing limits admissions but quota."""

    def __init__(self, driver: Driver, nodes: Iterable[Node]) -> None:
        self.driver = driver
        self.nodes = {node.name: node for node in nodes}
        self.pods: dict[str, Pod] = {}
        self.pod_sets: dict[str, str] = {}
        """The podset of each pod of a workload, which no pod says."""
        self.made = 0

    def everything(self) -> list[Event]:
        return [*map(ContextObserved, self.nodes.values()), *map(PodObserved, self.pods.values())]

    # --- nodes

    def set(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.driver.watch.append(ContextObserved(node))

    def remove(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.driver.watch.append(ContextGone(Node, name))

    def free(self, node: Node) -> dict[str, int]:
        amounts = dict(node.allocatable)
        for pod in self.pods.values():
            if pod.node == node.name:
                for resource, amount in pod.requests:
                    amounts[resource] = amounts.get(resource, 0) - amount
        return amounts

    def matches(self, node: Node, flavors: dict[str, str]) -> bool:
        known = self.driver.policy.flavors
        labels = {label for name in flavors.values() if name in known for label in known[name].node_labels}
        return node.ready and not node.cordoned and labels <= set(node.labels)

    def can_run(self, node: Node, needed: NeededPod) -> bool:
        """Return whether the scheduler may bind a pod to a node now."""
        free = self.free(node)
        return self.matches(node, needed.flavors) and all(
            free.get(name, 0) >= amount for name, amount in needed.requests
        )

    def mode(self, flavor: str, resource: str) -> CapacityMode | None:
        """Return whether nodes limit a resource of a flavor, by M2; None: there is no such flavor."""
        known = self.driver.policy.flavors.get(flavor)
        if known is None:
            return None
        labelled = (n for n in self.nodes.values() if set(known.node_labels) <= set(n.labels))
        offered = any(dict(node.allocatable).get(resource) for node in labelled)
        return mode_of(known.nodes, resource, offered=offered)

    def capacity(self, cell: Cell) -> int | None:
        """Return what usable nodes have of a cell, without headroom; None: they do not limit it (M2, M6)."""
        name, resource = cell
        if self.mode(name, resource) is not CapacityMode.ENFORCE:
            return None
        usable = [node for node in self.nodes.values() if self.matches(node, {resource: name})]
        total = sum(dict(node.allocatable).get(resource, 0) for node in usable)
        headroom = dict(self.driver.policy.flavors[name].nodes.headroom)
        return max(0, total - headroom.get(resource, 0))

    def counting(self) -> Policy:
        """Return the policy with nominal quotas as they count while nodes have less than that (M11)."""
        known = self.driver.policy
        if not self.nodes:
            return known
        promised: Counter[Cell] = Counter()
        owners: list[ClusterQueue | Cohort] = [*known.queues.values(), *known.cohorts.values()]
        for owner in owners:
            for group in owner.resource_groups:
                for flavor in group.flavors:
                    promised.update({(flavor.name, name): quota.nominal for name, quota in flavor.resources})
        short = {
            cell: (capacity, total)
            for cell, total in promised.items()
            if (capacity := self.capacity(cell)) is not None and capacity < total
        }
        queues, cohorts = dict(known.queues), dict(known.cohorts)
        for name, queue in known.queues.items():
            if self._shares_shortage(queue.cohort):
                queues[name] = replace(queue, resource_groups=_reduced(queue.resource_groups, short))
        for name, cohort in known.cohorts.items():
            if self._shares_shortage(name):
                cohorts[name] = replace(cohort, resource_groups=_reduced(cohort.resource_groups, short))
        return replace(known, queues=queues, cohorts=cohorts)

    def _shares_shortage(self, name: str | None) -> bool:
        """Return whether the root above a cohort says `ProRata`."""
        cohorts = self.driver.policy.cohorts
        cohort = cohorts.get(name) if name is not None else None
        while cohort is not None and cohort.parent is not None and cohort.parent in cohorts:
            cohort = cohorts[cohort.parent]
        return cohort is not None and cohort.parent is None and cohort.shortage is CapacityShortage.PRO_RATA

    # --- pods

    def needed(self, attempt: Attempt) -> list[NeededPod]:
        """Return all pods of an attempt."""
        specs = {one.name: one.requests for one in self.driver.jobs[attempt.workload].workload.pod_sets}
        return [
            NeededPod(attempt.workload, specs.get(held.name, held.requests), dict(held.flavors), held.name)
            for held in attempt.assignment.steered()
            for _ in range(held.count)
        ]

    def unbound(self, attempt: Attempt) -> list[NeededPod]:
        """Return the pods of an open attempt that no node runs yet."""
        if attempt.workload not in self.driver.jobs:
            return []
        bound = Counter(
            self.pod_sets[uid] for uid, pod in self.pods.items() if pod.workload == attempt.workload
        )
        pods = []
        for pod in self.needed(attempt):
            bound[pod.pod_set] -= 1
            if bound[pod.pod_set] < 0:
                pods.append(pod)
        return pods

    @contextmanager
    def bound_to(self, node: Node, needed: NeededPod) -> Iterator[None]:
        """A pod is bound to a node for a moment."""
        self.pods["moment"] = self._pod("moment", node.name, needed.requests, needed.owner)
        yield
        del self.pods["moment"]

    def run_pod(self, owner: WorkloadId | None, node: str, requests: Amounts, pod_set: str = "") -> None:
        self.made += 1
        name = f"pod-{self.made}"
        self.pod_sets[name] = pod_set
        self.pods[name] = self._pod(name, node, requests, owner)
        self.driver.watch.append(PodObserved(self.pods[name]))

    @staticmethod
    def _pod(name: str, node: str, requests: Amounts, owner: WorkloadId | None) -> Pod:
        return Pod(uid=name, namespace="ns", name=name, node=node, requests=requests, workload=owner)

    def end_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.driver.watch.append(PodGone(uid))

    def end_dead_pods(self) -> None:
        for uid in list(self._dead_pods()):
            self.end_pod(uid)

    def _dead_pods(self) -> Iterator[str]:
        seen: Counter[tuple[WorkloadId, str]] = Counter()
        for uid, pod in self.pods.items():
            if pod.workload is None:
                continue
            job = self.driver.jobs.get(pod.workload)
            if job is None:
                former = self.driver.left.get(pod.workload)
                if former is None or not former.pods:
                    yield uid
                continue
            counts = {one.name: one.count for one in job.workload.pod_sets}
            counts[job.workload.pod_sets[0].name] -= job.ended
            name = self.pod_sets[uid]
            seen[pod.workload, name] += 1
            if not job.pods or seen[pod.workload, name] > counts.get(name, 0):
                yield uid


def _reduced(
    groups: tuple[ResourceGroup, ...], short: dict[Cell, tuple[int, int]]
) -> tuple[ResourceGroup, ...]:
    def quota(cell: Cell, full: ResourceQuota) -> ResourceQuota:
        capacity, total = short.get(cell, (1, 1))
        return replace(full, nominal=full.nominal * capacity // total)

    return tuple(
        replace(
            group,
            flavors=tuple(
                replace(
                    flavor,
                    resources=tuple(
                        (name, quota((flavor.name, name), full)) for name, full in flavor.resources
                    ),
                )
                for flavor in group.flavors
            ),
        )
        for group in groups
    )
