"""What policy objects amount to: conditions, quotas, and who is above whom. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from queuectl.core.directory import READY, condition
from queuectl.core.model import ConfigKey
from queuectl.core.policy import (
    ClusterQueue,
    Cohort,
    Condition,
    LocalQueue,
    Policy,
    ResourceGroup,
    StopPolicy,
)
from queuectl.core.resources import FlavorResource

Policies = Mapping[ConfigKey, Policy | str]
"""As text: why a spec can't be read."""


def nominal_quota(policy: Policy | str | None) -> Mapping[FlavorResource, int]:
    """Its own, in the order of the spec."""
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


def cluster_queue_condition(policy: Policy | str | None, flavors: set[str], policies: Policies) -> Condition:
    if isinstance(policy, ClusterQueue):
        return condition(policy, flavors, cyclic=in_circle(policy.cohort, policies))
    if policy is None:
        return Condition(False, "NotFound", "It is gone, but work that it admitted still holds quota")
    return Condition(False, "InvalidSpec", str(policy))


def local_queue_condition(local: LocalQueue, queue: Condition | None) -> Condition:
    """`queue`: of its ClusterQueue; None: there is none."""
    if local.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", f"stopPolicy is {local.stop_policy}")
    if queue is None or queue.reason == "NotFound":
        return Condition(False, "ClusterQueueNotFound", f"ClusterQueue {local.cluster_queue} not found")
    if not queue.active:
        return Condition(False, "ClusterQueueIsInactive", f"{queue.reason}: {queue.message}")
    return READY


def cohort_condition(name: str, policies: Policies) -> Condition:
    policy = policies.get(ConfigKey("Cohort", "", name))
    if isinstance(policy, str):
        return Condition(False, "InvalidSpec", policy)
    if in_circle(name, policies):
        return Condition(False, "CohortCycle", f"cohort {name} or one above it is its own ancestor")
    return READY


def in_circle(first: str | None, policies: Policies) -> bool:
    """Is the cohort, or one above it, its own ancestor?"""
    chain = cohorts_above(first, policies)
    return len(chain) != len(set(chain))


def cohorts_above(first: str | None, policies: Policies) -> list[str]:
    """Names of the cohort and those above it, nearest first; in a circle the last one is there twice."""
    chain: list[str] = []
    seen: set[str] = set()
    for name in _ancestors(first, policies):
        chain.append(name)
        if name in seen:
            break
        seen.add(name)
    return chain


def _ancestors(name: str | None, policies: Policies) -> Iterator[str]:
    while name is not None:
        yield name
        cohort = policies.get(ConfigKey("Cohort", "", name))
        name = cohort.parent if isinstance(cohort, Cohort) else None
