"""Nodes in virtual time and the pods on them: plays kube-scheduler, kubelets and the controllers of pods.

Pods are bound as `core/features/nodes/placing` predicts it, with two differences: all resources that any node
has count, and a node has room for so many pods. Pods are bound one by one, in the order of their workloads'
starts: those of a workload that do not all fit hold what they got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from queuectl.core.directory import Directory
from queuectl.core.features.nodes.inventory import is_device
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.flavors.pods import pods_of
from queuectl.core.model.events import ContextGone, ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model.pods import Pod, PodGroup, PodShape
from queuectl.core.model.policy import CapacityMode, FlavorNodes, Node, NodeRules, ResourceFlavor, Toleration
from queuectl.core.model.resources import Amounts, FlavorResource, amounts
from queuectl.core.model.workload import Attempt, Workload, WorkloadId

_PODS: Final = "pods"
_PODS_PER_NODE: Final = 110
"""Of a node that does not say it: the kubelet's default."""
COLLECT_SECONDS: Final = 60
"""After which the pod garbage collector of Kubernetes has deleted the pods of a removed node, at most."""
_MOST_PODS_PER_NODE: Final = 1_000
_ANY: Final = ""
"""Name of the flavor that all pods have here: its nodes are all nodes."""
_LIMITING: Final = FlavorNodes(mode=CapacityMode.ENFORCE)
_OLD: Final = timedelta(days=1)
"""Age of the nodes that are there at the start: when they were not ready, they have to settle (M5)."""


