"""The two sides of a preemption between queues, and how it changes their shares: recorded for readers."""

from __future__ import annotations

from typing import NamedTuple

from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import QuotaNode, QuotaTree


class ShareChange(NamedTuple):
    """The dominant share of a node in thousandths, rounded up; None: infinite (S3)."""

    node: str
    """Such as `ClusterQueue/team-a`."""
    before: int | None
    """Without the preemptor, and with its victims."""
    after: int | None
    """With the preemptor, and without its victims."""


class EvictionShares(NamedTuple):
    """The children of the nearest common ancestor, which a strategy compares (P8)."""

    preemptor: ShareChange
    victim: ShareChange


def sides(one: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode] | None:
    """Return the children of the nearest common ancestor, that of `one` first; None for one queue."""
    above = {node.parent: node for node in one.path()}
    for node in other.path():
        if node.parent is not None and node.parent in above:
            return None if above[node.parent] is node else (above[node.parent], node)
    return None


def reported_share(tree: QuotaTree, node: QuotaNode) -> int | None:
    """Return the share as in ShareMove."""
    return dominant_share(tree, node).reported
