"""One committed state of the ledger in memory: positions, usage and conditions as of one sequence. Pure.

A state is immutable: `advance` makes the next one and computes only what differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar, get_args

from queuectl.answers.queue_states import (
    Change,
    QueueState,
    QueueWorkloads,
    head_warnings,
    local_queue_condition,
    moved_workloads,
    nominal_quota,
    queue_of,
    queue_states,
    quota_tree,
)
from queuectl.core.features.nodes.capacity import told_capacities
from queuectl.core.model.capacity import (
    FlavorCapacity,
    NodeFacts,
    PodDemand,
    QuotaWarning,
)
from queuectl.core.model.policy import (
    DEFAULT_CONFIGURATION,
    ClusterQueue,
    Cohort,
    Condition,
    LocalQueue,
    LocalQueueName,
    Policy,
    ResourceFlavor,
    SchedulingConfiguration,
)
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import (
    ConfigKey,
    Phase,
    PodsReady,
    StoredWorkload,
    WorkloadId,
)
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.core.quota.shortage import share_out, shares_out
from queuectl.core.quota.tree import QuotaTree
from queuectl.ports.reader import Reading

OVER: Final = frozenset({Phase.FINISHED, Phase.DELETED})
_KINDS: Final = frozenset(kind.__name__ for kind in get_args(Policy))
"""The ledger has other configuration too, such as that of the component."""

Parse = Callable[[ConfigKey, str], Policy]
"""Spec as canonical JSON to a policy object; raises ValueError."""
Configure = Callable[[str], SchedulingConfiguration]
"""The configuration of the component as canonical JSON to its section `scheduling`; raises ValueError."""
Name = tuple[str, str, str]
"""Namespace, kind, name."""
Arrival = tuple[int, WorkloadId]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class LocalQueueState:
    local: LocalQueue
    condition: Condition
    pending: int
    admitted: int


@dataclass(frozen=True, slots=True)
class Under:
    """What is at or below a cohort."""

    cohorts: list[Cohort] = field(default_factory=list)
    queues: list[QueueState] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Computed:
    """What was computed of a state because it was asked for."""

    quota: dict[ConfigKey | None, QuotaTree] = field(default_factory=dict)
    """By the object at the root; by None that of all trees."""
    turns: dict[str, Mapping[WorkloadId, int]] = field(default_factory=dict)
    """Positions, by ClusterQueue with usage-based order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedState:
    """Read through its methods; the mappings are shared between states and must not be written to."""

    sequence: int = 0
    epoch: int = 0
    workloads: Mapping[WorkloadId, StoredWorkload] = field(default_factory=dict)
    arrivals: Mapping[str, tuple[Arrival, ...]] = field(default_factory=dict)
    """By namespace, every workload in the order of first sight."""
    names: Mapping[Name, tuple[Arrival, ...]] = field(default_factory=dict)
    """Oldest first: a name may be used again while pods of the former object are still alive."""
    in_queues: Mapping[str | None, tuple[Arrival, ...]] = field(default_factory=dict)
    """By the ClusterQueue that they hold quota of, or wait for; None: they are in none."""
    queue_workloads: Mapping[str, QueueWorkloads] = field(default_factory=dict)
    """By the ClusterQueue that workloads are pending in or hold quota of."""
    counts: Mapping[LocalQueueName, tuple[int, int]] = field(default_factory=dict)
    """Pending and admitted, by the LocalQueue that workloads name."""
    policies: Mapping[ConfigKey, Policy | str] = field(default_factory=dict)
    """In force; a text instead of an object: why its spec is invalid."""
    specs: Mapping[ConfigKey, str] = field(default_factory=dict)
    """What is in force of policy, configuration and context, as the ledger has it."""
    queues: Mapping[str, QueueState] = field(default_factory=dict)
    configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION
    batch: int = 0
    """Number of the last batch that the ledger had stored."""
    pods_ready: Mapping[WorkloadId, PodsReady] = field(default_factory=dict)
    """Of former attempts too."""
    lines: Mapping[str, tuple[WorkloadId, ...]] = field(default_factory=dict)
    """By ClusterQueue, as told last: some workloads may be pending no longer."""
    capacities: Mapping[str, FlavorCapacity] = field(default_factory=dict)
    """By flavor, as told last, also of flavors that are gone."""
    demands: Mapping[str, tuple[PodDemand, ...]] = field(default_factory=dict)
    """By ClusterQueue, the same."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """By name, as told last. What uses them is not for tenants: no answer may show it."""
    trees: CohortTrees = field(default_factory=lambda: CohortTrees(()), compare=False, repr=False)
    """Of `policies`."""
    _computed: _Computed = field(default_factory=_Computed, compare=False, repr=False)

    def tree_of(self, queue: str) -> QuotaTree:
        """The quota tree of a ClusterQueue, with the usage of this state.

        It must not be changed, but for new cells. Where quota follows nodes in proportion (M11), the nodes of
        other trees are in it too.
        """
        return self._tree(self._root_of(queue))

    def tree_with(self, queue: str, usage: Mapping[str, Mapping[FlavorResource, int]]) -> QuotaTree:
        """The same tree, for the caller alone, with another `usage` of some ClusterQueues, in base units."""
        return self._tree_at(self._root_of(queue), usage)

    def _root_of(self, queue: str) -> ConfigKey:
        root = self.trees.root_of(queue) if queue in self.trees.queues else None
        alone = ConfigKey("ClusterQueue", "", queue)
        return alone if root is None else ConfigKey("Cohort", "", root)

    def _tree(self, root: ConfigKey) -> QuotaTree:
        key = None if self.trees.pro_rata else root
        if key not in self._computed.quota:
            self._computed.quota[key] = self._tree_at(root, {})
        return self._computed.quota[key]

    def _tree_at(self, root: ConfigKey, usage: Mapping[str, Mapping[FlavorResource, int]]) -> QuotaTree:
        if self.trees.pro_rata:
            return self._every_tree(usage)
        alone = root.kind == "ClusterQueue"
        queues = (root.name,) if alone else self.trees.queues_below(root.name)
        keys = [ConfigKey("ClusterQueue", "", name) for name in queues]
        if not alone:
            keys += [ConfigKey("Cohort", "", name) for name in self.trees.cohorts_in(root.name)]
        used = {name: self.queues[name].used for name in queues if name in self.queues}
        policies = {key: self.policies[key] for key in keys if key in self.policies}
        return quota_tree(policies, {**used, **usage}, fair_sharing=self.configuration.fair_sharing)

    def _every_tree(self, usage: Mapping[str, Mapping[FlavorResource, int]]) -> QuotaTree:
        used = {one.name: one.used for one in self.queues.values()}
        tree = quota_tree(self.policies, {**used, **usage}, fair_sharing=self.configuration.fair_sharing)
        if shares_out(tree):
            flavors = {one.name: one for one in self.flavors()}
            there = told_capacities(self.capacities.values(), flavors)
            share_out(tree, {cell: one.amount for cell, one in there.items() if one.enforced})
        return tree

    def effective(self, node: QueueState | Cohort) -> Mapping[FlavorResource, int]:
        """What counts of its own nominal quota, in base units (M11)."""
        if isinstance(node, Cohort):
            tree = self._tree(ConfigKey("Cohort", "", self.trees.root(node.name)))
            at = tree.cohort(node.name)
        else:
            tree = self.tree_of(node.name)
            at = tree.queue(node.name)
        return {tree.names[cell]: at.nominal[cell] for cell in at.named}

    def available_quota(self, queue: QueueState) -> Mapping[FlavorResource, int]:
        """The available quota (Q4) of each cell of a ClusterQueue, in base units, whatever nodes have."""
        return self.tree_of(queue.name).free(queue.name, queue.nominal)

    def advance(self, reading: Reading, parse: Parse, configure: Configure | None = None) -> CommittedState:
        """The state after `reading`, which holds everything newer than this one."""
        policies = _policies(self.policies, reading.configs, parse)
        configuration = _configuration(self.configuration, reading.configs, configure)
        changes = _changes(self.workloads, reading.workloads)
        workloads = _copied(self.workloads)
        for former, now in changes:
            if now is None:
                assert former is not None
                del workloads[former.id]
            else:
                workloads[now.id] = now
        loses_place = configuration.requeueing.loses_place
        if loses_place == self.configuration.requeueing.loses_place:
            queue_workloads, touched = moved_workloads(self.queue_workloads, changes, loses_place=loses_place)
        else:
            everything: list[Change] = [(None, one) for one in workloads.values()]
            queue_workloads, touched = moved_workloads({}, everything, loses_place=loses_place)
        if policies is not self.policies or configuration != self.configuration:
            touched = {
                *queue_workloads,
                *self.queues,
                *(k.name for k in policies if k.kind == "ClusterQueue"),
            }
        moved = [(a, b) for a, b in changes if a is None or b is None or a.arrival != b.arrival]
        turned = [(a, b) for a, b in changes if a is None or b is None or _place(a) != _place(b)]
        return CommittedState(
            sequence=reading.sequence,
            epoch=reading.epoch,
            workloads=workloads,
            arrivals=_grouped(self.arrivals, moved, lambda workload: workload.ref.namespace),
            names=_grouped(self.names, moved, lambda workload: workload.ref[:3]),
            in_queues=_grouped(self.in_queues, turned, queue_of),
            queue_workloads=queue_workloads,
            counts=_counts(self.counts, changes),
            policies=policies,
            trees=self.trees if policies is self.policies else CohortTrees(policies.values()),
            specs=_specs(self.specs, reading.configs),
            queues=queue_states(self.queues, touched, policies, queue_workloads),
            configuration=configuration,
            batch=reading.batch,
            pods_ready=_pods_ready(self.pods_ready, reading.for_readers.pods_ready, workloads),
            lines={**self.lines, **dict(reading.for_readers.lines)},
            capacities={**self.capacities, **{one.flavor: one for one in reading.for_readers.capacities}},
            demands={**self.demands, **dict(reading.for_readers.demands)},
            nodes=_nodes(self.nodes, reading.for_readers.nodes),
        )

    def capacity(self, flavor: str) -> FlavorCapacity:
        """Without nodes if the controller has not told of it yet."""
        return self.capacities.get(flavor, FlavorCapacity(flavor=flavor))

    def warnings(self, queue: QueueState) -> list[QuotaWarning]:
        """About the head of a ClusterQueue (C4), and the flavors and resources of its quota (M15)."""
        head = next((one for _, one in self.line(queue.name, 0)), None)
        flavors = dict.fromkeys(cell.flavor for cell in queue.nominal)
        found = [
            one
            for name in flavors
            for one in self.capacity(name).warnings
            if one.resource is None or FlavorResource(name, one.resource) in queue.nominal
        ]
        return [*head_warnings(queue, head), *found]

    def ready(self, workload: StoredWorkload) -> int | None:
        """How many pods of its open attempt are ready; None: there is none, or its status does not say."""
        found = self.pods_of(workload)
        return found and found.ready

    def pods_of(self, workload: StoredWorkload) -> PodsReady | None:
        found, attempt = self.pods_ready.get(workload.id), workload.attempt
        return found if found is not None and attempt and found.attempt == attempt.number else None

    def find(self, namespace: str, kind: str, name: str) -> StoredWorkload | None:
        """The newest workload of that name that is not Finished or Deleted."""
        found = self.names.get((namespace, kind, name))
        return self.workloads[found[-1][1]] if found else None

    def in_order(self, namespaces: Container[str], after: Arrival | None) -> Iterator[StoredWorkload]:
        """Of these namespaces, in the order of first sight, from the first one seen after `after`."""
        lines = [line for namespace, line in self.arrivals.items() if namespace in namespaces]
        if after is not None:
            lines = [line[bisect_right(line, after) :] for line in lines]
        for _, id in heapq.merge(*lines):
            yield self.workloads[id]

    def around(self, queues: Container[str]) -> Iterator[StoredWorkload]:
        """Those that hold quota of one of these ClusterQueues, or wait for it, or are in no queue; and those
        whose LocalQueue points to one of these meanwhile."""
        for name, found in self.in_queues.items():
            if name is None or name in queues:
                yield from (self.workloads[id] for _, id in found)
        for name, there in self.queue_workloads.items():
            if name not in queues:
                yield from (one for one in there.holders.values() if one.cluster_queue in queues)

    def position(self, workload: StoredWorkload) -> int | None:
        """From 1, in its ClusterQueue; None outside the pending queue, or if the ledger does not say (U1)."""
        queue = self.queues.get(workload.cluster_queue or "")
        if queue is None:
            return None
        if self._in_turns(queue):
            return self._turns_of(queue).get(workload.id)
        return queue.workloads.position(workload)

    def _in_turns(self, queue: QueueState) -> bool:
        by_usage = queue.queue is not None and queue.queue.usage_based
        return by_usage and self.configuration.usage_sharing is not None

    def _turns_of(self, queue: QueueState) -> Mapping[WorkloadId, int]:
        """Positions as the controller told them, without workloads that have left the pending queue since."""
        found = self._computed.turns.get(queue.name)
        if found is None:
            told = map(self.workloads.get, self.lines.get(queue.name, ()))
            line = (
                one.id
                for one in told
                if one is not None
                and one.cluster_queue == queue.name
                and queue.workloads.position(one) is not None
            )
            found = self._computed.turns[queue.name] = {id: place for place, id in enumerate(line, start=1)}
        return found

    def ahead(self, workload: StoredWorkload, count: int) -> list[StoredWorkload]:
        """The last `count` workloads before it in its pending queue, in order."""
        position = self.position(workload)
        if position is None:
            return []
        first = max(0, position - 1 - count)
        line = self.line(workload.cluster_queue or "", first)
        return [one for _, one in islice(line, position - 1 - first)]

    def line(self, name: str, after: int) -> Iterator[tuple[int, StoredWorkload]]:
        """Positions above `after` in the pending queue of ClusterQueue `name`, and their workloads."""
        queue = self.queues.get(name)
        if queue is None:
            return
        if self._in_turns(queue):
            ids: Iterable[WorkloadId] = list(self._turns_of(queue))[after:]
        else:
            ids = queue.workloads.line(after)
        for position, id in enumerate(ids, start=after + 1):
            yield position, self.workloads[id]

    def cluster_queues(self) -> list[QueueState]:
        """By name: those that exist, and deleted ones while workloads still hold quota of them."""
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
        queue = self.queues.get(local.cluster_queue)
        return LocalQueueState(
            local, local_queue_condition(local, queue.condition if queue else None), pending, admitted
        )

    def flavors(self) -> list[ResourceFlavor]:
        """By name."""
        found = [policy for policy in self.policies.values() if isinstance(policy, ResourceFlavor)]
        return sorted(found, key=lambda flavor: flavor.name)

    def cohorts(self) -> dict[str, Cohort | None]:
        """By name: Cohort objects, and None for cohorts that are only named by nodes below them."""
        found: dict[str, Cohort | None] = {}
        for policy in self.policies.values():
            if isinstance(policy, Cohort):
                found[policy.name] = policy
                above = policy.parent
            else:
                above = policy.cohort if isinstance(policy, ClusterQueue) else None
            if above is not None:
                found.setdefault(above, None)
        return dict(sorted(found.items()))

    def below(self, node: str) -> list[QueueState]:
        """ClusterQueues at or below `node`, written as `ClusterQueue/NAME` or `Cohort/NAME`, by name."""
        kind, _, name = node.partition("/")
        names = (name,) if kind == "ClusterQueue" else self.trees.queues_below(name)
        return [self.queues[one] for one in names if one in self.queues]

    def in_tree_of(self, name: str) -> list[QueueState]:
        """The ClusterQueues of the cohort tree of this one, by name."""
        found = self.trees.queues_beside(name) if name in self.trees.queues else (name,)
        return [self.queues[one] for one in found if one in self.queues]

    def under_cohorts(self) -> dict[str, Under]:
        """What is at or below each of `cohorts()`, by its name."""
        cohorts = self.cohorts()
        found = {name: Under(queues=self.below(f"Cohort/{name}")) for name in cohorts}
        for name, cohort in cohorts.items():
            if cohort is not None:
                for above in self.trees.above(name):
                    found[above].cohorts.append(cohort)
        return found

    def quotas_by_flavor(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Nominal quota and use in all ClusterQueues and Cohorts: by flavor, then by resource."""
        found: dict[str, dict[str, tuple[int, int]]] = {}

        def add(cells: Mapping[FlavorResource, int], *, used: bool) -> None:
            for cell, amount in cells.items():
                resources = found.setdefault(cell.flavor, {})
                before = resources.get(cell.resource, (0, 0))
                resources[cell.resource] = (before[0] + amount * (not used), before[1] + amount * used)

        for cohort in self.cohorts().values():
            add(nominal_quota(cohort), used=False)
        for queue in self.queues.values():
            add(queue.nominal, used=False)
            add(queue.used, used=True)
        return found


