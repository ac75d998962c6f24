"""The pods of pending workloads that wait for quota or for room on nodes."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final, NamedTuple

from queuectl.core.entries import Shape
from queuectl.core.model.capacity import AwaitedLimit, PodDemand
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.resources import Amounts
from queuectl.core.model.workload import names_claim

MOST: Final = 100
"""Demands of one ClusterQueue that are told: those with most pods."""

_AWAITED: Final = {
    Code.WAITING_FOR_QUOTA: AwaitedLimit.QUOTA,
    Code.CAPACITY_MISSING: AwaitedLimit.ROOM,
    Code.NO_NODE_FITS: AwaitedLimit.ROOM,
}


class PendingRequest(NamedTuple):
    """A pending workload."""

    shape: Shape
    reason: Reason | None


_Key = tuple[str, AwaitedLimit, Amounts, tuple[tuple[str, str], ...]]


def demand(waiting: Iterable[PendingRequest]) -> tuple[PodDemand, ...]:
    """Return the demand of the pending queue of a ClusterQueue, most pods first, MOST at most.

    It counts workloads that were evaluated and whose reason names a flavor. Others have no demand yet: those
    behind the head of a StrictFIFO queue, those that wait for victims, and those that are not eligible.
    """
    shapes: dict[int, Shape] = {}
    """By identity: equivalent workloads share theirs."""
    alike: dict[tuple[int, str, AwaitedLimit], int] = {}
    for shape, reason in waiting:
        awaits = None if reason is None else _AWAITED.get(reason.code)
        if reason is not None and reason.flavor is not None and awaits is not None:
            shapes[id(shape)] = shape
            key = (id(shape), reason.flavor, awaits)
            alike[key] = alike.get(key, 0) + 1
    found: dict[_Key, tuple[int, int]] = {}
    for (known, flavor, awaits), number in alike.items():
        for (requests, selector), pods in _pods(shapes[known]).items():
            one = (flavor, awaits, requests, selector)
            workloads, before = found.get(one, (0, 0))
            found[one] = (workloads + number, before + pods * number)
    rows = (
        PodDemand(
            flavor=flavor, awaits=awaits, workloads=n, pods=pods, requests=requests, node_selector=selector
        )
        for (flavor, awaits, requests, selector), (n, pods) in found.items()
    )
    return tuple(
        nsmallest(
            MOST, rows, key=lambda one: (-one.pods, one.flavor, one.awaits, one.requests, one.node_selector)
        )
    )


def _pods(shape: Shape) -> dict[tuple[Amounts, tuple[tuple[str, str], ...]], int]:
    """Return the number of pods of one workload by what they request."""
    found: dict[tuple[Amounts, tuple[tuple[str, str], ...]], int] = {}
    for charge in shape:
        if not names_claim(charge.pod_set.name):
            key = (charge.pod, charge.pod_set.node_selector)
            found[key] = found.get(key, 0) + charge.pod_set.count
    return found
