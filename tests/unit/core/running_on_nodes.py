"""A test cluster with nodes that come, go and fail, pods that a scheduler binds, and pods of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from queuectl.core.decisions import Plan
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.events import ContextGone, ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model import Attempt, WorkloadId
from queuectl.core.nodes.modes import mode_of
from queuectl.core.nodes.pods import Pod
from queuectl.core.policy import (
    CapacityMode,
    CapacityShortage,
    ClusterQueue,
    Cohort,
    FlavorNodes,
    FlavorQuotas,
    Node,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.policy import Policy as PolicyObject
from queuectl.core.resources import Amounts, amounts
from tests.builders import GPU
from tests.unit.core.reference import Cell, Policy
from tests.unit.core.running import Law, Running
from tests.unit.core.trees import Dice, World, world

POOLS = ("f1", "f2")


def world_on_nodes(dice: Dice, *, guarded: bool = True) -> World:
    """A random world whose flavors are those of nodes, with labels or without.

    In half of the worlds queues have so much quota that little but nodes limits admissions; in a third of the
    worlds each queue is a tree of its own.
    """
    labels = dice.pick(False, True)
    rules = {name: _rules(dice) for name in POOLS} if labels else dict.fromkeys(POOLS, _rules(dice))
    times, apart = dice.pick(1, 8), dice.pick(False, False, True)
    shortage = dice.pick(*CapacityShortage)
    found = world(dice, guarded=guarded)

    def on_nodes(one: PolicyObject) -> PolicyObject:
        if isinstance(one, ResourceFlavor):
            return replace(one, nodes=rules[one.name], node_labels=(("pool", one.name),) if labels else ())
        if isinstance(one, ClusterQueue):
            return _with_quotas(one, times, apart=apart)
        if isinstance(one, Cohort) and one.parent is None:
            return replace(one, shortage=shortage)
        return one

    return replace(found, policies=tuple(map(on_nodes, found.policies)))


def _with_quotas(queue: ClusterQueue, times: int, *, apart: bool) -> ClusterQueue:
    """Return a queue with nominal quotas `times` as large, and without its cohort if it is `apart`."""

    def flavor(one: FlavorQuotas) -> FlavorQuotas:
        return replace(one, resources=tuple((name, quota(amount)) for name, amount in one.resources))

    def quota(one: ResourceQuota) -> ResourceQuota:
        found = replace(one, nominal=one.nominal * times)
        return replace(found, borrowing_limit=None, lending_limit=None) if apart else found

    groups = (replace(one, flavors=tuple(map(flavor, one.flavors))) for one in queue.resource_groups)
    return replace(queue, cohort=None if apart else queue.cohort, resource_groups=tuple(groups))


def _rules(dice: Dice) -> FlavorNodes:
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


def _reduced(
    groups: tuple[ResourceGroup, ...], short: dict[Cell, tuple[int, int]]
) -> tuple[ResourceGroup, ...]:
    def quota(cell: Cell, one: ResourceQuota) -> ResourceQuota:
        there, total = short.get(cell, (1, 1))
        return replace(one, nominal=one.nominal * there // total)

    def flavor(one: FlavorQuotas) -> FlavorQuotas:
        quotas = ((name, quota((one.name, name), amount)) for name, amount in one.resources)
        return replace(one, resources=tuple(quotas))

    return tuple(replace(group, flavors=tuple(map(flavor, group.flavors))) for group in groups)


class Needed(NamedTuple):
    """A pod that a running workload has or will have."""

    owner: WorkloadId
    requests: Amounts
    flavors: dict[str, str]
    pod_set: str = ""


class OnNodes(Running):
    """A cluster in which room on nodes limits admissions."""

    def __init__(self, dice: Dice, *laws: Law, guarded: bool = True) -> None:
        self.nodes = {f"n{n}": some_node(dice, n) for n in range(2 + dice.below(3))}
        self.pods: dict[str, Pod] = {}
        self.pod_sets: dict[str, str] = {}
        """The podset of each pod of a workload, which no pod says."""
        self.made_pods = 0
        super().__init__(world_on_nodes(dice, guarded=guarded), *laws)

    def everything(self) -> list[Event]:
        there: list[Event] = [ContextObserved(node) for node in self.nodes.values()]
        return [*there, *map(PodObserved, self.pods.values()), *super().everything()]

    def plan(self, budget: int = DEFAULT_BUDGET, cycles: int | None = None) -> Plan:
        before = self.on_nodes()
        plan = super().plan(budget, cycles)
        assert self.on_nodes() == before, "deciding changed what is free on nodes"
        return plan

    def on_nodes(self) -> dict[str, tuple[int, ...]]:
        self.engine._state.nodes.settle()
        return {record.name: record.free for record in self.engine._state.nodes.inventory.nodes()}

    def deliver(self) -> None:
        self._end_dead_pods()
        super().deliver()

    def counting(self) -> Policy:
        """Return the policy with nominal quotas as they count while nodes have less than that (M11)."""
        known = self.policy
        nodes: list[ClusterQueue | Cohort] = [*known.queues.values(), *known.cohorts.values()]
        promised: Counter[Cell] = Counter()
        for one in nodes:
            for group in one.resource_groups:
                for flavor in group.flavors:
                    promised.update({(flavor.name, name): quota.nominal for name, quota in flavor.resources})
        short = {
            cell: (there, total)
            for cell, total in promised.items()
            if self.nodes and (there := self.capacity(cell)) is not None and there < total
        }
        queues, cohorts = dict(known.queues), dict(known.cohorts)
        for name, queue in known.queues.items():
            if self._shares_shortage(queue.cohort):
                queues[name] = replace(queue, resource_groups=_reduced(queue.resource_groups, short))
        for name, cohort in known.cohorts.items():
            if self._shares_shortage(name):
                cohorts[name] = replace(cohort, resource_groups=_reduced(cohort.resource_groups, short))
        return replace(known, queues=queues, cohorts=cohorts)

    def _shares_shortage(self, cohort: str | None) -> bool:
        """Return whether the root above `cohort` says `ProRata`."""
        found = self.policy.cohorts.get(cohort) if cohort is not None else None
        while found is not None and found.parent is not None and found.parent in self.policy.cohorts:
            found = self.policy.cohorts[found.parent]
        return found is not None and found.parent is None and found.shortage is CapacityShortage.PRO_RATA

    def capacity(self, cell: Cell) -> int | None:
        """Return what usable nodes have of a cell, without headroom; None: they do not limit it (M2, M6)."""
        name, resource = cell
        flavor = self.policy.flavors.get(name)
        if flavor is None:
            return None
        labelled = [n for n in self.nodes.values() if set(flavor.node_labels) <= set(n.labels)]
        offered = any(dict(node.allocatable).get(resource) for node in labelled)
        if mode_of(flavor.nodes, resource, offered=offered) is not CapacityMode.ENFORCE:
            return None
        usable = [node for node in labelled if self.matches(node, {resource: name})]
        there = sum(dict(node.allocatable).get(resource, 0) for node in usable)
        return max(0, there - dict(flavor.nodes.headroom).get(resource, 0))

    # --- pods

    def unbound(self, attempt: Attempt) -> list[Needed]:
        """Return the pods of an open attempt that no node runs yet."""
        job = self.jobs.get(attempt.workload)
        if job is None:
            return []
        specs = {one.name: one.requests for one in job.workload.pod_sets}
        bound = Counter(
            self.pod_sets[uid] for uid, pod in self.pods.items() if pod.workload == attempt.workload
        )
        found = []
        for held in attempt.assignment.steered():
            needed = Needed(
                attempt.workload, specs.get(held.name, held.requests), dict(held.flavors), held.name
            )
            found += [needed] * (held.count - bound[held.name])
        return found

    def free(self, node: Node) -> dict[str, int]:
        left = dict(node.allocatable)
        for pod in self.pods.values():
            if pod.node == node.name:
                for resource, amount in pod.requests:
                    left[resource] = left.get(resource, 0) - amount
        return left

    def matches(self, node: Node, flavors: dict[str, str]) -> bool:
        known = self.policy.flavors
        wanted = {label for name in flavors.values() if name in known for label in known[name].node_labels}
        return node.ready and not node.cordoned and wanted <= set(node.labels)

    def can_run(self, node: Node, needed: Needed) -> bool:
        """Return whether the scheduler may bind a pod to a node now."""
        free = self.free(node)
        return self.matches(node, needed.flavors) and all(
            free.get(name, 0) >= amount for name, amount in needed.requests
        )

    @contextmanager
    def bound_to(self, node: Node, needed: Needed) -> Iterator[None]:
        """A pod is bound to a node for a moment."""
        self.pods["moment"] = Pod(
            uid="moment",
            namespace="ns",
            name="moment",
            node=node.name,
            requests=needed.requests,
            workload=needed.owner,
        )
        yield
        del self.pods["moment"]

    def bind_some(self, dice: Dice) -> None:
        """A scheduler binds pods of running workloads to nodes where they fit."""
        for _ in range(1 + dice.below(4)):
            uid = self.any_job(dice, running=True)
            attempt = self.jobs[uid].admission if uid is not None else None
            if uid is None or attempt is None or not self.jobs[uid].pods:
                continue
            for needed in self.unbound(attempt)[:1]:
                fitting = [node.name for node in self.nodes.values() if self.can_run(node, needed)]
                if fitting:
                    self.run_pod(uid, dice.pick(*fitting), needed.requests, needed.pod_set)

    def run_pod(self, owner: WorkloadId | None, node: str, requests: Amounts, pod_set: str = "") -> None:
        self.made_pods += 1
        name = f"pod-{self.made_pods}"
        self.pod_sets[name] = pod_set
        self.pods[name] = Pod(
            uid=name, namespace="ns", name=name, node=node, requests=requests, workload=owner
        )
        self.watch.append(PodObserved(self.pods[name]))

    def end_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.watch.append(PodGone(uid))

    def _end_dead_pods(self) -> None:
        for uid in list(self._dead_pods()):
            self.end_pod(uid)

    def _dead_pods(self) -> Iterator[str]:
        seen: Counter[tuple[WorkloadId, str]] = Counter()
        for uid, pod in self.pods.items():
            if pod.workload is None:
                continue
            job = self.jobs.get(pod.workload)
            if job is None:
                if not self.left.get(pod.workload):
                    yield uid
                continue
            counts = {one.name: one.count for one in job.workload.pod_sets}
            counts[job.workload.pod_sets[0].name] -= job.ended
            name = self.pod_sets[uid]
            seen[pod.workload, name] += 1
            if not job.pods or seen[pod.workload, name] > counts.get(name, 0):
                yield uid

    # --- what happens

    def act(self, dice: Dice) -> None:
        happens = (super().act, self.bind_some, super().act, self.change_nodes, self.bind_some)
        happens[dice.below(len(happens))](dice)
        self.deliver()

    def press(self, dice: Dice) -> None:
        """As `act`, without what ends claims: no policy, hold, priority or process changes."""
        happens: tuple[Callable[[Dice], object], ...] = (
            self.submit_some,
            lambda _: self.decide(cycles=1),
            self.bind_some,
            lambda _: self.decide(),
            self.bind_some,
            lambda _: self.end_pods(),
            self.change_nodes,
            self.submit_some,
            lambda _: self.decide(),
            self.finish,
        )
        happens[dice.below(len(happens))](dice)
        self.deliver()

    def random_event(self, dice: Dice) -> Event | None:
        if dice.below(2):
            return super().random_event(dice)
        self.change_nodes(dice)
        events, self.watch = self.watch, []
        return events[-1] if events else None

    def change_nodes(self, dice: Dice) -> None:
        """A node is cordoned, opened, fails, recovers, comes or goes; or a pod of others comes or ends."""
        happens = (self._other_pod, self._other_pod_ends, self._cordon, self._new_node, self._node_goes)
        happens[dice.below(len(happens))](dice)

    def _other_pod(self, dice: Dice) -> None:
        node = dice.pick(*self.nodes.values())
        requests = amounts({GPU: 1 + dice.below(2)})
        if self.free(node).get(GPU, 0) >= requests[0][1]:
            self.run_pod(None, node.name, requests)

    def _other_pod_ends(self, dice: Dice) -> None:
        others = [uid for uid, pod in self.pods.items() if pod.workload is None]
        if others:
            self.end_pod(dice.pick(*others))

    def _cordon(self, dice: Dice) -> None:
        node = dice.pick(*self.nodes.values())
        self._set(replace(node, cordoned=not node.cordoned))

    def _new_node(self, dice: Dice) -> None:
        self._set(some_node(dice, len(self.nodes)))

    def _node_goes(self, dice: Dice) -> None:
        empty = [name for name in self.nodes if all(pod.node != name for pod in self.pods.values())]
        if empty and len(self.nodes) > 1:
            name = dice.pick(*empty)
            del self.nodes[name]
            self.watch.append(ContextGone(Node, name))

    def _set(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.watch.append(ContextObserved(node))

    @staticmethod
    def subject(event: Event) -> str:
        match event:
            case PodObserved():
                return event.pod.uid
            case PodGone():
                return event.uid
            case ContextObserved():
                return f"node {event.value.name}"
            case ContextGone():
                return f"node {event.name}"
        return Running.subject(event)
