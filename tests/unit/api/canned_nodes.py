"""Nodes as the controller tells readers of them."""

from __future__ import annotations

from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.policy import Node, Taint
from tests.unit.api.canned import GPU, CannedReadings


def with_nodes(readings: CannedReadings) -> CannedReadings:
    """Add nodes of 8 GPUs: one that is used, one cordoned, one tainted; and the pods of one that is lost."""
    large, small = (readings.stored(name) for name in ("large", "small"))
    there = ((GPU, 8), ("cpu", 8000), ("pods", 110))
    pods = (
        PodsOnNode(large.ref.namespace, large.id, ((GPU, 2), ("cpu", 500)), 2),
        PodsOnNode(small.ref.namespace, small.id, ((GPU, 1),), 1, terminating=True),
        PodsOnNode("default", "over", ((GPU, 1),), 1),
        PodsOnNode("default", None, ((GPU, 1), ("cpu", 1000))),
    )
    readings.node(NodeFacts(name="gpu-1", node=Node("gpu-1", allocatable=there), pods=pods))
    readings.node(NodeFacts(name="gpu-2", node=Node("gpu-2", allocatable=there, cordoned=True)))
    taint = Taint("team", "x", "NoSchedule")
    readings.node(NodeFacts(name="gpu-3", node=Node("gpu-3", allocatable=there, taints=(taint,))))
    readings.node(NodeFacts(name="gpu-4", node=None, pods=pods[:1]))
    return readings
