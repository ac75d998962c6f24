"""One committed state of the ledger in memory: positions, usage and conditions as of one sequence. Pure.

A state is never changed: `advance` makes the next one, and works again only on the queues that differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, get_args

from queuectl.core.model import (
    ClusterQueue,
    Cohort,
    ConfigKey,
    LocalQueue,
    LocalQueueName,
    Phase,
    Policy,
    StopPolicy,
    StoredWorkload,
    WorkloadId,
)
from queuectl.core.ordering import order
from queuectl.core.policy import READY, condition
from queuectl.core.reasons import Code, Family
from queuectl.core.report import Condition
from queuectl.core.resources import FlavorResource, Usage
from queuectl.ports import Reading

OVER: Final = frozenset({Phase.FINISHED, Phase.DELETED})
_NOT_IN_LINE: Final = frozenset(
    {
        Code.MISCONFIGURED,
        Code.QUEUE_NOT_FOUND,
        Code.NAMESPACE_NOT_ALLOWED,
        Code.QUANTITY_OUT_OF_RANGE,
        Code.NEGATIVE_REQUEST,
        Code.PRIORITY_NOT_FOUND,
    }
)
"""Those may not even stand in line, and so have no position; the same goes for all that is held."""

_KINDS: Final = frozenset(kind.__name__ for kind in get_args(Policy))
"""The ledger keeps other configuration too, such as the component's own."""

Parse = Callable[[ConfigKey, str], Policy]
"""Spec as canonical JSON to a policy object; raises ValueError."""
Name = tuple[str, str, str]
"""Namespace, kind, name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What one ClusterQueue amounts to. `queue` is None when it is gone or its spec can't be read."""

    name: str
    queue: ClusterQueue | None
    condition: Condition
    positions: Mapping[WorkloadId, int]
    """From 1, of those that stand in line."""
    pending: int
    holders: tuple[StoredWorkload, ...]
    """Those with an open attempt here, being evicted included."""
    nominal: Mapping[FlavorResource, int]
    """In the order of the spec."""
    used: Mapping[FlavorResource, int]

    def free(self, cell: FlavorResource) -> int:
        return max(0, self.nominal.get(cell, 0) - self.used.get(cell, 0))


@dataclass(frozen=True, slots=True)
class LocalQueueState:
    local: LocalQueue
    condition: Condition
    pending: int
    admitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Read through its methods; the mappings are shared between states and must not be written to."""

    sequence: int = 0
    epoch: int = 0
    workloads: Mapping[WorkloadId, StoredWorkload] = field(default_factory=dict)
    arrivals: tuple[tuple[int, WorkloadId], ...] = ()
    """Every workload in the order of first sight."""
    names: Mapping[Name, tuple[tuple[int, WorkloadId], ...]] = field(default_factory=dict)
    """Oldest first: a name may be used again while pods of its last owner are still alive."""
    seats: Mapping[str, Mapping[WorkloadId, StoredWorkload]] = field(default_factory=dict)
    """Workloads by the ClusterQueue they wait or hold quota in."""
    counts: Mapping[LocalQueueName, tuple[int, int]] = field(default_factory=dict)
    """Pending and admitted, by the LocalQueue that workloads name."""
    policies: Mapping[ConfigKey, Policy | str] = field(default_factory=dict)
    """In force; as text, why a spec can't be read."""
    queues: Mapping[str, QueueState] = field(default_factory=dict)

    def advance(self, reading: Reading, parse: Parse) -> State:
        """The state after `reading`, which holds everything newer than this one."""
        policies = _policies(self.policies, reading.configs, parse)
        changed = tuple(reading.workloads)
        workloads = dict(self.workloads)
        touched = _move(workloads, changed)
        seats = _reseat(self.seats, self.workloads, changed, touched)
        if policies is not self.policies:
            touched = {*seats, *self.queues, *(k.name for k in policies if k.kind == "ClusterQueue")}
        queues = {name: state for name, state in self.queues.items() if name not in touched}
        flavors = {key.name for key in policies if key.kind == "ResourceFlavor"}
        for name in touched:
            state = _queue_state(name, policies, flavors, seats.get(name, {}))
            if state is not None:
                queues[name] = state
        return State(
            sequence=reading.sequence,
            epoch=reading.epoch,
            workloads=workloads,
            arrivals=_arrivals(self, workloads, changed),
            names=_names(self.names, self.workloads, changed),
            seats=seats,
            counts=_counts(self.counts, self.workloads, changed),
            policies=policies,
            queues=queues,
        )

    def find(self, namespace: str, kind: str, name: str) -> StoredWorkload | None:
        """The newest workload of that name that is not over."""
        found = self.names.get((namespace, kind, name))
        return self.workloads[found[-1][1]] if found else None

    def after(self, arrival: int, workload: WorkloadId) -> int:
        """Index in `arrivals` of the first one seen after these."""
        return bisect_right(self.arrivals, (arrival, workload))

    def position(self, workload: StoredWorkload) -> int | None:
        queue = self.queues.get(workload.cluster_queue or "")
        return queue.positions.get(workload.id) if queue else None

    def cluster_queues(self) -> list[QueueState]:
        """By name: those that exist, and those that are gone while work still holds quota of theirs."""
        return [self.queues[name] for name in sorted(self.queues)]

    def local_queues(self) -> list[LocalQueueState]:
        """By namespace and name."""
        found = [policy for policy in self.policies.values() if isinstance(policy, LocalQueue)]
        return [self._local(queue) for queue in sorted(found, key=lambda queue: queue.name)]

    def local_queue(self, name: LocalQueueName) -> LocalQueueState | None:
        policy = self.policies.get(ConfigKey("LocalQueue", *name))
        return self._local(policy) if isinstance(policy, LocalQueue) else None

    def _local(self, local: LocalQueue) -> LocalQueueState:
        pending, admitted = self.counts.get(local.name, (0, 0))
        found = _local_condition(local, self.queues.get(local.cluster_queue))
        return LocalQueueState(local, found, pending, admitted)

    def below(self, node: str) -> list[QueueState]:
        """ClusterQueues at or below `node`, written as `ClusterQueue/NAME` or `Cohort/NAME`."""
        kind, _, name = node.partition("/")
        if kind == "ClusterQueue":
            return [self.queues[name]] if name in self.queues else []
        return [
            state
            for state in self.queues.values()
            if state.queue is not None and name in _cohorts(state.queue.cohort, self.policies)
        ]


