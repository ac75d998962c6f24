"""Whom to take quota from: the classical search (docs/scheduling.md, P1 to P6). Leaves the tree as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.search import PreemptionSearch, Target, terminating
from queuectl.core.quota.tree import QuotaNode
from queuectl.core.reasons import PreemptionCause


class _From(NamedTuple):
    """What holds for all candidates of one kind in one queue."""

    node: QuotaNode
    """Its queue."""
    below: QuotaNode
    """Common ancestor of its queue and the preemptor's."""
    cause: PreemptionCause
    only_without_borrowing: bool


_Candidates = list[tuple[Entry, _From]]


def classical_victims(search: PreemptionSearch) -> list[Target]:
    """The victims that make room for it; none where no set of those it may take does."""
    own = search.sort(search.unprotected(search.node, PreemptionCause.IN_CLUSTER_QUEUE))
    here = _From(search.node, search.node, PreemptionCause.IN_CLUSTER_QUEUE, False)
    same = [(entry, here) for entry in own]
    reclaimed, by_priority = _elsewhere(search)
    ranked = [*reclaimed, *by_priority, *same]
    if not ranked:
        return []
    if search.any_terminating:
        ranked.sort(key=lambda candidate: not terminating(candidate[0]))
    search.rejected.tried(len(ranked))
    for allow_borrowing in _attempts(search, bool(reclaimed), bool(reclaimed or by_priority)):
        if victims := _attempt(search, ranked, allow_borrowing):
            return victims
    return []


def _attempts(search: PreemptionSearch, reclaims: bool, elsewhere: bool) -> tuple[bool, ...]:
    """Whether it may borrow afterwards, in the order in which that is tried (P4)."""
    never = search.rules.borrow_within_cohort is None
    node = search.node
    if not elsewhere or (never and any(node.usage[c] >= node.nominal[c] for c in search.needed)):
        return (True,)
    return (False, True) if never and not reclaims else (True, False)


def _elsewhere(search: PreemptionSearch) -> tuple[_Candidates, _Candidates]:
    """Those in other queues: whom it has the upper hand over (P3), and whom by priority, each sorted."""
    reclaimed: _Candidates = []
    by_priority: _Candidates = []
    if search.rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return reclaimed, by_priority
    node = search.node
    rest = dict(search.cells)
    upper_hand = all(node.usage[cell] + amount <= node.subtree[cell] for cell, amount in rest.items())
    visited, at = node, node.parent
    rest = {cell: max(0, amount - node.private_free(cell)) for cell, amount in rest.items()}
    while at is not None:
        for queue in _borrowers(search, at, visited):
            if upper_hand:
                there = _From(queue, at, PreemptionCause.IN_COHORT_RECLAMATION, False)
                reclaimed += [(entry, there) for entry in search.unprotected(queue, there.cause)]
            else:
                by_priority += _by_priority(search, queue, at)
        upper_hand |= all(at.usage[cell] + amount <= at.subtree[cell] for cell, amount in rest.items())
        rest = {cell: max(0, amount - at.private_free(cell)) for cell, amount in rest.items()}
        visited, at = at, at.parent
    return _ranked(search, reclaimed), _ranked(search, by_priority)


def _ranked(search: PreemptionSearch, candidates: _Candidates) -> _Candidates:
    if not candidates:
        return candidates
    origins = dict(candidates)
    return [(entry, origins[entry]) for entry in search.sort(list(origins))]


def _by_priority(
    search: PreemptionSearch, queue: QuotaNode, below: QuotaNode
) -> Iterator[tuple[Entry, _From]]:
    """Without the upper hand: what it may take if it does not borrow afterwards, and what even so (P2)."""
    rules, priority = search.rules.borrow_within_cohort, search.entry.priority
    for entry in search.eligible(queue):
        bound = (
            rules is None
            or entry.priority >= priority
            or (rules.most_priority is not None and entry.priority > rules.most_priority)
        )
        cause = (
            PreemptionCause.IN_COHORT_RECLAMATION
            if bound
            else PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING
        )
        if not search.is_protected(entry, queue, cause):
            yield entry, _From(queue, below, cause, bound)


def _borrowers(search: PreemptionSearch, cohort: QuotaNode, visited: QuotaNode) -> Iterator[QuotaNode]:
    """Queues under `cohort` that use more than is theirs of what is contested, but for `visited`'s (P2)."""
    todo = [child for child in cohort.children.values() if child is not visited]
    while todo:
        at = todo.pop()
        if not _borrows(search, at):
            continue
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        else:
            yield at


def _borrows(search: PreemptionSearch, node: QuotaNode) -> bool:
    return any(node.borrows(cell) for cell in search.needed)


def _attempt(search: PreemptionSearch, ranked: _Candidates, allow_borrowing: bool) -> list[Target]:
    targets: list[Target] = []
    try:
        for entry, origin in ranked:
            if origin.node is not search.node and (
                (origin.only_without_borrowing and allow_borrowing)
                or not search.holds_what_is_borrowed(entry, origin.node, origin.below)
            ):
                continue
            search.remove(entry)
            targets.append(Target(entry, origin.cause))
            if search.fits(allow_borrowing):
                targets = search.fill_back(targets, allow_borrowing)
                return targets
        return []
    finally:
        for target in targets:
            search.restore(target.entry)
