"""What readers are told of each node: the node, and the pods that are bound to it. It decides nothing."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from queuectl.core.model.policy import Node
from queuectl.core.model.resources import Amounts
from queuectl.core.model.values import value


class PodsOnNode(NamedTuple):
    """Pods on one node that no decision tells apart."""

    namespace: str
    workload: str | None
    """Id of the workload that they belong to; None: they are unmanaged."""
    requests: Amounts
    """Of each of them; of unmanaged pods, those of their namespace together."""
    pods: int = 1
    """How many; of unmanaged pods always 1."""
    terminating: bool = False
    """They are being deleted."""


@value(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node as the controller knew it when it told of it."""

    name: str
    node: Node | None
    """None: there is no such Node, or not any more."""
    pods: tuple[PodsOnNode, ...] = ()
    """Sorted."""
    avoided_until: datetime | None = None
    """Until when it does not count (M14); None: it is not avoided."""

    @property
    def gone(self) -> bool:
        """Whether there is neither a Node of that name nor a pod on it."""
        return self.node is None and not self.pods
