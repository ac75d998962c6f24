"""The nodes of the cluster: what is free on each, indexed so that a check does not look at each of them.

Nodes that no pod can tell apart (the same state, the same labels as far as any flavor or pod asks for them,
the same taints) are one `NodeGroup`. A group has its nodes by what is free on them, which for devices is a
few different vectors: a check over thousands of nodes reads a few dictionaries.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from queuectl.core.model.policy import CapacityMode, FlavorNodes, Node, NodeRules, Taint
from queuectl.core.model.resources import Amounts

Vector = tuple[int, ...]
"""Amounts in base units, by the number of their resource in `Inventory.resources`."""

NEW_SECONDS: Final = 600
"""A node that becomes ready for the first time within this time after its creation needs not settle."""


class NodeState(StrEnum):
    READY = "Ready"
    NOT_READY = "NotReady"
    SETTLING = "Settling"  # ready again, not long enough yet
    CORDONED = "Cordoned"
    UNHEALTHY = "Unhealthy"  # by a condition or a taint that the admin names
    AVOIDED = "Avoided"  # lost repeatedly under workloads
    TAINTED = "Tainted"  # ready, with a taint that a flavor does not tolerate: told by flavor (nodes/facts)


def is_unhealthy(node: Node, rules: NodeRules) -> bool:
    """Return whether it has a condition or a taint that the admin names as unusable (M3)."""
    return any(condition in rules.unusable_conditions for condition in node.conditions) or any(
        taint.key in rules.unusable_taints for taint in node.taints
    )


def node_state(
    node: Node, rules: NodeRules, now: datetime, avoided_until: datetime | None = None
) -> NodeState:
    """Return the state of `node` at `now` (M3, M5, M14)."""
    if not node.ready:
        return NodeState.NOT_READY
    if is_unhealthy(node, rules):
        return NodeState.UNHEALTHY
    if node.cordoned:
        return NodeState.CORDONED
    settled = settles_at(node, rules)
    if settled is not None and settled > now:
        return NodeState.SETTLING
    return NodeState.AVOIDED if avoided_until is not None and avoided_until > now else NodeState.READY


def settles_at(node: Node, rules: NodeRules) -> datetime | None:
    """Return when a ready node counts again; None: it does not have to settle (M5)."""
    if not node.ready or node.ready_since is None:
        return None
    if node.created_at is None or node.ready_since - node.created_at <= timedelta(seconds=NEW_SECONDS):
        return None
    return node.ready_since + timedelta(seconds=rules.settle_seconds)


Profile = tuple[tuple[tuple[str, str], ...], tuple[Taint, ...]]
"""Labels as far as they are asked for, and taints."""


class NodeGroup:
    """Nodes that no pod can tell apart, by what is free on them. `labels`: as far as they are asked for."""

    __slots__ = ("allocatable", "by_free", "labels", "sizes", "state", "taints")

    def __init__(self, state: NodeState, profile: Profile) -> None:
        self.state = state
        self.labels = dict(profile[0])
        self.taints = profile[1]
        self.by_free: dict[Vector, list[str]] = {}
        """Names of nodes in order, by what is free."""
        self.sizes: Counter[Vector] = Counter()
        """How many nodes have so much when they are empty."""
        self.allocatable: Counter[str] = Counter()
        """Of all its nodes together, in base units by resource, whether nodes limit that or not."""

    def put(self, free: Vector, name: str) -> None:
        insort(self.by_free.setdefault(free, []), name)

    def take(self, free: Vector, name: str) -> None:
        names = self.by_free[free]
        del names[bisect_left(names, name)]
        if not names:
            del self.by_free[free]


class NodeRecord:
    """One node, and what its pods take. Pods may name a node that is not known (yet): `node` is None."""

    __slots__ = ("allocatable", "bound", "counted", "free", "group", "name", "node", "size", "state", "used")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.state = NodeState.NOT_READY
        self.group: NodeGroup | None = None
        self.allocatable: Vector = ()
        self.counted: Amounts = ()
        """What its group counts of it."""
        self.size: Vector = ()
        """The same, of resources that nodes may limit."""
        self.used: list[int] = []
        """By pods that are bound to it, and by those that are expected on it."""
        self.bound: list[int] = []
        """By those that are bound to it."""
        self.free: Vector = ()


class Inventory:
    """All nodes. Amounts of resources that are not in `resources` are not counted."""

    def __init__(self, rules: NodeRules) -> None:
        self._rules = rules
        self._asked: set[str] = set()
        """Label keys that flavors or pods ask for."""
        self.resources: dict[str, int] = {}
        """Numbers of the resources that nodes may limit: devices first, then by name."""
        self.records: dict[str, NodeRecord] = {}
        self.groups: dict[tuple[NodeState, Profile], NodeGroup] = {}
        self._settling: set[str] = set()
        """Names of nodes that have to settle."""
        self.avoided: dict[str, datetime] = {}
        """Nodes that are avoided, and until when (M14)."""
        self.version = 0
        """Counts changes of groups: what was found to match must be found again."""
        self.capacity_version = 0
        """Counts changes of what the nodes of a group have together."""
        self._more = False
        """More may fit than before, by more than amounts."""
        self._before: dict[str, Vector] = {}
        """What was free when `take_grown` was last called, of nodes where that was changed since."""

    def __bool__(self) -> bool:
        """Whether any node is known: an empty list limits nothing (M4)."""
        return bool(self.groups)

    # --- nodes

    def observe(self, node: Node, now: datetime) -> bool:
        """Return whether anything changed."""
        record = self._record(node.name)
        state = node_state(node, self._rules, now, self.avoided.get(node.name))
        if record.node == node and record.state is state:
            return False
        known = record.node
        record.node, record.state = node, state
        (self._settling.add if state is NodeState.SETTLING else self._settling.discard)(node.name)
        record.allocatable = self.vector(node.allocatable)
        same = known is not None and _told_apart(known) == _told_apart(node)
        if same and record.group is not None and record.group.state is state:
            self.refresh(record)
        else:
            self._regroup(record)
            self._more |= state is NodeState.READY
        return True

    def forget(self, name: str) -> None:
        record = self.records.get(name)
        if record is None or record.node is None:
            return
        self._leave(record)
        self._settling.discard(name)
        record.node = None
        if not any(record.used):
            del self.records[name]

    def tick(self, now: datetime) -> bool:
        """Time has passed: nodes that have settled count again, and those that were avoided.

        Return whether there are any.
        """
        over = {name for name, until in self.avoided.items() if until <= now}
        for name in over:
            del self.avoided[name]
        changed = False
        for name in sorted(self._settling | over):
            changed |= self._observe_again(name, now)
        return changed

    def avoid(self, name: str, until: datetime, now: datetime) -> None:
        """A node does not count before `until` (M14)."""
        self.avoided[name] = until
        self._observe_again(name, now)

    def _observe_again(self, name: str, now: datetime) -> bool:
        record = self.records.get(name)
        return record is not None and record.node is not None and self.observe(record.node, now)

    def take_grown(self) -> bool:
        """Return whether more may fit than at the last call: what was tried and undone does not count."""
        grown = self._more or any(self._has_more(*item) for item in self._before.items())
        self._more = False
        self._before.clear()
        return grown

    def _has_more(self, name: str, before: Vector) -> bool:
        record = self.records.get(name)
        if record is None or record.group is None or record.state is not NodeState.READY:
            return False
        return any(now > then for now, then in zip(record.free, before, strict=True))

    def settles_at(self) -> datetime | None:
        """Return when the next node counts again by time alone; None: none does."""
        nodes = (self.records[name].node for name in self._settling)
        times = (settles_at(node, self._rules) for node in nodes if node is not None)
        return min((when for when in (*times, *self.avoided.values()) if when is not None), default=None)

    def _record(self, name: str) -> NodeRecord:
        record = self.records.get(name)
        if record is None:
            record = self.records[name] = NodeRecord(name)
            record.used, record.bound = [0] * len(self.resources), [0] * len(self.resources)
        return record

    # --- amounts

    def vector(self, amounts: Amounts) -> Vector:
        found = [0] * len(self.resources)
        for resource, amount in amounts:
            number = self.resources.get(resource)
            if number is not None:
                found[number] = amount
        return tuple(found)

    def charge(self, name: str, amounts: Vector, times: int) -> None:
        """Add `amounts` to what is used on a node; `times` is negative to take them away."""
        record = self.records.get(name) or self._record(name)
        used = record.used
        for number, amount in enumerate(amounts):
            used[number] += amount * times
        if record.node is not None:
            self.refresh(record)
        elif not any(used):
            del self.records[name]

    def bind(self, name: str, amounts: Vector, times: int) -> None:
        """As `charge`, for a pod that is bound to the node, or not any more."""
        bound = self._record(name).bound
        for number, amount in enumerate(amounts):
            bound[number] += amount * times
        self.charge(name, amounts, times)

    def refresh(self, record: NodeRecord) -> None:
        """What is free on a node may have changed."""
        free = tuple([has - used for has, used in zip(record.allocatable, record.used, strict=True)])
        if free != record.free and record.group is not None:
            self._before.setdefault(record.name, record.free)
            record.group.take(record.free, record.name)
            record.group.put(free, record.name)
            record.free = free

    # --- groups

    def ask(self, keys: Iterable[str]) -> None:
        """Labels with these keys tell nodes apart from now on."""
        new = set(keys) - self._asked
        if new:
            self._asked |= new
            for record in self.records.values():
                if record.node is not None and any(key in new for key, _ in record.node.labels):
                    self._regroup(record)

    def count(self, resources: Iterable[str]) -> None:
        """Count these resources, and no others. All that is used must be charged again."""
        self.resources = {
            name: number
            for number, name in enumerate(sorted(resources, key=lambda name: (not is_device(name), name)))
        }
        self._before.clear()
        self._more = True
        for record in list(self.records.values()):
            self._leave(record)
            record.used, record.bound = [0] * len(self.resources), [0] * len(self.resources)
            if record.node is None:
                del self.records[record.name]
                continue
            record.allocatable = self.vector(record.node.allocatable)
            self._regroup(record)

    def _regroup(self, record: NodeRecord) -> None:
        assert record.node is not None
        self._leave(record)
        labels = tuple(item for item in record.node.labels if item[0] in self._asked)
        profile = (labels, record.node.taints)
        group = self.groups.get((record.state, profile))
        if group is None:
            group = self.groups[record.state, profile] = NodeGroup(record.state, profile)
            self.version += 1
        record.group = group
        record.free = tuple([has - used for has, used in zip(record.allocatable, record.used, strict=True)])
        group.put(record.free, record.name)
        group.sizes[record.allocatable] += 1
        record.size = record.allocatable
        record.counted = record.node.allocatable
        group.allocatable.update(dict(record.counted))
        self.capacity_version += 1

    def _leave(self, record: NodeRecord) -> None:
        group = record.group
        if group is None:
            return
        group.take(record.free, record.name)
        group.sizes[record.size] -= 1
        group.allocatable.subtract(dict(record.counted))
        record.group = None
        self.capacity_version += 1
        if not group.by_free:
            self.groups = {key: one for key, one in self.groups.items() if one is not group}
            self.version += 1

    def nodes(self) -> Iterator[NodeRecord]:
        """Yield the nodes that are there."""
        return (record for record in self.records.values() if record.node is not None)


def _told_apart(node: Node) -> tuple[object, ...]:
    """Return what a change of moves a node to another group, or changes what its group has."""
    return node.labels, node.taints, node.allocatable


def is_device(resource: str) -> bool:
    """Return whether a resource is an extended one, such as `nvidia.com/gpu`: pods take whole units of it."""
    return "/" in resource


def mode_of(rules: FlavorNodes, resource: str, *, offered: bool) -> CapacityMode:
    """Return the mode of one resource. `offered`: nodes of the flavor have some of it (M2)."""
    for name, mode in rules.modes:
        if name == resource:
            return mode
    if rules.mode is not None:
        return rules.mode
    return CapacityMode.ENFORCE if is_device(resource) and offered else CapacityMode.OBSERVE


def limited_by_spec(rules: FlavorNodes) -> bool:
    """Return whether the spec of a flavor has the mode Enforce, for all its resources or for one."""
    return CapacityMode.ENFORCE in (rules.mode, *(mode for _, mode in rules.modes))
