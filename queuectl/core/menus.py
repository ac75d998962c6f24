"""What a ClusterQueue offers and what a workload asks for, made ready to be matched (F1, F2, F9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from queuectl.core.matching import mismatch
from queuectl.core.model import ClusterQueue, PodSet, ResourceFlavor
from queuectl.core.quota import QuotaTree
from queuectl.core.resources import Amounts, FlavorResource
from queuectl.core.values import value

T = TypeVar("T")


@value(frozen=True, slots=True)
class Option:
    """One flavor of a resource group, with the cell number of each of its resources."""

    name: str
    flavor: ResourceFlavor | None
    cells: Mapping[str, int]


class Menu:
    """A ClusterQueue's resource groups with cells numbered, ready for nominations."""

    __slots__ = (
        "_all_placed",
        "covered",
        "fungibility",
        "groups",
        "known",
        "name",
        "node",
        "of_resource",
        "tree",
    )

    def __init__(self, queue: ClusterQueue, tree: QuotaTree, flavors: Mapping[str, ResourceFlavor]) -> None:
        self.name = queue.name
        self.tree = tree
        self.node = tree.queue(queue.name)
        self.fungibility = queue.fungibility
        self.known: dict[int, tuple[Charge, Any]] = {}
        """What was looked up for the shapes that asked last (core/plain)."""
        self.groups: list[list[Option]] = []
        self.covered = [group.covered for group in queue.resource_groups]
        self.of_resource: dict[str, int] = {}
        named = [flavors.get(f.name) for group in queue.resource_groups for f in group.flavors]
        self._all_placed = all(flavor is not None and flavor.topology for flavor in named)
        for number, group in enumerate(queue.resource_groups):
            for resource in group.covered:
                self.of_resource.setdefault(resource, number)
            self.groups.append(
                [
                    Option(
                        f.name,
                        flavors.get(f.name),
                        {
                            resource: tree.cell(FlavorResource(f.name, resource))
                            for resource, _ in f.resources
                        },
                    )
                    for f in group.flavors
                ]
            )

    def mismatch(self, option: Option, pod_set: PodSet) -> str | None:
        """Why the podset can't use this flavor; None: it can (F2)."""
        flavor = option.flavor
        if flavor is None:
            return "ResourceFlavor not found"
        if pod_set.topology and flavor.topology is None:
            return "it has no topology to place pods by"
        if flavor.topology is not None and not pod_set.topology and not self._all_placed:
            return "it is for pods that ask for a placement"
        return mismatch(flavor, pod_set)


@value(frozen=True, slots=True)
class Charge:
    """A podset with what one pod of it is charged: its requests and the overhead of its RuntimeClass."""

    pod_set: PodSet
    requests: Amounts


Group = tuple[str, int]
"""A podset by name, and a resource group of the queue by number."""

Tried = Mapping[Group, int]
"""Position of the last flavor looked at; a group that is missing was looked at to its end (F8)."""


def fewer_pods(charges: Sequence[Charge], look: Callable[[Sequence[Charge]], T | None]) -> T | None:
    """Partial admission: what `look` finds at the least reduction at which it finds anything (F9).

    Each podset gives up its part of the way to its least count: count = full - (full - least) * i / total.
    """
    slack = [c.pod_set.count - (c.pod_set.min_count or c.pod_set.count) for c in charges]
    total = sum(slack)
    found: T | None = None
    low, high = 1, total + 1
    while low < high:
        middle = (low + high) // 2
        here = look(_reduced(charges, slack, middle, total))
        if here is None:
            low = middle + 1
        else:
            found, high = here, middle
    return found


def _reduced(charges: Sequence[Charge], slack: Sequence[int], step: int, total: int) -> list[Charge]:
    return [
        replace(charge, pod_set=replace(charge.pod_set, count=charge.pod_set.count - part * step // total))
        for charge, part in zip(charges, slack, strict=True)
    ]
