"""Flavor options of a ClusterQueue, and matching of podsets against flavors (F1, F2, F9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from queuectl.core.model.policy import (
    CapacityMode,
    ClusterQueue,
    FlavorFungibility,
    Requirement,
    ResourceFlavor,
)
from queuectl.core.model.resources import PODS, Amounts, FlavorResource, amounts
from queuectl.core.model.selectors import meets, tolerated
from queuectl.core.model.values import value
from queuectl.core.model.workload import PodSet, PodSetAssignment, names_claim
from queuectl.core.quota.tree import QuotaTree


def mismatch(flavor: ResourceFlavor, pod_set: PodSet) -> str | None:
    """Return why pods of `pod_set` cannot run on nodes of `flavor`, or None if they can (F2).

    Node selector and affinity are restricted to the label keys that the flavor defines. All other keys are
    left to the Kubernetes scheduler.
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
    """Match one affinity term, restricted to the keys in `labels`. An empty term matches."""
    return all(meets(requirement, labels) for requirement in term if requirement.key in labels)


T = TypeVar("T")
NONE_OUT: Final[Mapping[str, datetime]] = MappingProxyType({})


def is_elastic(flavor: ResourceFlavor | None) -> bool:
    """Return whether nodes of a flavor come on demand, for one of its resources at least (M2)."""
    modes = (flavor.nodes.mode, *(mode for _, mode in flavor.nodes.modes)) if flavor is not None else ()
    return CapacityMode.ELASTIC in modes


@value(frozen=True, slots=True)
class FlavorOption:
    """One flavor of a resource group. `flavor` is None if the ResourceFlavor does not exist."""

    name: str
    flavor: ResourceFlavor | None
    cells: Mapping[str, int]
    """Cell number by resource."""
    wait: int = 0
    """How long a workload waits for it before it may take the next one, in seconds (F10)."""
    out_until: datetime | None = None
    """Until then it is not used, because its nodes did not come in time (M20); None: it is."""


class QueueFlavors:
    """The resource groups of a ClusterQueue with cell numbers, prepared for nominations."""

    def __init__(
        self,
        queue: ClusterQueue,
        tree: QuotaTree,
        flavors: Mapping[str, ResourceFlavor],
        out_until: Mapping[str, datetime] = NONE_OUT,
        *,
        ignores_uncovered: bool = False,
    ) -> None:
        self.name = queue.name
        self.ignores_uncovered = ignores_uncovered
        """A resource that no group covers is not charged (H8)."""
        self.tree = tree
        self.node = tree.queue(queue.name)
        self.fungibility = queue.fungibility
        self.preempts = queue.preemption.enabled
        self.known: dict[int, tuple[Charge, Any]] = {}
        """Cache of the fast path, by identity of the Charge (flavors/fast_path.py)."""
        self.groups: list[list[FlavorOption]] = []
        """Flavor options by resource group, in order of evaluation."""
        self.covered = [group.covered for group in queue.resource_groups]
        self.of_resource: dict[str, int] = {}
        """Number of the resource group by resource."""
        named = [flavors.get(f.name) for group in queue.resource_groups for f in group.flavors]
        self._all_placed = all(flavor is not None and flavor.topology for flavor in named)
        for number, group in enumerate(queue.resource_groups):
            for resource in group.covered:
                self.of_resource.setdefault(resource, number)
            options: list[FlavorOption] = []
            for f in group.flavors:
                flavor, until = flavors.get(f.name), out_until.get(f.name)
                cells = {resource: tree.cell(FlavorResource(f.name, resource)) for resource, _ in f.resources}
                until = until if until is not None and is_elastic(flavor) else None
                options.append(FlavorOption(f.name, flavor, cells, f.wait, until))
            self.groups.append(options)
        self.waits = any(option.wait for group in self.groups for option in group[:-1])
        """Whether what a workload may get depends on how long it waits (F10)."""

    def refused(self, requests: Amounts) -> Amounts:
        """Return those of the requests that keep a workload out, because no group covers them."""
        if self.ignores_uncovered:
            return ()
        return tuple(item for item in requests if item[0] not in self.of_resource)

    def charged(self, requests: Amounts) -> Amounts:
        """Return those of the requests that are compared with what an attempt holds."""
        if not self.ignores_uncovered:
            return requests
        return tuple(item for item in requests if item[0] in self.of_resource)

    def pod_charge(self, charge: Charge) -> Amounts:
        """Return the charge of one pod: the covered resources, and `pods` if the queue covers it (H4)."""
        covered = tuple(item for item in charge.requests if item[0] in self.of_resource)
        if PODS not in self.of_resource or names_claim(charge.pod_set.name):
            return covered
        return amounts((*covered, (PODS, 1)))

    def mismatch(self, option: FlavorOption, pod_set: PodSet) -> str | None:
        """Return why `pod_set` cannot use this flavor, or None if it can (F2)."""
        flavor = option.flavor
        if flavor is None:
            return "ResourceFlavor not found"
        if pod_set.topology and flavor.topology is None:
            return "it has no topology for a topology placement"
        if flavor.topology is not None and not pod_set.topology and not self._all_placed:
            return "it is only for pods that request a topology placement"
        return mismatch(flavor, pod_set)


