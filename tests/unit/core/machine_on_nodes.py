"""The test cluster of the state machine with nodes. No pod is bound there: all are expected (M7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from queuectl.core.events import ContextGone, ContextObserved, Event
from queuectl.core.policy import Node, Taint
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import amounts
from tests.builders import GPU
from tests.unit.core.machine import Cluster

ROOM = frozenset({Code.CAPACITY_MISSING, Code.NO_NODE_FITS})


class ClusterOnNodes(Cluster):
    SAME = Cluster.SAME | ROOM

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        super().__init__()

    def everything(self) -> list[Event]:
        return [*map(ContextObserved, self.nodes.values()), *super().everything()]

    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.watch.append(ContextObserved(node))

    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.watch.append(ContextGone(Node, name))

    def excused(self, code: Code | None, reason: Reason) -> bool:
        """The reference has no nodes: a workload that fits by it may lack room with some flavor (M1)."""
        if ROOM.isdisjoint(one.code for one in (reason, *reason.others)):
            return super().excused(code, reason)
        assert self.nodes, f"no node is known, and {reason}"
        return code in (None, Code.WAITING_FOR_QUOTA)


NODE = st.sampled_from(["n0", "n1", "n2"])


class NodeActions(RuleBasedStateMachine):
    """Nodes come, fail, return, are cordoned, and go."""

    def __init__(self, cluster: ClusterOnNodes) -> None:
        super().__init__()
        self.cluster = cluster

    @rule(
        name=NODE,
        zone=st.sampled_from(["a", "b"]),
        gpus=st.sampled_from([0, 2, 4, 50]),
        tainted=st.sampled_from([False, False, True]),
        ready=st.sampled_from([True, True, False]),
    )
    def add_node(self, name: str, zone: str, gpus: int, tainted: bool, ready: bool) -> None:
        """Add a node, or another one of the same name."""
        there = amounts({GPU: gpus, "cpu": 4, "pods": 4})
        created = self.cluster.now - timedelta(days=1)
        taints = (Taint("spot", "yes", "NoSchedule"),) if tainted else ()
        node = Node(name, (("zone", zone),), there, ready=ready, created_at=created, taints=taints)
        self.cluster.set_node(node)

    @rule(name=NODE, what=st.sampled_from(["fail", "return", "cordon", "open", "remove"]))
    def change_node(self, name: str, what: str) -> None:
        cluster = self.cluster
        node = cluster.nodes.get(name)
        if node is None or what == "remove":
            cluster.remove_node(name)
        elif what in ("cordon", "open"):
            cluster.set_node(replace(node, cordoned=what == "cordon"))
        elif node.ready is not (what == "return"):
            cluster.set_node(replace(node, ready=what == "return", ready_since=cluster.now))