def _policies(
    known: Mapping[ConfigKey, Policy | str],
    configs: Iterable[tuple[ConfigKey, str | None]],
    parse: Parse,
) -> Mapping[ConfigKey, Policy | str]:
    """`known` itself when nothing changed."""
    result: dict[ConfigKey, Policy | str] | None = None
    for key, spec in configs:
        if key.kind not in _KINDS:
            continue
        result = dict(known) if result is None else result
        if spec is None:
            result.pop(key, None)
            continue
        try:
            result[key] = parse(key, spec)
        except ValueError as error:
            result[key] = str(error)
    return known if result is None else result


def seat(workload: StoredWorkload) -> str | None:
    """The ClusterQueue whose quota it holds, else the one it waits in."""
    return workload.attempt.assignment.cluster_queue if workload.attempt else workload.cluster_queue


def _move(workloads: dict[WorkloadId, StoredWorkload], changed: Iterable[StoredWorkload]) -> set[str]:
    """Enter what changed; returns the ClusterQueues left or entered."""
    touched: set[str | None] = set()
    for workload in changed:
        former = workloads.pop(workload.id, None)
        if former is not None:
            touched |= {seat(former), former.cluster_queue}
        if workload.phase not in OVER:
            workloads[workload.id] = workload
            touched |= {seat(workload), workload.cluster_queue}
    return {name for name in touched if name is not None}


def _reseat(
    seats: Mapping[str, Mapping[WorkloadId, StoredWorkload]],
    former: Mapping[WorkloadId, StoredWorkload],
    changed: Iterable[StoredWorkload],
    touched: set[str],
) -> dict[str, Mapping[WorkloadId, StoredWorkload]]:
    copies = {name: dict(seats.get(name, {})) for name in touched}
    for workload in changed:
        left = seat(former[workload.id]) if workload.id in former else None
        if left is not None:
            copies[left].pop(workload.id, None)
        entered = seat(workload)
        if workload.phase not in OVER and entered is not None:
            copies[entered][workload.id] = workload
    return {name: members for name, members in {**seats, **copies}.items() if members}


def _arrivals(
    state: State, workloads: Mapping[WorkloadId, StoredWorkload], changed: Iterable[StoredWorkload]
) -> tuple[tuple[int, WorkloadId], ...]:
    if all(
        w.id in workloads and w.id in state.workloads and state.workloads[w.id].arrival == w.arrival
        for w in changed
    ):
        return state.arrivals
    return tuple(sorted((workload.arrival, workload.id) for workload in workloads.values()))


def _name(workload: StoredWorkload) -> Name:
    return workload.ref[:3]


