"""A short notation for quota trees, random quota trees, and a slow reference for dominant shares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import strategies as st

from queuectl.core.model.policy import (
    NORMAL_WEIGHT,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.model.resources import FlavorResource
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree

Quotas = Mapping[str, int | ResourceQuota]
"""`{"a100/gpu": 8}`: nominal quota, or a ResourceQuota, by flavor and resource."""


def cell(name: str) -> FlavorResource:
    return FlavorResource(*name.split("/"))


def groups(quotas: Quotas) -> tuple[ResourceGroup, ...]:
    flavors = []
    for name, quota in quotas.items():
        flavor, resource = cell(name)
        amount = quota if isinstance(quota, ResourceQuota) else ResourceQuota(nominal=quota)
        flavors.append(FlavorQuotas(name=flavor, resources=((resource, amount),)))
    return (ResourceGroup(covered=("any",), flavors=tuple(flavors)),)


def cohort(
    name: str, parent: str | None = None, quotas: Quotas | None = None, *, weight: int = NORMAL_WEIGHT
) -> Cohort:
    return Cohort(name=name, parent=parent, resource_groups=groups(quotas or {}), weight=weight)


def queue(
    name: str,
    cohort: str | None = None,
    quotas: Quotas | None = None,
    *,
    weight: int = NORMAL_WEIGHT,
) -> ClusterQueue:
    return ClusterQueue(name=name, cohort=cohort, resource_groups=groups(quotas or {}), weight=weight)


def tree_of(*nodes: Cohort | ClusterQueue) -> QuotaTree:
    tree = QuotaTree()
    for node in nodes:
        if isinstance(node, Cohort):
            tree.set_cohort(node)
        else:
            tree.set_queue(node)
    return tree


def node_of(tree: QuotaTree, name: str) -> QuotaNode:
    return next(node for node in tree.nodes() if node.name == name)


def cells_of(tree: QuotaTree, amounts: Mapping[str, int]) -> Cells:
    return tree.numbered({cell(name): amount for name, amount in amounts.items()})


def charge(tree: QuotaTree, queue: str, amounts: Mapping[str, int]) -> None:
    tree.add(tree.queue(queue), cells_of(tree, amounts))


def usages(tree: QuotaTree) -> dict[str, list[int]]:
    return {str(node): list(node.usage) for node in tree.nodes()}


# --- random trees

NAMES = ("a/gpu", "b/gpu", "a/cpu")
COHORTS = tuple(f"c{number}" for number in range(4))
QUEUES = tuple(f"q{number}" for number in range(6))
AMOUNT = st.integers(0, 6)
LIMIT = st.none() | AMOUNT
QUOTA = st.builds(ResourceQuota, nominal=AMOUNT, borrowing_limit=LIMIT, lending_limit=LIMIT)
QUOTAS: st.SearchStrategy[dict[str, ResourceQuota]] = st.fixed_dictionaries(
    dict.fromkeys(NAMES, QUOTA)
) | st.just({})
WEIGHT = st.sampled_from([0, 500, 1000, 1000, 3000])
REQUEST = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 5), min_size=1)


@st.composite
def forests(draw: st.DrawFn) -> QuotaTree:
    """One tree below the cohort `c0`, with up to four levels of cohorts."""
    nodes: list[Cohort | ClusterQueue] = []
    for number, name in enumerate(COHORTS):
        parent = draw(st.sampled_from(COHORTS[:number])) if number else None
        nodes.append(cohort(name, parent, draw(QUOTAS), weight=draw(WEIGHT)))
    parents = draw(st.lists(st.sampled_from(COHORTS), min_size=len(QUEUES), max_size=len(QUEUES)))
    nodes += [queue(*place, draw(QUOTAS), weight=draw(WEIGHT)) for place in zip(QUEUES, parents, strict=True)]
    tree = tree_of(*nodes)
    for name in NAMES:
        tree.cell(cell(name))
    return tree


# --- slow reference

SlowShare = tuple[bool, Fraction]


def slow_share(tree: QuotaTree, node: QuotaNode) -> SlowShare:
    """S2 and S3 literally: whether the share is infinite, and the fraction."""
    if node.parent is None:
        return False, Fraction(0)
    ratio = Fraction(0)
    for resource in {name.resource for name in tree.names}:
        of_it = [number for number, name in enumerate(tree.names) if name.resource == resource]
        over = sum(max(0, node.usage[number] - node.subtree[number]) for number in of_it)
        lends = sum(tree.potential(node.parent, number) for number in of_it)
        if lends > 0:
            ratio = max(ratio, Fraction(over * 1000, lends))
    if ratio == 0:
        return False, ratio
    return (True, ratio) if node.weight == 0 else (False, ratio / Fraction(node.weight, 1000))


def borrows(node: QuotaNode) -> bool:
    return node.parent is not None and any(
        used > own for used, own in zip(node.usage, node.subtree, strict=True)
    )
