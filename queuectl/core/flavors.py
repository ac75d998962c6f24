"""Flavor assignment: which flavor each resource of a podset would be charged to, or why none (F1 to F9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from queuectl.core.explaining import NO_BOUND, never_covered, severity, too_much, with_others, worst
from queuectl.core.matching import mismatch
from queuectl.core.model import Assignment, ClusterQueue, PodSet, PodSetAssignment, ResourceFlavor
from queuectl.core.quota import Cells, Node, QuotaTree
from queuectl.core.reasons import Code, Reason
from queuectl.core.resources import PODS, Amounts, FlavorResource, amounts
from queuectl.core.rules import Fungibility

T = TypeVar("T")


class Mode(IntEnum):
    """How a request could be met, worst first (F5)."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # somebody else's quota would do, and nobody can be made to give it
    PREEMPT = 2  # by taking it from workloads of its own queue, maybe of others too
    RECLAIM = 3  # by taking it from workloads of other queues alone
    FIT = 4

    @property
    def preempts(self) -> bool:
        return Mode.NO_FIT < self < Mode.FIT


class Chance(NamedTuple):
    """A mode, and how far up the tree the request borrows (Q9)."""

    mode: Mode
    level: int


def better(one: Chance, other: Chance, rules: Fungibility) -> bool:
    """Is `one` strictly preferred (F7)?"""
    low = min(one.mode, other.mode)
    if low <= Mode.NO_CANDIDATES and one.mode != other.mode:
        return one.mode > other.mode
    if rules.preemption_over_borrowing:
        return (-one.level, one.mode) > (-other.level, other.mode)
    return (one.mode, -one.level) > (other.mode, -other.level)


def keeps_looking(chance: Chance, rules: Fungibility) -> bool:
    """Is the next flavor looked at too, after one that offers this (F6)?"""
    return (
        chance.mode <= Mode.NO_CANDIDATES
        or (chance.mode.preempts and rules.try_next_before_preempting)
        or (chance.level > 0 and rules.try_next_before_borrowing)
    )


@dataclass(frozen=True, slots=True)
class Option:
    """One flavor of a resource group, with the cell number of each of its resources."""

    name: str
    flavor: ResourceFlavor | None
    cells: Mapping[str, int]


class Menu:
    """A ClusterQueue's resource groups with cells numbered, ready for nominations."""

    __slots__ = ("_mismatches", "fungibility", "groups", "name", "node", "of_resource", "tree")

    def __init__(self, queue: ClusterQueue, tree: QuotaTree, flavors: Mapping[str, ResourceFlavor]) -> None:
        self.name = queue.name
        self.tree = tree
        self.node = tree.queue(queue.name)
        self.fungibility = queue.fungibility
        self.groups: list[list[Option]] = []
        self.of_resource: dict[str, int] = {}
        self._mismatches: dict[tuple[str, PodSet], str | None] = {}
        for number, group in enumerate(queue.resource_groups):
            self.of_resource |= dict.fromkeys(group.covered, number)
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
        return "ResourceFlavor not found" if option.flavor is None else mismatch(option.flavor, pod_set)


@dataclass(frozen=True, slots=True)
class Charge:
    """A podset with what one pod of it is charged: its requests and the overhead of its RuntimeClass."""

    pod_set: PodSet
    requests: Amounts


Group = tuple[str, int]
"""A podset by name, and a resource group of the queue by number."""

Tried = Mapping[Group, int]
"""Position of the last flavor looked at; a group that is missing was looked at to its end (F8)."""

Search = Callable[[int, int], Chance]
"""What taking quota from others would offer for (cell, amount); the amount does not fit as it is."""


@dataclass(slots=True)
class Assigned:
    """What a nomination found. `mode` is the worst over all podsets, `level` the highest."""

    assignment: Assignment
    cells: Cells
    """The same, as the quota tree counts it."""
    mode: Mode = Mode.FIT
    level: int = 0
    contested: frozenset[int] = frozenset()
    """Cells that do not fit as they are."""
    chances: dict[Group, Chance] = field(default_factory=dict)
    modes: dict[tuple[str, str], Mode] = field(default_factory=dict)
    """By podset and resource."""
    reason: Reason | None = None
    """Why it does not fit as it is; there is one unless `mode` is FIT."""
    tried: Tried = field(default_factory=dict)
    """Where to go on looking next time: empty where all flavors were looked at."""


