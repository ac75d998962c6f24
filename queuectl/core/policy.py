"""What a queue's policy objects amount to, seen together."""

from __future__ import annotations

from collections.abc import Container

from queuectl.core.model import ClusterQueue, LocalQueue, StopPolicy
from queuectl.core.report import Condition

READY = Condition(True, "Ready", "Can admit new workloads")


def condition(queue: ClusterQueue, flavors: Container[str], *, cyclic: bool = False) -> Condition:
    """Whether `queue` can admit, given the names of the flavors that exist (docs/scheduling.md, Q1).

    `cyclic`: its cohort, or one above it, is its own ancestor.
    """
    if queue.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", f"stopPolicy is {queue.stop_policy}")
    if cyclic:
        return Condition(False, "CohortCycle", f"cohort {queue.cohort} is its own ancestor")
    missing = sorted(
        {f.name for group in queue.resource_groups for f in group.flavors if f.name not in flavors}
    )
    if missing:
        return Condition(False, "FlavorNotFound", f"ResourceFlavor not found: {', '.join(missing)}")
    return READY


def local_condition(local: LocalQueue, of_queue: Condition | None) -> Condition:
    """Whether `local` can admit, given the condition of its ClusterQueue; None: that does not exist."""
    if local.stop_policy is not StopPolicy.NONE:
        return Condition(False, "Stopped", f"stopPolicy is {local.stop_policy}")
    if of_queue is None:
        return Condition(False, "ClusterQueueNotFound", f"ClusterQueue {local.cluster_queue} not found")
    if not of_queue.active:
        return Condition(False, "ClusterQueueIsInactive", f"{of_queue.reason}: {of_queue.message}")
    return READY
