"""One line's way through its groups while cycles run. Takes entries off the heaps and puts them back (C5)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from queuectl.core.entries import Entry, EquivalenceGroup, Place
from queuectl.core.flavors.queue_flavors import LastTriedFlavors
from queuectl.core.model import WorkloadId
from queuectl.core.policy import LocalQueueName
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import QuotaTree

UsageOf = Callable[[LocalQueueName], Any]
"""Past usage of a LocalQueue as the plan under way has it; comparable."""

Heads = list[tuple[Place, EquivalenceGroup]]


class QueueHeads:
    __slots__ = (
        "_gone",
        "_lanes",
        "_taken",
        "_usage_of",
        "blocked",
        "first",
        "line",
        "passive",
        "tried",
    )

    def __init__(
        self, line: PendingQueue, groups: Iterable[EquivalenceGroup], usage_of: UsageOf | None = None
    ) -> None:
        self.line = line
        self.first: Entry | None = line.preemptor
        """Comes before all others (C7)."""
        self.blocked = line.blocked
        """Nobody more is looked at in this plan."""
        self.passive = False
        """Its head is known not to fit, and looked at only for what it holds back (C6)."""
        self.tried: dict[WorkloadId, LastTriedFlavors] = {}
        self._usage_of = usage_of if line.by_usage else None
        self._lanes: dict[LocalQueueName | None, Heads] = {}
        self._taken: list[tuple[EquivalenceGroup, tuple[Place, int, Entry]]] = []
        self._gone: set[WorkloadId] = set()
        for group in groups:
            self._push(group)

    def _push(self, group: EquivalenceGroup) -> None:
        head = group.head()
        while head is not None and head.id in self._gone:
            self._taken.append((group, heapq.heappop(group.heap)))
            head = group.head()
        if head is not None:
            lane = head.local_queue if self._usage_of is not None else None
            heapq.heappush(self._lanes.setdefault(lane, []), (head.order, group))

    def advance(self, tree: QuotaTree) -> Entry | None:
        """Who is looked at next, without those that were parked and lack what they lacked then (W1)."""
        line, node = self.line, tree.queue(self.line.name)
        while not self.blocked and self.first is None and (heads := self._heads()):
            group = heads[0][1]
            if line.may_fit(group, tree, node):
                break
            heapq.heappop(heads)
        return self.peek()

    def peek(self) -> Entry | None:
        """Who is looked at next, in the order of O1 to O4; None: nobody."""
        if self.blocked:
            return None
        if self.first is not None:
            return self.first
        heads = self._heads()
        return heads[0][1].head() if heads else None

    def _heads(self) -> Heads:
        lanes = self._lanes
        if self._usage_of is None:
            return lanes.get(None, [])
        waiting = [name for name, heads in lanes.items() if heads and name is not None]
        if not waiting:
            return []
        usage_of = self._usage_of
        return lanes[min(waiting, key=lambda name: (usage_of(name), lanes[name][0][0]))]

    def take(self) -> None:
        """Who was peeked at is let go: the next of its group stands for it."""
        if self.first is not None:
            self._gone.add(self.first.id)
            group, self.first = self.first.group, None
            if group is not None:
                self._forget(group)
                self._push(group)
            return
        heads = self._heads()
        _, group = heapq.heappop(heads)
        self._taken.append((group, heapq.heappop(group.heap)))
        self._push(group)

    def _forget(self, group: EquivalenceGroup) -> None:
        for heads in self._lanes.values():
            kept = [item for item in heads if item[1] is not group]
            if len(kept) != len(heads):
                heads[:] = kept
                heapq.heapify(heads)

    def park(self) -> None:
        """Who was peeked at stays, and its group with it; under StrictFIFO nobody else is looked at."""
        if self.first is not None:
            entry, self.first = self.first, None
            if entry.group is not None and entry.group.head() is entry:
                self._forget(entry.group)
        else:
            heapq.heappop(self._heads())
        if self.line.strict:
            self.blocked = True

    def put_back(self) -> None:
        for group, item in self._taken:
            heapq.heappush(group.heap, item)