def _changes(known: Mapping[WorkloadId, StoredWorkload], changed: Iterable[StoredWorkload]) -> list[Change]:
    last = {one.id: one for one in changed}  # one whose id was used again has a row of each life
    pairs = [(known.get(one.id), None if one.phase in OVER else one) for one in last.values()]
    return [(former, now) for former, now in pairs if former is not None or now is not None]


def _place(one: StoredWorkload) -> tuple[str | None, int]:
    return queue_of(one), one.arrival


def _copied(known: Mapping[Key, Value]) -> dict[Key, Value]:
    """A clone: dict() would add the items one by one, once one has been deleted."""
    return known.copy() if isinstance(known, dict) else dict(known)


def _pods_ready(
    known: Mapping[WorkloadId, PodsReady],
    changed: Iterable[PodsReady],
    workloads: Container[WorkloadId],
) -> Mapping[WorkloadId, PodsReady]:
    found = {**known, **{one.workload: one for one in changed}}
    return {id: one for id, one in found.items() if id in workloads}


def _nodes(known: Mapping[str, NodeFacts], changed: Collection[NodeFacts]) -> Mapping[str, NodeFacts]:
    """`known` itself if nothing changed."""
    if not changed:
        return known
    return {n: one for n, one in {**known, **{one.name: one for one in changed}}.items() if not one.gone}


