"""Conditions, nominal quotas and cohort ancestors, from stored policy objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from queuectl.core import policy
from queuectl.core.directory import READY, condition, local_condition
from queuectl.core.model import ConfigKey
from queuectl.core.policy import (
    ClusterQueue,
    Cohort,
    Condition,
    LocalQueue,
    Policy,
    ResourceFlavor,
    ResourceGroup,
    cyclic,
)
from queuectl.core.quota.tree import QuotaTree
from queuectl.core.resources import FlavorResource

Policies = Mapping[ConfigKey, Policy | str]
"""A text instead of an object: why its spec is invalid."""


def nominal_quota(policy: Policy | str | None) -> Mapping[FlavorResource, int]:
    """Its own nominal quota, in the order of the spec."""
    groups: tuple[ResourceGroup, ...] = ()
    if isinstance(policy, ClusterQueue | Cohort):
        groups = policy.resource_groups
    return MappingProxyType(
        {
            FlavorResource(flavor.name, resource): quota.nominal
            for group in groups
            for flavor in group.flavors
            for resource, quota in flavor.resources
        }
    )


def quota_tree(policies: Policies, used: Mapping[str, Mapping[FlavorResource, int]]) -> QuotaTree:
    """The quota tree of the policies that are valid, with what is in use by ClusterQueue, in base units.

    Made in the order of names, which decides how parts of amounts are rounded.
    """
    tree = QuotaTree()
    trees = [key for key in policies if key.kind in ("Cohort", "ClusterQueue")]
    for key in sorted(trees):
        one = policies[key]
        if isinstance(one, Cohort):
            tree.set_cohort(one)
        elif isinstance(one, ClusterQueue):
            tree.set_queue(one)
    for name, cells in used.items():
        tree.add(tree.queue(name), tree.numbered(dict(cells)))
    return tree


def cluster_queue_condition(
    policy: Policy | str | None, flavors: Mapping[str, ResourceFlavor], cohorts: Mapping[str, Cohort]
) -> Condition:
    if isinstance(policy, ClusterQueue):
        return condition(policy, flavors, cohorts)
    if policy is None:
        return Condition(False, "NotFound", "It was deleted, but workloads that it admitted still hold quota")
    return Condition(False, "InvalidSpec", str(policy))


def local_queue_condition(local: LocalQueue, queue: Condition | None) -> Condition:
    """`queue`: of its ClusterQueue; None: it does not exist."""
    return local_condition(local, None if queue is None or queue.reason == "NotFound" else queue)


def cohort_condition(name: str, policies: Policies) -> Condition:
    policy = policies.get(ConfigKey("Cohort", "", name))
    if isinstance(policy, str):
        return Condition(False, "InvalidSpec", policy)
    if cyclic(cohorts_above(name, policies)):
        return Condition(False, "CohortCycle", f"cohort {name} or one above it is its own ancestor")
    if isinstance(policy, Cohort) and policy.unsupported:
        return Condition(False, "Unsupported", "; ".join(policy.unsupported))
    return READY


def cohorts_above(first: str | None, policies: Policies) -> list[str]:
    """Names of the cohort and of those above it, nearest first; in a cycle the last name is in it twice."""

    def parent(name: str) -> str | None:
        cohort = policies.get(ConfigKey("Cohort", "", name))
        return cohort.parent if isinstance(cohort, Cohort) else None

    return policy.cohorts_above(first, parent)
