"""Pods of workloads that hold quota, and are not bound yet: the nodes where they are expected (M7).

Their places are computed anew from what is known, so that they do not depend on the order of events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.binding import not_bound
from queuectl.core.nodes.bound import BoundPods
from queuectl.core.nodes.inventory import Inventory
from queuectl.core.nodes.matching import Matcher
from queuectl.core.nodes.placing import Spots, place, put_back, take_away
from queuectl.core.nodes.pods import Pods, PodShape


class Holder(NamedTuple):
    """A workload with an open attempt, and the pods that it may have."""

    sequence: int
    """Of its admission: holders are in this order."""
    pods: Pods


class ExpectedPods:
    def __init__(self, inventory: Inventory, matcher: Matcher, bound: BoundPods) -> None:
        self._inventory = inventory
        self._matcher = matcher
        self._bound = bound
        self.holders: dict[WorkloadId, Holder] = {}
        self.waiting: dict[WorkloadId, Pods] = {}
        """Holders with pods that are not bound yet, and how many."""
        self._spots: dict[PodShape, Spots] = {}
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
        if found:
            self.waiting[owner] = found
        else:
            del self.waiting[owner]
        return True

    def _not_bound(self, owner: WorkloadId, pods: Pods) -> Pods:
        limited = self._matcher.needs(pods).limited
        if not limited or not self._bound.count(owner):
            return limited
        return not_bound(pods, self._bound.of(owner), self._matcher, self._inventory)

    # --- where they are expected

    def expect(self) -> None:
        """Expect all pods anew."""
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        self._expect(())

    def _expect(self, away: Collection[WorkloadId]) -> None:
        """Expect pods that are not bound yet: those that take most first, then in order of admission."""
        self._spots = {}
        wanted: dict[PodShape, int] = {}
        waiting = [owner for owner in self.waiting if owner not in away]
        for owner in sorted(waiting, key=lambda owner: (self.holders[owner].sequence, owner)):
            for group in self.waiting[owner]:
                wanted[group.shape] = wanted.get(group.shape, 0) + group.count
        shapes = zip(self._matcher.match_all(wanted), wanted, strict=True)
        for match, shape in sorted(shapes, key=lambda item: item[0].vector, reverse=True):
            spots: Spots = []
            place(self._inventory, match, wanted[shape], spots=spots)
            self._spots[shape] = spots

    def forget(self) -> None:
        """The inventory was counted anew, without them."""
        self._spots = {}

    # --- without some holders

    def expect_without(self, away: Collection[WorkloadId]) -> None:
        """Expect them where they would be without the holders `away`."""
        if self._spots_with_all is None:
            self._spots_with_all = self._spots
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        self._expect(away)

    def expect_with_all(self) -> None:
        """Undo `expect_without`."""
        if self._spots_with_all is None:
            return
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        self._spots, self._spots_with_all = self._spots_with_all, None
        for spots in self._spots.values():
            put_back(self._inventory, spots)
