"""A test cluster with nodes that come, go and fail, pods that a scheduler binds, and pods of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from queuectl.core.decisions import Plan
from queuectl.core.engine import DEFAULT_BUDGET
from queuectl.core.events import ContextGone, ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model import Attempt, WorkloadId
from queuectl.core.nodes.pods import Pod
from queuectl.core.policy import CapacityMode, FlavorNodes, Node, ResourceFlavor
from queuectl.core.resources import Amounts, amounts
from tests.builders import GPU
from tests.core.running import Law, Running
from tests.core.trees import Dice, World, world

POOLS = ("f1", "f2")


def world_on_nodes(dice: Dice, *, guarded: bool = True) -> World:
    """A random world whose flavors are those of nodes, with labels or without."""
    labels = dice.pick(False, True)
    rules = {name: _rules(dice) for name in POOLS}
    found = world(dice, guarded=guarded)
    return replace(
        found,
        policies=tuple(
            replace(one, nodes=rules[one.name], node_labels=(("pool", one.name),) if labels else ())
            if isinstance(one, ResourceFlavor)
            else one
            for one in found.policies
        ),
    )


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


class Needed(NamedTuple):
    """A pod that a running workload has or will have."""

    owner: WorkloadId
    requests: Amounts
    flavors: dict[str, str]


class OnNodes(Running):
    """A cluster in which room on nodes limits admissions."""

    def __init__(self, dice: Dice, *laws: Law, guarded: bool = True) -> None:
        self.nodes = {f"n{n}": some_node(dice, n) for n in range(2 + dice.below(3))}
        self.pods: dict[str, Pod] = {}
        self.made_pods = 0
        self.disturbed = False
        """Room was lost since the start, or taken by pods of others: more may be held than there is."""
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

    # --- pods

    def unbound(self, attempt: Attempt) -> list[Needed]:
        """Return the pods of an open attempt that no node runs yet."""
        job = self.jobs.get(attempt.workload)
        if job is None:
            return []
        specs = {one.name: one.requests for one in job.workload.pod_sets}
        bound = Counter(pod.requests for pod in self.pods.values() if pod.workload == attempt.workload)
        found = []
        for held in attempt.assignment.steered():
            requests = specs.get(held.name, held.requests)
            missing = held.count - min(held.count, bound[requests])
            bound[requests] -= held.count - missing
            found += [Needed(attempt.workload, requests, dict(held.flavors))] * missing
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

    def bind_some(self, dice: Dice) -> None:
        """A scheduler binds pods of running workloads to nodes where they fit."""
        for _ in range(1 + dice.below(4)):
            uid = self.any_job(dice, running=True)
            attempt = self.jobs[uid].admission if uid is not None else None
            if uid is None or attempt is None or not self.jobs[uid].pods:
                continue
            for needed in self.unbound(attempt)[:1]:
                fitting = [
                    node.name
                    for node in self.nodes.values()
                    if self.matches(node, needed.flavors)
                    and all(self.free(node).get(name, 0) >= amount for name, amount in needed.requests)
                ]
                if fitting:
                    self.run_pod(uid, dice.pick(*fitting), needed.requests)

    def run_pod(self, owner: WorkloadId | None, node: str, requests: Amounts) -> None:
        self.made_pods += 1
        name = f"pod-{self.made_pods}"
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
        seen: Counter[WorkloadId] = Counter()
        for uid, pod in self.pods.items():
            if pod.workload is None:
                continue
            job = self.jobs.get(pod.workload)
            seen[pod.workload] += 1
            if job is None:
                if not self.left.get(pod.workload):
                    yield uid
            elif not job.pods or seen[pod.workload] > sum(p.count for p in job.workload.pod_sets) - job.ended:
                yield uid

    # --- what happens

    def act(self, dice: Dice) -> None:
        happens = (super().act, self.bind_some, super().act, self.change_nodes, self.bind_some)
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
            self.disturbed = True
            self.run_pod(None, node.name, requests)

    def _other_pod_ends(self, dice: Dice) -> None:
        others = [uid for uid, pod in self.pods.items() if pod.workload is None]
        if others:
            self.end_pod(dice.pick(*others))

    def _cordon(self, dice: Dice) -> None:
        node = dice.pick(*self.nodes.values())
        self.disturbed = True
        self._set(replace(node, cordoned=not node.cordoned))

    def _new_node(self, dice: Dice) -> None:
        self._set(some_node(dice, len(self.nodes)))

    def _node_goes(self, dice: Dice) -> None:
        empty = [name for name in self.nodes if all(pod.node != name for pod in self.pods.values())]
        if empty and len(self.nodes) > 1:
            self.disturbed = True
            name = dice.pick(*empty)
            del self.nodes[name]
            self.watch.append(ContextGone(Node, name))

    def _set(self, node: Node) -> None:
        if node.name in self.nodes and dict(node.allocatable) != dict(self.nodes[node.name].allocatable):
            self.disturbed = True
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
