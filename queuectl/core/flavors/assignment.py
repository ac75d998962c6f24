"""Flavor assignment: which flavor each resource of a podset would be charged to, or why none (F1 to F9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from queuectl.core.flavors.queue_flavors import (
    Charge,
    FlavorOption,
    LastTriedFlavors,
    PodSetGroup,
    QueueFlavors,
)
from queuectl.core.model import Assignment, PodSet, PodSetAssignment
from queuectl.core.policy import FlavorFungibility
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from queuectl.core.reasons import Code, Limit, Reason
from queuectl.core.resources import PODS, Amounts, amounts

NO_BOUND: Final[Mapping[Any, Any]] = MappingProxyType({})


class Mode(IntEnum):
    """How a request could be met, worst first (F3)."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # somebody else's quota would do, and nobody can be made to give it
    PREEMPT = 2  # by taking it from workloads of its own queue, maybe of others too
    RECLAIM = 3  # by taking it from workloads of other queues alone
    FIT = 4

    @property
    def preempts(self) -> bool:
        return Mode.NO_FIT < self < Mode.FIT


class GranularMode(NamedTuple):
    """A mode, and how far up the tree the request borrows (Q9)."""

    mode: Mode
    level: int


def better(one: GranularMode, other: GranularMode, rules: FlavorFungibility) -> bool:
    """Is `one` strictly preferred (F7)?"""
    low = min(one.mode, other.mode)
    if low <= Mode.NO_CANDIDATES and one.mode != other.mode:
        return one.mode > other.mode
    if rules.preemption_over_borrowing:
        return (-one.level, one.mode) > (-other.level, other.mode)
    return (one.mode, -one.level) > (other.mode, -other.level)


def keeps_looking(chance: GranularMode, rules: FlavorFungibility) -> bool:
    """Is the next flavor looked at too, after one that offers this (F6)?"""
    return (
        chance.mode <= Mode.NO_CANDIDATES
        or (chance.mode.preempts and rules.try_next_before_preempting)
        or (chance.level > 0 and rules.try_next_before_borrowing)
    )


Search = Callable[[int, int], GranularMode]
"""What taking quota from others would offer for (cell, amount); the amount does not fit as it is."""


@dataclass(slots=True)
class AssignmentResult:
    """What a nomination found. `mode` is the worst over all podsets, `level` the highest."""

    assignment: Assignment
    cells: Cells
    """The same, as the quota tree counts it."""
    mode: Mode = Mode.FIT
    level: int = 0
    contested: frozenset[int] = frozenset()
    """Cells that do not fit as they are."""
    chances: dict[PodSetGroup, GranularMode] = field(default_factory=dict)
    """By the first of the podsets that get their flavors together, and resource group."""
    modes: dict[tuple[str, str], Mode] = field(default_factory=dict)
    """By podset and resource."""
    reason: Reason | None = None
    """Why it does not fit as it is; there is one unless `mode` is FIT."""
    tried: LastTriedFlavors = field(default_factory=dict)
    """Where to go on looking next time: empty where all flavors were looked at."""


class _Offer(NamedTuple):
    option: FlavorOption
    chance: GranularMode
    parts: list[tuple[int, str, Mode]]
    """Cell, resource and mode of each."""


