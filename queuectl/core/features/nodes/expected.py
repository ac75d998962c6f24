"""Pods of workloads that hold quota, and are not bound yet: the nodes where they are expected (M7).

Their places follow from what is known alone, so that they do not depend on the order of events.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import eq, ge, itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple

from queuectl.core.feature import Alarm
from queuectl.core.features.nodes.bound import BoundPods
from queuectl.core.features.nodes.inventory import Inventory, Vector
from queuectl.core.features.nodes.node_choice import Match, Matcher
from queuectl.core.features.nodes.placement import expect_all, place, replace_spots, take_away
from queuectl.core.model.pods import Pod, PodGroup, Pods, PodShape, Spots
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import ObjectRef, WorkloadId

NOTHING: Final[Mapping[WorkloadId, Pods]] = MappingProxyType({})
_MOST_ALARMS: Final = 20


class ExpectedHolder(NamedTuple):
    """A workload with an open attempt, and the pods that it may have."""

    sequence: int
    """Of its admission: holders are in this order."""
    pods: Pods


_Wanted = tuple[Match, PodShape, int]
"""How many pods of a shape are to be expected."""
_Turn = tuple[int, WorkloadId, int]
"""Sequence of a holder, the holder, and the place of a shape among those that it waits for."""


class _Demand:
    """Pods of one shape that holders wait for."""

    __slots__ = ("count", "turns")

    def __init__(self) -> None:
        self.count = 0
        self.turns: list[_Turn] = []
        """In order of admission."""


class _Placed(NamedTuple):
    """Pods that are expected on nodes."""

    spots: dict[PodShape, Spots]
    order: Sequence[tuple[PodShape, int]]
    """How many of each shape, in the order in which they were placed."""
    stay: bool
    """Where other pods are wanted, those before the first difference stay: all found a node where the
    scheduler would spread them, with all bound pods there, and no others."""
    version: int
    """Of the inventory at that time."""


class ExpectedPods:
    def __init__(self, inventory: Inventory, matcher: Matcher, bound: BoundPods) -> None:
        self._inventory = inventory
        self._matcher = matcher
        self._bound = bound
        self.holders: dict[WorkloadId, ExpectedHolder] = {}
        self.waiting: dict[WorkloadId, ExpectedHolder] = {}
        """Holders with pods that are not bound yet, and these pods."""
        self._wanted: dict[PodShape, _Demand] = {}
        """All of these together."""
        self._placed = _Placed({}, (), stay=False, version=0)
        self._with_all: _Placed | None = None
        """What is expected with all holders; None: that is what is expected now."""
        self.missing = 0
        """How many of them, and of those that are tried, find no node."""

    def __iter__(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield for each pod the name of its node, and what it takes there."""
        return (spot for spots in self._placed.spots.values() for spot in spots)

    def of(self, owner: WorkloadId) -> Iterator[tuple[str, Amounts]]:
        """Yield a node for each pod of `owner` that is expected on one, with what the pod requests.

        Pods of the same shape are not told apart: each owner gets the first spots.
        """
        holder = self.waiting.get(owner)
        for group in holder.pods if holder is not None else ():
            for node, _ in self._placed.spots.get(group.shape, ())[: group.count]:
                yield node, group.shape.requests

    # --- what is not bound

    def update(self, owner: WorkloadId) -> bool:
        """Return whether the pods of `owner` that are not bound changed, or its place in the order."""
        holder, before = self.holders.get(owner), self.waiting.get(owner)
        pods = self._not_bound(owner, holder.pods) if holder is not None else ()
        found = ExpectedHolder(holder.sequence, pods) if holder is not None and pods else None
        if found == before:
            return False
        if before is not None:
            del self.waiting[owner]
            self._count(owner, before, -1)
        if found is not None:
            self.waiting[owner] = found
            self._count(owner, found, 1)
        return True

    def _count(self, owner: WorkloadId, holder: ExpectedHolder, times: int) -> None:
        for at, group in enumerate(holder.pods):
            turn: _Turn = (holder.sequence, owner, at)
            demand = self._wanted.get(group.shape)
            if demand is None:
                demand = self._wanted[group.shape] = _Demand()
            demand.count += group.count * times
            if times > 0:
                insort(demand.turns, turn)
            else:
                del demand.turns[bisect_left(demand.turns, turn)]
            if not demand.turns:
                del self._wanted[group.shape]

    def _not_bound(self, owner: WorkloadId, pods: Pods) -> Pods:
        limited = self._matcher.needs(pods).limited
        if not limited or not self._bound.count(owner):
            return limited
        return not_bound(pods, self._bound.of(owner), self._matcher, self._inventory)

    # --- where they are expected

    def expect(self, *, anew: bool) -> None:
        """Bring the spots up to date. `anew`: what nodes have, or what is bound to them, changed."""
        self._place(self._in_order(()), anew=anew)

    def _place(
        self,
        order: Sequence[_Wanted],
        tried: Mapping[WorkloadId, Pods] = NOTHING,
        *,
        anew: bool,
        stay: bool = True,
    ) -> dict[WorkloadId, Spots]:
        """Expect pods of holders, and then those of `tried`. Return the spots of `tried`.

        `stay`: they may stay there next time. If those that are expected now may, and nodes and bound pods
        are as they were then (not `anew`), pods are placed again from the first one on that differs: the
        result is the same.
        """
        kept = self._placed.stay and self._placed.version == self._inventory.version
        if not anew and not tried and kept and self._place_again(order):
            return {}
        for spots in self._placed.spots.values():
            take_away(self._inventory, spots)
        return self._place_all(order, tried, stay=stay)

    def _place_again(self, order: Sequence[_Wanted]) -> bool:
        """Return whether all pods fit."""
        wanted = [(shape, count) for _, shape, count in order]
        before, spots = self._placed, dict[PodShape, Spots]()
        same = _same(before.order, wanted)
        for shape, _ in before.order[:same]:
            spots[shape] = before.spots[shape]
        pairs = zip(before.order[same : same + 1], wanted[same : same + 1], strict=False)
        # Fewer pods have the first of the spots, and more have others after them.
        kept = {shape: count for (one, _), (shape, count) in pairs if one == shape}
        left: dict[PodShape, Spots] = {}
        for shape, _ in before.order[same:]:
            left[shape] = before.spots[shape][: kept.get(shape, 0)]
            take_away(self._inventory, before.spots[shape][len(left[shape]) :])
        all_fit = True
        for match, shape, count in order[same:]:
            there = spots[shape] = left.get(shape, [])
            place(self._inventory, match, count - len(there), spots=there)
            if len(there) < count:
                all_fit = False
                break
        self.missing = 0
        self._placed = _Placed(spots, wanted, all_fit, before.version)
        return all_fit

    def _in_order(self, away: Collection[WorkloadId]) -> list[_Wanted]:
        """Return pods that are not bound yet: those that take most first, then in order of admission."""
        wanted = {shape: demand.count for shape, demand in self._wanted.items()}
        for owner in away:
            if (holder := self.waiting.get(owner)) is not None:
                for group in holder.pods:
                    wanted[group.shape] -= group.count
        shapes = [shape for shape, count in wanted.items() if count]
        found = [
            (match, shape, wanted[shape])
            for match, shape in zip(self._matcher.match_all(shapes), shapes, strict=True)
        ]
        if len({match.vector for match, _, _ in found}) < len(found):
            found.sort(key=lambda item: self._first(item[1], away))
        return sorted(found, key=lambda item: item[0].vector, reverse=True)

    def _first(self, shape: PodShape, away: Collection[WorkloadId]) -> _Turn:
        """Return the first turn in which pods of a shape are waited for."""
        return next(turn for turn in self._wanted[shape].turns if turn[1] not in away)

    def _place_all(
        self, order: Sequence[_Wanted], tried: Mapping[WorkloadId, Pods], *, stay: bool
    ) -> dict[WorkloadId, Spots]:
        held = Counter({shape: count for _, shape, count in order})
        wanted = held.copy()
        for pods in tried.values():
            for group in self._matcher.needs(pods).limited:
                wanted[group.shape] += group.count
        matches = self._matcher.match_all(wanted)
        found, all_fit = expect_all(self._inventory, list(zip(matches, wanted.values(), strict=True)))
        self.missing = wanted.total() - sum(map(len, found))
        spots = dict(zip(wanted, found, strict=True))
        self._placed = _Placed(
            {shape: spots[shape][:count] for shape, count in held.items()},
            tuple(held.items()),
            all_fit and stay,
            self._inventory.version,
        )
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
        self._placed = _Placed({}, (), stay=False, version=0)

    # --- without some holders

    def expect_without(
        self, away: Collection[WorkloadId], tried: Mapping[WorkloadId, Pods], *, alone: bool
    ) -> dict[WorkloadId, Spots]:
        """Expect them where they would be without the holders `away`, and with the pods of `tried`.

        `alone`: beside these, all bound pods are there, and nothing else is. Return the spots of `tried`.
        """
        if self._with_all is None:
            self._with_all = self._placed
        return self._place(self._in_order(away), tried, anew=not alone, stay=alone)

    def expect_with_all(self) -> None:
        """Undo `expect_without`."""
        if self._with_all is not None:
            replace_spots(self._inventory, self._placed.spots, self._with_all.spots)
            self._placed, self._with_all = self._with_all, None


