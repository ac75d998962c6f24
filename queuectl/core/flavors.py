"""Flavor assignment: which flavor each resource of each podset would be charged to, or why none (F1 to F5).

In this version a queue uses its own nominal quota only: what it lends nobody could take back yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from queuectl.core.matching import mismatch
from queuectl.core.model import Assignment, ClusterQueue, PodSet, PodSetAssignment, ResourceFlavor
from queuectl.core.quota import Cells, Node, QuotaTree
from queuectl.core.reasons import Code, Limit, Reason
from queuectl.core.resources import PODS, Amounts, FlavorResource, amounts

_SEVERITY = (
    Code.WAITING_FOR_QUOTA,
    Code.EXCEEDS_MAX_QUOTA,
    Code.NO_MATCHING_FLAVOR,
    Code.RESOURCE_NOT_COVERED,
)


@dataclass(frozen=True, slots=True)
class Assigned:
    assignment: Assignment
    cells: Cells
    """The same, as the quota tree counts it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One flavor of a resource group, with the cell number of each of its resources."""

    name: str
    flavor: ResourceFlavor | None
    cells: Mapping[str, int]


class Menu:
    """A ClusterQueue's resource groups with cells numbered, ready for nominations."""

    __slots__ = ("groups", "name", "node", "of_resource")

    def __init__(self, queue: ClusterQueue, tree: QuotaTree, flavors: Mapping[str, ResourceFlavor]) -> None:
        self.name = queue.name
        self.node = tree.queue(queue.name)
        self.groups: list[list[Option]] = []
        self.of_resource: dict[str, int] = {}
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


@dataclass(frozen=True, slots=True)
class Charge:
    """A podset with what one pod of it is charged: its requests and the overhead of its RuntimeClass."""

    pod_set: PodSet
    requests: Amounts


def nominate(menu: Menu, charges: Sequence[Charge]) -> Assigned | Reason:
    """Assign a flavor to every resource of every podset, each podset seeing what the earlier ones took."""
    assumed: dict[int, int] = {}
    refusals: list[Reason] = []
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        flavors: dict[str, str] = {}
        requests = _with_pods(menu, charge)
        for resource, _ in requests:
            if resource not in menu.of_resource:
                refusals.append(_not_covered(menu.node, charge, resource))
        for number, wanted in _by_group(menu, requests).items():
            chosen = _choose(menu, menu.groups[number], charge.pod_set, wanted, assumed)
            if isinstance(chosen, Reason):
                refusals.append(chosen)
                continue
            for resource, amount in wanted:
                flavors[resource] = chosen.name
                cell = chosen.cells[resource]
                assumed[cell] = assumed.get(cell, 0) + amount * charge.pod_set.count
        assignments.append(_assigned(charge.pod_set, requests, flavors))
    if refusals:
        return _worst(refusals)
    return Assigned(Assignment(cluster_queue=menu.name, pod_sets=tuple(assignments)), list(assumed.items()))


def adopt(menu: Menu, charges: Sequence[Charge]) -> Assigned:
    """Charge what runs already, fit or not: the first flavor that fits, else the first that matches.

    Resources that no group covers are not charged.
    """
    assumed: dict[int, int] = {}
    assignments: list[PodSetAssignment] = []
    for charge in charges:
        flavors: dict[str, str] = {}
        requests = tuple(item for item in _with_pods(menu, charge) if item[0] in menu.of_resource)
        for number, wanted in _by_group(menu, requests).items():
            options = menu.groups[number]
            chosen = _choose(menu, options, charge.pod_set, wanted, assumed)
            if isinstance(chosen, Reason):
                matching = [o for o in options if o.flavor and not mismatch(o.flavor, charge.pod_set)]
                chosen = (matching or options)[0]
            for resource, amount in wanted:
                flavors[resource] = chosen.name
                cell = chosen.cells[resource]
                assumed[cell] = assumed.get(cell, 0) + amount * charge.pod_set.count
        assignments.append(_assigned(charge.pod_set, requests, flavors))
    return Assigned(Assignment(cluster_queue=menu.name, pod_sets=tuple(assignments)), list(assumed.items()))


