"""Places pods on nodes in thought: each next pod goes to a node where most pods of its shape fit.

That is how the default profile of kube-scheduler spreads them. A gang that is expected in pieces on many
nodes leaves less room for large pods than one that is packed: what is admitted after it is predicted with
care until its pods are bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from queuectl.core.features.nodes.inventory import Inventory, NodeState, Vector
from queuectl.core.features.nodes.node_choice import Match
from queuectl.core.model.pods import PodShape, Spots


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
    """Charge up to `count` pods of one shape to nodes, and add their `spots`. Return how many were placed.

    Among equal nodes, the first by name is taken. So to place some pods and then others is to place all.
    """
    placed = 0
    while placed < count:
        best, free, found = 0, Vector(), list[list[str]]()
        for group in match.groups:
            if group.state is NodeState.READY:
                for vector, there in group.by_free.items():
                    pods = match.pods_in(vector)
                    if pods > best or (pods == best and pods and vector < free):
                        best, free, found = pods, vector, [there]
                    elif pods == best and vector == free:
                        found.append(there)
        if not best:
            break
        # The next pods go to all of these in turn: with a pod on it, fewer fit on a node than on the others.
        names = found[0] if len(found) == 1 else sorted(chain.from_iterable(found))
        for name in names[: count - placed]:
            inventory.charge(name, match.vector, 1)
            spots.append((name, match.vector))
            placed += 1
    return placed


def pack(inventory: Inventory, match: Match, count: int, *, spots: Spots) -> int:
    """As `place`, but each pod goes to a node where fewest pods of its shape fit."""
    fitting = sorted(
        (pods, free, name)
        for group in match.groups
        if group.state is NodeState.READY
        for free, names in group.by_free.items()
        if (pods := match.pods_in(free))
        for name in names
    )
    placed = 0
    for pods, _, name in fitting:
        taken = min(pods, count - placed)
        inventory.charge(name, match.vector, taken)
        spots += [(name, match.vector)] * taken
        placed += taken
    return placed


def ways_on(inventory: Inventory, pods: Sequence[tuple[Match, int]], nodes: Iterable[str]) -> Iterator[Spots]:
    """Yield ways in which the scheduler may bind as many of these pods as possible to `nodes` now.

    Only pods that are bound are in their way. Each of the nodes that differ comes first once.
    """
    there = [record for name in sorted(nodes) if (record := inventory.records.get(name)) is not None]
    free = {
        record.name: tuple([has - used for has, used in zip(record.allocatable, record.bound, strict=True)])
        for record in there
        if record.state is NodeState.READY
    }
    firsts = {(record.group, free[record.name]): record for record in reversed(there) if record.name in free}
    for first in firsts.values():
        left, spots = dict(free), Spots()
        for match, count in pods:
            missing = count
            for record in sorted(there, key=lambda record: record is not first):
                if record.name in left and record.group in match.groups:
                    taken = min(missing, match.pods_in(left[record.name]))
                    missing -= taken
                    pairs = zip(left[record.name], match.vector, strict=True)
                    left[record.name] = tuple([has - amount * taken for has, amount in pairs])
                    spots += [(record.name, match.vector)] * taken
        if spots:
            yield spots


def take_away(inventory: Inventory, spots: Iterable[tuple[str, Vector]]) -> None:
    """Undo what `place` charged."""
    for name, vector in spots:
        inventory.charge(name, vector, -1)


def put_back(inventory: Inventory, spots: Iterable[tuple[str, Vector]]) -> None:
    """Undo `take_away`."""
    for name, vector in spots:
        inventory.charge(name, vector, 1)


def replace_spots(
    inventory: Inventory, before: Mapping[PodShape, Spots], after: Mapping[PodShape, Spots]
) -> None:
    """As `take_away` for all of `before` and `put_back` for all of `after`; what is in both costs little."""
    times: Counter[tuple[str, Vector]] = Counter()
    for shape in before.keys() | after.keys():
        old, new = before.get(shape, []), after.get(shape, [])
        same = min(len(old), len(new))
        if old[:same] != new[:same]:
            same = 0
        times.update(new[same:])
        times.subtract(old[same:])
    for (name, vector), count in times.items():
        if count:
            inventory.charge(name, vector, count)


def place_all(inventory: Inventory, pods: Iterable[tuple[Match, int]]) -> tuple[Spots, bool]:
    """Place pods, those that take most first. Return their spots, and whether all of them fit."""
    spots: Spots = []
    wanted = 0
    for match, count in sorted(pods, key=lambda item: item[0].vector, reverse=True):
        wanted += count
        place(inventory, match, count, spots=spots)
    return spots, len(spots) == wanted


def expect_all(inventory: Inventory, pods: Sequence[tuple[Match, int]]) -> tuple[list[Spots], bool]:
    """Place pods of workloads that are admitted, those that take most first. Return the spots of each item,
    and whether all fit as `place` puts them.

    Those that find no node would be forgotten, and their room given away: they are packed instead, if fewer
    are left out then.
    """
    spread = _placed(inventory, pods, place)
    missing = sum(count for _, count in pods) - sum(map(len, spread))
    if not missing:
        return spread, True
    for spots in spread:
        take_away(inventory, spots)
    packed = _placed(inventory, pods, pack)
    if sum(map(len, packed)) > sum(map(len, spread)):
        return packed, False
    for spots in packed:
        take_away(inventory, spots)
    for spots in spread:
        put_back(inventory, spots)
    return spread, False


def _placed(inventory: Inventory, pods: Sequence[tuple[Match, int]], put: Callable[..., int]) -> list[Spots]:
    found: list[Spots] = [[] for _ in pods]
    order = sorted(range(len(pods)), key=lambda number: pods[number][0].vector, reverse=True)
    for number in order:
        match, count = pods[number]
        put(inventory, match, count, spots=found[number])
    return found
