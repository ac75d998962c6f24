"""Whom freed quota can help: parked groups by what they lack (docs/scheduling.md, W1 to W4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from queuectl.core.model import ClusterQueue
from queuectl.core.pending import Entry, Group, Line
from queuectl.core.quota import Node, QuotaTree
from queuectl.core.resources import FlavorResource
from queuectl.core.rules import Within

Freed = dict[Node, set[FlavorResource]]
"""What came free, by the ClusterQueue that gave it back."""


def helped(tree: QuotaTree, lines: Mapping[str, Line], freed: Freed) -> dict[Group, None]:
    """Parked groups that might fit now, or find victims now; the state is left as it is (W1, W3)."""
    found: dict[Group, None] = {}
    roots: Freed = {}
    for node, cells in freed.items():
        roots.setdefault(tree.root(node), set()).update(cells)
    for root, cells in roots.items():
        for line in lines_below(root, lines):
            found |= line.contending
            if line.shelves:
                found |= _helped(tree, line, cells)
    return found


def prune(tree: QuotaTree, line: Line) -> None:
    """Whom others were faster than is not looked at (W1)."""
    node = tree.queue(line.name)
    for group in list(line.woken):
        if not line.may_fit(group, lambda name: tree.available(node, tree.cell(name))):
            del line.woken[group]


def _helped(tree: QuotaTree, line: Line, cells: set[FlavorResource]) -> dict[Group, None]:
    found: dict[Group, None] = {}
    node = tree.queue(line.name)
    for name in cells & line.shelves.keys():
        available = tree.available(node, tree.cell(name))
        for group, amount in line.shelves[name].items():
            if amount <= available:
                found[group] = None
    return found


def lines_below(root: Node, lines: Mapping[str, Line]) -> Iterator[Line]:
    """Of all ClusterQueues of a tree."""
    todo = [root]
    while todo:
        at = todo.pop()
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        elif (line := lines.get(at.name)) is not None:
            yield line


def tempted(
    tree: QuotaTree,
    lines: Mapping[str, Line],
    queues: Mapping[str, ClusterQueue],
    charged: Iterable[Entry],
    fair: Callable[[Node], bool],
) -> dict[Group, None]:
    """Parked groups that might preempt one of those that have come to hold quota, or for whom it changed who
    borrows (W3). `fair`: does the tree of a queue share fairly? There any charge may move a share."""
    found: dict[Group, None] = {}
    roots: dict[Node, None] = {}
    for entry in charged:
        if entry.attempt is None:
            continue
        node = tree.queue(entry.attempt.assignment.cluster_queue)
        line = lines.get(node.name)
        if line is not None and line.contending:
            found |= _above(line, entry)
        if node.parent is not None and (fair(node) or _borrows(node, entry)):
            roots[tree.root(node)] = None
    for root in roots:
        for line in lines_below(root, lines):
            queue = queues.get(line.name)
            if queue is not None and queue.preemption.reclaim_within_cohort is not Within.NEVER:
                found |= line.contending
    return found


def _borrows(queue: Node, entry: Entry) -> bool:
    """Does any node on the way up use more than is its own of what `entry` holds?"""
    return any(node.borrows(cell) for node in queue.path() for cell, _ in entry.cells)


def _above(line: Line, entry: Entry) -> dict[Group, None]:
    """Groups of the same queue whose head comes before `entry` in priority, or is older."""
    found: dict[Group, None] = {}
    for group in line.contending:
        head = group.head()
        if head is not None and head.order[:2] < entry.order[:2]:
            found[group] = None
    return found