def _same(before: Sequence[tuple[PodShape, int]], wanted: Sequence[tuple[PodShape, int]]) -> int:
    """Return how many are the same, from the first on."""
    pairs = enumerate(zip(before, wanted, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(before), len(wanted)))


Kind = tuple[Vector, tuple[int, ...]]
"""Of bound pods: what they take, and the numbers of the shapes that ask for labels that their node has."""

_PASSES: Final = ((eq, True), (eq, False), (ge, True), (ge, False))
"""How requests compare, and whether the node must have the labels that the shape asks for."""


def not_bound(pods: Pods, bound: Iterable[Pod], matcher: Matcher, inventory: Inventory) -> Pods:
    """Return the pods that nodes limit and that are not among `bound`. `pods`: all those of a workload.

    A pod does not say of which podset it is. It stands for a pod that requests exactly as much, if possible
    one that asks for the labels of its node. A pod that requests more than any podset, such as with a
    container that was added to it, stands for one that requests less.
    """
    left: Counter[PodShape] = Counter()
    for group in pods:
        left[group.shape] += group.count
    matches = dict(zip(left, matcher.match_all(left), strict=True))
    shapes = [(inventory.vector(shape.requests), number, shape) for number, shape in enumerate(left)]
    shapes.sort(key=itemgetter(0), reverse=True)
    there = Counter(_kinds(bound, list(matches.values()), inventory))
    exact = {vector for vector, _, _ in shapes}
    for like, on_its_nodes in _PASSES:
        kinds = [kind for kind in sorted(there) if (kind[0] in exact) is (like is eq)]
        for vector, number, shape in shapes:
            for kind in kinds:
                if (number in kind[1] or not on_its_nodes) and all(map(like, kind[0], vector)):
                    found = min(left[shape], there[kind])
                    left[shape] -= found
                    there[kind] -= found
    return tuple(PodGroup(shape, count) for shape, count in left.items() if count and matches[shape].limits)


