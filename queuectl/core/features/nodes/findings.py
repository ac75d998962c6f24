"""Why pods do not fit on nodes, with numbers (M10)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from queuectl.core.features.nodes.capacity import Headroom
from queuectl.core.features.nodes.inventory import Inventory, NodeGroup, NodeState
from queuectl.core.features.nodes.node_choice import Match, Matcher
from queuectl.core.features.nodes.placement import room_for
from queuectl.core.model.pods import PodGroup, Pods, PodShape
from queuectl.core.model.reasons import Code, ExcludedNodes, NodeFinding, Reason
from queuectl.core.model.resources import format_amount
from queuectl.core.model.selectors import untolerated

_MOST_NAMED: Final = 3
_MOST_EXCLUDED: Final = 5

_WORDS: Final = {
    NodeState.NOT_READY: "not ready",
    NodeState.SETTLING: "ready for too short a time",
    NodeState.CORDONED: "cordoned",
    NodeState.UNHEALTHY: "unhealthy",
    NodeState.AVOIDED: "avoided after repeated failures",
}


def why_no_room(inventory: Inventory, matcher: Matcher, headroom: Headroom, pods: Pods) -> Reason:
    """Return why `pods`, which do not fit, do not: about the first podset that binds.

    `CapacityMissing`: less is free than they request in all. `NoNodeFits`: enough is free, but in pieces that
    are too small. `NoNodeCanFit`: no node of the flavor can ever hold one of the pods.
    """
    for group in pods:
        match = matcher.match(group.shape)
        if match.needs_room and room_for(match, group.count) < group.count:
            return _finding(inventory, matcher, group, match)
    for group in pods:  # each podset fits by itself
        match = matcher.match(group.shape)
        if match.needs_room and not headroom.left(pods):
            return _finding(inventory, matcher, group, match, "its ResourceFlavor keeps headroom free")
    first = next(group for group in pods if matcher.match(group.shape).needs_room)
    together = "each of its podsets fits, but not all of them together"
    return _finding(inventory, matcher, first, matcher.match(first.shape), together)


def room_reserved(inventory: Inventory, matcher: Matcher, pods: Pods) -> Reason:
    """Return why `pods`, which fit, have no room all the same: it is reserved for others."""
    first = next(group for group in pods if matcher.match(group.shape).needs_room)
    return replace(_finding(inventory, matcher, first, matcher.match(first.shape)), reserved=True)


def _finding(
    inventory: Inventory, matcher: Matcher, group: PodGroup, match: Match, detail: str | None = None
) -> Reason:
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
    code = Code.CAPACITY_MISSING if short > 0 else Code.NO_NODE_FITS
    if _is_hopeless(matcher, group.shape, match):
        code = Code.NO_NODE_CAN_FIT
    return Reason(
        code=code,
        flavor=flavor,
        resource=resource,
        requested=requested,
        available=free,
        short_by=short if short > 0 else None,
        node=f"ResourceFlavor/{flavor}" if flavor is not None else None,
        detail=detail,
        pods=group.count,
        pods_fit=min(group.count, room_for(match, group.count)),
        nodes=(
            *(_nearest(match, number) if match.missing is None else ()),
            *_excluded(matcher, group.shape, match, resource, number),
        ),
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


_TRANSIENT: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of taints that Kubernetes itself takes away."""


def _is_hopeless(matcher: Matcher, shape: PodShape, match: Match) -> bool:
    """Return whether no node of its flavors can hold one pod of the shape, even when it is empty and ready.

    More nodes like these do not help either. False where the flavors have no node.
    """
    if match.missing is not None or not matcher.of_flavors(_flavors(shape)):
        return False
    return not any(_may_hold(matcher, shape, match, group) for group in match.labelled)


def _may_hold(matcher: Matcher, shape: PodShape, match: Match, group: NodeGroup) -> bool:
    taints = untolerated(group.taints, matcher.tolerations(shape))
    if not all(taint.key.startswith(_TRANSIENT) for taint in taints):
        return False
    return any(count and match.pods_in(size) for size, count in group.sizes.items())


def _flavors(shape: PodShape) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flavor for _, flavor in shape.flavors))


def _excluded(
    matcher: Matcher, shape: PodShape, match: Match, resource: str, number: int
) -> list[ExcludedNodes]:
    """Return which nodes of its flavors the pods cannot use, or not now, most first."""
    counts: Counter[str] = Counter()
    whose = f"ResourceFlavor {', '.join(_flavors(shape))}"
    usable, labelled = ({id(group) for group in groups} for groups in (match.groups, match.labelled))
    largest, small = 0, 0
    for group in matcher.of_flavors(_flavors(shape)):
        size = sum(map(len, group.by_free.values()))
        if group.state is not NodeState.READY:
            counts[_WORDS[group.state]] += size
        elif id(group) not in labelled:
            counts[f"without {_asked(shape, group)}"] += size
        elif id(group) not in usable:
            taints = untolerated(group.taints, matcher.tolerations(shape))
            what = ", ".join(map(str, taints))
            counts[f"with taint {what}, which neither the pods nor {whose} tolerate"] += size
        elif match.missing is None:
            for vector, nodes in group.sizes.items():
                if nodes and not match.pods_in(vector):
                    small += nodes
                    largest = max(largest, vector[number])
    if small:
        counts[f"with at most {format_amount(resource, largest)} {resource}"] += small
    return [ExcludedNodes(nodes, why) for why, nodes in counts.most_common(_MOST_EXCLUDED)]


def _asked(shape: PodShape, group: NodeGroup) -> str:
    """Return which labels a node lacks."""
    lacking = [f"{key}={value}" for key, value in shape.node_selector if group.labels.get(key) != value]
    return f"label {', '.join(lacking)}" if lacking else "the labels of the pods' node affinity"
