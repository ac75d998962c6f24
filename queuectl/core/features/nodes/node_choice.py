"""Which nodes the pods of a shape may run on, and which of their requests these nodes limit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from queuectl.core.features.nodes.inventory import Inventory, NodeGroup, Vector, mode_of
from queuectl.core.model.pods import PodGroup, Pods, PodShape
from queuectl.core.model.policy import ANY_NODES, CapacityMode, ResourceFlavor, Toleration
from queuectl.core.model.selectors import meets, tolerated

KEPT: Final = 4096
"""Shapes whose matches are kept, and pods whose needs are."""


class Match:
    """The nodes that pods of one shape may run on."""

    __slots__ = ("_rest", "groups", "labelled", "limits", "missing", "needs_room", "vector", "version")

    def __init__(
        self,
        labelled: Sequence[NodeGroup],
        groups: Sequence[NodeGroup],
        vector: Vector,
        version: int,
        missing: str | None = None,
    ) -> None:
        self.labelled = labelled
        """Those with the labels that its pods ask for, whether their taints are tolerated or not."""
        self.groups = groups
        """Those of `labelled` whose taints are tolerated, in any state."""
        self.vector = vector
        """What one pod takes of the resources that these nodes limit; 0 for the others."""
        self.limits = [(number, amount) for number, amount in enumerate(vector) if amount]
        """The same without zeros."""
        self._rest = self.limits[1:]
        self.missing = missing
        """A resource that nodes limit, and that no node has: its pods never fit."""
        self.needs_room = bool(self.limits) or missing is not None
        self.version = version

    def pods_in(self, free: Vector) -> int:
        """Return how many pods fit into `free`, at least 0. The shape must need room."""
        if self.missing is not None:
            return 0
        number, amount = self.limits[0]
        found = free[number] // amount
        for number, amount in self._rest:
            found = min(found, free[number] // amount)
        return found if found > 0 else 0


class Needs(NamedTuple):
    """What the pods of a workload need of nodes."""

    pods: Pods
    version: int
    """Of the inventory."""
    room: Sequence[tuple[Match, int]]
    """Those that need room, and how many; none while no node is known (M4)."""
    limited: Pods
    """Those that nodes limit, as one group for each shape."""


class Matcher:
    """Finds the nodes of shapes, and remembers them."""

    FORK_EMPTIES = ("_needs",)

    def __init__(self, inventory: Inventory, flavors: Mapping[str, ResourceFlavor]) -> None:
        self._inventory = inventory
        self._flavors = flavors
        self._known: dict[PodShape, Match] = {}
        self._needs: dict[int, Needs] = {}
        """By identity of the pods, which equal workloads share (`KnownPods`)."""
        self._offered: dict[str, frozenset[str]] = {}
        """Resources that nodes of a flavor have, by flavor."""

    def forget(self) -> None:
        """Flavors, or what is allocatable, changed."""
        self._known.clear()
        self._needs.clear()
        self._offered.clear()

    def match(self, shape: PodShape) -> Match:
        found = self._known.get(shape)
        if found is None or found.version != self._inventory.version:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[shape] = self._found(shape)
        return found

    def match_all(self, shapes: Collection[PodShape]) -> list[Match]:
        """Return the matches of several shapes, to be used together.

        To find one may tell nodes apart by further labels: those found before it are then out of date.
        """
        found = [self.match(shape) for shape in shapes]
        if all(one.version == self._inventory.version for one in found):
            return found
        return [self.match(shape) for shape in shapes]

    def needs(self, pods: Pods) -> Needs:
        """Return what these pods need of nodes, as nodes are now."""
        found = self._needs.get(id(pods))
        if found is None or found.version != self._inventory.version:
            if len(self._needs) >= KEPT:
                self._needs.clear()
            found = self._needs[id(pods)] = self._needed(pods)
        return found

    def _needed(self, pods: Pods) -> Needs:
        matches = self.match_all([group.shape for group in pods])
        limited: dict[PodShape, int] = {}
        for match, group in zip(matches, pods, strict=True):
            if match.limits:
                limited[group.shape] = limited.get(group.shape, 0) + group.count
        return Needs(
            pods,
            self._inventory.version,
            tuple(
                (match, group.count)
                for match, group in zip(matches, pods, strict=True)
                if match.needs_room and self._inventory
            ),
            tuple(PodGroup(shape, count) for shape, count in limited.items() if count),
        )

    def enforced(self, flavor: str, resource: str) -> bool:
        """Return whether an admission needs room for this resource on nodes of this flavor (M1, M2)."""
        return self.mode(flavor, resource) is CapacityMode.ENFORCE

    def mode(self, flavor: str, resource: str) -> CapacityMode:
        """Return what nodes of this flavor mean for this resource (M2)."""
        known = self._flavors.get(flavor)
        rules = known.nodes if known is not None else ANY_NODES
        return mode_of(rules, resource, offered=resource in self.offered(flavor))

    def offered(self, flavor: str) -> frozenset[str]:
        """Return the resources that nodes of a flavor have, whatever their state."""
        found = self._offered.get(flavor)
        if found is None:
            nodes = (record.node for record in self._inventory.nodes())
            known = self._flavors.get(flavor)
            labels = known.node_labels if known is not None else ()
            found = self._offered[flavor] = frozenset(
                resource
                for node in nodes
                if node is not None and set(labels) <= set(node.labels)
                for resource, amount in node.allocatable
                if amount
            )
        return found

    def of_flavors(self, names: Iterable[str]) -> list[NodeGroup]:
        """Return the groups of nodes, in any state, that have the labels of all these flavors."""
        labels = self._labels(names)
        self._inventory.ask(key for key, _ in labels)
        return [group for group in self._inventory.groups.values() if _has(group, labels)]

    def _labels(self, names: Iterable[str]) -> list[tuple[str, str]]:
        found = (self._flavors.get(name) for name in names)
        return [label for flavor in found if flavor is not None for label in flavor.node_labels]

    def _found(self, shape: PodShape) -> Match:
        names = dict.fromkeys(flavor for _, flavor in shape.flavors)
        labels = [*self._labels(names), *shape.node_selector]
        tolerations = self.tolerations(shape)
        asked = {key for key, _ in labels}
        asked |= {requirement.key for term in shape.affinity for requirement in term}
        self._inventory.ask(asked)
        labelled = [
            group
            for group in self._inventory.groups.values()
            if _has(group, labels) and _affine(group, shape)
        ]
        groups = [group for group in labelled if all(tolerated(taint, tolerations) for taint in group.taints)]
        limited = list(self._limited(shape))
        missing = next((name for name, _ in limited if name not in self._inventory.resources), None)
        vector = self._inventory.vector(tuple(limited))
        return Match(labelled, groups, vector, self._inventory.version, missing)

    def tolerations(self, shape: PodShape) -> list[Toleration]:
        """Return those of the pods and of their flavors."""
        tolerations = list(shape.tolerations)
        for name in dict.fromkeys(flavor for _, flavor in shape.flavors):
            flavor = self._flavors.get(name)
            tolerations += flavor.tolerations if flavor is not None else ()
        return tolerations

    def _limited(self, shape: PodShape) -> Iterator[tuple[str, int]]:
        """A resource that is charged in another form is limited by the flavors that its pod gets."""
        flavors = dict(shape.flavors)
        for resource, amount in shape.requests:
            names = [flavors[resource]] if resource in flavors else sorted(set(flavors.values()))
            if amount and any(self.enforced(name, resource) for name in names):
                yield resource, amount


def _has(group: NodeGroup, labels: Iterable[tuple[str, str]]) -> bool:
    return all(group.labels.get(key) == value for key, value in labels)


def _affine(group: NodeGroup, shape: PodShape) -> bool:
    return not shape.affinity or any(
        all(meets(requirement, group.labels) for requirement in term) for term in shape.affinity
    )