class _Scan:
    """One nomination under way."""

    def __init__(
        self,
        menu: QueueFlavors,
        search: Search | None,
        tried: LastTriedFlavors,
        pinned: Mapping[PodSetGroup, str],
    ) -> None:
        self.menu = menu
        self.search = search
        self.tried = tried
        self.pinned = pinned
        self.assumed: dict[int, int] = {}
        self.refusals: list[Reason] = []
        self.misses: list[Reason] = []
        self.contested: set[int] = set()
        self.found = AssignmentResult(Assignment(cluster_queue=menu.name, pod_sets=()), [])
        self.left: dict[PodSetGroup, int] = {}

    def assign(self, pod_sets: Sequence[PodSet], requests: Sequence[Amounts]) -> dict[str, str]:
        """Flavors by resource for podsets that get them together (F1); what none would do for is missing."""
        total: dict[str, int] = {}
        for pod_set, asked in zip(pod_sets, requests, strict=True):
            for resource, amount in asked:
                total[resource] = total.get(resource, 0) + amount * pod_set.count
        menu, chosen = self.menu, dict[str, FlavorOption]()
        looked_at: set[int] = set()
        for resource in total:
            number = menu.of_resource[resource]
            if resource in chosen or number in looked_at:
                continue
            looked_at.add(number)
            covered = menu.covered[number]
            wanted = [(name, total[name]) for name in covered if name in total]
            option = self._choose(number, pod_sets, wanted)
            if option is not None:
                chosen |= dict.fromkeys((name for name, _ in wanted), option)
        for resource, option in chosen.items():
            cell = option.cells[resource]
            self.assumed[cell] = self.assumed.get(cell, 0) + total[resource]
        return {resource: option.name for resource, option in chosen.items()}

    def _choose(
        self, number: int, pod_sets: Sequence[PodSet], wanted: Sequence[tuple[str, int]]
    ) -> FlavorOption | None:
        """The flavor for `wanted`, with what it offers noted; None: none would do, as `refusals` say."""
        menu, rules, group = self.menu, self.menu.fungibility, (pod_sets[0].name, number)
        options = menu.groups[number]
        best: _Offer | None = None
        looked_at: list[FlavorOption] = []
        for position in range(self.tried.get(group, -1) + 1, len(options)):
            option = options[position]
            if self.pinned and self.pinned.get(group) != option.name:
                continue
            offer = self._offer(option, pod_sets, wanted)
            looked_at.append(option)
            stops = not keeps_looking(offer.chance, rules)
            if stops or best is None or better(offer.chance, best.chance, rules):
                best = offer
            if stops:
                if position != len(options) - 1:
                    self.left[group] = position
                break
        if best is None or best.chance.mode is Mode.NO_FIT:
            self.refusals.append(self._nearest(looked_at, pod_sets, wanted))
            return None
        self.found.chances[group] = best.chance
        self._note(pod_sets, best)
        if best.chance.mode is not Mode.FIT:
            self.misses.append(self._nearest(looked_at, pod_sets, wanted))
        return best.option

    def _nearest(
        self, options: Sequence[FlavorOption], pod_sets: Sequence[PodSet], wanted: Sequence[tuple[str, int]]
    ) -> Reason:
        """Within a group the nearest miss counts, the others are listed with it (F4)."""
        node = self.menu.node
        found = (self._finding(option, pod_sets, wanted) for option in options)
        findings = [finding for finding in found if finding is not None]
        if not findings:
            return Reason(
                code=Code.WAITING_FOR_QUOTA, node=str(node), detail="no other flavor is left to try"
            )
        return with_others(min(findings, key=severity), findings)

    def _finding(
        self, option: FlavorOption, pod_sets: Sequence[PodSet], wanted: Sequence[tuple[str, int]]
    ) -> Reason | None:
        """Why one flavor is not simply a fit: of its resources the most severe."""
        menu, tree = self.menu, self.menu.tree
        for pod_set in pod_sets:
            if (why := menu.mismatch(option, pod_set)) is not None:
                code = Code.NO_MATCHING_FLAVOR
                return Reason(code=code, flavor=option.name, node=str(menu.node), detail=why)
        missed = [
            tree.explain(menu.node, cell, total)
            for cell, total in self._totals(option, wanted)
            if total > max(0, tree.available(menu.node, cell))
        ]
        return max(missed, key=severity) if missed else None

    def _totals(self, option: FlavorOption, wanted: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        assumed = self.assumed
        return [
            (cell, assumed.get(cell, 0) + amount)
            for cell, amount in [(option.cells[resource], amount) for resource, amount in wanted]
        ]

    def _note(self, pod_sets: Sequence[PodSet], offer: _Offer) -> None:
        found, chance = self.found, offer.chance
        found.mode, found.level = min(found.mode, chance.mode), max(found.level, chance.level)
        for cell, resource, mode in offer.parts:
            for pod_set in pod_sets:
                found.modes[pod_set.name, resource] = mode
            if mode is not Mode.FIT:
                self.contested.add(cell)

    def _offer(
        self, option: FlavorOption, pod_sets: Sequence[PodSet], wanted: Sequence[tuple[str, int]]
    ) -> _Offer:
        """What one flavor offers, resource by resource."""
        menu = self.menu
        if any(menu.mismatch(option, pod_set) is not None for pod_set in pod_sets):
            return _Offer(option, GranularMode(Mode.NO_FIT, 0), [])
        tree, node = menu.tree, menu.node
        whole: GranularMode | None = None
        parts: list[tuple[int, str, Mode]] = []
        for (resource, _), (cell, total) in zip(wanted, self._totals(option, wanted), strict=True):
            if total <= max(0, tree.available(node, cell)):
                chance = GranularMode(Mode.FIT, tree.borrow_level(node, cell, total)[0])
            else:
                chance = self._without_room(cell, total)
            parts.append((cell, resource, chance.mode))
            if whole is None or better(whole, chance, menu.fungibility):
                whole = chance
        return _Offer(option, whole or GranularMode(Mode.FIT, 0), parts)

    def _without_room(self, cell: int, total: int) -> GranularMode:
        tree, node = self.menu.tree, self.menu.node
        if self.search is None or total > tree.potential(node, cell):
            return GranularMode(Mode.NO_FIT, 0)
        return self.search(cell, total)


def assign(
    menu: QueueFlavors,
    charges: Sequence[Charge],
    search: Search | None = None,
    tried: LastTriedFlavors = NO_BOUND,
    pinned: Mapping[PodSetGroup, str] = NO_BOUND,
) -> AssignmentResult:
    """Assign a flavor to every resource of every podset, each podset seeing what the earlier ones took.

    `search`: what preemption offers (None: nothing does). `tried`: where to go on looking (F8). `pinned`:
    flavors that must stay as they were nominated.
    """
    scan = _Scan(menu, search, tried, pinned)
    assignments: dict[str, PodSetAssignment] = {}
    for together in _groups(charges):
        requests = [with_pods(menu, charge) for charge in together]
        for charge in together:
            scan.refusals += [
                never_covered(menu.node, resource, amount * charge.pod_set.count)
                for resource, amount in charge.requests
                if amount > 0 and resource not in menu.of_resource
            ]
        flavors = scan.assign([charge.pod_set for charge in together], requests)
        for charge, asked in zip(together, requests, strict=True):
            mine = {resource: flavors[resource] for resource, _ in asked if resource in flavors}
            assignments[charge.pod_set.name] = assigned(charge.pod_set, asked, mine)
    found = scan.found
    found.tried = scan.left
    found.cells, found.contested = list(scan.assumed.items()), frozenset(scan.contested)
    in_order = tuple(assignments[charge.pod_set.name] for charge in charges)
    found.assignment = Assignment(cluster_queue=menu.name, pod_sets=in_order)
    if scan.refusals:
        found.mode, found.reason = Mode.NO_FIT, worst(scan.refusals)
    elif scan.misses:
        found.reason = worst(scan.misses)
    return found


def adopt(menu: QueueFlavors, charges: Sequence[Charge]) -> AssignmentResult:
    """Charge what runs already, fit or not: the first flavor that fits, else the first that matches.

    Resources that no group covers are not charged.
    """
    assumed: dict[int, int] = {}
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        pod_set, requests = charge.pod_set, with_pods(menu, charge)
        scan = _Scan(menu, None, NO_BOUND, NO_BOUND)
        scan.assumed = assumed
        flavors = scan.assign([pod_set], [requests])
        for resource, amount in requests:
            if resource not in flavors:
                options = menu.groups[menu.of_resource[resource]]
                matching = [o for o in options if menu.mismatch(o, pod_set) is None]
                option = (matching or options)[0]
                cell = option.cells[resource]
                flavors[resource] = option.name
                assumed[cell] = assumed.get(cell, 0) + amount * pod_set.count
        assignments.append(assigned(pod_set, requests, flavors))
    assignment = Assignment(cluster_queue=menu.name, pod_sets=tuple(assignments))
    return AssignmentResult(assignment, list(assumed.items()))


def with_pods(menu: QueueFlavors, charge: Charge) -> Amounts:
    """What one pod is charged in this queue: what nobody covers is left out."""
    covered = tuple(item for item in charge.requests if item[0] in menu.of_resource)
    return amounts((*covered, (PODS, 1))) if PODS in menu.of_resource else covered


def _groups(charges: Sequence[Charge]) -> Iterable[list[Charge]]:
    """Podsets that get their flavors together, in the order of the first of each (F1)."""
    if all(charge.pod_set.group is None for charge in charges):
        return ([charge] for charge in charges)
    found: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        group = charge.pod_set.group
        found.setdefault(("", charge.pod_set.name) if group is None else ("group", group), []).append(charge)
    return found.values()


def assigned(pod_set: PodSet, requests: Amounts, flavors: Mapping[str, str]) -> PodSetAssignment:
    return PodSetAssignment(
        name=pod_set.name,
        count=pod_set.count,
        requests=requests,
        flavors=tuple(sorted(flavors.items())),
        node_selector=pod_set.node_selector,
        tolerations=pod_set.tolerations,
    )


_SEVERITY: Final = {
    Code.WAITING_FOR_QUOTA: 0,
    Code.EXCEEDS_MAX_QUOTA: 1,
    Code.NO_MATCHING_FLAVOR: 2,
    Code.RESOURCE_NOT_COVERED: 3,
}


def severity(reason: Reason) -> int:
    return _SEVERITY[reason.code]


def worst(refusals: Sequence[Reason]) -> Reason:
    """Across groups and podsets the most severe finding is the answer (F5)."""
    return with_others(max(refusals, key=severity), refusals)


def with_others(reason: Reason, findings: Sequence[Reason]) -> Reason:
    if len(findings) == 1:
        return reason
    others = [replace(f, others=()) for f in findings if f is not reason]
    return replace(reason, others=(*reason.others, *others))


def never_covered(node: QuotaNode, resource: str, requested: int) -> Reason:
    return Reason(
        code=Code.RESOURCE_NOT_COVERED,
        resource=resource,
        requested=requested,
        available=0,
        limit=Limit.COVERED_RESOURCES,
        node=str(node),
    )


def kept_for_others(tree: QuotaTree, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> Reason:
    """It would fit, but what is free is kept for workloads that come before it (C6, C7)."""
    cell, amount = max(cells, key=lambda item: item[1] - tree.available(node, item[0]))
    flavor, resource = tree.names[cell]
    return Reason(
        code=Code.WAITING_FOR_QUOTA,
        flavor=flavor,
        resource=resource,
        requested=amount,
        node=str(node),
        detail="what is free is kept for workloads that come first",
    )
