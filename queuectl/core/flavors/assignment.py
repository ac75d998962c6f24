"""Flavor assignment: the flavor that each resource of a podset is charged to, or why none (F1 to F9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from queuectl.core.flavors.queue_flavors import (
    Charge,
    FlavorOption,
    GranularMode,
    LastTriedFlavors,
    Mode,
    PodSetGroup,
    QueueFlavors,
    assigned,
    better,
    keeps_looking,
)
from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import Assignment, PodSet, PodSetAssignment
from queuectl.core.quota.tree import Cells, QuotaNode

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class NextFlavor(NamedTuple):
    """A flavor that a workload may take later: it waits for those before it until then (F10)."""

    at: datetime
    name: str


Placed = Sequence[tuple[Sequence[Charge], Mapping[str, str]]]
"""Podsets, as many as are assigned so far, with their flavors by resource."""


class Search(Protocol):
    """What is asked where a request does not fit, and of what the tree does not know."""

    def offer(self, cell: int, amount: int, placed: Placed) -> GranularMode:
        """Return what preemption offers for one cell; `placed` needs room on nodes as well (M8)."""

    def lacks_room(self, placed: Placed) -> str | None:
        """Return the resource for which nodes have no room (M1); None: there is room."""

    def explain_room(self, placed: Placed) -> Reason | None:
        """Return why nodes have no room for it, and remember it; None: there is room."""


@dataclass(slots=True)
class AssignmentResult:
    """Result of a flavor assignment. `mode` is the worst over all podsets, `level` the highest."""

    assignment: Assignment
    cells: Cells
    """The usage of `assignment`, with cell numbers."""
    mode: Mode = Mode.FIT
    level: int = 0
    needed: frozenset[int] = frozenset()
    """Numbers of the cells that need preemption."""
    chances: dict[PodSetGroup, GranularMode] = field(default_factory=dict)
    """What the chosen flavors offer. Podsets with one group have the key of the first of them.

    The fast path leaves this empty.
    """
    reason: Reason | None = None
    """Why the workload does not fit; None if `mode` is FIT."""
    tried: LastTriedFlavors = field(default_factory=dict)
    """Where the next evaluation continues (F8); empty if all flavors were tried."""
    later: NextFlavor | None = None
    """The first flavor that it may take later; None: it waits for no flavor."""


class FlavorWait(NamedTuple):
    """How long a workload waits (F10)."""

    since: datetime
    now: datetime
    partly: bool
    """It may start with fewer pods (F9)."""


class _Offer(NamedTuple):
    """What one flavor offers for the requests of one resource group."""

    option: FlavorOption
    chance: GranularMode
    parts: list[tuple[int, Mode]]
    """(cell number, mode) per resource."""


class _Passed(NamedTuple):
    """Flavors of one resource group, which got another one."""

    options: list[tuple[FlavorOption, Placed]]
    """Each with what would be assigned up to then."""
    requested: Sequence[tuple[str, int]]
    assumed: dict[int, int]
    """Amount by cell that was assigned before."""


class _Scan:
    """The state of one flavor assignment."""

    def __init__(
        self,
        queue_flavors: QueueFlavors,
        search: Search | None,
        tried: LastTriedFlavors,
        pinned: Mapping[PodSetGroup, str],
        waiting: FlavorWait | None = None,
    ) -> None:
        self.queue_flavors = queue_flavors
        self.waiting = waiting
        self.search = search
        self.tried = tried
        self.pinned = pinned
        self.assumed: dict[int, int] = {}
        """Amount by cell that is assigned to earlier podsets."""
        self.refusals: list[Reason] = []
        """Why resource groups got no flavor."""
        self.misses: list[Reason] = []
        """Why resource groups got a flavor that does not fit."""
        self.never = False
        """A resource group gets no flavor, whatever the other podsets get."""
        self._passed: list[_Passed] = []
        self.needed: set[int] = set()
        self.found = AssignmentResult(Assignment(cluster_queue=queue_flavors.name, pod_sets=()), [])
        self.last_tried: dict[PodSetGroup, int] = {}
        self._placed: list[tuple[Sequence[Charge], Mapping[str, str]]] = []
        """The podsets before those that are assigned now, with their flavors."""
        self._charges: Sequence[Charge] = ()
        """Those that are assigned now."""
        self._chosen: dict[str, FlavorOption] = {}
        """The flavors that these have so far."""

    def assign(self, charges: Sequence[Charge], requests: Sequence[Amounts]) -> dict[str, str]:
        """Return the flavor by resource for podsets with one group; without a flavor, no entry (F1)."""
        total: dict[str, int] = {}
        pod_sets = [charge.pod_set for charge in charges]
        self._charges = charges
        for pod_set, asked in zip(pod_sets, requests, strict=True):
            for resource, amount in asked:
                total[resource] = total.get(resource, 0) + amount * pod_set.count
        queue_flavors, chosen = self.queue_flavors, dict[str, FlavorOption]()
        self._chosen = chosen
        evaluated: set[int] = set()
        for resource in total:
            number = queue_flavors.of_resource[resource]
            if resource in chosen or number in evaluated:
                continue
            evaluated.add(number)
            covered = queue_flavors.covered[number]
            requested = [(name, total[name]) for name in covered if name in total]
            option = self._choose(number, pod_sets, requested)
            if option is not None:
                chosen |= dict.fromkeys((name for name, _ in requested), option)
        for resource, option in chosen.items():
            cell = option.cells[resource]
            self.assumed[cell] = self.assumed.get(cell, 0) + total[resource]
        flavors = {resource: option.name for resource, option in chosen.items()}
        self._placed.append((charges, flavors))
        return flavors

    def _with(self, option: FlavorOption, requested: Iterable[tuple[str, int]]) -> Placed:
        """Return what is assigned so far, with one more flavor."""
        flavors = {resource: chosen.name for resource, chosen in self._chosen.items()}
        return [*self._placed, (self._charges, flavors | {name: option.name for name, _ in requested})]

    def _choose(
        self, number: int, pod_sets: Sequence[PodSet], requested: Sequence[tuple[str, int]]
    ) -> FlavorOption | None:
        """Choose the flavor for `requested`, (resource, amount) pairs; None: see `refusals`."""
        rules, group = self.queue_flavors.fungibility, (pod_sets[0].name, number)
        options = self.queue_flavors.groups[number]
        best: _Offer | None = None
        evaluated: list[FlavorOption] = []
        end = self._end(options, pod_sets, requested)
        for position in range(self.tried.get(group, -1) + 1, end):
            option = options[position]
            if self.pinned and self.pinned.get(group) != option.name:
                continue
            offer = self._offer(option, pod_sets, requested)
            evaluated.append(option)
            stops = not keeps_looking(offer.chance, rules)
            if stops or best is None or better(offer.chance, best.chance, rules):
                best = offer
            if stops:
                if position != end - 1:
                    self.last_tried[group] = position
                break
        if best is None or best.chance.mode is Mode.NO_FIT:
            self.refusals.append(self._nearest(evaluated, pod_sets, requested))
            # Were no other podset charged to them.
            self.never |= not any(self._possible(one, pod_sets, requested, {}) for one in evaluated)
            return None
        found, chance = self.found, best.chance
        found.chances[group] = chance
        found.mode, found.level = min(found.mode, chance.mode), max(found.level, chance.level)
        self.needed.update(cell for cell, mode in best.parts if mode is not Mode.FIT)
        if not self.pinned:
            others = (one for one in options[:end] if one is not best.option)
            passed = [(one, self._with(one, requested)) for one in others if self._matches(one, pod_sets)]
            self._passed.append(_Passed(passed, requested, dict(self.assumed)))
        if chance.mode is not Mode.FIT:
            self.misses.append(self._nearest(evaluated, pod_sets, requested))
        return best.option

    def passed(self) -> list[Reason]:
        """Return the quota or room that podsets lack for flavors other than the one that they got."""
        found: list[Reason] = []
        for options, requested, assumed in self._passed:
            for option, placed in options:
                missed = self._missed(option, requested, assumed)
                if missed and not any(map(_severity, missed)):
                    found += missed[:1]
                if not missed and self.search is not None and (room := self.search.explain_room(placed)):
                    found.append(room)
        return found

    def _missed(
        self, option: FlavorOption, requested: Sequence[tuple[str, int]], assumed: Mapping[int, int]
    ) -> list[Reason]:
        tree, node = self.queue_flavors.tree, self.queue_flavors.node
        return [
            tree.explain(node, cell, total)
            for cell, total in self._totals(option, requested, assumed)
            if total > max(0, tree.available(node, cell))
        ]

    def _matches(self, option: FlavorOption, pod_sets: Iterable[PodSet]) -> bool:
        return option.out_until is None and all(
            self.queue_flavors.mismatch(option, one) is None for one in pod_sets
        )

    def _end(
        self,
        options: Sequence[FlavorOption],
        pod_sets: Sequence[PodSet],
        requested: Sequence[tuple[str, int]],
    ) -> int:
        """Return how many of the flavors may be evaluated now: for those it waits before the next (F10)."""
        if self.waiting is None:
            return len(options)
        at, reached = self.waiting.since, max(self.waiting.since, self.waiting.now)
        for position, option in enumerate(options):
            if at > reached:
                later = self.found.later
                if later is None or at < later.at:
                    self.found.later = NextFlavor(at, option.name)
                return position
            if self._possible(option, pod_sets, requested, self.assumed, partly=self.waiting.partly):
                at += timedelta(seconds=option.wait)
        return len(options)

    def _possible(
        self,
        option: FlavorOption,
        pod_sets: Sequence[PodSet],
        requested: Sequence[tuple[str, int]],
        assumed: Mapping[int, int],
        *,
        partly: bool = False,
    ) -> bool:
        """Return whether a flavor could ever have enough, with what is `assumed` to be assigned. `partly`: or
        for fewer pods (F9)."""
        tree, node = self.queue_flavors.tree, self.queue_flavors.node
        return self._matches(option, pod_sets) and (
            partly
            or all(
                total <= tree.potential(node, cell)
                for cell, total in self._totals(option, requested, assumed)
            )
        )

    def _nearest(
        self,
        options: Sequence[FlavorOption],
        pod_sets: Sequence[PodSet],
        requested: Sequence[tuple[str, int]],
    ) -> Reason:
        """Return the finding of the flavor that is nearest to a fit, with the other findings (F4)."""
        node = self.queue_flavors.node
        found = (self._finding(option, pod_sets, requested) for option in options)
        findings = [finding for finding in found if finding is not None]
        if not findings:
            return Reason(code=Code.WAITING_FOR_QUOTA, node=str(node), detail="no flavor is left to evaluate")
        return _with_others(min(findings, key=_severity), findings)

    def _finding(
        self, option: FlavorOption, pod_sets: Sequence[PodSet], requested: Sequence[tuple[str, int]]
    ) -> Reason | None:
        """Return the most severe finding of one flavor over its resources; None: it fits."""
        queue_flavors = self.queue_flavors
        for pod_set in pod_sets:
            if (why := queue_flavors.mismatch(option, pod_set)) is not None:
                code = Code.NO_MATCHING_FLAVOR
                return Reason(code=code, flavor=option.name, node=str(queue_flavors.node), detail=why)
        if option.out_until is not None:
            code, why = Code.CAPACITY_MISSING, "its nodes did not come in time"
            return Reason(code=code, flavor=option.name, until=option.out_until, detail=why)
        if missed := self._missed(option, requested, self.assumed):
            return max(missed, key=_severity)
        return self.search.explain_room(self._with(option, requested)) if self.search is not None else None

    def _totals(
        self,
        option: FlavorOption,
        requested: Sequence[tuple[str, int]],
        assumed: Mapping[int, int] | None = None,
    ) -> list[tuple[int, int]]:
        """Return (cell, amount with what is assigned before) pairs."""
        assumed = self.assumed if assumed is None else assumed
        return [
            (cell, assumed.get(cell, 0) + amount)
            for cell, amount in [(option.cells[resource], amount) for resource, amount in requested]
        ]

    def _offer(
        self, option: FlavorOption, pod_sets: Sequence[PodSet], requested: Sequence[tuple[str, int]]
    ) -> _Offer:
        """Return what one flavor offers: the worst over the resources (F3)."""
        queue_flavors = self.queue_flavors
        mismatches = (queue_flavors.mismatch(option, pod_set) for pod_set in pod_sets)
        if option.out_until is not None or any(why is not None for why in mismatches):
            return _Offer(option, GranularMode(Mode.NO_FIT, 0), [])
        tree, node = queue_flavors.tree, queue_flavors.node
        whole: GranularMode | None = None
        parts: list[tuple[int, Mode]] = []
        for cell, total in self._totals(option, requested):
            if total <= max(0, tree.available(node, cell)):
                chance = GranularMode(Mode.FIT, tree.borrow_level(node, cell, total)[0])
            else:
                chance = self._with_preemption(cell, total, self._with(option, requested))
            parts.append((cell, chance.mode))
            if whole is None or better(whole, chance, queue_flavors.fungibility):
                whole = chance
        offer = _Offer(option, whole or GranularMode(Mode.FIT, 0), parts)
        return self._with_room(offer, requested) if offer.chance.mode is Mode.FIT else offer

    def _with_room(self, offer: _Offer, requested: Sequence[tuple[str, int]]) -> _Offer:
        """Return `offer`, for which quota is available, as it is with the nodes that are there (M1, M8)."""
        if self.search is None or not offer.parts:
            return offer
        placed = self._with(offer.option, requested)
        lacking = self.search.lacks_room(placed)
        if lacking is None:
            return offer
        names = [name for name, _ in requested]
        at = names.index(lacking) if lacking in names else 0
        cell, total = self._totals(offer.option, requested)[at]
        chance = self._with_preemption(cell, total, placed)
        parts = [(one, chance.mode if one == cell else mode) for one, mode in offer.parts]
        return _Offer(offer.option, chance, parts)

    def _with_preemption(self, cell: int, total: int, placed: Placed) -> GranularMode:
        tree, node = self.queue_flavors.tree, self.queue_flavors.node
        if self.search is None or total > tree.potential(node, cell):
            return GranularMode(Mode.NO_FIT, 0)
        return self.search.offer(cell, total, placed)


def assign(
    queue_flavors: QueueFlavors,
    charges: Sequence[Charge],
    search: Search | None = None,
    tried: LastTriedFlavors = NOTHING,
    pinned: Mapping[PodSetGroup, str] = NOTHING,
    waiting: FlavorWait | None = None,
) -> AssignmentResult:
    """Assign a flavor to every resource of every podset, after the charges of the earlier podsets (F1).

    Args:
        search: the preemption search; None: no preemption.
        tried: the last tried flavors, behind which the evaluation continues (F8).
        pinned: flavor by podset and resource group of an earlier nomination; no other is evaluated.
        waiting: how long it waits; None: it waits for no flavor (F10).
    """
    scan = _Scan(queue_flavors, search, tried, pinned, waiting)
    assignments: dict[str, PodSetAssignment] = {}
    for together in _groups(charges):
        requests = [queue_flavors.pod_charge(charge) for charge in together]
        for charge in together:
            scan.refusals += [
                _never_covered(queue_flavors.node, resource, amount * charge.pod_set.count)
                for resource, amount in queue_flavors.refused(charge.requests)
                if amount > 0
            ]
        flavors = scan.assign(together, requests)
        for charge, asked in zip(together, requests, strict=True):
            mine = {resource: flavors[resource] for resource, _ in asked if resource in flavors}
            assignments[charge.pod_set.name] = assigned(charge.pod_set, asked, mine)
    found = scan.found
    found.tried = scan.last_tried
    found.cells, found.needed = list(scan.assumed.items()), frozenset(scan.needed)
    in_order = tuple(assignments[charge.pod_set.name] for charge in charges)
    found.assignment = Assignment(cluster_queue=queue_flavors.name, pod_sets=in_order)
    if scan.refusals:
        found.mode, found.reason = Mode.NO_FIT, _explained(scan, _worst(scan.refusals))
    elif scan.misses:
        found.reason = _explained(scan, _worst(scan.misses))
    if found.reason is not None and found.later is not None and _severity(found.reason) == 0:
        found.reason = _with_later(found.reason, found.later)
    return found


def _explained(scan: _Scan, reason: Reason) -> Reason:
    """Return `reason` with what would give earlier podsets other flavors (F5).

    Where a podset exceeds a quota only because of the flavors of earlier ones, waiting helps.
    """
    known = {(one.code, one.flavor, one.resource, one.requested) for one in (reason, *reason.others)}
    passed = [
        one for one in scan.passed() if (one.code, one.flavor, one.resource, one.requested) not in known
    ]
    if not passed:
        return reason
    if reason.code is Code.EXCEEDS_MAX_QUOTA and not scan.never:
        return _with_others(passed[0], [*passed, replace(reason, others=()), *reason.others])
    return _with_others(reason, [reason, *passed])


def adopt(queue_flavors: QueueFlavors, charges: Sequence[Charge]) -> AssignmentResult:
    """Assign flavors to a workload that already runs, whether it fits or not (L4).

    Each podset gets the first flavor that fits, else the first that matches, else the first. Resources that
    no group covers are not charged.
    """
    assumed: dict[int, int] = {}
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        pod_set, requests = charge.pod_set, queue_flavors.pod_charge(charge)
        scan = _Scan(queue_flavors, None, NOTHING, NOTHING)
        scan.assumed = assumed
        flavors = scan.assign([charge], [requests])
        for resource, amount in requests:
            if resource not in flavors:
                options = queue_flavors.groups[queue_flavors.of_resource[resource]]
                matching = [o for o in options if queue_flavors.mismatch(o, pod_set) is None]
                option = (matching or options)[0]
                cell = option.cells[resource]
                flavors[resource] = option.name
                assumed[cell] = assumed.get(cell, 0) + amount * pod_set.count
        assignments.append(assigned(pod_set, requests, flavors))
    assignment = Assignment(cluster_queue=queue_flavors.name, pod_sets=tuple(assignments))
    return AssignmentResult(assignment, list(assumed.items()))


def never_fits(queue_flavors: QueueFlavors, charges: Sequence[Charge]) -> bool:
    """Return whether a podset gets no flavor whatever is in use: none matches that could ever have enough.

    A podset that may start with fewer pods is taken with these. Nodes do not count.
    """
    return any(_never_fits(queue_flavors, charge) for charge in charges)


def _never_fits(queue_flavors: QueueFlavors, charge: Charge) -> bool:
    if any(amount > 0 for _, amount in queue_flavors.refused(charge.requests)):
        return True
    tree, node, pod_set = queue_flavors.tree, queue_flavors.node, charge.pod_set
    by_group: dict[int, list[tuple[str, int]]] = {}
    for resource, amount in queue_flavors.pod_charge(charge):
        total = amount * (pod_set.min_count or pod_set.count)
        by_group.setdefault(queue_flavors.of_resource[resource], []).append((resource, total))
    return not all(
        any(
            all(total <= tree.potential(node, option.cells[resource]) for resource, total in requested)
            for option in queue_flavors.groups[number]
            if queue_flavors.mismatch(option, pod_set) is None
        )
        for number, requested in by_group.items()
    )


def _groups(charges: Sequence[Charge]) -> Iterable[list[Charge]]:
    """Return the podsets that get the same flavors, in order of the first one of each (F1)."""
    if all(charge.pod_set.group is None for charge in charges):
        return ([charge] for charge in charges)
    found: dict[tuple[str, str], list[Charge]] = {}
    for charge in charges:
        group = charge.pod_set.group
        found.setdefault(("", charge.pod_set.name) if group is None else ("group", group), []).append(charge)
    return found.values()


# --- findings, and the reason that is made of them


_SEVERITY: Final = {
    Code.WAITING_FOR_QUOTA: 0,
    Code.CAPACITY_MISSING: 0,
    Code.NO_NODE_FITS: 0,
    Code.EXCEEDS_MAX_QUOTA: 1,
    Code.NO_NODE_CAN_FIT: 1,
    Code.NO_MATCHING_FLAVOR: 2,
    Code.RESOURCE_NOT_COVERED: 3,
}


def _severity(reason: Reason) -> int:
    """Return the rank of a finding, larger for more severe (F4, F5)."""
    return _SEVERITY[reason.code]


def _worst(refusals: Sequence[Reason]) -> Reason:
    """Return the most severe finding over resource groups and podsets, with the others (F5)."""
    return _with_others(max(refusals, key=_severity), refusals)


def _with_others(reason: Reason, findings: Sequence[Reason]) -> Reason:
    """Return `reason` with the other `findings` in `others`."""
    if len(findings) == 1:
        return reason
    others = [replace(f, others=()) for f in findings if f is not reason]
    return replace(reason, others=(*reason.others, *others))


def _with_later(reason: Reason, later: NextFlavor) -> Reason:
    """Return `reason` with the flavor that the workload may take later (F10)."""
    detail = f"flavor {later.name} may be taken then"
    detail = f"{reason.detail}; {detail}" if reason.detail else detail
    return replace(reason, detail=detail, until=later.at)


def _never_covered(node: QuotaNode, resource: str, requested: int) -> Reason:
    """Return the finding for a resource that no resource group of the ClusterQueue covers."""
    return Reason(
        code=Code.RESOURCE_NOT_COVERED,
        resource=resource,
        requested=requested,
        available=0,
        limit=Limit.COVERED_RESOURCES,
        node=str(node),
    )