def _names(
    names: Mapping[Name, tuple[tuple[int, WorkloadId], ...]],
    former: Mapping[WorkloadId, StoredWorkload],
    changed: Iterable[StoredWorkload],
) -> Mapping[Name, tuple[tuple[int, WorkloadId], ...]]:
    result: dict[Name, tuple[tuple[int, WorkloadId], ...]] | None = None
    for workload in changed:
        over, known = workload.phase in OVER, former.get(workload.id)
        if (known is None) if over else (known is not None and known.arrival == workload.arrival):
            continue
        result = dict(names) if result is None else result
        name = _name(workload)
        found = [item for item in result.pop(name, ()) if item[1] != workload.id]
        if not over:
            found.append((workload.arrival, workload.id))
        if found:
            result[name] = tuple(sorted(found))
    return names if result is None else result


def _counts(
    counts: Mapping[LocalQueueName, tuple[int, int]],
    former: Mapping[WorkloadId, StoredWorkload],
    changed: Iterable[StoredWorkload],
) -> Mapping[LocalQueueName, tuple[int, int]]:
    result = dict(counts)

    def count(workload: StoredWorkload, sign: int) -> None:
        queue = LocalQueueName(workload.ref.namespace, workload.queue)
        pending, admitted = result.pop(queue, (0, 0))
        pending += sign if workload.phase is Phase.PENDING else 0
        admitted += sign if workload.phase in (Phase.ADMITTED, Phase.EVICTING) else 0
        if pending or admitted:
            result[queue] = (pending, admitted)

    for workload in changed:
        if workload.id in former:
            count(former[workload.id], -1)
        if workload.phase not in OVER:
            count(workload, 1)
    return result


def _queue_state(
    name: str,
    policies: Mapping[ConfigKey, Policy | str],
    flavors: set[str],
    members: Mapping[WorkloadId, StoredWorkload],
) -> QueueState | None:
    """None: there is no such queue, and nobody holds quota of it."""
    waiting = [workload for workload in members.values() if workload.phase is Phase.PENDING]
    holders = tuple(workload for workload in members.values() if workload.attempt is not None)
    policy = policies.get(ConfigKey("ClusterQueue", "", name))
    if policy is None and not holders:
        return None
    used: Usage = {}
    for workload in holders:
        assert workload.attempt is not None
        for cell, amount in workload.attempt.assignment.usage().items():
            used[cell] = used.get(cell, 0) + amount
    line = sorted((order(w.priority, w.created_at, w.arrival), w.id) for w in waiting if _in_line(w))
    return QueueState(
        name=name,
        queue=policy if isinstance(policy, ClusterQueue) else None,
        condition=_condition(policy, flavors, policies),
        positions=MappingProxyType({id: number for number, (_, id) in enumerate(line, start=1)}),
        pending=len(waiting),
        holders=holders,
        nominal=MappingProxyType(_nominal(policy)),
        used=MappingProxyType(used),
    )


def _nominal(policy: Policy | str | None) -> dict[FlavorResource, int]:
    if not isinstance(policy, ClusterQueue):
        return {}
    return {
        FlavorResource(flavor.name, resource): quota.nominal
        for group in policy.resource_groups
        for flavor in group.flavors
        for resource, quota in flavor.resources
    }


def _in_line(workload: StoredWorkload) -> bool:
    reason = workload.reason
    return reason is None or (reason.family is not Family.HELD and reason.code not in _NOT_IN_LINE)


def _condition(
    policy: Policy | str | None, flavors: set[str], policies: Mapping[ConfigKey, Policy | str]
) -> Condition:
    if isinstance(policy, ClusterQueue):
        chain = _cohorts(policy.cohort, policies)
        return condition(policy, flavors, cyclic=len(chain) != len(set(chain)))
    if policy is None:
        return Condition(False, "NotFound", "It is gone, but work that it admitted still holds quota")
    return Condition(False, "InvalidSpec", str(policy))


def _cohorts(first: str | None, policies: Mapping[ConfigKey, Policy | str]) -> list[str]:
    """Names of the cohort and those above it, nearest first; in a circle the last one is there twice."""
    chain: list[str] = []
    for name in _ancestors(first, policies):
        chain.append(name)
        if name in chain[:-1]:
            break
    return chain


def _ancestors(name: str | None, policies: Mapping[ConfigKey, Policy | str]) -> Iterator[str]:
    while name is not None:
        yield name
        cohort = policies.get(ConfigKey("Cohort", "", name))
        name = cohort.parent if isinstance(cohort, Cohort) else None


def _local_condition(local: LocalQueue, queue: QueueState | None) -> Condition:
    if local.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", f"stopPolicy is {local.stop_policy}")
    if queue is None or queue.condition.reason == "NotFound":
        return Condition(False, "ClusterQueueNotFound", f"ClusterQueue {local.cluster_queue} not found")
    if not queue.condition.active:
        found = queue.condition
        return Condition(False, "ClusterQueueIsInactive", f"{found.reason}: {found.message}")
    return READY