class Other(NamedTuple):
    """Equal pods of no queue."""

    namespace: str
    name: str
    pods: int
    requests: Amounts
    node: str | None = None
    """None: where the scheduler places them."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(slots=True)
class _Group:
    """Equal pods of one workload."""

    shape: PodShape
    """As the scheduler sees it."""
    requests: Amounts
    unbound: int


class _Bound(NamedTuple):
    pod: Pod
    """As the engine observes it."""
    group: _Group


@dataclass(slots=True)
class _Gang:
    """The pods of one workload, or of one `Other`."""

    namespace: str
    name: str
    workload: WorkloadId | None
    groups: list[_Group]
    attempt: int = 0
    node: str | None = None
    """Of all its pods, whether they fit there or not. None: where the scheduler places them."""
    given: list[str] = field(default_factory=list)
    """Nodes of its first pods, which are bound already."""
    bound: dict[str, _Bound] = field(default_factory=dict)
    """By UID."""
    made: int = 0
    """Pods so far: numbers them."""
    terminating: bool = False
    losses: int = 0
    """How many of its pods a failed or removed node took away."""

    @property
    def unbound(self) -> bool:
        return any(group.unbound for group in self.groups)


class Level(NamedTuple):
    """Of one resource, in base units."""

    total: int
    """What is allocatable on all nodes."""
    usable: int
    """Of that, on nodes that are ready and not cordoned."""
    free: int
    """Of that, what no pod has."""
    unmanaged: int
    """What pods of no queue have on usable nodes."""


class SimulatedCluster:
    def __init__(
        self, nodes: Iterable[Node], flavors: Iterable[ResourceFlavor], directory: Directory, now: datetime
    ) -> None:
        """`nodes`: all that there are at any time; `add` adds each. `directory`: for charges."""
        limiting = {one.name: replace(one, nodes=_LIMITING) for one in flavors}
        self._room = NodeRoom(
            {**limiting, _ANY: ResourceFlavor(name=_ANY, nodes=_LIMITING)}, NodeRules(settle_seconds=0)
        )
        self._directory = directory
        self._offered = {resource for node in nodes for resource, amount in node.allocatable if amount}
        self._start = self._now = now
        self._nodes: dict[str, Node] = {}
        self._on: dict[str, dict[str, str]] = {}
        """Keys of gangs by UID of their pods, by node."""
        self._stuck: dict[str, list[str]] = {}
        """UIDs of pods that were to end on nodes that do not answer, by node."""
        self._gangs: dict[str, _Gang] = {}
        self._waiting: dict[str, None] = {}
        """Keys of gangs with unbound pods, in order of their starts."""
        self._touched: dict[str, None] = {}
        self._changed = True
        """More may be bound than before."""
        self._others = False
        self._stale = True
        """Nodes, or pods of no queue, changed."""
        self._total: Counter[str] = Counter()
        self._usable: Counter[str] = Counter()
        self._unmanaged: Counter[str] = Counter()

    # --- nodes: each returns what is observed

    def add(self, node: Node, now: datetime) -> list[Event]:
        """Its own times count, if it has any."""
        created = node.created_at or (now if now > self._start else self._start - _OLD)
        ready = node.ready_since or (now if now > self._start else None)
        return self._observe(replace(node, created_at=created, ready_since=ready), now)

    def change(self, name: str, what: str, now: datetime) -> list[Event]:
        """`what` is as in documents. Nothing happens to a node that is not there."""
        node = self._nodes.get(name)
        if node is None:
            return []
        match what:
            case "fail" if node.ready:
                self._lose_pods(name)
                return self._observe(replace(node, ready=False, ready_since=now), now)
            case "return" if not node.ready:
                self._touch_pods(name)
                return [*self._free(name), *self._observe(replace(node, ready=True, ready_since=now), now)]
            case "cordon" | "uncordon":
                return self._observe(replace(node, cordoned=what == "cordon"), now)
            case "remove":
                self._lose_pods(name)
                del self._nodes[name]
                self._room.forget(name, now)
                self._changed = self._stale = True
                return [ContextGone(Node, name)]
        return []

    def collect(self, name: str, _: datetime) -> list[Event]:
        """The pods of a removed node are deleted. Their controllers make others, which are not bound."""
        events = self._free(name)
        for uid, key in list(self._on.get(name, {}).items()):
            gang = self._gangs[key]
            gang.bound[uid].group.unbound += not gang.terminating
            events.append(self._end(gang, uid))
            if gang.unbound and not gang.terminating:
                self._waiting[key] = None
        self._changed |= bool(events)
        return events

    def _lose_pods(self, node: str) -> None:
        for key in self._on.get(node, {}).values():
            self._gangs[key].losses += 1
        self._touch_pods(node)

    def _touch_pods(self, node: str) -> None:
        self._touched.update(dict.fromkeys(self._on.get(node, {}).values()))

    def _free(self, node: str) -> list[Event]:
        """The pods end that could not end before."""
        uids = self._stuck.pop(node, [])
        for uid in uids:
            self._room.forget_pod(uid)
        return [PodGone(uid) for uid in uids]

    def _observe(self, node: Node, now: datetime) -> list[Event]:
        self._nodes[node.name] = node
        self._now = now
        found = dict(node.allocatable)
        found[_PODS] = min(found.get(_PODS, _PODS_PER_NODE), _MOST_PODS_PER_NODE)
        self._room.observe(replace(node, allocatable=amounts(found)), now)
        self._changed = self._stale = True
        return [ContextObserved(node)]

    # --- pods

    def start(self, workload: Workload, attempt: Attempt, nodes: Sequence[str] = ()) -> None:
        """A workload starts: its pods are to be bound. `nodes`: those of the first pods, which are bound."""
        found = pods_of(self._directory.pods.charges(workload), attempt.assignment)
        groups = [_Group(self._seen(one.shape), one.shape.requests, one.count) for one in found]
        ref = workload.ref
        gang = _Gang(ref.namespace, ref.name, workload.id, groups, attempt.number, given=list(nodes))
        self._wait(workload.id, gang)

    def run(self, other: Other) -> str:
        """Pods of no queue are to be bound. Return their key."""
        shape = PodShape(other.requests, (), other.node_selector, other.tolerations)
        group = _Group(self._seen(shape), other.requests, other.pods)
        self._others = True
        key = f"pods:{other.namespace}/{other.name}"
        self._wait(key, _Gang(other.namespace, other.name, None, [group], node=other.node))
        return key

    def _wait(self, key: str, gang: _Gang) -> None:
        self._gangs[key] = gang
        self._waiting[key] = None
        self._touched[key] = None
        self._changed = True

    def _seen(self, shape: PodShape) -> PodShape:
        """The shape with one of `pods`, and without cpu and memory if no node says how much it has."""
        counted = {name: n for name, n in shape.requests if is_device(name) or name in self._offered}
        flavors = tuple(sorted({**dict(shape.flavors), _PODS: _ANY}.items()))
        return replace(shape, requests=amounts({**counted, _PODS: 1}), flavors=flavors)

    def stop(self, key: str) -> list[Event]:
        """Its bound pods terminate; the others are gone."""
        gang = self._gangs.get(key)
        if gang is None:
            return []
        gang.terminating = True
        self._touched[key] = None
        self._waiting.pop(key, None)
        return [PodObserved(replace(one.pod, terminating=True)) for one in gang.bound.values()]

    def end(self, key: str, attempt: int = 0) -> list[Event]:
        """Its pods are gone, except on nodes that do not answer. Nothing happens if they are those of another
        attempt."""
        gang = self._gangs.get(key)
        if gang is None or gang.attempt != attempt:
            return []
        del self._gangs[key]
        self._touched[key] = None
        self._waiting.pop(key, None)
        self._changed |= bool(gang.bound)
        events = []
        for uid, one in list(gang.bound.items()):
            if self._answers(one.pod.node):
                events.append(self._end(gang, uid))
            else:
                self._leave(gang, uid)
                self._stuck.setdefault(str(one.pod.node), []).append(uid)
        return events

    def _end(self, gang: _Gang, uid: str) -> Event:
        self._leave(gang, uid)
        self._room.forget_pod(uid)
        return PodGone(uid)

    def _leave(self, gang: _Gang, uid: str) -> None:
        """It is none of its pods any more."""
        node = gang.bound.pop(uid).pod.node
        assert node is not None
        del self._on[node][uid]
        self._stale |= gang.workload is None

    def _answers(self, node: str | None) -> bool:
        return node is not None and node in self._nodes and self._nodes[node].ready

    def bind(self) -> list[Event]:
        """Bind what fits. Return what is observed."""
        events: list[Event] = []
        if not self._changed:
            return events
        self._changed = False
        self._room.settle()
        full: set[PodShape] = set()
        for key in list(self._waiting):
            gang = self._gangs[key]
            events += self._bind_given(key, gang) if gang.node is not None else self._bind(key, gang, full)
            if not gang.unbound:
                del self._waiting[key]
        return events

    def _bind_given(self, key: str, gang: _Gang) -> list[Event]:
        (group,) = gang.groups
        if gang.node is None or gang.node not in self._nodes:
            return []
        return [self._bound(key, gang, group, gang.node) for _ in range(group.unbound)]

    def _bind(self, key: str, gang: _Gang, full: set[PodShape]) -> list[Event]:
        """Those that take most first. `full`: shapes of which no more fit."""
        given, gang.given = gang.given, []
        unbound = (group for group in gang.groups for _ in range(group.unbound))
        events = [self._bound(key, gang, group, node) for group, node in zip(unbound, given, strict=False)]
        matcher = self._room.matcher
        for group in sorted(gang.groups, key=lambda one: matcher.match(one.shape).vector, reverse=True):
            if not group.unbound or group.shape in full:
                continue
            spots = self._room.place((PodGroup(group.shape, group.unbound),))
            if len(spots) < group.unbound:
                full.add(group.shape)
            events += [self._bound(key, gang, group, node) for node, _ in spots]
        return events

    def _bound(self, key: str, gang: _Gang, group: _Group, node: str) -> Event:
        group.unbound -= 1
        gang.made += 1
        pod = Pod(
            uid=f"{key}/{gang.attempt}/{gang.made}",
            namespace=gang.namespace,
            name=f"{gang.name}-{gang.made}",
            node=node,
            requests=group.requests,
            workload=gang.workload,
        )
        gang.bound[pod.uid] = _Bound(pod, group)
        self._on.setdefault(node, {})[pod.uid] = key
        self._room.observe_pod(replace(pod, requests=group.shape.requests, workload=None), self._now)
        self._touched[key] = None
        self._stale |= gang.workload is None
        return PodObserved(pod)

    # --- what there is

    def take_touched(self) -> list[str]:
        """Return the keys of those whose `runs` may have changed since the last call."""
        touched, self._touched = list(self._touched), {}
        return touched

    def runs(self, key: str) -> bool:
        """Return whether all its pods are bound to nodes that are ready."""
        gang = self._gangs.get(key)
        return gang is not None and not (
            gang.terminating
            or gang.unbound
            or not all(self._answers(node) for node in {one.pod.node for one in gang.bound.values()})
        )

    def losses(self, key: str) -> int:
        """Return how many of its pods a failed or removed node took away."""
        gang = self._gangs.get(key)
        return gang.losses if gang is not None else 0

    def levels(self) -> Mapping[str, Level]:
        """Return what there is of each resource that any node has."""
        self._room.settle()
        if self._stale:
            self._stale = False
            self._total, self._usable = self._sums(self._nodes.values()), self._sums(self._usable_nodes())
            self._unmanaged = self._of_no_queue()
        return {
            resource: Level(
                self._total[resource],
                self._usable[resource],
                self._room.headroom.free(FlavorResource(_ANY, resource)),
                self._unmanaged[resource],
            )
            for resource in sorted(self._offered)
        }

    def _usable_nodes(self) -> Iterable[Node]:
        return (node for node in self._nodes.values() if node.ready and not node.cordoned)

    def _sums(self, nodes: Iterable[Node]) -> Counter[str]:
        found: Counter[str] = Counter()
        for node in nodes:
            found.update(dict(node.allocatable))
        return found

    def _of_no_queue(self) -> Counter[str]:
        usable = {node.name for node in self._usable_nodes()}
        found: Counter[str] = Counter()
        for gang in self._gangs.values() if self._others else ():
            if gang.workload is None:
                for one in gang.bound.values():
                    found.update(dict(one.pod.requests) if one.pod.node in usable else {})
        return found