def _specs(
    known: Mapping[ConfigKey, str], configs: Collection[tuple[ConfigKey, str | None]]
) -> Mapping[ConfigKey, str]:
    """`known` itself if nothing changed."""
    if not configs:
        return known
    changed = dict(configs)
    kept = {key: spec for key, spec in known.items() if key not in changed}
    return {**kept, **{key: spec for key, spec in changed.items() if spec is not None}}


def _policies(
    known: Mapping[ConfigKey, Policy | str],
    configs: Iterable[tuple[ConfigKey, str | None]],
    parse: Parse,
) -> Mapping[ConfigKey, Policy | str]:
    """`known` itself if nothing changed."""
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


def _configuration(
    known: SchedulingConfiguration,
    configs: Iterable[tuple[ConfigKey, str | None]],
    configure: Configure | None,
) -> SchedulingConfiguration:
    for key, spec in configs:
        if key.kind == "Configuration" and spec is not None and configure is not None:
            with contextlib.suppress(ValueError):  # of another version: what is known stays
                known = configure(spec)
    return known


def _grouped(
    known: Mapping[Key, tuple[Arrival, ...]],
    moved: Collection[Change],
    key: Callable[[StoredWorkload], Key],
) -> Mapping[Key, tuple[Arrival, ...]]:
    """`known` itself if no workload came, left or got a new arrival number."""
    if not moved:
        return known
    left: defaultdict[Key, set[Arrival]] = defaultdict(set)
    came: defaultdict[Key, set[Arrival]] = defaultdict(set)
    for former, now in moved:
        if former is not None:
            left[key(former)].add((former.arrival, former.id))
        if now is not None:
            came[key(now)].add((now.arrival, now.id))
    result = _copied(known)
    for name in {*left, *came}:
        stayed = [item for item in result.pop(name, ()) if item not in left[name]]
        # New workloads are most often the last ones: the sort is almost free.
        if line := tuple(sorted([*stayed, *came[name]])):
            result[name] = line
    return result


def _counts(
    counts: Mapping[LocalQueueName, tuple[int, int]], changes: Iterable[Change]
) -> Mapping[LocalQueueName, tuple[int, int]]:
    result = dict(counts)

    def count(workload: StoredWorkload | None, sign: int) -> None:
        if workload is None:
            return
        queue = LocalQueueName(workload.ref.namespace, workload.queue)
        pending, admitted = result.pop(queue, (0, 0))
        pending += sign if workload.phase is Phase.PENDING else 0
        admitted += sign if workload.phase in (Phase.ADMITTED, Phase.EVICTING) else 0
        if pending or admitted:
            result[queue] = (pending, admitted)

    for former, now in changes:
        count(former, -1)
        count(now, 1)
    return result


Item = TypeVar("Item")

SCANNED: Final = 200
"""Workloads in a part, where each is looked at: some milliseconds for those with the most podsets."""


async def in_parts(items: Iterable[Item]) -> AsyncIterator[Item]:
    """All items. Filter them outside: a part counts those that are passed over too."""
    for number, one in enumerate(items, start=1):
        if number % SCANNED == 0:
            await asyncio.sleep(0)
        yield one
