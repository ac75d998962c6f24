"""Whom to take quota from: the classical search (docs/scheduling.md, P1 to P6). Leaves the tree as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.policy import PreemptionPolicy
from queuectl.core.preemption.search import PreemptionSearch, Target, leaving
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


def classical_victims(contest: PreemptionSearch) -> list[Target]:
    """The victims that make room for it; none where no set of those it may take does."""
    own = contest.sort(contest.vulnerable(contest.node, PreemptionCause.IN_CLUSTER_QUEUE))
    here = _From(contest.node, contest.node, PreemptionCause.IN_CLUSTER_QUEUE, False)
    same = [(entry, here) for entry in own]
    reclaimed, by_priority = _elsewhere(contest)
    ranked = [*reclaimed, *by_priority, *same]
    if not ranked:
        return []
    if contest.some_leave:
        ranked.sort(key=lambda candidate: not leaving(candidate[0]))
    contest.refusals.tried(len(ranked))
    for allow_borrowing in _attempts(contest, bool(reclaimed), bool(reclaimed or by_priority)):
        if victims := _attempt(contest, ranked, allow_borrowing):
            return victims
    return []


def _attempts(contest: PreemptionSearch, reclaims: bool, elsewhere: bool) -> tuple[bool, ...]:
    """Whether it may borrow afterwards, in the order in which that is tried (P4)."""
    never = contest.rules.borrow_within_cohort is None
    node = contest.node
    if not elsewhere or (never and any(node.usage[c] >= node.nominal[c] for c in contest.contested)):
        return (True,)
    return (False, True) if never and not reclaims else (True, False)


def _elsewhere(contest: PreemptionSearch) -> tuple[_Candidates, _Candidates]:
    """Those in other queues: whom it has the upper hand over (P3), and whom by priority, each sorted."""
    reclaimed: _Candidates = []
    by_priority: _Candidates = []
    if contest.rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return reclaimed, by_priority
    node = contest.node
    rest = dict(contest.cells)
    upper_hand = all(node.usage[cell] + amount <= node.subtree[cell] for cell, amount in rest.items())
    visited, at = node, node.parent
    rest = {cell: max(0, amount - node.private_free(cell)) for cell, amount in rest.items()}
    while at is not None:
        for queue in _borrowers(contest, at, visited):
            if upper_hand:
                there = _From(queue, at, PreemptionCause.IN_COHORT_RECLAMATION, False)
                reclaimed += [(entry, there) for entry in contest.vulnerable(queue, there.cause)]
            else:
                by_priority += _by_priority(contest, queue, at)
        upper_hand |= all(at.usage[cell] + amount <= at.subtree[cell] for cell, amount in rest.items())
        rest = {cell: max(0, amount - at.private_free(cell)) for cell, amount in rest.items()}
        visited, at = at, at.parent
    return _ranked(contest, reclaimed), _ranked(contest, by_priority)


def _ranked(contest: PreemptionSearch, candidates: _Candidates) -> _Candidates:
    if not candidates:
        return candidates
    origins = dict(candidates)
    return [(entry, origins[entry]) for entry in contest.sort(list(origins))]


def _by_priority(
    contest: PreemptionSearch, queue: QuotaNode, below: QuotaNode
) -> Iterator[tuple[Entry, _From]]:
    """Without the upper hand: what it may take if it does not borrow afterwards, and what even so (P2)."""
    rules, priority = contest.rules.borrow_within_cohort, contest.entry.priority
    for entry in contest.eligible(queue):
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
        if not contest.is_protected(entry, queue, cause):
            yield entry, _From(queue, below, cause, bound)


def _borrowers(contest: PreemptionSearch, cohort: QuotaNode, visited: QuotaNode) -> Iterator[QuotaNode]:
    """Queues under `cohort` that use more than is theirs of what is contested, but for `visited`'s (P2)."""
    todo = [child for child in cohort.children.values() if child is not visited]
    while todo:
        at = todo.pop()
        if not _borrows(contest, at):
            continue
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        else:
            yield at


def _borrows(contest: PreemptionSearch, node: QuotaNode) -> bool:
    return any(node.borrows(cell) for cell in contest.contested)


def _attempt(contest: PreemptionSearch, ranked: _Candidates, allow_borrowing: bool) -> list[Target]:
    targets: list[Target] = []
    try:
        for entry, origin in ranked:
            if origin.node is not contest.node and (
                (origin.only_without_borrowing and allow_borrowing)
                or not contest.holds_what_is_borrowed(entry, origin.node, origin.below)
            ):
                continue
            contest.take(entry)
            targets.append(Target(entry, origin.cause))
            if contest.fits(allow_borrowing):
                targets = contest.fill_back(targets, allow_borrowing)
                return targets
        return []
    finally:
        for target in targets:
            contest.give_back(target.entry)
