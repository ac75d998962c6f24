"""Which pods of an admitted workload are bound to nodes already, and which are expected (M7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import eq, ge, itemgetter
from typing import Final

from queuectl.core.features.nodes.inventory import Inventory, Vector
from queuectl.core.features.nodes.matching import Match, Matcher
from queuectl.core.model.pods import Pod, PodGroup, Pods, PodShape

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
