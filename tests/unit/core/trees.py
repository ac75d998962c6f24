"""Random test policies: trees of cohorts, their queues and options, and workloads.

They are drawn from bytes, one per choice. This costs a hundredth of as many hypothesis strategies. The
simplest choice is the byte 0, towards which hypothesis shrinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from queuectl.core.model.policy import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    CapacityMode,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    FairSharing,
    FlavorFungibility,
    FlavorNodes,
    FlavorQuotas,
    Gate,
    HeadCanNeverRun,
    MinRunTime,
    Node,
    Preemption,
    PreemptionPolicy,
    PreemptionStrategy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    SchedulingConfiguration,
    StopPolicy,
    WorkloadPriorityClass,
)
from queuectl.core.model.policy import Policy as PolicyObject
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import PodSet, Workload
from tests.builders import ALL_NAMESPACES, GPU, SETTINGS, flavor, local_queue, pod_set, queue, workload

T = TypeVar("T")

UNBOUNDED = 10**6
"""An eviction budget that no test reaches."""
CLASSES = ("low", "high")
POOLS = ("f1", "f2")


class Dice:
    """Choices from bytes, one each. After the last byte, the first option is always chosen."""

    def __init__(self, data: bytes) -> None:
        self._left: Iterator[int] = iter(data)

    def below(self, limit: int) -> int:
        return next(self._left, 0) % limit

    def pick(self, *options: T) -> T:
        return options[self.below(len(options))]

    def mostly(self, usual: T, *others: T) -> T:
        """Return the usual option in three of four cases."""
        number = self.below(4 * len(others)) - 3 * len(others)
        return others[number] if number >= 0 else usual

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left, found = list(items), []
        while left:
            found.append(left.pop(self.below(len(left))))
        return found


@dataclass(frozen=True)
class Setup:
    """What a cluster begins with."""

    policies: tuple[PolicyObject, ...] = ()
    settings: SchedulingConfiguration = SETTINGS
    locals: tuple[str, ...] = ()
    """Names of LocalQueues, all in one namespace."""
    layout: int = 0
    """The resource groups of all queues and cohorts."""
    depth: int = 0
    nodes: tuple[Node, ...] = ()
    gates: tuple[Gate, ...] = ()


def random_setup(dice: Dice, *, guarded: bool = True) -> Setup:
    """`guarded`: with the default eviction budget and cooldown (P11)."""
    layout = dice.below(3)
    depth = dice.pick(2, 1, 3, 5, 4, 0)
    cohorts = [cohort(dice, number, layout) for number in range(depth)]
    queues = [cluster_queue(dice, f"q{n}", depth, layout) for n in range(2 + dice.pick(0, 1, 0, 2, 1, 3, 6))]
    locals_ = [local_queue(f"l{n}", one.name) for n, one in enumerate(queues)]
    locals_ += [local_queue(f"m{n}", one.name) for n, one in enumerate(queues) if one.usage_based]
    settings = SchedulingConfiguration(
        fair_sharing=dice.pick(False, True),
        strategies=strategies(dice) or SchedulingConfiguration().strategies,
        usage_sharing=dice.pick(
            None, AdmissionFairSharing(half_life=3600), AdmissionFairSharing(half_life=0)
        ),
        cooldown=10 if guarded else 0,
        eviction_budget=8 if guarded else UNBOUNDED,
    )
    classes = [WorkloadPriorityClass("low", -1), WorkloadPriorityClass("high", 1)]
    policies: tuple[PolicyObject, ...] = (flavor("f1"), flavor("f2"), *classes, *cohorts, *queues, *locals_)
    return Setup(policies, settings, tuple(one.name.name for one in locals_), layout, depth)


def setup_on_nodes(dice: Dice, *, guarded: bool = True) -> Setup:
    """A random setup whose flavors are those of nodes, with labels or without.

    In half of the setups queues have so much quota that little but nodes limits admissions; in a third each
    queue is a tree of its own.
    """
    nodes = tuple(some_node(dice, n) for n in range(2 + dice.below(3)))
    labels = dice.pick(False, True)
    rules = {name: node_rules(dice) for name in POOLS} if labels else dict.fromkeys(POOLS, node_rules(dice))
    times, apart = dice.pick(1, 8), dice.pick(False, False, True)
    shortage = dice.pick(*CapacityShortage)
    setup = random_setup(dice, guarded=guarded)

    def on_nodes(value: PolicyObject) -> PolicyObject:
        if isinstance(value, ResourceFlavor):
            pool = (("pool", value.name),) if labels else ()
            return replace(value, nodes=rules[value.name], node_labels=pool)
        if isinstance(value, ClusterQueue):
            return _with_quotas(value, times, apart=apart)
        if isinstance(value, Cohort) and value.parent is None:
            return replace(value, shortage=shortage)
        return value

    return replace(setup, policies=tuple(map(on_nodes, setup.policies)), nodes=nodes)


def _with_quotas(queue: ClusterQueue, times: int, *, apart: bool) -> ClusterQueue:
    """Return a queue with nominal quotas `times` as large, and without its cohort if it is `apart`."""

    def quota(amount: ResourceQuota) -> ResourceQuota:
        larger = replace(amount, nominal=amount.nominal * times)
        return replace(larger, borrowing_limit=None, lending_limit=None) if apart else larger

    groups = tuple(with_quotas(group, quota) for group in queue.resource_groups)
    return replace(queue, cohort=None if apart else queue.cohort, resource_groups=groups)


def with_quotas(group: ResourceGroup, quota: Callable[[ResourceQuota], ResourceQuota]) -> ResourceGroup:
    """Return a resource group with each of its quotas changed."""
    flavors = (
        replace(flavor, resources=tuple((name, quota(amount)) for name, amount in flavor.resources))
        for flavor in group.flavors
    )
    return replace(group, flavors=tuple(flavors))


def node_rules(dice: Dice) -> FlavorNodes:
    return dice.mostly(
        FlavorNodes(),
        FlavorNodes(mode=CapacityMode.ENFORCE),
        FlavorNodes(mode=CapacityMode.STATIC),
        FlavorNodes(headroom=((GPU, 1),)),
    )


def some_node(dice: Dice, number: int) -> Node:
    labels = (("pool", dice.pick(*POOLS)),)
    offered = amounts({GPU: dice.pick(2, 3, 4, 1, 6), "cpu": dice.pick(6, 2, 4)})
    return Node(f"n{number}", labels, offered, ready=True)


def strategies(dice: Dice) -> tuple[PreemptionStrategy, ...] | None:
    first, second = PreemptionStrategy
    return dice.pick(None, (first,), (second,), (first, second))


def cohort(dice: Dice, number: int, layout: int) -> Cohort:
    """Return a Cohort whose parent precedes it, so that there are no cycles."""
    parent = f"c{number - 1 - dice.mostly(0, 1, number) % number}" if number and dice.below(8) < 7 else None
    sharing = FairSharing(enabled=dice.pick(None, True, False), strategies=strategies(dice))
    return Cohort(
        name=f"c{number}",
        parent=parent,
        resource_groups=groups(dice, layout, limits=parent is not None) if dice.below(3) == 2 else (),
        weight=dice.mostly(1000, 0, 2500),
        sharing=sharing,
    )


def cluster_queue(dice: Dice, name: str, cohorts: int, layout: int) -> ClusterQueue:
    parent = f"c{dice.below(cohorts)}" if cohorts and dice.below(8) < 7 else None
    found = queue(
        name,
        groups=groups(dice, layout, limits=parent is not None),
        strategy=dice.mostly(QueueingStrategy.BEST_EFFORT_FIFO, *QueueingStrategy),
        stop=dice.pick(*[StopPolicy.NONE] * 12, StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN),
        selector=ALL_NAMESPACES,
        cohort=parent,
        preemption=preemption(dice),
        fungibility=FlavorFungibility(
            try_next_before_borrowing=dice.pick(False, True),
            try_next_before_preempting=dice.pick(True, False),
            preemption_over_borrowing=dice.pick(False, True),
        ),
        weight=dice.mostly(1000, 0, 2500),
        usage_based=dice.below(5) == 4,
    )
    return passing_over_or_not(found)


def passing_over_or_not(queue: ClusterQueue) -> ClusterQueue:
    """Return a queue that was drawn with one of both answers to heads that can never run.

    It follows from what was drawn: a draw of its own would move all that is drawn after it.
    """
    return replace(queue, head_can_never_run=list(HeadCanNeverRun)[sum(repr(queue).encode()) % 2])


def preemption(dice: Dice) -> Preemption:
    seconds = [dice.mostly(0, 0, 5) for _ in range(4)] if dice.below(4) == 3 else [0] * 4
    return Preemption(
        within_cluster_queue=dice.pick(
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
            PreemptionPolicy.NEVER,
        ),
        reclaim_within_cohort=dice.pick(
            PreemptionPolicy.ANY,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.ANY,
            PreemptionPolicy.NEVER,
        ),
        borrow_within_cohort=dice.pick(
            None, BorrowWithinCohort(), None, BorrowWithinCohort(-1), BorrowWithinCohort(0)
        ),
        min_run_time=MinRunTime(*seconds),
    )


def groups(dice: Dice, layout: int, *, limits: bool) -> tuple[ResourceGroup, ...]:
    """Two flavors of two resources; or one resource group per resource; or two flavors of one resource."""
    both, gpu = (GPU, "cpu"), (GPU,)
    if layout == 0:
        return (resource_group(dice, gpu, ("f1", "f2"), limits),)
    if layout == 1:
        return (resource_group(dice, both, ("f1", "f2"), limits),)
    return (
        resource_group(dice, gpu, ("f1", "f2"), limits),
        resource_group(dice, ("cpu",), ("f1",), limits),
    )


def resource_group(
    dice: Dice, covered: tuple[str, ...], flavors: tuple[str, ...], limits: bool
) -> ResourceGroup:
    found = []
    for name in flavors:
        quotas = []
        for resource in covered:
            nominal = dice.pick(2, 0, 3, 1, 2, 4)
            borrowing = dice.pick(None, None, None, None, 1, 3, 0) if limits else None
            lending = dice.pick(None, None, None, None, 1, 2, 0) if limits else None
            lending = None if lending is None else min(lending, nominal)
            quota = ResourceQuota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)
            quotas.append((resource, quota))
        found.append(FlavorQuotas(name=name, resources=tuple(quotas)))
    return ResourceGroup(covered=covered, flavors=tuple(found))


def job(dice: Dice, name: str, setup: Setup) -> Workload:
    pods: list[PodSet] = []
    for number in range(dice.pick(1, 1, 1, 2)):
        count = dice.pick(1, 1, 1, 2, 3)
        requests = {GPU: dice.pick(1, 2, 1, 3, 2, 1, 4)}
        if (cpu := dice.mostly(0, 0, 1, 2)) and setup.layout:
            requests["cpu"] = cpu
        least = dice.pick(None, None, 1) if count > 1 else None
        pods.append(pod_set(count, requests, name=f"p{number}", min_count=least))
    return workload(
        name,
        dice.pick(*setup.locals),
        pods=pods,
        created=dice.below(4),
        priority_class=dice.pick(None, *CLASSES),
    )
