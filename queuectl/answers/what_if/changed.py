"""Podsets and queues with one thing changed, as a user or an admin would change it."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.model.matching import tolerated
from queuectl.core.model.policy import ClusterQueue, ResourceFlavor, Toleration
from queuectl.core.model.resources import Amounts, Container, PodResources
from queuectl.core.model.resources import requested as requested_by
from queuectl.core.model.workload import PodSet


def with_request(pods: PodSet, resource: str, amount: int) -> PodSet | None:
    """Return `pods` with this request of each pod; None: its containers do not allow it."""
    requests = tuple((name, amount if name == resource else asked) for name, asked in pods.requests)
    if pods.pod is None:
        return replace(pods, requests=requests)
    smaller = _smaller(pods.pod, resource, dict(pods.requests)[resource] - amount)
    if dict(requested_by(smaller)).get(resource, 0) != amount:
        return None
    return replace(pods, requests=requested_by(smaller), pod=smaller)


def _smaller(pod: PodResources, resource: str, less: int) -> PodResources:
    """Take `less` from the containers that request the resource, the first one first."""
    containers: list[Container] = []
    for one in pod.containers:
        asked = dict(one.requests).get(resource, 0)
        taken = min(asked, less)
        less -= taken
        containers.append(
            replace(
                one,
                requests=_less(one.requests, resource, taken),
                limits=_at_least(_less(one.limits, resource, taken), resource),
            )
            if taken
            else one
        )
    return replace(pod, containers=tuple(containers), requests=_less(pod.requests, resource, less))


def _less(found: Amounts, resource: str, less: int) -> Amounts:
    return tuple((name, amount - less if name == resource else amount) for name, amount in found)


def _at_least(found: Amounts, resource: str) -> Amounts:
    return tuple((name, max(amount, 0) if name == resource else amount) for name, amount in found)


def asking(pods: PodSet, flavor: ResourceFlavor, keys: set[str]) -> PodSet:
    """Return `pods` as they would ask for this flavor: `keys` are the labels that tell flavors apart."""
    kept = tuple(pair for pair in pods.node_selector if pair[0] not in keys)
    missing = tuple(
        Toleration(taint.key, "Equal", taint.value, taint.effect)
        for taint in flavor.node_taints
        if not tolerated(taint, (*pods.tolerations, *flavor.tolerations))
    )
    return replace(
        pods,
        node_selector=tuple(sorted((*kept, *flavor.node_labels))),
        affinity=(),
        tolerations=(*pods.tolerations, *missing),
    )


def nominal(queue: ClusterQueue, flavor: str, resource: str) -> int | None:
    """Return the nominal quota of a cell, in base units; None: the queue does not have it."""
    found = (
        quota.nominal
        for group in queue.resource_groups
        for one in group.flavors
        if one.name == flavor
        for name, quota in one.resources
        if name == resource
    )
    return next(found, None)


def with_quota(queue: ClusterQueue, flavor: str, resource: str, more: int) -> ClusterQueue:
    """Return the queue with more nominal quota of a cell."""
    groups = tuple(
        replace(
            group,
            flavors=tuple(
                replace(
                    one,
                    resources=tuple(
                        (name, replace(quota, nominal=quota.nominal + more) if name == resource else quota)
                        for name, quota in one.resources
                    ),
                )
                if one.name == flavor
                else one
                for one in group.flavors
            ),
        )
        for group in queue.resource_groups
    )
    return replace(queue, resource_groups=groups)
