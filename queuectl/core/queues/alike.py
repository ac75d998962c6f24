"""Inadmissible groups that quota helps at the same moment, in lanes: the first stands for all (W5).

Two groups are alike if they lack the same, would get the same flavors in the same order, and their queues
have one parent and count the same in what is available (Q4) and in the borrow level (Q9). While nothing is
charged or released at these queues themselves, what fits one fits the other, at the same borrow level. The
groups before them in their queues are alike as well: either both are the heads of their queues, or none is.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Final, NamedTuple

from queuectl.core.directory import Directory
from queuectl.core.entries import EquivalenceGroup
from queuectl.core.flavors.fast_path import fast_path
from queuectl.core.model import Place
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from queuectl.core.resources import FlavorResource

MOST_GROUPS: Final = 64
"""Pending queues with more groups stand apart: to follow their changes would cost more than it saves."""


Key = tuple[Hashable, ...]


class Lane:
    """Groups that are alike, in the order of their heads."""

    __slots__ = ("key", "members", "missing")

    def __init__(self, key: Key, missing: tuple[tuple[FlavorResource, int], ...]) -> None:
        self.key = key
        """What they share, with the lane of the groups before them."""
        self.missing = missing
        self.members: list[tuple[Place, EquivalenceGroup]] = []


class Member(NamedTuple):
    """A group in a lane, with its place at the time."""

    lane: Lane
    place: Place
    group: EquivalenceGroup


class AlikeGroups:
    """The lanes of each tree, and the pending queues that stand apart: those are looked at one by one.

    `touch` tells of a change, `update` follows it. In between, what is kept of a queue may be out of date.
    """

    def __init__(self, directory: Directory, pending: Mapping[str, PendingQueue]) -> None:
        self._directory = directory
        self._pending = pending
        self._version = -1
        """Of the quota tree at the last update."""
        self.touched: set[str] = set()
        """Names of queues of which groups, usage or anything else changed since the last update."""
        self._lanes: dict[QuotaNode, dict[Key, Lane]] = {}
        self._apart: dict[QuotaNode, set[str]] = {}
        self._where: dict[str, tuple[QuotaNode, list[Member]]] = {}
        """By queue: its root, and its groups in lanes."""

    @property
    def outdated(self) -> bool:
        """Whether quota or the shape of a tree changed since the last update."""
        return self._version != self._directory.tree.version

    def lanes(self, root: QuotaNode) -> Collection[Lane]:
        return self._lanes.get(root, {}).values()

    def apart(self, root: QuotaNode) -> Set[str]:
        return self._apart.get(root, set())

    def members(self, name: str) -> Sequence[Member]:
        """Return the groups of a queue that are in lanes."""
        return self._where[name][1]

    def update(self, but: Iterable[str] = ()) -> None:
        """Follow all changes, except for the queues `but`, which stay touched."""
        tree = self._directory.tree
        if self.outdated:
            self._version = tree.version
            self._lanes, self._apart, self._where = {}, {}, {}
            self.touched.update(self._pending)
        later = self.touched.intersection(but)
        for name in self.touched - later:
            self._forget(name)
            if (queue := self._pending.get(name)) is not None and queue.groups:
                self._keep(queue, tree)
        self.touched.intersection_update(later)

    def _forget(self, name: str) -> None:
        if name not in self._where:
            return
        root, members = self._where.pop(name)
        self._apart.get(root, set()).discard(name)
        lanes = self._lanes.get(root, {})
        for lane, place, _ in members:
            del lane.members[bisect_left(lane.members, place, key=itemgetter(0))]
            if not lane.members:
                del lanes[lane.key]

    def _keep(self, queue: PendingQueue, tree: QuotaTree) -> None:
        node = tree.queue(queue.name)
        root = tree.root(node)
        lanes, members = self._lanes.setdefault(root, {}), list[Member]()
        shared = self._shared(queue, tree, node)
        if shared is None:
            self._apart.setdefault(root, set()).add(queue.name)
        before: Lane | None = None
        for place, group, what in sorted(shared or ()):
            key = (before, what)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(key, group.missing)
            insort(lane.members, (place, group))
            members.append(Member(lane, place, group))
            before = lane
        self._where[queue.name] = root, members

    def _shared(
        self, queue: PendingQueue, tree: QuotaTree, node: QuotaNode
    ) -> list[tuple[Place, EquivalenceGroup, Hashable]] | None:
        """Return the groups that may be in lanes, with what all of a lane share; None: it stands apart."""
        several = queue.strict or queue.usage_based or len(queue.groups) > MOST_GROUPS
        if several or queue.may_preempt or node.parent is None or queue.name not in self._directory.queues:
            return None
        flavors = self._directory.queue_flavors(queue.name)
        if flavors.waits:
            return None
        found: list[tuple[Place, EquivalenceGroup, Hashable]] = []
        for group in queue.groups.values():
            if group.inadmissible is None or not group.missing:
                continue
            head = group.head()
            path = fast_path(flavors, group.shape)
            if head is None or head.last_tried or path is None or path.charge.pod_set.min_count is not None:
                return None
            cells = [item for choices in path.offers for choice in choices for item in choice]
            cells += [(tree.cells[name], amount) for name, amount in group.missing]
            shared = (node.parent, flavors.fungibility, path.offers, group.missing, _own_part(node, cells))
            found.append((head.order, group, shared))
        return found


def _own_part(node: QuotaNode, cells: Cells) -> Hashable:
    """Return what a ClusterQueue itself contributes to Q4 and Q9 for `cells`."""
    found = []
    for cell, amount in cells:
        private, usage, limit = node.private[cell], node.usage[cell], node.borrowing[cell]
        bound = None if limit is None else node.subtree[cell] - private - max(0, usage - private) + limit
        found.append((node.private_free(cell), bound, node.borrows(cell, amount)))
    return tuple(found)
