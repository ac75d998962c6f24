"""Why flavors do not serve a request: findings, and the reason that is made of them (F4, F5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from queuectl.core.model.reasons import Code, Limit, Reason
from queuectl.core.quota.tree import QuotaNode, QuotaTree


class NextFlavor(NamedTuple):
    """A flavor that a workload may take later: it waits for those before it until then (F10)."""

    at: datetime
    name: str


_SEVERITY: Final = {
    Code.WAITING_FOR_QUOTA: 0,
    Code.CAPACITY_MISSING: 0,
    Code.NO_NODE_FITS: 0,
    Code.EXCEEDS_MAX_QUOTA: 1,
    Code.NO_NODE_CAN_FIT: 1,
    Code.NO_MATCHING_FLAVOR: 2,
    Code.RESOURCE_NOT_COVERED: 3,
}


def severity(reason: Reason) -> int:
    """Return the rank of a finding, larger for more severe (F4, F5)."""
    return _SEVERITY[reason.code]


def worst(refusals: Sequence[Reason]) -> Reason:
    """Return the most severe finding over resource groups and podsets, with the others (F5)."""
    return with_others(max(refusals, key=severity), refusals)


def with_others(reason: Reason, findings: Sequence[Reason]) -> Reason:
    """Return `reason` with the other `findings` in `others`."""
    if len(findings) == 1:
        return reason
    others = [replace(f, others=()) for f in findings if f is not reason]
    return replace(reason, others=(*reason.others, *others))


def with_later(reason: Reason, later: NextFlavor) -> Reason:
    """Return `reason` with the flavor that the workload may take later (F10)."""
    detail = f"flavor {later.name} may be taken then"
    detail = f"{reason.detail}; {detail}" if reason.detail else detail
    return replace(reason, detail=detail, until=later.at)


def never_covered(node: QuotaNode, resource: str, requested: int) -> Reason:
    """Return the finding for a resource that no resource group of the ClusterQueue covers."""
    return Reason(
        code=Code.RESOURCE_NOT_COVERED,
        resource=resource,
        requested=requested,
        available=0,
        limit=Limit.COVERED_RESOURCES,
        node=str(node),
    )


def reserved_for_others(tree: QuotaTree, node: QuotaNode, cells: Iterable[tuple[int, int]]) -> Reason:
    """Return the reason of a workload whose quota is reserved for workloads ahead of it (C6, C7).

    It names the limit that leaves least: the limit that binds while that quota is in use.
    """
    cell, amount = max(cells, key=lambda item: item[1] - tree.available(node, item[0]))
    return replace(tree.explain(node, cell, amount), short_by=None, reserved=True)
