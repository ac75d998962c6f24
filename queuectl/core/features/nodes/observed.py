"""What is observed of nodes and their pods."""

from __future__ import annotations

from queuectl.core.feature import Feature, Kernel
from queuectl.core.features.nodes.expected import Predictions
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Node


class Nodes(Feature):
    def __init__(self, kernel: Kernel, room: NodeRoom, predictions: Predictions) -> None:
        self._kernel = kernel
        self._room = room
        self._predictions = predictions

    def observe_node(self, node: Node) -> bool:
        return self._room.observe(node, self._kernel.clock)

    def forget_node(self, name: str) -> bool:
        return self._room.forget(name, self._kernel.clock)

    def observe_pod(self, pod: Pod) -> None:
        self._predictions.observe(pod)
        self._room.observe_pod(pod, self._kernel.clock)

    def forget_pod(self, uid: str) -> None:
        self._room.forget_pod(uid)