def _with_pods(menu: Menu, charge: Charge) -> Amounts:
    return amounts((*charge.requests, (PODS, 1))) if PODS in menu.of_resource else charge.requests


def _by_group(menu: Menu, requests: Amounts) -> dict[int, list[tuple[str, int]]]:
    """Requested resources by the number of the group that covers them, in the group's own order."""
    grouped: dict[int, list[tuple[str, int]]] = {}
    requested = dict(requests)
    for resource, number in menu.of_resource.items():
        if resource in requested:
            grouped.setdefault(number, []).append((resource, requested[resource]))
    return grouped


def _choose(
    menu: Menu,
    options: Sequence[Option],
    pod_set: PodSet,
    wanted: Sequence[tuple[str, int]],
    assumed: Mapping[int, int],
) -> Option | Reason:
    """The first flavor that matches and has room for all of `wanted` (F3); else the nearest miss (F4)."""
    findings: list[Reason] = []
    for option in options:
        finding = _finding(menu.node, option, pod_set, wanted, assumed)
        if finding is None:
            return option
        findings.append(finding)
    nearest = min(findings, key=lambda reason: _SEVERITY.index(reason.code))
    return _with_others(nearest, findings)


def _finding(
    node: Node,
    option: Option,
    pod_set: PodSet,
    wanted: Sequence[tuple[str, int]],
    assumed: Mapping[int, int],
) -> Reason | None:
    """Why this flavor can't take the podset; None if it can."""
    why = "ResourceFlavor not found" if option.flavor is None else mismatch(option.flavor, pod_set)
    if why is not None:
        return Reason(code=Code.NO_MATCHING_FLAVOR, flavor=option.name, node=str(node), detail=why)
    worst: Reason | None = None
    for resource, amount in wanted:
        cell = option.cells[resource]
        total = assumed.get(cell, 0) + amount * pod_set.count
        nominal = node.nominal[cell]
        free = nominal - node.usage[cell]  # negative where quota was cut below use
        if total <= max(0, free):
            continue
        ever = total <= nominal
        if worst is not None and (ever or worst.code is Code.EXCEEDS_MAX_QUOTA):
            continue
        room = free if ever else nominal
        worst = Reason(
            code=Code.WAITING_FOR_QUOTA if ever else Code.EXCEEDS_MAX_QUOTA,
            flavor=option.name,
            resource=resource,
            requested=total,
            available=max(0, room),
            short_by=total - room,
            limit=Limit.NOMINAL_QUOTA,
            node=str(node),
        )
    return worst


def _not_covered(node: Node, charge: Charge, resource: str) -> Reason:
    return Reason(
        code=Code.RESOURCE_NOT_COVERED,
        resource=resource,
        requested=dict(charge.requests)[resource] * charge.pod_set.count,
        available=0,
        limit=Limit.COVERED_RESOURCES,
        node=str(node),
    )


def _worst(refusals: Sequence[Reason]) -> Reason:
    """Across groups and podsets the most severe finding is the answer (F5)."""
    worst = max(refusals, key=lambda reason: _SEVERITY.index(reason.code))
    return _with_others(worst, refusals)


def _with_others(reason: Reason, findings: Sequence[Reason]) -> Reason:
    others = [replace(f, others=()) for f in findings if f is not reason]
    return replace(reason, others=(*reason.others, *others))


def _assigned(pod_set: PodSet, requests: Amounts, flavors: Mapping[str, str]) -> PodSetAssignment:
    return PodSetAssignment(
        name=pod_set.name,
        count=pod_set.count,
        requests=requests,
        flavors=tuple(sorted(flavors.items())),
        node_selector=pod_set.node_selector,
        tolerations=pod_set.tolerations,
    )
