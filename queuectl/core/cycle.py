"""Admission cycles as a pure function: who goes, who stays and why (docs/scheduling.md, C1 to C5)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from queuectl.core.flavors import Assigned
from queuectl.core.ordering import Place
from queuectl.core.pending import Entry, Group, Line
from queuectl.core.reasons import Reason
from queuectl.core.resources import FlavorResource

Nominate = Callable[[Entry], Assigned | Reason]
"""Which flavors, or why none, given what is charged right now."""

Charge = Callable[[Entry, Assigned], None]


@dataclass(slots=True)
class Schedule:
    """Outcome of the cycles of one decision."""

    admitted: list[tuple[Entry, Assigned]] = field(default_factory=list)
    refused: dict[Group, tuple[Entry, Reason]] = field(default_factory=dict)
    """Head and finding of each group that was looked at in vain."""
    woken: set[Group] = field(default_factory=set)
    """Groups that are parked still, but will not be once the plan is applied."""
    work: int = 0
    more: bool = False


class _Cursor:
    """One line's way through its groups. Takes entries off the heaps and can put all of them back."""

    __slots__ = ("_heads", "_taken")

    def __init__(self, groups: Iterable[Group]) -> None:
        self._heads: list[tuple[Place, Group]] = []
        self._taken: list[tuple[Group, tuple[Place, int, Entry]]] = []
        for group in groups:
            self._push(group)

    def _push(self, group: Group) -> None:
        if (entry := group.head()) is not None:
            heapq.heappush(self._heads, (entry.order, group))

    def peek(self) -> Place | None:
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


def schedule(
    lines: Iterable[Line],
    freed: Mapping[str, Set[FlavorResource]],
    nominate: Nominate,
    charge: Charge,
    budget: int,
) -> Schedule:
    """Run cycles until nobody else fits or `budget` workloads have been looked at.

    `freed`: by ClusterQueue, what comes free with the same plan; those parked for it are looked at too.

    1. The first head of every line competes (C1).
    2. The one first in order is nominated: flavors are assigned, or a reason is found (C2).
    3. If it fits it is charged, and the next of its line competes (C3).
    4. If not, its group is set aside; the line goes on with its next group (BestEffortFIFO) or
       ends (StrictFIFO) (C4).
    5. The heaps are left as they were: what came out is applied when it is committed (C5).
    """
    outcome = Schedule()
    cursors = []
    for line in lines:
        woken = line.lacking(freed.get(line.name, ()))
        outcome.woken |= woken.keys()
        cursors.append(_Cursor((*line.awake, *woken)))
    heads = [(place, number) for number, c in enumerate(cursors) if (place := c.peek()) is not None]
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
        if (place := cursor.peek()) is not None:
            heapq.heappush(heads, (place, number))
    for cursor in cursors:
        cursor.put_back()
    return outcome


def tell(lines: Iterable[Line], outcome: Schedule) -> Iterator[tuple[Entry, Reason]]:
    """Who else than the heads that were refused is to be told why it waits, group by group in order (R2)."""
    leaving = {entry.id for entry, _ in outcome.admitted}
    groups = dict.fromkeys(outcome.refused)
    for line in lines:
        groups |= line.untold
    for group in groups:
        head, reason = outcome.refused.get(group, (None, None if group in outcome.woken else group.parked))
        if reason is None:
            continue  # it will be looked at
        told = group.line.behind() if group.line.strict else reason
        for entry in _untold(group, told):
            if entry is not head and entry.id not in leaving:
                yield entry, told


def _untold(group: Group, told: Reason) -> Collection[Entry]:
    if group.reported == told.key:
        return group.fresh.values()
    return sorted(group.members.values(), key=lambda entry: entry.order)
