"""The fair amount of a ClusterQueue, by weight (docs/answers.md, A6). Pure."""

from __future__ import annotations

from collections.abc import Callable

from queuectl.core.quota.tree import QuotaNode


def fair_amount(queue: QuotaNode, cell: int, waits: Callable[[str], bool]) -> int:
    """In base units. `waits`: whether a ClusterQueue has pending workloads. The queue has a cohort."""
    cohort = queue.parent
    assert cohort is not None
    divided, weights = cohort.nominal[cell], 0
    for child in cohort.children.values():
        if child is queue or child.borrows(cell) or any(waits(one.name) for one in child.queues()):
            weights += child.weight
        else:
            kept = max(child.usage[cell], child.private[cell])
            divided += max(0, child.subtree[cell] - kept)
    more = divided * queue.weight // weights if weights else 0
    limit = queue.borrowing[cell]
    return queue.subtree[cell] + (more if limit is None else min(more, limit))