def _kinds(bound: Iterable[Pod], matches: Sequence[Match], inventory: Inventory) -> Iterator[Kind]:
    for pod in bound:
        record = inventory.records.get(pod.node) if pod.node is not None else None
        group = record.group if record is not None and len(matches) > 1 else None
        numbers = tuple(number for number, match in enumerate(matches) if group in match.labelled)
        yield inventory.vector(pod.requests), numbers


class Predicted(NamedTuple):
    """How many, since the last call."""

    admissions: int
    """Those for which nodes limit something: room was found for all their pods."""
    misses: int
    """Those of a pod of which kube-scheduler found no node; at most one for each of these admissions."""


class Predictions:
    """Whether kube-scheduler finds the room for pods that was found at their admission."""

    def __init__(self) -> None:
        self._open: dict[WorkloadId, tuple[ObjectRef, int]] = {}
        """Attempts that this process has admitted with room, and that no pod has missed."""
        self._admissions = self._misses = 0
        self._alarms: list[Alarm] = []

    def admitted(self, workload: WorkloadId, ref: ObjectRef, attempt: int) -> None:
        """Room was found for all pods of this attempt."""
        self._open[workload] = (ref, attempt)
        self._admissions += 1

    def ended(self, workload: WorkloadId) -> None:
        """The open attempt is over. Nothing happens if it was not admitted with room."""
        self._open.pop(workload, None)

    def observe(self, pod: Pod) -> None:
        if pod.unschedulable is None or pod.workload is None or pod.workload not in self._open:
            return
        ref, attempt = self._open.pop(pod.workload)
        self._misses += 1
        if len(self._alarms) < _MOST_ALARMS:
            text = f"kube-scheduler places pod {pod.name} nowhere, though nodes had room: {pod.unschedulable}"
            self._alarms.append(Alarm(pod.workload, ref, attempt, "NotScheduled", text))

    def take(self) -> Predicted:
        numbers = Predicted(self._admissions, self._misses)
        self._admissions = self._misses = 0
        return numbers

    def take_alarms(self) -> list[Alarm]:
        """Return an alarm for each of the first misses since the last call."""
        alarms, self._alarms = self._alarms, []
        return alarms
