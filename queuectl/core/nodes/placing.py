"""Places pods on nodes in thought: each next pod goes to a node where most pods of its shape fit.

That is how the default profile of kube-scheduler spreads them. A gang that is expected in pieces on many
nodes leaves less room for large pods than one that is packed: what is admitted after it is predicted with
care until its pods are bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.nodes.inventory import Inventory, NodeState, Vector
from queuectl.core.nodes.matching import Match

Spots = list[tuple[str, Vector]]
"""For each pod: the name of its node, and what it takes there."""


def room_for(match: Match, count: int) -> int:
    """Return how many pods of one shape fit now: exact up to `count`, else `count` or more."""
    found = 0
    for group in match.groups:
        if group.state is NodeState.READY:
            for free, names in group.by_free.items():
                found += match.pods_in(free) * len(names)
                if found >= count:
                    return found
    return found


def place(inventory: Inventory, match: Match, count: int, *, spots: Spots) -> int:
    """Charge up to `count` pods of one shape to nodes, and add their `spots`. Return how many were placed."""
    placed = 0
    while placed < count:
        best, free, names = 0, Vector(), list[str]()
        for group in match.groups:
            if group.state is NodeState.READY:
                for vector, there in group.by_free.items():
                    pods = match.pods_in(vector)
                    if pods > best or (pods == best and pods and (vector, there[0]) < (free, names[0])):
                        best, free, names = pods, vector, there
        if not best:
            break
        for name in names[: count - placed]:
            inventory.charge(name, match.vector, 1)
            spots.append((name, match.vector))
            placed += 1
    return placed


def place_at(inventory: Inventory, match: Match, count: int, name: str) -> int:
    """Charge up to `count` pods of one shape to one node. Return how many fitted."""
    record = inventory.records.get(name)
    if record is None or record.group not in match.groups or record.state is not NodeState.READY:
        return 0
    placed = min(count, match.pods_in(record.free))
    inventory.charge(name, match.vector, placed)
    return placed


def take_away(inventory: Inventory, spots: Iterable[tuple[str, Vector]]) -> None:
    """Undo what `place` charged."""
    for name, vector in spots:
        inventory.charge(name, vector, -1)


def put_back(inventory: Inventory, spots: Iterable[tuple[str, Vector]]) -> None:
    """Undo `take_away`."""
    for name, vector in spots:
        inventory.charge(name, vector, 1)


def place_all(inventory: Inventory, pods: Iterable[tuple[Match, int]]) -> tuple[Spots, bool]:
    """Place pods, those that take most first. Return their spots, and whether all of them fit."""
    spots: Spots = []
    wanted = 0
    for match, count in sorted(pods, key=lambda item: item[0].vector, reverse=True):
        wanted += count
        place(inventory, match, count, spots=spots)
    return spots, len(spots) == wanted