class _Scan:
    """One nomination under way."""

    def __init__(self, menu: Menu, search: Search | None, tried: Tried, pinned: Mapping[Group, str]) -> None:
        self.menu = menu
        self.search = search
        self.tried = tried
        self.pinned = pinned
        self.assumed: dict[int, int] = {}
        self.refusals: list[Reason] = []
        self.misses: list[Reason] = []
        self.contested: set[int] = set()
        self.found = Assigned(Assignment(cluster_queue=menu.name, pod_sets=()), [])
        self.left: dict[Group, int] = {}

    def choose(self, group: Group, pod_set: PodSet, wanted: Sequence[tuple[str, int]]) -> Option | None:
        """The flavor for `wanted`, with what it offers noted; None: none would do, as `refusals` say."""
        menu, rules = self.menu, self.menu.fungibility
        options = menu.groups[group[1]]
        best: tuple[Option, Chance, list[tuple[int, str, Mode]]] | None = None
        findings: list[Reason] = []
        start, last = self.tried.get(group, -1) + 1, len(options) - 1
        stopped = last
        for position in range(start, len(options)):
            option = options[position]
            if self.pinned and self.pinned.get(group) != option.name:
                continue
            chance, parts, finding = self._offer(option, pod_set, wanted)
            if finding is not None:
                findings.append(finding)
            if best is None or better(chance, best[1], rules):
                best = (option, chance, parts)
            if not keeps_looking(chance, rules):
                best, stopped = (option, chance, parts), position
                break
        if stopped != last:
            self.left[group] = stopped
        if best is None or best[1].mode is Mode.NO_FIT:
            self.refusals.append(_nearest(findings, menu.node))
            return None
        option, chance, parts = best
        found = self.found
        found.chances[group] = chance
        found.mode, found.level = min(found.mode, chance.mode), max(found.level, chance.level)
        for cell, resource, mode in parts:
            found.modes[pod_set.name, resource] = mode
            if mode is not Mode.FIT:
                self.contested.add(cell)
        if chance.mode is not Mode.FIT:
            self.misses.append(_nearest(findings, menu.node))
        return option

    def _offer(
        self, option: Option, pod_set: PodSet, wanted: Sequence[tuple[str, int]]
    ) -> tuple[Chance, list[tuple[int, str, Mode]], Reason | None]:
        """What one flavor offers, resource by resource, and why it is not simply a fit."""
        menu = self.menu
        why = menu.mismatch(option, pod_set)
        if why is not None:
            reason = Reason(code=Code.NO_MATCHING_FLAVOR, flavor=option.name, node=str(menu.node), detail=why)
            return Chance(Mode.NO_FIT, 0), [], reason
        tree, node = menu.tree, menu.node
        whole: Chance | None = None
        parts: list[tuple[int, str, Mode]] = []
        finding: Reason | None = None
        for resource, amount in wanted:
            cell = option.cells[resource]
            total = self.assumed.get(cell, 0) + amount * pod_set.count
            free = max(0, tree.available(node, cell))
            if total <= free:
                level = tree.borrow_level(node, cell, total)[0]
                chance = Chance(Mode.FIT, level)
            else:
                chance = self._without_room(cell, total)
                miss = too_much(tree, node, cell, total)
                if finding is None or severity(miss) > severity(finding):
                    finding = miss
            parts.append((cell, resource, chance.mode))
            if whole is None or better(whole, chance, menu.fungibility):
                whole = chance
        return whole or Chance(Mode.FIT, 0), parts, finding

    def _without_room(self, cell: int, total: int) -> Chance:
        tree, node = self.menu.tree, self.menu.node
        if self.search is None or total > tree.potential(node, cell):
            return Chance(Mode.NO_FIT, 0)
        return self.search(cell, total)

    def assume(self, option: Option, pod_set: PodSet, wanted: Sequence[tuple[str, int]]) -> None:
        for resource, amount in wanted:
            cell = option.cells[resource]
            self.assumed[cell] = self.assumed.get(cell, 0) + amount * pod_set.count