@value(frozen=True, slots=True)
class Charge:
    """A podset and the charge of one of its pods: its requests and the overhead of its RuntimeClass (H2)."""

    pod_set: PodSet
    requests: Amounts
    pod: Amounts = ()
    """What one pod takes from its node: the same before transformations and exclusions (H8)."""


def assigned(pod_set: PodSet, requests: Amounts, flavors: Mapping[str, str]) -> PodSetAssignment:
    """Return the charge of `pod_set` for the `requests` of one pod and the flavor by resource."""
    return PodSetAssignment(
        name=pod_set.name,
        count=pod_set.count,
        requests=requests,
        flavors=tuple(sorted(flavors.items())),
        node_selector=pod_set.node_selector,
        tolerations=pod_set.tolerations,
    )


PodSetGroup = tuple[str, int]
"""(name of the podset, number of the resource group)."""

LastTriedFlavors = Mapping[PodSetGroup, int]
"""Position of the last tried flavor. A missing key means that all flavors were tried (F8)."""


def fewer_pods(charges: Sequence[Charge], evaluate: Callable[[Sequence[Charge]], T | None]) -> T | None:
    """Partial admission: return the result of `evaluate` at the least reduction with a result, or None (F9).

    The reduction i of `total` steps sets each count to full - (full - least) * i // total. The least i is
    found by binary search.
    """
    slack = [c.pod_set.count - (c.pod_set.min_count or c.pod_set.count) for c in charges]
    total = sum(slack)
    found: T | None = None
    low, high = 1, total + 1
    while low < high:
        middle = (low + high) // 2
        result = evaluate(_reduced(charges, slack, middle, total))
        if result is None:
            low = middle + 1
        else:
            found, high = result, middle
    return found


def _reduced(charges: Sequence[Charge], slack: Sequence[int], step: int, total: int) -> list[Charge]:
    return [
        replace(charge, pod_set=replace(charge.pod_set, count=charge.pod_set.count - part * step // total))
        for charge, part in zip(charges, slack, strict=True)
    ]


class Mode(IntEnum):
    """How a flavor could satisfy a request, worst first (F3)."""

    NO_FIT = 0
    NO_CANDIDATES = 1  # only with the quota of other workloads, and none of them is a candidate
    PREEMPT = 2  # by preemption in its own ClusterQueue, and possibly in others
    RECLAIM = 3  # by preemption in other ClusterQueues only
    FIT = 4  # with available quota

    @property
    def preempts(self) -> bool:
        """Whether the quota of other workloads is needed."""
        return Mode.NO_FIT < self < Mode.FIT


class GranularMode(NamedTuple):
    """A mode and the borrow level of the request (Q9)."""

    mode: Mode
    level: int


def better(one: GranularMode, other: GranularMode, rules: FlavorFungibility) -> bool:
    """Return whether `one` is strictly preferred to `other` (F7)."""
    low = min(one.mode, other.mode)
    if low <= Mode.NO_CANDIDATES and one.mode != other.mode:
        return one.mode > other.mode
    if rules.preemption_over_borrowing:
        return (-one.level, one.mode) > (-other.level, other.mode)
    return (one.mode, -one.level) > (other.mode, -other.level)


def keeps_looking(chance: GranularMode, rules: FlavorFungibility) -> bool:
    """Return whether the next flavor is evaluated after one that offers `chance` (F6)."""
    return (
        chance.mode <= Mode.NO_CANDIDATES
        or (chance.mode.preempts and rules.try_next_before_preempting)
        or (chance.level > 0 and rules.try_next_before_borrowing)
    )
