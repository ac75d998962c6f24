"""The heads of one pending queue while admission cycles run. Its heaps are restored afterwards (C5)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping

from queuectl.core.cycle.nomination import Nomination
from queuectl.core.entries import Entry, EquivalenceGroup
from queuectl.core.flavors.queue_flavors import LastTriedFlavors
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.workload import Place, WorkloadId
from queuectl.core.past_usage import PlannedUsage, Turn, UsageValue
from queuectl.core.queues.chances import Chances
from queuectl.core.queues.pending import PendingQueue
from queuectl.core.quota.tree import Cells, QuotaNode

Groups = list[tuple[Place, EquivalenceGroup]]
"""A heap of groups, by the places of their heads."""


class QueueHeads:
    """A contender of the tournament (S4) by the nomination of its head."""

    nomination: Nomination
    """That of its head in this cycle."""

    def __init__(
        self,
        entries: Mapping[WorkloadId, Entry],
        chances: Chances,
        usage: PlannedUsage | None,
        queue: PendingQueue,
        groups: Iterable[EquivalenceGroup],
        *,
        waits: bool = False,
    ) -> None:
        """`waits`: its preemptor waits for victims."""
        self.queue = queue
        self._chances = chances
        claim = queue.claim
        self.preemptor = preemptor = entries[claim.owner] if claim is not None else None
        """Comes before all others (C7)."""
        self.blocked = waits and queue.strict
        """No other head is nominated in this plan."""
        self.beside = waits and not queue.strict
        """The preemptor waits for victims: other heads are admitted beside its claim, and do not preempt."""
        self.reserving_only = False
        """Its head is known not to fit, and is nominated only for what it reserves (C6)."""
        self.last_tried: dict[WorkloadId, LastTriedFlavors] = {}
        self._usage = usage if queue.usage_based else None
        self._by_turn: dict[Turn | None, Groups] = {}
        """One heap, or one for each LocalQueue or user where those are ordered by past usage (U1, U6)."""
        self._users: dict[LocalQueueName, list[tuple[tuple[UsageValue, ...], Place, Turn]]] = {}
        """By LocalQueue a heap of its users, each no later than its usage and its first head say."""
        self._taken: list[tuple[EquivalenceGroup, tuple[Place, int, Entry]]] = []
        self._admitted: set[WorkloadId] = set()
        self.refused: list[EquivalenceGroup] = []
        """Groups that an earlier process refused (C12)."""
        for group in groups:
            if self.beside and preemptor is not None and preemptor.group is group:
                continue  # what is alike does not fit either
            self._push(group)
            if group.refused:
                self.refused.append(group)

    @property
    def node(self) -> QuotaNode:
        return self.nomination.flavors.node

    @property
    def cells(self) -> Cells:
        return self.nomination.found.cells

    @property
    def order(self) -> Place:
        return self.nomination.entry.order

    @property
    def preempted(self) -> bool:
        """Whether the head has preempted before: it comes first (C7)."""
        return self.preemptor is self.nomination.entry

    def _push(self, group: EquivalenceGroup) -> None:
        head = group.head()
        while head is not None and head.id in self._admitted:
            self._taken.append((group, heapq.heappop(group.heap)))
            head = group.head()
        if head is not None:
            turn = self.queue.turn(head) if self._usage is not None else None
            groups = self._by_turn.setdefault(turn, [])
            heapq.heappush(groups, (head.order, group))
            if turn is not None and groups[0][1] is group:
                heapq.heappush(self._users.setdefault(turn.local_queue, []), ((), head.order, turn))

    def advance(self) -> Entry | None:
        """Skip inadmissible groups for which too little is available now (W1, W7). Returns the head."""
        while not self.blocked and self._first is None and (groups := self._groups()):
            group = groups[0][1]
            if group.inadmissible is None or self._chances.has(self.queue, group):
                break
            heapq.heappop(groups)
        return self.head()

    @property
    def _first(self) -> Entry | None:
        """The preemptor, unless it waits for victims."""
        return None if self.beside else self.preemptor

    def head(self) -> Entry | None:
        """Return the entry to be nominated next, in the order of O1 to O4; None: there is none."""
        if self.blocked:
            return None
        if self._first is not None:
            return self._first
        groups = self._groups()
        return groups[0][1].head() if groups else None

    def _groups(self) -> Groups:
        turns, usage = self._by_turn, self._usage
        if usage is None:
            return turns.get(None, [])
        first = [turn for users in self._users.values() if (turn := self._first_of(users, usage)) is not None]
        if not first:
            return []
        return turns[min(first, key=lambda turn: (usage.of_turn(turn)[0], turns[turn][0][0]))]

    def _first_of(
        self, users: list[tuple[tuple[UsageValue, ...], Place, Turn]], usage: PlannedUsage
    ) -> Turn | None:
        """Return whose head is the first in its LocalQueue.

        A tenant acts as many users. An admission makes its user later: that is seen when it is the first.
        """
        while users:
            turn = users[0][-1]
            if groups := self._by_turn[turn]:
                place = usage.of_turn(turn)[1:], groups[0][0], turn
                if place == users[0]:
                    return turn
                heapq.heapreplace(users, place)
            else:
                heapq.heappop(users)
        return None

    def drop(self, dropped: Collection[EquivalenceGroup]) -> None:
        """Nominate no head of these groups."""
        for groups in self._by_turn.values():
            kept = [item for item in groups if item[1] not in dropped]
            if len(kept) != len(groups):
                groups[:] = kept
                heapq.heapify(groups)

    def admit(self) -> None:
        """The head is admitted: the next of its group takes its place."""
        if self._first is not None:
            self._admitted.add(self._first.id)
            group, self.preemptor = self._first.group, None
            if group is not None:
                self.drop((group,))
                self._push(group)
            return
        _, group = heapq.heappop(self._groups())
        self._taken.append((group, heapq.heappop(group.heap)))
        self._push(group)

    def preempt(self) -> None:
        """The head preempts, and waits for its victims from now on."""
        entry = self.head()
        assert entry is not None
        self.admit()
        self.preemptor, self.blocked, self.beside = entry, self.queue.strict, not self.queue.strict
        if entry.group is not None:
            self.drop((entry.group,))

    def mark_inadmissible(self) -> None:
        """The head stays, and its group with it. Under StrictFIFO no other head is nominated."""
        if self._first is not None:
            entry, self.preemptor = self._first, None
            if entry.group is not None and entry.group.head() is entry:
                self.drop((entry.group,))
        else:
            heapq.heappop(self._groups())
        if self.queue.strict:
            self.blocked = True

    def put_back(self) -> None:
        """Restore the heaps of the groups."""
        for group, item in self._taken:
            heapq.heappush(group.heap, item)
