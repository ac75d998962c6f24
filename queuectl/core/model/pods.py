"""Pods as values: those that are bound to nodes, and those that a workload would have."""

from __future__ import annotations

from queuectl.core.model.devices import PodClaim
from queuectl.core.model.policy import Requirement, Toleration
from queuectl.core.model.resources import Amounts
from queuectl.core.model.values import value
from queuectl.core.model.workload import WorkloadId


@value(frozen=True, slots=True)
class PodOwner:
    """The controller of a pod, by its ownerReference, which whatever makes the pod writes."""

    api_version: str
    kind: str
    name: str
    uid: str
    """All empty: the pod has no controller."""


@value(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that has not ended. Its requests are those of all its containers together (H1)."""

    uid: str
    namespace: str
    name: str
    node: str | None
    """The node that it is bound to; None: it is not scheduled yet."""
    requests: Amounts
    workload: WorkloadId | None = None
    """The workload that it belongs to; as observed, the one that its label names. None: it is unmanaged."""
    owner: PodOwner | None = None
    """Its controller, where that is another object than `workload`; None: `workload` controls it itself."""
    terminating: bool = False
    """It is being deleted: it holds what it requests until it is gone."""
    unschedulable: str | None = None
    """What the scheduler says of a pod that no node fits; None: nothing."""
    claims: tuple[PodClaim, ...] = ()
    """Its claims for devices. What they hold is added to `requests` before it is counted (M19)."""


@value(frozen=True, slots=True)
class PodShape:
    """All that decides which nodes a pod may run on, and what it takes from them."""

    requests: Amounts
    """Of one pod, as its containers request them: without transformations (H8)."""
    flavors: tuple[tuple[str, str], ...]
    """(resource, flavor) pairs, sorted; the resources are those that quota is charged for."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] = ()


@value(frozen=True, slots=True)
class PodGroup:
    """`count` equal pods."""

    shape: PodShape
    count: int


Spots = list[tuple[str, tuple[int, ...]]]
"""For each pod: the name of its node, and what it takes there, by the number of the resource."""

Pods = tuple[PodGroup, ...]
"""The pods of a workload, in the order of its podsets."""