def assign(
    menu: Menu,
    charges: Sequence[Charge],
    search: Search | None = None,
    tried: Tried = NO_BOUND,
    pinned: Mapping[Group, str] = NO_BOUND,
) -> Assigned:
    """Assign a flavor to every resource of every podset, each podset seeing what the earlier ones took.

    `search`: what preemption offers (None: nothing does). `tried`: where to go on looking (F8). `pinned`:
    flavors that must stay as they were nominated.
    """
    scan = _Scan(menu, search, tried, pinned)
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        pod_set = charge.pod_set
        flavors: dict[str, str] = {}
        requests = _with_pods(menu, charge)
        for resource, amount in charge.requests:
            if amount > 0 and resource not in menu.of_resource:
                scan.refusals.append(never_covered(menu.node, resource, amount * pod_set.count))
        for number, wanted in _by_group(menu, requests).items():
            chosen = scan.choose((pod_set.name, number), pod_set, wanted)
            if chosen is not None:
                flavors.update((resource, chosen.name) for resource, _ in wanted)
                scan.assume(chosen, pod_set, wanted)
        assignments.append(_assigned(pod_set, requests, flavors))
    found = scan.found
    found.tried = scan.left
    found.cells, found.contested = list(scan.assumed.items()), frozenset(scan.contested)
    found.assignment = Assignment(cluster_queue=menu.name, pod_sets=tuple(assignments))
    if scan.refusals:
        found.mode, found.reason = Mode.NO_FIT, worst(scan.refusals)
    elif scan.misses:
        found.reason = worst(scan.misses)
    return found


def adopt(menu: Menu, charges: Sequence[Charge]) -> Assigned:
    """Charge what runs already, fit or not: the first flavor that fits, else the first that matches.

    Resources that no group covers are not charged.
    """
    scan = _Scan(menu, None, NO_BOUND, NO_BOUND)
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        flavors: dict[str, str] = {}
        requests = _with_pods(menu, charge)
        for number, wanted in _by_group(menu, requests).items():
            chosen = scan.choose((charge.pod_set.name, number), charge.pod_set, wanted)
            if chosen is None:
                options = menu.groups[number]
                matching = [o for o in options if menu.mismatch(o, charge.pod_set) is None]
                chosen = (matching or options)[0]
            flavors.update((resource, chosen.name) for resource, _ in wanted)
            scan.assume(chosen, charge.pod_set, wanted)
        assignments.append(_assigned(charge.pod_set, requests, flavors))
    assignment = Assignment(cluster_queue=menu.name, pod_sets=tuple(assignments))
    return Assigned(assignment, list(scan.assumed.items()))


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


def _nearest(findings: Sequence[Reason], node: Node) -> Reason:
    """Within a group the nearest miss counts, the others are listed with it (F4)."""
    if not findings:
        return Reason(code=Code.WAITING_FOR_QUOTA, node=str(node), detail="no other flavor is left to try")
    return with_others(min(findings, key=severity), findings)


def _with_pods(menu: Menu, charge: Charge) -> Amounts:
    """What one pod is charged in this queue: what nobody covers is left out."""
    covered = tuple(item for item in charge.requests if item[0] in menu.of_resource)
    return amounts((*covered, (PODS, 1))) if PODS in menu.of_resource else covered


def _by_group(menu: Menu, requests: Amounts) -> dict[int, list[tuple[str, int]]]:
    """Requested resources by the number of the group that covers them, in the group's own order."""
    grouped: dict[int, list[tuple[str, int]]] = {}
    requested = dict(requests)
    for resource, number in menu.of_resource.items():
        if resource in requested:
            grouped.setdefault(number, []).append((resource, requested[resource]))
    return grouped


def _assigned(pod_set: PodSet, requests: Amounts, flavors: Mapping[str, str]) -> PodSetAssignment:
    return PodSetAssignment(
        name=pod_set.name,
        count=pod_set.count,
        requests=requests,
        flavors=tuple(sorted(flavors.items())),
        node_selector=pod_set.node_selector,
        tolerations=pod_set.tolerations,
    )
