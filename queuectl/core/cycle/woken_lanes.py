"""Requeued groups that are alike, while cycles run: of each lane the first is nominated at first (W5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set

from queuectl.core.cycle.queue_heads import QueueHeads
from queuectl.core.entries import EquivalenceGroup
from queuectl.core.queues.alike import Lane
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.pending import PendingQueue

Followers = Iterator[QueueHeads]
"""The heads of one lane that may be nominated in this cycle, in order."""


class WokenLanes:
    """The requeued lanes of one tree, but for the queues that are looked at one by one."""

    def __init__(
        self,
        chances: Chances,
        pending: Mapping[str, PendingQueue],
        lanes: Collection[Lane],
        single: Set[str],
        heads_of: Callable[[str], QueueHeads],
    ) -> None:
        """`single`: names of the queues that are looked at one by one. `heads_of`: of the others, by name."""
        self._chances = chances
        self._pending = pending
        self._lanes = lanes
        self._single = set(single)
        self._heads_of = heads_of

    @property
    def fit(self) -> bool:
        """Whether anything is available for one of them."""
        return any(next(self._members(lane), None) is not None for lane in self._lanes)

    def start(self) -> Iterator[Followers]:
        """Start a cycle."""
        return (self._followers(lane) for lane in self._lanes)

    def take(self, heads: QueueHeads) -> None:
        """From now on the queue of `heads` is looked at by itself."""
        self._single.add(heads.queue.name)

    def all(self) -> Iterator[QueueHeads]:
        """Yield the heads of all their queues."""
        names = {group.cluster_queue for lane in self._lanes for _, group in lane.members}
        for name in sorted(names - self._single):
            heads = self._heads_of(name)
            if heads.advance() is not None:
                yield heads

    def _members(self, lane: Lane) -> Iterator[EquivalenceGroup]:
        """Yield the groups of a lane, if anything is available for the first, and so for all."""
        for _, group in lane.members:
            name = group.cluster_queue
            if name not in self._single:
                if not self._chances.has(self._pending[name], group):
                    return
                yield group

    def _followers(self, lane: Lane) -> Followers:
        for group in self._members(lane):
            heads = self._heads_of(group.cluster_queue)
            if heads.advance() is not group.head():
                return  # the heads of these queues are in another lane
            yield heads
