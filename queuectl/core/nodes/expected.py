"""Pods of workloads that hold quota, and are not bound yet: the nodes where they are expected (M7).

Their places follow from what is known alone, so that they do not depend on the order of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.binding import not_bound
from queuectl.core.nodes.bound import BoundPods
from queuectl.core.nodes.inventory import Inventory
from queuectl.core.nodes.matching import Match, Matcher
from queuectl.core.nodes.placing import Spots, expect_all, place, put_back, take_away
from queuectl.core.nodes.pods import PodGroup, Pods, PodShape

NOTHING: Final[Mapping[WorkloadId, Pods]] = MappingProxyType({})


class Holder(NamedTuple):
    """A workload with an open attempt, and the pods that it may have."""

    sequence: int
    """Of its admission: holders are in this order."""
    pods: Pods


_Wanted = tuple[Match, PodShape, int]
"""How many pods of a shape are to be expected."""


class ExpectedPods:
    def __init__(self, inventory: Inventory, matcher: Matcher, bound: BoundPods) -> None:
        self._inventory = inventory
        self._matcher = matcher
        self._bound = bound
        self.holders: dict[WorkloadId, Holder] = {}
        self.waiting: dict[WorkloadId, Pods] = {}
        """Holders with pods that are not bound yet, and how many."""
        self._wanted: Counter[PodShape] = Counter()
        """All of these together."""
        self._order: list[tuple[PodShape, int]] = []
        """The same, in the order in which they were placed."""
        self._all_fit = False
        """Whether all of these found a node where the scheduler would spread them."""
        self._version = self._inventory.version
        """Of the inventory at that time."""
        self._spots: dict[PodShape, Spots] = {}
        self.missing = 0
        """How many of them, and of those that are tried, find no node."""
        self._spots_with_all: dict[PodShape, Spots] | None = None
        """What is expected with all holders; None: that is what is expected now."""

    def __iter__(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield for each pod the name of its node, and what it takes there."""
        return (spot for spots in self._spots.values() for spot in spots)

    # --- what is not bound

    def update(self, owner: WorkloadId) -> bool:
        """Return whether the pods of `owner` that are not bound changed."""
        holder = self.holders.get(owner)
        found = self._not_bound(owner, holder.pods) if holder is not None else ()
        if self.waiting.get(owner, ()) == found:
            return False
        _add(self._wanted, self.waiting.pop(owner, ()), -1)
        if found:
            self.waiting[owner] = found
            _add(self._wanted, found, 1)
        return True

    def _not_bound(self, owner: WorkloadId, pods: Pods) -> Pods:
        limited = self._matcher.needs(pods).limited
        if not limited or not self._bound.count(owner):
            return limited
        return not_bound(pods, self._bound.of(owner), self._matcher, self._inventory)

    # --- where they are expected

    def expect(self, *, anew: bool) -> None:
        """Bring the spots up to date. `anew`: what nodes have, or what is bound to them, changed.

        If that did not change and all pods fit, shapes are placed again from the first on of which another
        number is wanted: the result is the same.
        """
        order = self._in_order(())
        kept = self._all_fit and not anew and self._version == self._inventory.version
        if not (kept and self._place_again(order)):
            for spots in self._spots.values():
                take_away(self._inventory, spots)
            _, self._all_fit = self._expect(order)
        self._order = [(shape, count) for _, shape, count in order]
        self._version = self._inventory.version

    def _place_again(self, order: Sequence[_Wanted]) -> bool:
        """Return whether all pods fit."""
        same = self._same(order)
        for shape, _ in self._order[same:]:
            take_away(self._inventory, self._spots.pop(shape))
        for match, shape, count in order[same:]:
            spots = self._spots[shape] = []
            if place(self._inventory, match, count, spots=spots) < count:
                return False
        return True

    def _same(self, order: Sequence[_Wanted]) -> int:
        """Return how many shapes, from the first on, need not be placed again."""
        for number, (before, (_, shape, count)) in enumerate(zip(self._order, order, strict=False)):
            if before == (shape, count):
                continue
            if before[0] != shape or before[1] < count:
                return number
            # Fewer pods would have the first of the spots.
            take_away(self._inventory, self._spots[shape][count:])
            del self._spots[shape][count:]
            return number + 1
        return min(len(self._order), len(order))

    def _in_order(self, away: Collection[WorkloadId]) -> list[_Wanted]:
        """Return pods that are not bound yet: those that take most first, then in order of admission."""
        wanted = self._wanted
        if away:
            wanted = Counter(wanted)
            for owner in away:
                _add(wanted, self.waiting.get(owner, ()), -1)
        found = list(zip(self._matcher.match_all(wanted), wanted, wanted.values(), strict=True))
        if len({match.vector for match, _, _ in found}) < len(found):
            first = self._in_order_of_admission(away)
            found.sort(key=lambda item: first[item[1]])
        return sorted(found, key=lambda item: item[0].vector, reverse=True)

    def _in_order_of_admission(self, away: Collection[WorkloadId]) -> dict[PodShape, int]:
        """Return a number for each shape, by the first workload that waits for pods of it."""
        groups: dict[int, PodGroup] = {}
        for owner in sorted(
            self.waiting.keys() - away, key=lambda owner: (self.holders[owner].sequence, owner)
        ):
            for group in self.waiting[owner]:  # one object for many owners: it is hashed once
                groups.setdefault(id(group), group)
        shapes = dict.fromkeys(group.shape for group in groups.values())
        return {shape: number for number, shape in enumerate(shapes)}

    def _expect(
        self, order: Sequence[_Wanted], tried: Mapping[WorkloadId, Pods] = NOTHING
    ) -> tuple[dict[WorkloadId, Spots], bool]:
        """Expect pods of holders, and then those of `tried`. Return the spots of `tried`, and whether all fit
        where the scheduler would spread them.
        """
        held = Counter({shape: count for _, shape, count in order})
        wanted = held.copy()
        for pods in tried.values():
            for group in self._matcher.needs(pods).limited:
                wanted[group.shape] += group.count
        matches = self._matcher.match_all(wanted)
        found, all_fit = expect_all(self._inventory, list(zip(matches, wanted.values(), strict=True)))
        self.missing = wanted.total() - sum(map(len, found))
        spots = dict(zip(wanted, found, strict=True))
        self._spots = {shape: spots[shape][:count] for shape, count in held.items()}
        left = {shape: iter(spots[shape][held[shape] :]) for shape in wanted}
        return {
            owner: [
                spot
                for group in self._matcher.needs(pods).limited
                for spot in islice(left[group.shape], group.count)
            ]
            for owner, pods in tried.items()
        }, all_fit

    def forget(self) -> None:
        """The inventory was counted anew, without them."""
        self._all_fit = False
        self._spots = {}

    # --- without some holders

    def expect_without(
        self, away: Collection[WorkloadId], tried: Mapping[WorkloadId, Pods]
    ) -> dict[WorkloadId, Spots]:
        """Expect them where they would be without the holders `away`, and with the pods of `tried`.

        Return the spots of `tried`.
        """
        if self._spots_with_all is None:
            self._spots_with_all = self._spots
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        return self._expect(self._in_order(away), tried)[0]

    def expect_with_all(self) -> None:
        """Undo `expect_without`."""
        if self._spots_with_all is None:
            return
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        self._spots, self._spots_with_all = self._spots_with_all, None
        for spots in self._spots.values():
            put_back(self._inventory, spots)


def _add(wanted: Counter[PodShape], pods: Pods, times: int) -> None:
    for group in pods:
        wanted[group.shape] += group.count * times
        if not wanted[group.shape]:
            del wanted[group.shape]
