"""Why pods do not fit on nodes, with numbers (M10)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from queuectl.core.features.nodes.capacity import Headroom
from queuectl.core.features.nodes.inventory import Inventory, NodeState
from queuectl.core.features.nodes.matching import Match, Matcher
from queuectl.core.features.nodes.placing import room_for
from queuectl.core.model.pods import PodGroup, Pods
from queuectl.core.model.reasons import Code, NodeFinding, Reason

_MOST_NAMED: Final = 3

_WORDS: Final = {
    NodeState.NOT_READY: "not ready",
    NodeState.SETTLING: "ready for too short a time",
    NodeState.CORDONED: "cordoned",
    NodeState.UNHEALTHY: "unhealthy",
    NodeState.AVOIDED: "avoided, because they failed repeatedly",
}


def why_no_room(inventory: Inventory, matcher: Matcher, headroom: Headroom, pods: Pods) -> Reason:
    """Return why `pods`, which do not fit, do not: about the first podset that binds.

    `CapacityMissing`: less is free than they request in all. `NoNodeFits`: enough is free, but in pieces that
    are too small.
    """
    for group in pods:
        match = matcher.match(group.shape)
        if match.needs_room and room_for(match, group.count) < group.count:
            return _finding(inventory, group, match)
    for group in pods:  # each podset fits by itself
        match = matcher.match(group.shape)
        if match.needs_room and not headroom.left(pods):
            return _finding(inventory, group, match, "its ResourceFlavor keeps headroom free")
    first = next(group for group in pods if matcher.match(group.shape).needs_room)
    together = "each of its podsets fits, but not all of them together"
    return _finding(inventory, first, matcher.match(first.shape), together)


def room_reserved(inventory: Inventory, matcher: Matcher, pods: Pods) -> Reason:
    """Return why `pods`, which fit, have no room all the same: it is reserved for others."""
    first = next(group for group in pods if matcher.match(group.shape).needs_room)
    return replace(_finding(inventory, first, matcher.match(first.shape)), reserved=True)


def _finding(inventory: Inventory, group: PodGroup, match: Match, detail: str | None = None) -> Reason:
    resource, number, each = _binding(inventory, match)
    ready = [one for one in match.groups if one.state is NodeState.READY]
    free = (
        sum(max(0, free[number]) * len(names) for one in ready for free, names in one.by_free.items())
        if match.missing is None
        else 0
    )
    requested = each * group.count
    short = requested - free
    name = dict(group.shape.flavors).get(resource)
    flavor = name if name is not None else next((one for _, one in group.shape.flavors), None)
    return Reason(
        code=Code.CAPACITY_MISSING if short > 0 else Code.NO_NODE_FITS,
        flavor=flavor,
        resource=resource,
        requested=requested,
        available=free,
        short_by=short if short > 0 else None,
        node=f"ResourceFlavor/{flavor}" if flavor is not None else None,
        detail=detail or _unusable(match),
        pods=group.count,
        pods_fit=min(group.count, room_for(match, group.count)),
        nodes=tuple(_nearest(match, number)) if match.missing is None else (),
    )


def _binding(inventory: Inventory, match: Match) -> tuple[str, int, int]:
    """Return the resource of which fewest pods fit: its name, its number, and what one pod takes."""
    if match.missing is not None:
        return match.missing, 0, 1
    names = {number: name for name, number in inventory.resources.items()}

    def pods_for(item: tuple[int, int]) -> tuple[int, int]:
        number, amount = item
        ready = (group for group in match.groups if group.state is NodeState.READY)
        return sum(
            max(0, free[number] // amount) * len(there)
            for group in ready
            for free, there in group.by_free.items()
        ), number

    number, amount = min(match.limits, key=pods_for)
    return names[number], number, amount


def _nearest(match: Match, number: int) -> Iterator[NodeFinding]:
    """Yield the nodes that come closest: those with most of the resource free."""
    vectors = (
        (max(0, free[number]), names)
        for group in match.groups
        if group.state is NodeState.READY
        for free, names in group.by_free.items()
    )
    best = heapq.nsmallest(_MOST_NAMED, vectors, key=lambda item: (-item[0], item[1][0]))
    named = [NodeFinding(name, free) for free, names in best for name in names[:_MOST_NAMED]]
    yield from named[:_MOST_NAMED]


def _unusable(match: Match) -> str | None:
    """Return which other nodes would match, by state, without their numbers."""
    counts: Counter[NodeState] = Counter()
    for group in match.groups:
        if group.state is not NodeState.READY:
            counts[group.state] += sum(map(len, group.by_free.values()))
    found = [_WORDS[state] for state in NodeState if counts[state]]
    return f"other nodes that match are {', '.join(found)}" if found else None
