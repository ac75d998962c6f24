"""Directory: the policy and context objects as last observed, and the eligibility of workloads by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final

from queuectl.core.charges import PodCharges
from queuectl.core.flavors.queue_flavors import QueueFlavors
from queuectl.core.model.pod_limits import namespace_of
from queuectl.core.model.policy import (
    DEFAULT_CONFIGURATION,
    ClusterQueue,
    Cohort,
    Condition,
    Context,
    Gate,
    LocalQueue,
    LocalQueueName,
    Namespace,
    Policy,
    PriorityClass,
    RequeuingStrategy,
    ResourceFlavor,
    RuntimeClass,
    SchedulingConfiguration,
    StopPolicy,
    WorkloadPriorityClass,
    cohort_cycle,
    cohorts_above,
    why_stopped,
)
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import Amounts
from queuectl.core.model.selectors import selects
from queuectl.core.model.values import value
from queuectl.core.model.workload import ConfigKey, ObjectRef, Workload
from queuectl.core.quota.tree import QuotaNode, QuotaTree

GATE = "Gate"
"""Kind of the ledger key that stores the installation time of the admission policy."""


@value(frozen=True, slots=True)
class Route:
    """The ClusterQueue and priority of a workload, and the reason of its ineligibility (None: eligible)."""

    cluster_queue: str | None
    priority: int
    gate: Reason | None


@dataclass(slots=True)
class AffectedObjects:
    """The queues and workloads that a change of policy or context may affect."""

    everything: bool = False
    """All workloads are affected."""
    trees: dict[QuotaNode, None] = field(default_factory=dict)
    """Roots of cohort trees with a change of quota or shape: the roots before and after the change."""
    cluster_queues: set[str] = field(default_factory=set)
    local_queues: set[LocalQueueName] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    rules: bool = False
    """Policy or context has changed."""

    def add_namespace_of(self, name: str) -> None:
        """What is allowed or charged in the namespace of `NAMESPACE/NAME` has changed."""
        self.namespaces.add(namespace_of(name))
        self.rules = True


DEFAULT_PRIORITY_CLASS: Final = "default"
"""Name of the WorkloadPriorityClass of workloads that name none (O3)."""


class Directory:
    """Policy and context in force. Only the `observe` and `forget` methods change it."""

    FORK_EMPTIES: ClassVar = ("_queue_flavors", "_conditions")
    """See `copies`."""

    def __init__(self, configuration: SchedulingConfiguration = DEFAULT_CONFIGURATION) -> None:
        self.configuration = configuration
        self.namespaces: dict[str, dict[str, str]] = {}
        """The labels of each."""
        self.pods = PodCharges(configuration.resources)
        self.tree = QuotaTree(fair_sharing=configuration.fair_sharing)
        self.queues: dict[str, ClusterQueue] = {}
        self.cohorts: dict[str, Cohort] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.local_queues: dict[LocalQueueName, LocalQueue] = {}
        self.queue_namespaces: Counter[str] = Counter()
        """Number of LocalQueues by namespace."""
        self.invalid: dict[ConfigKey, str] = {}
        self.gate: Gate | None = None
        self.gate_since: datetime | None = None
        self._priorities: dict[str, WorkloadPriorityClass] = {}
        self._pod_priorities: dict[str, PriorityClass] = {}
        self.out_until: dict[str, datetime] = {}
        """Flavors whose nodes did not come in time, each with the end of the time for that (M20)."""
        self._queue_flavors: dict[str, QueueFlavors] = {}
        self._conditions: dict[str, Condition] = {}
        self._pointing: dict[str, dict[LocalQueueName, None]] = {}

    # --- change

    def observe(self, value: Policy, affected: AffectedObjects) -> bool:
        """Set a policy object and add what the change affects to `affected`; return whether it changed."""
        if self._in_policy(value) == value:
            return False
        match value:
            case ClusterQueue():
                self.queues[value.name] = value
                affected.trees[self.tree.root_of(value.name)] = None
                self.tree.set_queue(value)
                affected.trees[self.tree.root_of(value.name)] = None
                self._changed(affected, {value.name})
            case Cohort():
                self.cohorts[value.name] = value
                self._cohort_changes(value.name, affected)
                self.tree.set_cohort(value)
                self._cohort_changes(value.name, affected)
            case ResourceFlavor():
                self.flavors[value.name] = value
                self._changed(affected, self.users_of(value.name))
            case LocalQueue():
                self._point(value.name, value)
                affected.local_queues.add(value.name)
            case WorkloadPriorityClass():
                self._priorities[value.name] = value
                affected.everything = True
            case _:
                return False  # a feature alone takes it
        return True

    def _in_policy(self, value: Policy) -> Policy | None:
        """Return the policy object in force with the kind and name of `value`."""
        match value:
            case ClusterQueue():
                return self.queues.get(value.name)
            case Cohort():
                return self.cohorts.get(value.name)
            case ResourceFlavor():
                return self.flavors.get(value.name)
            case LocalQueue():
                return self.local_queues.get(value.name)
            case WorkloadPriorityClass():
                return self._priorities.get(value.name)
            case _:
                return None

    def forget(self, key: ConfigKey, affected: AffectedObjects) -> None:
        """Remove a policy object and add what the change affects to `affected`."""
        self.invalid.pop(key, None)
        match key.kind:
            case "ClusterQueue":
                self.queues.pop(key.name, None)
                affected.trees[self.tree.root_of(key.name)] = None
                self.tree.drop_queue(key.name)
                self._changed(affected, {key.name})
            case "Cohort":
                self.cohorts.pop(key.name, None)
                self._cohort_changes(key.name, affected)
                self.tree.drop_cohort(key.name)
                self._cohort_changes(key.name, affected)
            case "ResourceFlavor":
                self.flavors.pop(key.name, None)
                self._changed(affected, self.users_of(key.name))
            case "LocalQueue":
                self._point(LocalQueueName(key.namespace, key.name), None)
                affected.local_queues.add(LocalQueueName(key.namespace, key.name))
            case "WorkloadPriorityClass":
                affected.everything |= self._priorities.pop(key.name, None) is not None

    def observe_context(self, value: Context, affected: AffectedObjects) -> bool:
        """Set a context object and add what the change affects to `affected`.

        Returns whether it has changed; False for objects that are not kept here.
        """
        match value:
            case Namespace():
                labels = dict(value.labels)
                if self.namespaces.get(value.name) == labels:
                    return False
                self.namespaces[value.name] = labels
                affected.namespaces.add(value.name)
            case PriorityClass():
                if self._pod_priorities.get(value.name) == value:
                    return False
                self._pod_priorities[value.name] = value
                self._default_priority()
                affected.everything = True
            case RuntimeClass():
                if self.pods.runtimes.get(value.name) == value:
                    return False
                self.pods.runtimes[value.name] = value
                affected.everything = True
            case Gate():
                before, self.gate, self.gate_since = self.gate, value, value.installed_at
                affected.everything |= before is None and self._restricts()
                return before != value
            case _:
                return False  # features alone take it
        return True

    def forget_context(self, kind: type[Context], name: str, affected: AffectedObjects) -> bool:
        """Remove a context object and add what the change affects to `affected`.

        Returns whether it was known; False for objects that are not kept here.
        """
        if kind is Namespace:
            if known := self.namespaces.pop(name, None) is not None:
                affected.namespaces.add(name)
        elif kind is PriorityClass:
            known = self._pod_priorities.pop(name, None) is not None
            affected.everything |= known
            self._default_priority()
        elif kind is RuntimeClass:
            known = self.pods.runtimes.pop(name, None) is not None
            affected.everything |= known
        else:
            known = kind is Gate and self.gate is not None
            self.gate = None if known else self.gate
            affected.everything |= known and self._restricts()
        return known

    def _default_priority(self) -> None:
        defaults = (one for one in self._pod_priorities.values() if one.default)
        self.pods.default_priority = max(defaults, key=lambda one: one.value, default=None)

    def _point(self, name: LocalQueueName, queue: LocalQueue | None) -> None:
        previous = self.local_queues.pop(name, None)
        if previous is not None:
            self.queue_namespaces[name.namespace] -= 1
            if not self.queue_namespaces[name.namespace]:
                del self.queue_namespaces[name.namespace]
            pointing = self._pointing[previous.cluster_queue]
            del pointing[name]
            if not pointing:
                del self._pointing[previous.cluster_queue]
        if queue is not None:
            self.local_queues[name] = queue
            self.queue_namespaces[name.namespace] += 1
            self._pointing.setdefault(queue.cluster_queue, {})[name] = None

    def users_of(self, flavor: str) -> set[str]:
        """Return the ClusterQueues that have quota in a flavor."""
        return {
            queue.name
            for queue in self.queues.values()
            for group in queue.resource_groups
            if any(used.name == flavor for used in group.flavors)
        }

    def _cohort_changes(self, name: str, affected: AffectedObjects) -> None:
        """To be called before and after a change of a Cohort: it affects the trees that it is in."""
        for node in self.tree.under(name):
            affected.trees[self.tree.root(node)] = None
            if node.kind == "ClusterQueue":
                self._changed(affected, {node.name})

    def _changed(self, affected: AffectedObjects, queues: Iterable[str]) -> None:
        for name in queues:
            self._queue_flavors.pop(name, None)
            self._conditions.pop(name, None)
            affected.cluster_queues.add(name)

    # --- read

    def queue_flavors(self, name: str) -> QueueFlavors:
        """Return the flavor options of a ClusterQueue, which must exist."""
        found = self._queue_flavors.get(name)
        if found is None:
            of_queue = (self.queues[name], self.tree, self.flavors, self.out_until)
            ignores = self.configuration.resources.ignore_uncovered
            found = self._queue_flavors[name] = QueueFlavors(*of_queue, ignores_uncovered=ignores)
        return found

    def charged(self, cluster_queue: str, requests: Amounts) -> Amounts:
        """Return those of the requests of a pod that the ClusterQueue charges or refuses (H8)."""
        known = cluster_queue in self.queues
        return self.queue_flavors(cluster_queue).charged(requests) if known else requests

    def renew_flavors(self, name: str) -> None:
        """What a ClusterQueue may use has changed."""
        self._queue_flavors.pop(name, None)

    def pointing_to(self, cluster_queue: str) -> Collection[LocalQueueName]:
        """Return the LocalQueues that point to this ClusterQueue, which need not exist."""
        return self._pointing.get(cluster_queue, {}).keys()

    def known_queues(self) -> Set[str]:
        """Return the ClusterQueues that exist or have an invalid spec."""
        return self.queues.keys() | {key.name for key in self.invalid if key.kind == "ClusterQueue"}

    def condition(self, name: str) -> Condition:
        """Return the condition of a ClusterQueue that exists or has an invalid spec (Q1)."""
        invalid = self.invalid.get(ConfigKey("ClusterQueue", "", name))
        if invalid is not None:
            known = name in self.queues
            in_force = "the last valid spec stays in force" if known else "no valid spec is in force"
            return Condition(False, "InvalidSpec", f"{invalid}; {in_force}")
        return self._in_force(name)

    def _in_force(self, name: str) -> Condition:
        """Return the condition by the last valid spec."""
        found = self._conditions.get(name)
        if found is None:
            found = condition(self.queues[name], self.flavors, self.cohorts)
            self._conditions[name] = found
        return found

    def local_condition(self, queue: LocalQueue) -> Condition:
        """Return the condition of a LocalQueue."""
        exists = queue.cluster_queue in self.queues
        return local_condition(queue, self.condition(queue.cluster_queue) if exists else None)

    def route(self, workload: Workload) -> Route:
        """Evaluate the eligibility checks in order; the first that fails is the reason (G1 to G12)."""
        local = self.local_queues.get(LocalQueueName(workload.ref.namespace, workload.queue))
        cluster_queue = local.cluster_queue if local and local.cluster_queue in self.queues else None
        priority = self.priority(workload)
        ineligible = (
            workload.problem
            or (_owned(workload.owner) if workload.owner is not None else None)
            or _not_charged(workload)
            or (Reason(code=Code.ON_HOLD, detail=workload.hold_reason) if workload.hold else None)
            or (_no_queue(workload, local) if cluster_queue is None else None)
            or (priority if isinstance(priority, Reason) else None)
            or (self._unchecked(workload) if self.gate is None else None)
        )
        if ineligible is None and local is not None and cluster_queue is not None:
            ineligible = self._not_allowed(workload, local, self.queues[cluster_queue])
        return Route(cluster_queue, 0 if isinstance(priority, Reason) else priority, ineligible)

    def requeueing(self, cluster_queue: str | None) -> RequeuingStrategy:
        """Return how workloads of a ClusterQueue, which need not exist, back off: as it says, else as
        configured (L18)."""
        queue = self.queues.get(cluster_queue or "")
        return self.configuration.requeueing.of_queue(queue.wait_for_pods_ready if queue else None)

    def restricted(self, workload: Workload) -> str | None:
        """Return what is restricted of what a workload names; None: nothing (G5)."""
        named = self._priorities.get(workload.priority_class or "")
        if named is not None and named.restricted:
            return f"WorkloadPriorityClass/{named.name}"
        local = self.local_queues.get(LocalQueueName(workload.ref.namespace, workload.queue))
        return f"LocalQueue/{local.name}" if local is not None and local.restricted else None

    def _unchecked(self, workload: Workload) -> Reason | None:
        """Say so if it names something restricted: no gate checks who may use it (G5)."""
        node = self.restricted(workload)
        if node is None:
            return None
        detail = "it is restricted, and the gate, which checks who may use it, is not in force"
        return Reason(code=Code.MISCONFIGURED, node=node, detail=detail)

    def _restricts(self) -> bool:
        classes = any(one.restricted for one in self._priorities.values())
        return classes or any(one.restricted for one in self.local_queues.values())

    def _not_allowed(self, workload: Workload, local: LocalQueue, queue: ClusterQueue) -> Reason | None:
        node = f"ClusterQueue/{queue.name}"
        if local.stop_policy is not StopPolicy.NONE:
            return Reason(code=Code.SUSPENDED, node=f"LocalQueue/{local.name}", detail=why_stopped(local))
        if queue.stop_policy is not StopPolicy.NONE:
            return Reason(code=Code.SUSPENDED, node=node, detail=why_stopped(queue))
        state = self._in_force(queue.name)
        if not state.active:
            return Reason(code=Code.MISCONFIGURED, node=node, detail=f"{state.reason}: {state.message}")
        labels, selector = self.namespaces.get(workload.ref.namespace), queue.namespace_selector
        if selector is None or labels is None or not selects(selector, labels):
            detail = f"its namespaceSelector does not match namespace {workload.ref.namespace}"
            return Reason(code=Code.NAMESPACE_NOT_ALLOWED, node=node, detail=detail)
        return self.pods.problem(workload, queue.name)

    def priority_of_class(self, name: str) -> int | None:
        """Return the value of a WorkloadPriorityClass; None: there is none of that name."""
        named = self._priorities.get(name)
        return named.value if named is not None else None

    def priority(self, workload: Workload) -> int | Reason:
        """Return the priority of a workload, or the reason why its priority class is unknown (O3)."""
        name = workload.priority_class
        if name is None and DEFAULT_PRIORITY_CLASS in self._priorities:
            name = DEFAULT_PRIORITY_CLASS
        if name is not None:
            return _value_of(self._priorities.get(name), f"WorkloadPriorityClass {name}")
        for pod_set in workload.pod_sets:
            if named := pod_set.priority_class:
                return _value_of(self._pod_priorities.get(named), f"PriorityClass {named}")
        default = self.pods.default_priority
        return default.value if default is not None else 0


def _owned(owner: ObjectRef) -> Reason:
    named = f"{owner.kind} {owner.name}"
    detail = f"metadata.ownerReferences: {named} controls it, and only the topmost object queues"
    return Reason(code=Code.MISCONFIGURED, detail=detail)


def _no_queue(workload: Workload, local: LocalQueue | None) -> Reason:
    if local is None:
        node = f"LocalQueue/{workload.ref.namespace}/{workload.queue}"
        return Reason(code=Code.QUEUE_NOT_FOUND, node=node, detail="no such LocalQueue in its namespace")
    node, detail = f"ClusterQueue/{local.cluster_queue}", f"LocalQueue {local.name} points to it"
    return Reason(code=Code.QUEUE_NOT_FOUND, node=node, detail=detail)


def _not_charged(workload: Workload) -> Reason | None:
    for pod_set in workload.pod_sets:
        if pod_set.not_charged is not None:
            detail = f"{pod_set.not_charged} cannot be charged to a quota"
            return Reason(code=Code.RESOURCE_NOT_COVERED, detail=detail)
    return None


READY = Condition(True, "Ready", "Can admit new workloads")


def condition(
    queue: ClusterQueue, flavors: Mapping[str, ResourceFlavor], cohorts: Mapping[str, Cohort]
) -> Condition:
    """Return the condition of `queue`, given the flavors and Cohorts that exist (docs/scheduling.md, Q1)."""

    def parent(name: str) -> str | None:
        return cohorts[name].parent if name in cohorts else None

    if queue.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", why_stopped(queue))
    above = cohorts_above(queue.cohort, parent)
    if above and parent(above[-1]) is not None and (cycle := cycle_condition(queue.cohort, parent)):
        return cycle
    named = sorted({flavor.name for group in queue.resource_groups for flavor in group.flavors})
    if missing := [name for name in named if name not in flavors]:
        return Condition(False, "FlavorNotFound", f"ResourceFlavor not found: {', '.join(missing)}")
    concerned: list[Cohort | ResourceFlavor] = [cohorts[name] for name in above if name in cohorts]
    concerned += (flavors[name] for name in named)
    others = (f"{type(one).__name__}/{one.name} {field}" for one in concerned for field in one.unsupported)
    if not_obeyed := (*queue.unsupported, *others):
        return Condition(False, "Unsupported", "; ".join(not_obeyed))
    return READY


_MOST_NAMED: Final = 8
"""Cohorts of a cycle that a message names."""


def cycle_condition(cohort: str | None, parent: Callable[[str], str | None]) -> Condition | None:
    """Return the condition of a Cohort, and of its queues, in or below a cycle; None: there is no cycle."""
    cycle = cohort_cycle(cohort, parent)
    if not cycle:
        return None
    named = ", ".join(cycle[:_MOST_NAMED])
    more = f" and {len(cycle) - _MOST_NAMED} more" if len(cycle) > _MOST_NAMED else ""
    message = f"cohort {cycle[0]} is its own ancestor, by spec.parentName of {named}{more}"
    return Condition(False, "CohortCycle", message)


def local_condition(local: LocalQueue, of_queue: Condition | None) -> Condition:
    """Return the condition of `local`, given that of its ClusterQueue; None: that does not exist."""
    if local.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", why_stopped(local))
    if of_queue is None:
        return Condition(False, "ClusterQueueNotFound", f"ClusterQueue {local.cluster_queue} not found")
    if not of_queue.active:
        return Condition(False, "ClusterQueueIsInactive", f"{of_queue.reason}: {of_queue.message}")
    return READY


def _value_of(found: WorkloadPriorityClass | PriorityClass | None, named: str) -> int | Reason:
    return found.value if found else Reason(code=Code.PRIORITY_NOT_FOUND, detail=f"{named} not found")
