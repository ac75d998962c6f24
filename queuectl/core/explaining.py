"""Findings put into reasons: which limit of which node bound, which finding is told first (F4, F5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from queuectl.core.quota import Node, QuotaTree
from queuectl.core.reasons import Code, Limit, Reason

NO_BOUND: Final[Mapping[Any, Any]] = MappingProxyType({})

_SEVERITY: Final = {
    Code.WAITING_FOR_QUOTA: 0,
    Code.EXCEEDS_MAX_QUOTA: 1,
    Code.NO_MATCHING_FLAVOR: 2,
    Code.RESOURCE_NOT_COVERED: 3,
}


def severity(reason: Reason) -> int:
    return _SEVERITY[reason.code]


def worst(refusals: Sequence[Reason]) -> Reason:
    """Across groups and podsets the most severe finding is the answer (F5)."""
    return with_others(max(refusals, key=severity), refusals)


def with_others(reason: Reason, findings: Sequence[Reason]) -> Reason:
    if len(findings) == 1:
        return reason
    others = [replace(f, others=()) for f in findings if f is not reason]
    return replace(reason, others=(*reason.others, *others))


def never_covered(node: Node, resource: str, requested: int) -> Reason:
    return Reason(
        code=Code.RESOURCE_NOT_COVERED,
        resource=resource,
        requested=requested,
        available=0,
        limit=Limit.COVERED_RESOURCES,
        node=str(node),
    )


def too_much(tree: QuotaTree, node: Node, cell: int, amount: int) -> Reason:
    """`amount` more of `cell` is not available at `node` now: is it ever, and what bound?"""
    ever = amount <= tree.potential(node, cell)
    room, limit, at = _bound(node, cell, empty=not ever)
    flavor, resource = tree.names[cell]
    return Reason(
        code=Code.WAITING_FOR_QUOTA if ever else Code.EXCEEDS_MAX_QUOTA,
        flavor=flavor,
        resource=resource,
        requested=amount,
        available=max(0, room),
        short_by=amount - room,
        limit=limit,
        node=str(at),
    )


def kept_for_others(tree: QuotaTree, node: Node, cells: Iterable[tuple[int, int]]) -> Reason:
    """It would fit, but what is free is kept for workloads that come before it (C6, C7)."""
    cell, amount = max(cells, key=lambda item: item[1] - tree.available(node, item[0]))
    flavor, resource = tree.names[cell]
    return Reason(
        code=Code.WAITING_FOR_QUOTA,
        flavor=flavor,
        resource=resource,
        requested=amount,
        node=str(node),
        detail="what is free is kept for workloads that come first",
    )


def _bound(node: Node, cell: int, *, empty: bool) -> tuple[int, Limit, Node]:
    """The least of the bounds on the way up, with the field and the node it stands at (Q4, Q5).

    `empty`: as if nothing were used.
    """
    found: tuple[int, Limit, Node] | None = None
    free, at = 0, node
    while at.parent is not None:
        private = at.private[cell]
        usage = 0 if empty else at.usage[cell]
        free += max(0, private - usage)
        limit = at.borrowing[cell]
        if limit is not None:
            room = free + at.subtree[cell] - private - max(0, usage - private) + limit
            if found is None or room < found[0]:
                found = (room, Limit.BORROWING_LIMIT, at)
        at = at.parent
    room = free + at.subtree[cell] - (0 if empty else at.usage[cell])
    if found is None or room < found[0]:
        found = (room, Limit.NOMINAL_QUOTA, at)
    return found
