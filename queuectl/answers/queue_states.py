"""The ClusterQueues of a committed state, each with its workloads and its condition. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from queuectl.answers.policies import cluster_queue_condition, nominal_quota
from queuectl.answers.queue_workloads import QueueWorkloads
from queuectl.core.model import ConfigKey, StoredWorkload
from queuectl.core.policy import ClusterQueue, Cohort, Condition, Policy, ResourceFlavor
from queuectl.core.resources import FlavorResource

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
