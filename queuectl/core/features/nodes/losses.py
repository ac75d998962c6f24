"""Nodes that are lost, and the workloads whose pods were on them (M12 to M14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from queuectl.core.features.nodes.inventory import Inventory, is_unhealthy
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node, NodeRules, ResourceFlavor
from queuectl.core.model.workload import WorkloadId

OUTAGE_PERCENT: Final = 55
"""Default of --unhealthy-zone-threshold of the node lifecycle controller of Kubernetes."""
OUTAGE_NODES: Final = 3
"""Fewer lost nodes are no outage, whatever their share: also as in the node lifecycle controller."""
FAILURES: Final = 2
"""A node that was lost so often under workloads within FAILURE_SECONDS is avoided for as long (M14)."""
FAILURE_SECONDS: Final = 3600


class Loss(NamedTuple):
    """A node that is lost."""

    why: str
    unreachable: bool
    """Its kubelet does not answer: nothing ends the pods that are being deleted there."""


class LostPods(NamedTuple):
    """A node that is lost under a workload."""

    node: str
    why: str


_GONE: Final = Loss("the node is gone", unreachable=True)
_NOT_READY: Final = Loss("the node is not ready", unreachable=True)
_UNHEALTHY: Final = Loss("the node is unhealthy", unreachable=False)


class NodeLosses:
    """Which nodes are lost, with the pods of workloads there."""

    def __init__(
        self,
        inventory: Inventory,
        pods: Mapping[str, Pod],
        flavors: Mapping[str, ResourceFlavor],
        rules: NodeRules,
    ) -> None:
        self._inventory = inventory
        self._pods = pods
        self._flavors = flavors
        self._rules = rules
        self._lost: dict[str, Loss] = {}
        self._deleted: dict[str, Node] = {}
        """Nodes that were deleted while pods of workloads were bound to them."""
        self._due: dict[str, datetime] = {}
        """When a node is lost unless it comes back before."""
        self._unsure: set[str] = set()
        """Nodes of which nothing says since when: their time begins when the time is known next."""
        self._on: dict[str, dict[str, None]] = {}
        """UIDs of the pods of workloads, by node."""
        self._struck: dict[WorkloadId, dict[str, str]] = {}
        """Of workloads: pods that were on a node when it was lost, with its name."""
        self._deleted_now: set[str] = set()
        """Those that were deleted since `settle`. They may have been made again since."""
        self._doomed: set[str] = set()
        """UIDs of struck pods whose node was deleted: another node of its name does not run them."""
        self._at_start: set[str] = set()
        """UIDs of pods of no known workload on nodes that were lost when all pods were listed first."""
        self._began = False
        self._outages: frozenset[str] | None = None
        """Flavors of which too many nodes are lost. None: to be computed again."""
        self._counted: set[str] = set()
        """Nodes whose last loss counts as a failure already."""
        self._failures: dict[str, list[datetime]] = {}
        self._affected: set[WorkloadId] = set()

    # --- what is observed

    def begin(self) -> None:
        """All nodes and pods have been listed: what is lost now counts as lost now."""
        self._began = True
        self._at_start = {
            uid for uid, pod in self._pods.items() if pod.workload is None and pod.node in self._lost
        }
        for name in self._lost:
            self._strike(name)

    def deleted(self, node: Node) -> None:
        """Its Node object is gone. `judge` is to be called."""
        if node.name in self._on:
            self._deleted[node.name] = node
            self._deleted_now.add(node.name)

    def judge(self, name: str, now: datetime) -> bool:
        """A node changed, or its time has come. Return whether it became reachable or unreachable."""
        before, found = self._lost.get(name), self._found(name, now)
        self._note_nodes()
        if found == before:
            return False
        if found is None:
            del self._lost[name]
            if name not in self._deleted_now:
                self._spare(name)
        else:
            if before is None:
                self._counted.discard(name)
            self._lost[name] = found
            self._strike(name)
        return (before is not None and before.unreachable) is not (found is not None and found.unreachable)

    def settle(self) -> None:
        """All events of a batch are applied: pods of nodes that were deleted in it are lost for good.

        But in an outage: after that, nodes may register again with the pods that they run.
        """
        for name in sorted(self._deleted_now):
            if not self._in_outage(name):
                pods = (self._pods[uid] for uid in self._on.get(name, ()))
                self._doomed.update(pod.uid for pod in pods if pod.uid in self._struck.get(_owner(pod), ()))
            elif name not in self._lost:
                self._spare(name)
        if self._deleted_now:
            self._deleted_now.clear()
            self._note_nodes()

    def _found(self, name: str, now: datetime) -> Loss | None:
        """Return the loss of a node at `now`, and note when to ask again."""
        record = self._inventory.records.get(name)
        node = record.node if record is not None else None
        if node is not None:
            self._deleted.pop(name, None)
            if node.ready:
                self._not_due(name)
                return _UNHEALTHY if is_unhealthy(node, self._rules) else None
        elif name in self._deleted or name not in self._on:
            self._not_due(name)
            return _GONE if name in self._deleted else None
        if node is not None and node.ready_since is not None:
            self._due[name] = node.ready_since + timedelta(seconds=self._rules.loss_seconds)
            self._unsure.discard(name)
        elif name not in self._due:
            self._due[name] = now
            self._unsure.add(name)
        late = name not in self._unsure and self._due[name] <= now
        if late or not self._reachable(name):
            return _NOT_READY if node is not None else _GONE
        return _UNHEALTHY if node is not None and is_unhealthy(node, self._rules) else None

    def _not_due(self, name: str) -> None:
        self._due.pop(name, None)
        self._unsure.discard(name)

    def due(self, now: datetime) -> list[str]:
        """The time is `now`: return the nodes whose time has come."""
        for name in self._unsure:
            self._due[name] = now + timedelta(seconds=self._rules.loss_seconds)
        self._unsure.clear()
        return sorted(name for name, when in self._due.items() if when <= now and self._reachable(name))

    def due_at(self) -> datetime | None:
        """Return when the next node is lost, if it does not come back; None: none is."""
        return min((when for name, when in self._due.items() if self._reachable(name)), default=None)

    def _reachable(self, name: str) -> bool:
        return name not in self._lost or not self._lost[name].unreachable

    # --- pods

    def bind(self, pod: Pod, now: datetime) -> None:
        """A pod of a workload is bound to its node."""
        assert pod.node is not None
        there = self._on.setdefault(pod.node, {})
        if pod.uid in there:
            return
        there[pod.uid] = None
        loss = self._lost.get(pod.node)
        if loss is None and pod.node not in self._due:
            record = self._inventory.records.get(pod.node)
            if record is None or record.node is None:
                self.judge(pod.node, now)  # its Node has not been seen
        elif loss is not None and (loss.unreachable or pod.uid in self._at_start):
            self._strike(pod.node)  # it was bound before. The scheduler may use a node that is unhealthy

    def unbind(self, pod: Pod) -> None:
        """It is gone."""
        assert pod.node is not None
        assert pod.workload is not None
        self._forgive(pod)
        there = self._on.get(pod.node)
        if there is None or pod.uid not in there:
            return
        del there[pod.uid]
        if there:
            return
        del self._on[pod.node]
        record = self._inventory.records.get(pod.node)
        if record is None or record.node is None:
            self._lost.pop(pod.node, None)
            self._deleted.pop(pod.node, None)
            self._not_due(pod.node)
            self._counted.discard(pod.node)
            self._note_nodes()

    def on(self, name: str) -> list[str]:
        """Return the UIDs of the pods of workloads on a node."""
        return list(self._on.get(name, ()))

    def counts_as_gone(self, pod: Pod) -> bool:
        """Return whether nothing but the return of its node would end it (M13)."""
        loss = self._lost.get(pod.node or "")
        return pod.terminating and loss is not None and loss.unreachable

    def unreachable(self) -> frozenset[str]:
        """Return the nodes on which pods that are being deleted count as gone (M13)."""
        return frozenset(name for name, loss in self._lost.items() if loss.unreachable)

    def terminates(self, pod: Pod) -> None:
        """It is being deleted: where it counts as gone, it is no reason to evict any more."""
        if self.counts_as_gone(pod):
            self._forgive(pod)

    def _strike(self, name: str) -> None:
        for uid in self._on.get(name, ()) if self._began else ():
            pod = self._pods[uid]
            if pod.workload is not None and not self.counts_as_gone(pod):
                self._struck.setdefault(pod.workload, {})[uid] = name
                self._affected.add(pod.workload)

    def _spare(self, name: str) -> None:
        for uid in self._on.get(name, ()):
            if uid not in self._doomed:
                self._forgive(self._pods[uid])

    def _forgive(self, pod: Pod) -> None:
        struck = self._struck.get(pod.workload) if pod.workload is not None else None
        if pod.workload is None or struck is None or struck.pop(pod.uid, None) is None:
            return
        self._doomed.discard(pod.uid)
        self._affected.add(pod.workload)
        if not struck:
            del self._struck[pod.workload]

    # --- what is asked

    def _note_nodes(self) -> None:
        """The nodes that are there, or lost, changed."""
        self._outages = None
        self._affected.update(self._struck)

    def take_affected(self) -> list[WorkloadId]:
        """Return the workloads of which `lost_under` may have changed since the last call."""
        affected, self._affected = sorted(self._affected), set()
        return affected

    def lost_under(self, owner: WorkloadId) -> LostPods | None:
        """Return the first node by name that was lost under a workload; None also in an outage (M12)."""
        struck = self._struck.get(owner, {})
        for name, doomed in sorted({(name, uid in self._doomed) for uid, name in struck.items()}):
            if (doomed and name not in self._lost) or not self._in_outage(name):
                return LostPods(name, (_GONE if doomed else self._lost[name]).why)
        return None

    def _in_outage(self, name: str) -> bool:
        if not any(self._is_well(record.name) for record in self._inventory.nodes()):
            return True
        if self._outages is None:
            self._outages = self._flavors_in_outage()
        node = self._node(name)
        flavors = self._flavors_of(node) if node is not None else ()
        return not self._outages.isdisjoint(flavors or (_ANY,))

    def _flavors_in_outage(self) -> frozenset[str]:
        totals: dict[str, int] = {}
        lost: dict[str, int] = {}
        there = [record.node for record in self._inventory.nodes() if record.node is not None]
        for node in (*there, *self._deleted.values()):
            for flavor in (*self._flavors_of(node), _ANY):
                totals[flavor] = totals.get(flavor, 0) + 1
                lost[flavor] = lost.get(flavor, 0) + (not self._is_well(node.name))
        return frozenset(
            flavor
            for flavor, count in lost.items()
            if count >= OUTAGE_NODES and count * 100 > totals[flavor] * OUTAGE_PERCENT
        )

    def _is_well(self, name: str) -> bool:
        return name not in self._lost and name not in self._deleted_now

    def _node(self, name: str) -> Node | None:
        record = self._inventory.records.get(name)
        return record.node if record is not None and record.node is not None else self._deleted.get(name)

    def _flavors_of(self, node: Node) -> Iterable[str]:
        labels = set(node.labels)
        return [name for name, flavor in self._flavors.items() if labels.issuperset(flavor.node_labels)]

    # --- nodes that fail repeatedly

    def failed(self, name: str, now: datetime) -> datetime | None:
        """A workload was evicted because a node was lost. Return until when the node is avoided (M14)."""
        if name in self._counted:
            return None
        first = now - timedelta(seconds=FAILURE_SECONDS)
        recent = {one: [when for when in times if when > first] for one, times in self._failures.items()}
        self._failures = {one: times for one, times in recent.items() if times}
        self._counted = {one for one in self._counted if one in self._lost or one in self._failures} | {name}
        times = self._failures.setdefault(name, [])
        times.append(now)
        return now + timedelta(seconds=FAILURE_SECONDS) if len(times) >= FAILURES else None


_ANY: Final = ""
"""The name of no flavor: all nodes together."""


def _owner(pod: Pod) -> WorkloadId:
    return pod.workload or WorkloadId("")
