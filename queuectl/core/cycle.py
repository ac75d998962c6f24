"""Admission cycles as a pure function: who goes, who stays and why (docs/scheduling.md, C1 to C5)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from queuectl.core.flavors import Assigned
from queuectl.core.ordering import Order
from queuectl.core.pending import Entry, Group, Line
from queuectl.core.reasons import Reason

Nominate = Callable[[Entry], Assigned | Reason]
"""Which flavors, or why none, given what is charged right now."""

Charge = Callable[[Entry, Assigned], None]


@dataclass(slots=True)
class Schedule:
    """Outcome of the cycles of one decision."""

    admitted: list[tuple[Entry, Assigned]] = field(default_factory=list)
    refused: dict[Group, tuple[Entry, Reason]] = field(default_factory=dict)
    """Head and finding of each group that was looked at in vain."""
    work: int = 0
    more: bool = False


class _Cursor:
    """One line's way through its groups. Takes entries off the heaps and can put all of them back."""

    __slots__ = ("_heads", "_line", "_taken")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._heads: list[tuple[Order, Group]] = []
        self._taken: list[tuple[Group, tuple[Order, Entry]]] = []
        for group in line.groups.values():
            self._push(group)

    def _push(self, group: Group) -> None:
        if group.parked is None and (entry := group.head()) is not None:
            heapq.heappush(self._heads, (entry.order, group))

    def peek(self) -> Order | None:
        return self._heads[0][0] if self._heads else None

    def head(self) -> tuple[Group, Entry]:
        _, group = self._heads[0]
        entry = group.head()
        assert entry is not None
        return group, entry

    def take(self) -> None:
        """The head is admitted: the next of its group stands for it."""
        _, group = heapq.heappop(self._heads)
        self._taken.append((group, heapq.heappop(group.heap)))
        self._push(group)

    def park(self) -> None:
        """The head stays, and its group with it; under StrictFIFO that is the whole line."""
        heapq.heappop(self._heads)

    def put_back(self) -> None:
        for group, item in self._taken:
            heapq.heappush(group.heap, item)


def schedule(lines: Iterable[Line], nominate: Nominate, charge: Charge, budget: int) -> Schedule:
    """Run cycles until nobody else fits or `budget` workloads have been looked at.

    1. The first head of every line competes (C1).
    2. The one first in order is nominated: flavors are assigned, or a reason is found (C2).
    3. If it fits it is charged, and the next of its line competes (C3).
    4. If not, its group is set aside; the line goes on with its next group (BestEffortFIFO) or
       ends (StrictFIFO) (C4).
    5. The heaps are left as they were: what came out is applied when it is committed (C5).
    """
    outcome = Schedule()
    cursors = [_Cursor(line) for line in lines]
    heads = [(order, number) for number, c in enumerate(cursors) if (order := c.peek()) is not None]
    heapq.heapify(heads)
    while heads:
        if outcome.work >= budget:
            outcome.more = True
            break
        _, number = heapq.heappop(heads)
        cursor = cursors[number]
        group, entry = cursor.head()
        outcome.work += 1
        found = nominate(entry)
        if isinstance(found, Reason):
            outcome.refused[group] = (entry, found)
            cursor.park()
        else:
            charge(entry, found)
            outcome.admitted.append((entry, found))
            cursor.take()
        if (order := cursor.peek()) is not None:
            heapq.heappush(heads, (order, number))
    for cursor in cursors:
        cursor.put_back()
    return outcome


def tell(line: Line, outcome: Schedule, leaving: frozenset[str]) -> Iterator[tuple[Entry, Reason]]:
    """Who of a line is to be told why it waits, the head of each group first (R2).

    `leaving` are those that the same plan admits.
    """
    for group in line.groups.values():
        head, reason = outcome.refused.get(group, (None, group.parked))
        if reason is None:
            continue
        if head is not None:
            yield head, reason
        told = line.behind() if line.strict else reason
        others = group.fresh if group.reported == told.key else group.members
        for entry in sorted(others.values(), key=lambda entry: entry.order):
            if entry is not head and entry.id not in leaving:
                yield entry, told
