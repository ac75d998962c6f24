"""What a ClusterQueue offers and what a workload asks for, made ready to be matched (F1, F2, F9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from queuectl.core.model import PodSet
from queuectl.core.policy import ClusterQueue, LabelSelector, Requirement, ResourceFlavor, Taint, Toleration
from queuectl.core.quota.tree import QuotaTree
from queuectl.core.resources import Amounts, FlavorResource
from queuectl.core.values import value


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    return all(labels.get(key) == value for key, value in selector.labels) and all(
        meets(requirement, labels) for requirement in selector.expressions
    )


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """One match expression; an operator that Kubernetes does not know matches nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Gt and Lt read both sides as integers of a length that node labels can have."""
    if value is None or len(requirement.values) != 1:
        return False
    bound = requirement.values[0]
    try:
        left, right = int(value[:64]), int(bound[:64])
    except ValueError:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Only NoSchedule and NoExecute keep pods away; PreferNoSchedule is always tolerated."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return True
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str | None:
    """Why pods of this podset can't run on nodes of this flavor; None if they can (docs/scheduling.md, F2).

    Node selector and affinity are held against the labels that the flavor defines, and no others: what the
    flavor says nothing about is the scheduler's business.
    """
    for taint in flavor.node_taints:
        if not tolerated(taint, (*pod_set.tolerations, *flavor.tolerations)):
            return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
    labels = dict(flavor.node_labels)
    for key, wanted in pod_set.node_selector:
        if key in labels and labels[key] != wanted:
            return f"node selector {key}={wanted} does not match its label {key}={labels[key]}"
    if pod_set.affinity and not any(_term_matches(term, labels) for term in pod_set.affinity):
        return "node affinity does not match its labels"
    return None


def _term_matches(term: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """A term left empty by the restriction to the flavor's keys matches."""
    return all(meets(requirement, labels) for requirement in term if requirement.key in labels)


T = TypeVar("T")


@value(frozen=True, slots=True)
class FlavorOption:
    """One flavor of a resource group, with the cell number of each of its resources."""

    name: str
    flavor: ResourceFlavor | None
    cells: Mapping[str, int]


class QueueFlavors:
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
        self.groups: list[list[FlavorOption]] = []
        self.covered = [group.covered for group in queue.resource_groups]
        self.of_resource: dict[str, int] = {}
        named = [flavors.get(f.name) for group in queue.resource_groups for f in group.flavors]
        self._all_placed = all(flavor is not None and flavor.topology for flavor in named)
        for number, group in enumerate(queue.resource_groups):
            for resource in group.covered:
                self.of_resource.setdefault(resource, number)
            self.groups.append(
                [
                    FlavorOption(
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

    def mismatch(self, option: FlavorOption, pod_set: PodSet) -> str | None:
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


PodSetGroup = tuple[str, int]
"""A podset by name, and a resource group of the queue by number."""

LastTriedFlavors = Mapping[PodSetGroup, int]
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
