"""Room on nodes by the text of M1, M2 and M6 to M8, from pods and nodes alone: for each question, anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy

from queuectl.core.features.nodes.inventory import is_device
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import CapacityMode
from queuectl.core.model.workload import Attempt, WorkloadId
from tests.unit.core.node_pool import NeededPod, NodePool

Free = dict[str, dict[str, int]]
"""Free amounts by node and resource."""


def limited(pool: NodePool, needed: NeededPod) -> dict[str, int]:
    """Return the requests that nodes limit, by M2."""
    return {
        resource: amount
        for resource, amount in needed.requests
        if amount
        and resource in needed.flavors
        and pool.mode(needed.flavors[resource], resource) is CapacityMode.ENFORCE
    }


def needed_by(owner: WorkloadId, pods: Pods) -> list[NeededPod]:
    return [
        NeededPod(owner, group.shape.requests, dict(group.shape.flavors))
        for group in pods
        for _ in range(group.count)
    ]


class SlowRoom:
    """What is free while pods are placed one by one, each where most pods of its shape fit (M7)."""

    def __init__(self, pool: NodePool, gone: Iterable[WorkloadId] = ()) -> None:
        """Count the bound pods, but for those of the workloads `gone`."""
        self.pool = pool
        self.nodes = list(pool.nodes.values())
        self.free = free_without(pool, set(gone))
        offered = {r for node in self.nodes for r, amount in node.allocatable if amount}
        modes = [flavor.nodes.mode for flavor in pool.driver.policy.flavors.values()]
        limits = {r for r in offered if is_device(r) or CapacityMode.ENFORCE in modes}
        self.counted = sorted(limits, key=lambda name: (not is_device(name), name))

    def expect(self, held: Iterable[Attempt]) -> bool:
        """Place the pods of these attempts that are not bound, in order of admission (M7).

        Those that fit nowhere have no place. Return whether there are none of these.
        """
        wanted: dict[tuple[object, ...], list[NeededPod]] = {}
        for attempt in sorted(held, key=lambda one: (one.sequence, one.workload)):
            for one in self.pool.unbound(attempt):
                wanted.setdefault((one.requests, tuple(sorted(one.flavors.items()))), []).append(one)
        ordered = sorted(wanted.values(), key=lambda pods: self._vector(pods[0]), reverse=True)
        before = deepcopy(self.free)
        spread = [self._place(one) for pods in ordered for one in pods]
        if all(spread):
            return True
        after, self.free = self.free, before
        packed = [self._place(one, most=False) for pods in ordered for one in pods]
        if sum(packed) <= sum(spread):
            self.free = after
        return all(packed)

    def place(self, pods: Iterable[NeededPod]) -> bool:
        """Place the pods of one workload, those that take most first. Return whether all of them fit."""
        placed = [self._place(one) for one in sorted(pods, key=self._vector, reverse=True)]
        return all(placed)

    def fits(self, pods: Sequence[NeededPod]) -> bool:
        """Return whether all pods of one workload fit, and the headroom of their flavors stays free (M6)."""
        asked: dict[tuple[str, str], int] = {}
        for one in pods:
            for name in set(one.flavors.values()):
                for resource, amount in limited(self.pool, one).items():
                    asked[name, resource] = asked.get((name, resource), 0) + amount
        for (name, resource), amount in asked.items():
            flavor = self.pool.driver.policy.flavors[name]
            kept = dict(flavor.nodes.headroom).get(resource, 0)
            nodes = (n for n in self.nodes if self.pool.matches(n, {resource: name}))
            if kept and sum(max(0, self.free[n.name].get(resource, 0)) for n in nodes) - amount < kept:
                return False
        return self.place(pods)

    def _vector(self, needed: NeededPod) -> list[int]:
        amounts = limited(self.pool, needed)
        return [amounts.get(resource, 0) for resource in self.counted]

    def _place(self, needed: NeededPod, *, most: bool = True) -> bool:
        amounts = limited(self.pool, needed)
        if not amounts:
            return True
        nodes = [node.name for node in self.nodes if self.pool.matches(node, needed.flavors)]
        found = [(self._count(name, amounts), name) for name in nodes]
        fitting = [(-count if most else count, self._left(name), name) for count, name in found if count > 0]
        if not fitting:
            return False
        best = min(fitting)[-1]
        take(self.free[best], amounts, 1)
        return True

    def _count(self, node: str, amounts: dict[str, int]) -> int:
        return min(self.free[node].get(resource, 0) // amount for resource, amount in amounts.items())

    def _left(self, node: str) -> list[int]:
        return [self.free[node].get(resource, 0) for resource in self.counted]


def can_be_placed(pool: NodePool, pods: Sequence[NeededPod], without: Iterable[WorkloadId] = ()) -> bool:
    """Return whether there is a way to place all `pods` beside those that are bound: every way is tried."""
    free = free_without(pool, set(without))
    wanted = [(one, amounts) for one in pods if (amounts := limited(pool, one))]
    wanted.sort(key=lambda item: sorted(item[1].values(), reverse=True), reverse=True)
    nodes = list(pool.nodes.values())

    def placed(at: int) -> bool:
        if at == len(wanted):
            return True
        needed, amounts = wanted[at]
        tried = set()
        for node in nodes:
            left = free[node.name]
            state = (node.labels, tuple(sorted(left.items())))
            if state in tried or not pool.matches(node, needed.flavors):
                continue
            tried.add(state)
            if all(left.get(resource, 0) >= amount for resource, amount in amounts.items()):
                take(left, amounts, 1)
                if placed(at + 1):
                    return True
                take(left, amounts, -1)
        return False

    return placed(0)


def free_without(pool: NodePool, gone: set[WorkloadId]) -> Free:
    """Return what is free by node and resource, once the pods of the workloads `gone` have ended."""
    free = {node.name: pool.free(node) for node in pool.nodes.values()}
    for pod in pool.pods.values():
        if pod.workload in gone and pod.node in free:
            take(free[pod.node], dict(pod.requests), -1)
    return free


def take(left: dict[str, int], amounts: dict[str, int], times: int) -> None:
    for resource, amount in amounts.items():
        left[resource] = left.get(resource, 0) - times * amount
