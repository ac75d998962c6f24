"""A slow reference implementation of docs/scheduling.md, to compare the engine with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from queuectl.core.model.budgets import Budget
from queuectl.core.model.device_use import IdlePolicy
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    HeadCanNeverRun,
    LocalQueue,
    LocalQueueName,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.usage_limits import UsageLimit
from queuectl.core.model.workload import PodSet, Workload, WorkloadId

Usage = dict[tuple[str, str, str], int]
"""Usage by ClusterQueue, flavor and resource, in base units."""

Cell = tuple[str, str]
"""(flavor, resource)."""
Named = tuple[str, type[ClusterQueue] | type[Cohort]]

_SEVERITY = [Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA, Code.NO_MATCHING_FLAVOR]


@dataclass
class Policy:
    """The policy objects in the API server."""

    queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    local_queues: dict[LocalQueueName, LocalQueue] = field(default_factory=dict)
    priorities: dict[str, int] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    limits: dict[str, UsageLimit] = field(default_factory=dict)
    idle: dict[str, IdlePolicy] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)

    # --- Q1, G1 to G8

    def active(self, queue: ClusterQueue) -> bool:
        named = {f.name for g in queue.resource_groups for f in g.flavors}
        return (
            queue.stop_policy is StopPolicy.NONE and named <= self.flavors.keys() and not self.circle(queue)
        )

    def circle(self, queue: ClusterQueue) -> bool:
        at, steps = queue.cohort, 0
        while at is not None and steps <= len(self.cohorts):
            cohort = self.cohorts.get(at)
            at, steps = cohort.parent if cohort else None, steps + 1
        return at is not None

    def gate(self, one: Workload) -> Code | None:
        if one.problem is not None:
            return one.problem.code
        if one.hold:
            return Code.ON_HOLD
        local = self.local_queues.get(LocalQueueName(one.ref.namespace, one.queue))
        queue = self.queues.get(local.cluster_queue) if local else None
        if local is None or queue is None:
            return Code.QUEUE_NOT_FOUND
        if one.priority_class is not None and one.priority_class not in self.priorities:
            return Code.PRIORITY_NOT_FOUND
        if local.stop_policy is not StopPolicy.NONE or queue.stop_policy is not StopPolicy.NONE:
            return Code.SUSPENDED
        if not self.active(queue):
            return Code.MISCONFIGURED
        labels = self.namespaces.get(one.ref.namespace)
        if queue.namespace_selector is None or labels is None:
            return Code.NAMESPACE_NOT_ALLOWED
        if any(labels.get(key) != value for key, value in queue.namespace_selector.labels):
            return Code.NAMESPACE_NOT_ALLOWED
        return None

    def queue_of(self, one: Workload) -> str | None:
        local = self.local_queues.get(LocalQueueName(one.ref.namespace, one.queue))
        return local.cluster_queue if local and local.cluster_queue in self.queues else None

    def priority(self, one: Workload) -> int:
        return self.priorities[one.priority_class] if one.priority_class else 0

    @property
    def has_strict_queue(self) -> bool:
        """Whether a queue has StrictFIFO: its head may reserve quota (C6)."""
        return any(q.queueing_strategy is QueueingStrategy.STRICT_FIFO for q in self.queues.values())

    # --- Q2 to Q5

    def _quota(self, name: str, cell: Cell, kind: type[ClusterQueue] | type[Cohort]) -> ResourceQuota:
        found: ClusterQueue | Cohort | None = (self.queues if kind is ClusterQueue else self.cohorts).get(
            name
        )
        for group in found.resource_groups if found else ():
            for flavor in group.flavors:
                for resource, quota in flavor.resources:
                    if (flavor.name, resource) == cell:
                        return quota
        return ResourceQuota(nominal=0)

    def _children(self, cohort: str) -> list[tuple[str, type[ClusterQueue] | type[Cohort]]]:
        return [
            *((q.name, ClusterQueue) for q in self.queues.values() if q.cohort == cohort),
            *((c.name, Cohort) for c in self.cohorts.values() if c.parent == cohort),
        ]

    def _numbers(self, node: Named, cell: Cell, usage: Usage) -> tuple[int, int, int]:
        """Return subtree quota, private quota and usage of a node (Q2, Q3)."""
        name, kind = node
        quota = self._quota(name, cell, kind)
        subtree, used = quota.nominal, usage.get((name, *cell), 0) if kind is ClusterQueue else 0
        for child in self._children(name) if kind is Cohort else ():
            below, kept, taken = self._numbers(child, cell, usage)
            subtree += below - kept
            used += max(0, taken - kept)
        limit = quota.lending_limit
        return subtree, 0 if limit is None else max(0, subtree - limit), used

    def _parent(self, node: Named) -> Named | None:
        found: ClusterQueue | Cohort | None
        if node[1] is ClusterQueue:
            found = self.queues.get(node[0])
            above = found.cohort if found else None
        else:
            found = self.cohorts.get(node[0])
            above = found.parent if found else None
        return None if above is None else (above, Cohort)

    def available(self, node: Named, cell: Cell, usage: Usage) -> int:
        subtree, private, used = self._numbers(node, cell, usage)
        parent = self._parent(node)
        if parent is None:
            return subtree - used
        above = self.available(parent, cell, usage)
        limit = self._quota(*node[:1], cell, node[1]).borrowing_limit
        if limit is not None:
            above = min(above, subtree - private - max(0, used - private) + limit)
        return max(0, private - used) + above

    def potential(self, node: Named, cell: Cell) -> int:
        subtree, private, _ = self._numbers(node, cell, {})
        parent = self._parent(node)
        if parent is None:
            return subtree
        limit = self._quota(*node[:1], cell, node[1]).borrowing_limit
        ever = private + self.potential(parent, cell)
        return ever if limit is None else min(ever, subtree + limit)

    # --- O1 to F5

    def waits_for(
        self,
        waiting: Iterable[tuple[Workload, int]],
        usage: Usage,
        blocked: Collection[str],
        kept_out: Mapping[WorkloadId, Code | None],
    ) -> dict[str, Code | None]:
        """Return the code of each pending workload by id; None: it would be admitted.

        `waiting` is in order of first observation. `kept_out` has the codes of L19. Workloads of `blocked`
        queues are omitted: they are behind a preemptor.
        """
        found: dict[str, Code | None] = {}
        lines: dict[str, list[tuple[tuple[int, float, int], Workload]]] = {}
        for one, arrival in waiting:
            found[one.id] = self.gate(one) or kept_out[one.id]
            if found[one.id] is None:
                place = (-self.priority(one), one.created_at.timestamp() // 1, arrival)
                lines.setdefault(str(self.queue_of(one)), []).append((place, one))
        for name, line in lines.items():
            queue = self.queues[name]
            line.sort(key=lambda item: item[0])
            strict, behind = queue.queueing_strategy is QueueingStrategy.STRICT_FIFO, False
            passes_over = strict and queue.head_can_never_run is HeadCanNeverRun.PASS_OVER
            for _, one in line:
                if passes_over and self._never_fits(queue, one):
                    found[one.id] = self.nominate(queue, one, usage)
                    continue
                if name in blocked:
                    del found[one.id]
                    continue
                found[one.id] = Code.WAITING_FOR_HEAD if behind else self.nominate(queue, one, usage)
                behind = strict
        return found

    def _never_fits(self, queue: ClusterQueue, one: Workload) -> bool:
        """Return whether a podset alone has no flavor, with nothing in use."""
        least = (replace(pod_set, count=pod_set.min_count or pod_set.count) for pod_set in one.pod_sets)
        return any(self.nominate(queue, replace(one, pod_sets=(pod_set,)), {}) for pod_set in least)

    def nominate(self, queue: ClusterQueue, one: Workload, usage: Usage) -> Code | None:
        """Return None if it fits, else the most severe finding over podsets and resource groups (F5).

        What exceeds a quota only beside an earlier podset waits, if that one lacks quota for another flavor.
        """
        taken: dict[tuple[str, str], int] = {}
        passed: list[Code] = []
        alone: list[Code] = []
        findings: list[Code] = []
        for pod_set in one.pod_sets:
            requests = dict(pod_set.requests)
            covered = {r for g in queue.resource_groups for r in g.covered}
            if any(amount and resource not in covered for resource, amount in requests.items()):
                return Code.RESOURCE_NOT_COVERED
            requests = {r: n for r, n in requests.items() if r in covered}
            if "pods" in covered:
                requests["pods"] = 1
            for group in queue.resource_groups:
                wanted = {r: n * pod_set.count for r, n in requests.items() if r in group.covered}
                if wanted:
                    found = self._choose(queue, group, pod_set, wanted, taken, usage, passed)
                    findings += found
                    alone += found and self._choose(queue, group, pod_set, wanted, {}, {}, [])
        worst = max(findings, key=_SEVERITY.index, default=None)
        by_others = worst is Code.EXCEEDS_MAX_QUOTA and Code.EXCEEDS_MAX_QUOTA not in alone
        return Code.WAITING_FOR_QUOTA if by_others and Code.WAITING_FOR_QUOTA in passed else worst

    def _choose(
        self,
        queue: ClusterQueue,
        group: ResourceGroup,
        pod_set: PodSet,
        wanted: Mapping[str, int],
        taken: dict[tuple[str, str], int],
        usage: Usage,
        passed: list[Code],
    ) -> list[Code]:
        """Return why it gets no flavor; else add to `passed` why it did not get those before."""
        misses: list[Code] = []
        for quotas in group.flavors:
            miss = None
            if not _matches(self.flavors[quotas.name], pod_set):
                miss = Code.NO_MATCHING_FLAVOR
            for resource, amount in wanted.items():
                cell = (quotas.name, resource)
                total = amount + taken.get(cell, 0)
                free = self.available((queue.name, ClusterQueue), cell, usage)
                if miss is Code.NO_MATCHING_FLAVOR or total <= max(0, free):
                    continue
                never = total > self.potential((queue.name, ClusterQueue), cell)
                miss = Code.EXCEEDS_MAX_QUOTA if never else miss or Code.WAITING_FOR_QUOTA
            if miss is None:
                for resource, amount in wanted.items():
                    taken[quotas.name, resource] = taken.get((quotas.name, resource), 0) + amount
                passed += misses
                return []
            misses.append(miss)
        return [min(misses, key=_SEVERITY.index)]


def _matches(flavor: ResourceFlavor, pod_set: PodSet) -> bool:
    """Match taints by key, and node selectors; the test policies have nothing else."""
    keys = {toleration.key for toleration in (*pod_set.tolerations, *flavor.tolerations)}
    if any(taint.key not in keys for taint in flavor.node_taints):
        return False
    labels = dict(flavor.node_labels)
    return all(labels.get(key, value) == value for key, value in pod_set.node_selector)
