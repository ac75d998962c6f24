"""Pods of workloads that hold quota, and are not bound yet: the nodes where they are expected (M7).

Their places are computed anew from what is known, so that they do not depend on the order of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.binding import not_bound
from queuectl.core.nodes.bound import BoundPods
from queuectl.core.nodes.inventory import Inventory
from queuectl.core.nodes.matching import Matcher
from queuectl.core.nodes.placing import Spots, expect_all, put_back, take_away
from queuectl.core.nodes.pods import Pods, PodShape

NOTHING: Final[Mapping[WorkloadId, Pods]] = MappingProxyType({})


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

    def _expect(
        self, away: Collection[WorkloadId], tried: Mapping[WorkloadId, Pods] = NOTHING
    ) -> dict[WorkloadId, Spots]:
        """Expect pods that are not bound yet: those that take most first, then in order of admission.

        Those of `tried` come last. Return their spots.
        """
        held: Counter[PodShape] = Counter()
        for owner in sorted(
            self.waiting.keys() - away, key=lambda owner: (self.holders[owner].sequence, owner)
        ):
            for group in self.waiting[owner]:
                held[group.shape] += group.count
        wanted = held.copy()
        for pods in tried.values():
            for group in self._matcher.needs(pods).limited:
                wanted[group.shape] += group.count
        matches = self._matcher.match_all(wanted)
        found = expect_all(self._inventory, list(zip(matches, wanted.values(), strict=True)))
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
        }

    def forget(self) -> None:
        """The inventory was counted anew, without them."""
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
        return self._expect(away, tried)

    def expect_with_all(self) -> None:
        """Undo `expect_without`."""
        if self._spots_with_all is None:
            return
        for spots in self._spots.values():
            take_away(self._inventory, spots)
        self._spots, self._spots_with_all = self._spots_with_all, None
        for spots in self._spots.values():
            put_back(self._inventory, spots)
