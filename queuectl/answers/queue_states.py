"""The ClusterQueues of a committed state: policy, condition, pending queue, and who holds quota. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from queuectl.core.directory import READY, condition, cycle_condition, local_condition
from queuectl.core.model.capacity import QuotaWarning
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    Condition,
    LocalQueue,
    Policy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
)
from queuectl.core.model.reasons import Family
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import ConfigKey, Phase, StoredWorkload, WorkloadId
from queuectl.core.queues.line import LinePlace, line_place
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.core.quota.tree import QuotaTree

Policies = Mapping[ConfigKey, Policy | str]
"""A text instead of an object: why its spec is invalid."""


def nominal_quota(policy: Policy | str | None) -> Mapping[FlavorResource, int]:
    """Its own nominal quota, in the order of the spec."""
    groups: tuple[ResourceGroup, ...] = ()
    if isinstance(policy, ClusterQueue | Cohort):
        groups = policy.resource_groups
    return MappingProxyType(
        {
            FlavorResource(flavor.name, resource): quota.nominal
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.resources
        }
    )


def quota_tree(
    policies: Policies, used: Mapping[str, Mapping[FlavorResource, int]], *, fair_sharing: bool = False
) -> QuotaTree:
    """The quota tree of the policies that are valid, with what is in use by ClusterQueue, in base units.

    Made in the order of names, which decides how parts of amounts are rounded. `fair_sharing`: of trees whose
    root does not say so itself.
    """
    tree = QuotaTree(fair_sharing=fair_sharing)
    trees = [key for key in policies if key.kind in ("Cohort", "ClusterQueue")]
    for key in sorted(trees):
        one = policies[key]
        if isinstance(one, Cohort):
            tree.set_cohort(one)
        elif isinstance(one, ClusterQueue):
            tree.set_queue(one)
    for name, cells in used.items():
        tree.add(tree.queue(name), tree.numbered(dict(cells)))
    return tree


def cluster_queue_condition(
    policy: Policy | str | None, flavors: Mapping[str, ResourceFlavor], cohorts: Mapping[str, Cohort]
) -> Condition:
    if isinstance(policy, ClusterQueue):
        return condition(policy, flavors, cohorts)
    if policy is None:
        return Condition(False, "NotFound", "It was deleted, but workloads that it admitted still hold quota")
    return Condition(False, "InvalidSpec", str(policy))


def local_queue_condition(local: LocalQueue, queue: Condition | None) -> Condition:
    """`queue`: of its ClusterQueue; None: it does not exist."""
    return local_condition(local, None if queue is None or queue.reason == "NotFound" else queue)


def cohort_condition(name: str, policies: Policies, trees: CohortTrees) -> Condition:
    """`trees`: of these policies."""
    policy = policies.get(ConfigKey("Cohort", "", name))
    if isinstance(policy, str):
        return Condition(False, "InvalidSpec", policy)
    if (cycle := cycle_condition(name, trees.parent)) is not None:
        return cycle
    if isinstance(policy, Cohort) and policy.unsupported:
        return Condition(False, "Unsupported", "; ".join(policy.unsupported))
    return READY


_FEW: Final = 64
"""Up to this number of changes, each is inserted by itself; for more, the queue is sorted again."""


@dataclass(frozen=True, slots=True)
class QueueWorkloads:
    """Immutable: `moved` makes the next one."""

    order: Sequence[LinePlace] = ()
    """The pending queue: places of its eligible workloads, the first one first."""
    loses_place: bool = True
    """A pause delays a workload (O6)."""
    pending: int = 0
    holders: Mapping[WorkloadId, StoredWorkload] = field(default_factory=lambda: MappingProxyType({}))
    """Workloads with an open attempt, terminating ones included."""
    used: Mapping[FlavorResource, int] = field(default_factory=lambda: MappingProxyType({}))

    def __bool__(self) -> bool:
        return bool(self.pending or self.holders)

    def position(self, workload: StoredWorkload) -> int | None:
        """From 1; None: it is not in the pending queue."""
        place = line_place(workload, loses_place=self.loses_place)
        if place is None:
            return None
        index = bisect_left(self.order, place)
        return index + 1 if index < len(self.order) and self.order[index] == place else None

    def line(self, after: int) -> Iterator[WorkloadId]:
        """The workloads at positions above `after`, in order."""
        for index in range(after, len(self.order)):
            yield WorkloadId(self.order[index][1][-1])

    def moved(self, left: Collection[StoredWorkload], came: Collection[StoredWorkload]) -> QueueWorkloads:
        """`left`: the workloads that changed, as they were. `came`: as they are."""
        pending = self.pending + _pending(came) - _pending(left)
        order = self._reordered(left, came)
        if not any(one.attempt for one in left) and not any(one.attempt for one in came):
            return replace(self, order=order, pending=pending)
        holders = dict(self.holders)
        for one in left:
            holders.pop(one.id, None)
        holders.update((one.id, one) for one in came if one.attempt is not None)
        used = _used(self.used, left, came)
        return replace(self, order=order, pending=pending, holders=MappingProxyType(holders), used=used)

    def _reordered(
        self, left: Collection[StoredWorkload], came: Collection[StoredWorkload]
    ) -> Sequence[LinePlace]:
        gone, new = self._places(left), self._places(came)
        if gone == new:
            return self.order
        if len(gone) + len(new) > _FEW:
            return sorted((set(self.order) - gone) | new)
        result = list(self.order)
        for place in gone - new:
            del result[bisect_left(result, place)]
        for place in new - gone:
            insort(result, place)
        return result

    def _places(self, workloads: Iterable[StoredWorkload]) -> set[LinePlace]:
        found = (line_place(one, loses_place=self.loses_place) for one in workloads)
        return {place for place in found if place is not None}


def _pending(workloads: Collection[StoredWorkload]) -> int:
    return sum(1 for one in workloads if one.phase is Phase.PENDING)


def _used(
    used: Mapping[FlavorResource, int], left: Collection[StoredWorkload], came: Collection[StoredWorkload]
) -> Mapping[FlavorResource, int]:
    result = dict(used)
    for sign, workloads in ((-1, left), (1, came)):
        for one in workloads:
            if one.attempt is not None:
                for cell, amount in one.attempt.assignment.usage().items():
                    result[cell] = result.get(cell, 0) + sign * amount
    return MappingProxyType({cell: amount for cell, amount in result.items() if amount})


Change = tuple[StoredWorkload | None, StoredWorkload | None]
"""A workload as it was and as it is; None: absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state of one ClusterQueue. `queue` is None if it was deleted or its spec is invalid."""

    name: str
    queue: ClusterQueue | None
    condition: Condition
    workloads: QueueWorkloads
    nominal: Mapping[FlavorResource, int]
    """In the order of the spec."""

    @property
    def pending(self) -> int:
        return self.workloads.pending

    @property
    def used(self) -> Mapping[FlavorResource, int]:
        return self.workloads.used

    @property
    def holders(self) -> Collection[StoredWorkload]:
        """Workloads with an open attempt here, terminating ones included."""
        return self.workloads.holders.values()


def head_warnings(queue: QueueState, head: StoredWorkload | None) -> Iterator[QuotaWarning]:
    """Yield a warning if the head of a StrictFIFO queue can never run, and others wait behind it (C4)."""
    strict = queue.queue is not None and queue.queue.queueing_strategy is QueueingStrategy.STRICT_FIFO
    behind, reason = len(queue.workloads.order) - 1, head.reason if head is not None else None
    if strict and behind > 0 and reason is not None and reason.family is Family.NEVER:
        what = f"{behind} {'workload waits' if behind == 1 else 'workloads wait'} behind its head"
        why = f"which can never run ({reason.code}); queueingStrategy is StrictFIFO"
        yield QuotaWarning("HeadCanNeverRun", None, f"{what}, {why}")


def queue_of(workload: StoredWorkload) -> str | None:
    """The ClusterQueue whose quota it holds, else the one it is pending in."""
    return workload.attempt.assignment.cluster_queue if workload.attempt else workload.cluster_queue


def moved_workloads(
    queue_workloads: Mapping[str, QueueWorkloads], changes: Iterable[Change], *, loses_place: bool
) -> tuple[Mapping[str, QueueWorkloads], set[str]]:
    """And the names of the ClusterQueues that differ."""
    left: defaultdict[str | None, list[StoredWorkload]] = defaultdict(list)
    came: defaultdict[str | None, list[StoredWorkload]] = defaultdict(list)
    for former, now in changes:
        if former is not None:
            left[queue_of(former)].append(former)
        if now is not None:
            came[queue_of(now)].append(now)
    touched = {name for name in (*left, *came) if name is not None}
    result = dict(queue_workloads)
    for name in touched:
        before = result.pop(name, QueueWorkloads(loses_place=loses_place))
        moved = before.moved(left[name], came[name])
        if moved:
            result[name] = moved
    return result, touched


def queue_states(
    known: Mapping[str, QueueState],
    touched: set[str],
    policies: Mapping[ConfigKey, Policy | str],
    queue_workloads: Mapping[str, QueueWorkloads],
) -> Mapping[str, QueueState]:
    result = {name: state for name, state in known.items() if name not in touched}
    flavors = {one.name: one for one in policies.values() if isinstance(one, ResourceFlavor)}
    cohorts = {one.name: one for one in policies.values() if isinstance(one, Cohort)}
    for name in touched:
        policy, taken = (
            policies.get(ConfigKey("ClusterQueue", "", name)),
            queue_workloads.get(name, QueueWorkloads()),
        )
        # A deleted one is still shown while workloads hold quota of it.
        if policy is not None or taken.holders:
            result[name] = QueueState(
                name=name,
                queue=policy if isinstance(policy, ClusterQueue) else None,
                condition=cluster_queue_condition(policy, flavors, cohorts),
                workloads=taken,
                nominal=nominal_quota(policy),
            )
    return result
