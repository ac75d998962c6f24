"""What the pods that are bound to each node take there, by who uses it: workloads, or unmanaged pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from queuectl.core.model.pods import Pod

Use = tuple[str | None, str]
"""Namespace of unmanaged pods, or None for pods of workloads; and a resource."""
NOTHING: Final[Mapping[Use, int]] = {}


class NodeUsage:
    """All resources that pods request, whether nodes limit them or not. A pod costs as many steps as it has
    resources; what is used on all nodes is summed by the reader."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, dict[Use, int]] = {}
        self.changed = False
        """Its reader resets it."""
        self.untold: dict[str, None] = {}
        """Names of nodes that changed, or the pods on them, since readers were told of them (nodes/facts)."""
        self.told = False
        """Readers were told of any."""

    def of(self, node: str) -> Mapping[Use, int]:
        """Return amounts in base units, by who uses them."""
        return self._of_nodes.get(node, NOTHING)

    def count(self, pod: Pod, times: int) -> None:
        """Add what a pod requests; `times` is -1 to take it away."""
        if pod.node is None:
            return
        self.changed = True
        self.untold[pod.node] = None
        used = self._of_nodes.setdefault(pod.node, {})
        namespace = None if pod.workload is not None else pod.namespace
        for resource, amount in pod.requests:
            key = (namespace, resource)
            left = used.get(key, 0) + amount * times
            if left:
                used[key] = left
            else:
                used.pop(key, None)
        if not used:
            del self._of_nodes[pod.node]
