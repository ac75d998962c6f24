"""Policy and context objects as last seen, and what they say of one workload."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from queuectl.core.matching import selects
from queuectl.core.menus import Charge, Menu
from queuectl.core.model import (
    ClusterQueue,
    Cohort,
    ConfigKey,
    Context,
    Gate,
    LabelSelector,
    LocalQueue,
    LocalQueueName,
    Namespace,
    Node,
    Policy,
    PriorityClass,
    ResourceFlavor,
    RuntimeClass,
    StopPolicy,
    Workload,
    WorkloadPriorityClass,
)
from queuectl.core.policy import condition, local_condition
from queuectl.core.quota import Node as QuotaNode
from queuectl.core.quota import QuotaTree
from queuectl.core.reasons import Code, Reason
from queuectl.core.report import Condition
from queuectl.core.resources import FlavorResource, Usage, amounts
from queuectl.core.values import value

GATE = "Gate"
"""Kind of the key under which the ledger remembers since when a gate is in force."""


@value(frozen=True, slots=True)
class Route:
    """Where a workload belongs, and why it may not stand in line there."""

    cluster_queue: str | None
    priority: int
    gate: Reason | None


@dataclass(slots=True)
class Touched:
    """Whom a change may concern."""

    everybody: bool = False
    trees: dict[QuotaNode, None] = field(default_factory=dict)
    """Roots of trees in which quota or shape changed, as they were before and as they are."""
    cluster_queues: set[str] = field(default_factory=set)
    local_queues: set[LocalQueueName] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)


class Directory:
    """One door for policy: `observe` and `forget` change it, everything else reads."""

    def __init__(self) -> None:
        self.tree = QuotaTree()
        self.queues: dict[str, ClusterQueue] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.local_queues: dict[LocalQueueName, LocalQueue] = {}
        self.nodes: dict[str, Node] = {}
        self.capacity_changed = False
        """Nodes or flavors have, since somebody last asked for `capacity`."""
        self.invalid: dict[ConfigKey, str] = {}
        self.gate: Gate | None = None
        self.gate_since: datetime | None = None
        self._priorities: dict[str, int] = {}
        self._pod_priorities: dict[str, PriorityClass] = {}
        self._runtimes: dict[str, RuntimeClass] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._menus: dict[str, Menu] = {}
        self._conditions: dict[str, Condition] = {}
        self._pointing: dict[str, dict[LocalQueueName, None]] = {}

    # --- change

    def observe(self, value: Policy, touched: Touched) -> None:
        match value:
            case ClusterQueue():
                self.queues[value.name] = value
                touched.trees[self.tree.root(self.tree.queue(value.name))] = None
                self.tree.set_queue(value)
                touched.trees[self.tree.root(self.tree.queue(value.name))] = None
                self._changed(touched, {value.name})
            case Cohort():
                touched.trees |= dict.fromkeys(self.tree.roots())
                self.tree.set_cohort(value)
                touched.trees |= dict.fromkeys(self.tree.roots())
                self._changed(touched, set(self.queues))
            case ResourceFlavor():
                self.capacity_changed = True
                self.flavors[value.name] = value
                self._changed(touched, self._users_of(value.name))
            case LocalQueue():
                self._point(value.name, value)
                touched.local_queues.add(value.name)
            case WorkloadPriorityClass():
                self._priorities[value.name] = value.value
                touched.everybody = True

    def forget(self, key: ConfigKey, touched: Touched) -> None:
        self.invalid.pop(key, None)
        match key.kind:
            case "ClusterQueue":
                self.queues.pop(key.name, None)
                touched.trees[self.tree.root(self.tree.queue(key.name))] = None
                self.tree.drop_queue(key.name)
                self._changed(touched, {key.name})
            case "Cohort":
                self.tree.drop_cohort(key.name)
                touched.trees |= dict.fromkeys(self.tree.roots())
                self._changed(touched, set(self.queues))
            case "ResourceFlavor":
                self.capacity_changed = True
                self.flavors.pop(key.name, None)
                self._changed(touched, self._users_of(key.name))
            case "LocalQueue":
                self._point(LocalQueueName(key.namespace, key.name), None)
                touched.local_queues.add(LocalQueueName(key.namespace, key.name))
            case "WorkloadPriorityClass":
                self._priorities.pop(key.name, None)
                touched.everybody = True

    def observe_context(self, value: Context, touched: Touched) -> None:
        match value:
            case Namespace():
                labels = dict(value.labels)
                if self._namespaces.get(value.name) != labels:
                    self._namespaces[value.name] = labels
                    touched.namespaces.add(value.name)
            case PriorityClass():
                self._pod_priorities[value.name] = value
                touched.everybody = True
            case RuntimeClass():
                self._runtimes[value.name] = value
                touched.everybody = True
            case Node():
                self.capacity_changed |= self.nodes.get(value.name) != value
                self.nodes[value.name] = value
            case Gate():
                self.gate, self.gate_since = value, value.installed_at

    def forget_context(self, kind: type[Context], name: str, touched: Touched) -> None:
        if kind is Namespace:
            self._namespaces.pop(name, None)
            touched.namespaces.add(name)
        elif kind is PriorityClass:
            touched.everybody |= self._pod_priorities.pop(name, None) is not None
        elif kind is RuntimeClass:
            touched.everybody |= self._runtimes.pop(name, None) is not None
        elif kind is Node:
            self.capacity_changed |= self.nodes.pop(name, None) is not None
        elif kind is Gate:
            self.gate = None

    def _point(self, name: LocalQueueName, queue: LocalQueue | None) -> None:
        former = self.local_queues.pop(name, None)
        if former is not None:
            pointing = self._pointing[former.cluster_queue]
            del pointing[name]
            if not pointing:
                del self._pointing[former.cluster_queue]
        if queue is not None:
            self.local_queues[name] = queue
            self._pointing.setdefault(queue.cluster_queue, {})[name] = None

    def _users_of(self, flavor: str) -> set[str]:
        return {
            queue.name
            for queue in self.queues.values()
            for group in queue.resource_groups
            if any(used.name == flavor for used in group.flavors)
        }

    def _changed(self, touched: Touched, queues: Iterable[str]) -> None:
        for name in queues:
            self._menus.pop(name, None)
            self._conditions.pop(name, None)
            touched.cluster_queues.add(name)

    # --- read

    def menu(self, name: str) -> Menu:
        """Of a ClusterQueue that exists."""
        menu = self._menus.get(name)
        if menu is None:
            menu = self._menus[name] = Menu(self.queues[name], self.tree, self.flavors)
        return menu

    def pointing_to(self, cluster_queue: str) -> Collection[LocalQueueName]:
        """The LocalQueues that name this ClusterQueue, which need not exist."""
        return self._pointing.get(cluster_queue, {}).keys()

    def condition(self, name: str) -> Condition:
        """Of a ClusterQueue that exists, or has a spec that can't be read (docs/scheduling.md, Q1)."""
        invalid = self.invalid.get(ConfigKey("ClusterQueue", "", name))
        if invalid is not None:
            rest = (
                "the last good spec stays in force" if name in self.queues else "there was no good one before"
            )
            return Condition(False, "InvalidSpec", f"{invalid}; {rest}")
        return self._in_force(name)

    def _in_force(self, name: str) -> Condition:
        """What the last good spec amounts to."""
        found = self._conditions.get(name)
        if found is None:
            found = condition(self.queues[name], self.flavors, cyclic=self.tree.cyclic(name))
            self._conditions[name] = found
        return found

    def local_condition(self, queue: LocalQueue) -> Condition:
        exists = queue.cluster_queue in self.queues
        return local_condition(queue, self.condition(queue.cluster_queue) if exists else None)

    def capacity(self) -> Usage:
        """What the ready nodes of each flavor can give, in base units. Quota is not tied to it."""
        found: Usage = {}
        for flavor in self.flavors.values():
            for node in self.nodes.values():
                labels = dict(node.labels)
                if node.ready and all(labels.get(key) == value for key, value in flavor.node_labels):
                    for resource, amount in node.allocatable:
                        cell = FlavorResource(flavor.name, resource)
                        found[cell] = found.get(cell, 0) + amount
        return found

    def charges(self, workload: Workload) -> tuple[Charge, ...]:
        """What one pod of each podset is charged, the overhead of its RuntimeClass included."""
        found = []
        for pod_set in workload.pod_sets:
            requests = pod_set.requests
            runtime = self._runtimes.get(pod_set.runtime_class) if pod_set.runtime_class else None
            if runtime is not None and runtime.overhead:
                total = dict(requests)
                for resource, amount in runtime.overhead:
                    total[resource] = total.get(resource, 0) + amount
                requests = amounts(total)
            found.append(Charge(pod_set, requests))
        return tuple(found)

    def route(self, workload: Workload) -> Route:
        """The gates before the line, in the order in which they are told (docs/scheduling.md, G1 to G9)."""
        local = self.local_queues.get(LocalQueueName(workload.ref.namespace, workload.queue))
        cluster_queue = local.cluster_queue if local and local.cluster_queue in self.queues else None
        priority = self.priority(workload)
        gate = (
            workload.problem
            or (Reason(code=Code.ON_HOLD) if workload.hold else None)
            or self._no_queue(workload, local)
            or (priority if isinstance(priority, Reason) else None)
        )
        if gate is None and local is not None and cluster_queue is not None:
            gate = self._not_allowed(workload, local, self.queues[cluster_queue])
        return Route(cluster_queue, 0 if isinstance(priority, Reason) else priority, gate)

    def _no_queue(self, workload: Workload, local: LocalQueue | None) -> Reason | None:
        if local is None:
            node = f"LocalQueue/{workload.ref.namespace}/{workload.queue}"
            return Reason(code=Code.QUEUE_NOT_FOUND, node=node, detail="no such LocalQueue in its namespace")
        if local.cluster_queue not in self.queues:
            node = f"ClusterQueue/{local.cluster_queue}"
            return Reason(
                code=Code.QUEUE_NOT_FOUND, node=node, detail=f"LocalQueue {local.name} points to it"
            )
        return None

    def _not_allowed(self, workload: Workload, local: LocalQueue, queue: ClusterQueue) -> Reason | None:
        node = f"ClusterQueue/{queue.name}"
        if local.stop_policy is not StopPolicy.NONE:
            detail = f"stopPolicy is {local.stop_policy}"
            return Reason(code=Code.SUSPENDED, node=f"LocalQueue/{local.name}", detail=detail)
        if queue.stop_policy is not StopPolicy.NONE:
            return Reason(code=Code.SUSPENDED, node=node, detail=f"stopPolicy is {queue.stop_policy}")
        state = self._in_force(queue.name)
        if not state.active:
            return Reason(code=Code.MISCONFIGURED, node=node, detail=f"{state.reason}: {state.message}")
        if not self._admits(queue.namespace_selector, workload.ref.namespace):
            detail = f"its namespaceSelector does not match namespace {workload.ref.namespace}"
            return Reason(code=Code.NAMESPACE_NOT_ALLOWED, node=node, detail=detail)
        for pod_set in workload.pod_sets:
            if pod_set.runtime_class and pod_set.runtime_class not in self._runtimes:
                detail = f"RuntimeClass {pod_set.runtime_class} of podset {pod_set.name} not found"
                return Reason(code=Code.MISCONFIGURED, detail=detail)
        return None

    def _admits(self, selector: LabelSelector | None, namespace: str) -> bool:
        labels = self._namespaces.get(namespace)
        return selector is not None and labels is not None and selects(selector, labels)

    def priority(self, workload: Workload) -> int | Reason:
        """By label first, then the first podset that names a PriorityClass, then the default (O3)."""
        if workload.priority_class is not None:
            value = self._priorities.get(workload.priority_class)
            if value is None:
                detail = f"WorkloadPriorityClass {workload.priority_class} not found"
                return Reason(code=Code.PRIORITY_NOT_FOUND, detail=detail)
            return value
        for pod_set in workload.pod_sets:
            if named := pod_set.priority_class:
                found = self._pod_priorities.get(named)
                detail = f"PriorityClass {named} not found"
                return found.value if found else Reason(code=Code.PRIORITY_NOT_FOUND, detail=detail)
        if not self._pod_priorities:
            return 0
        return max((c.value for c in self._pod_priorities.values() if c.default), default=0)
