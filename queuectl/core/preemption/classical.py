"""The classical preemption search (docs/scheduling.md, P1 to P6). It leaves the quota tree unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.limits import held_by
from queuectl.core.model.policy import PreemptionPolicy
from queuectl.core.model.reasons import PreemptionCause
from queuectl.core.preemption.search import PreemptionSearch, Target, terminating
from queuectl.core.quota.tree import QuotaNode


class _Origin(NamedTuple):
    """What the candidates of one kind in one ClusterQueue have in common."""

    node: QuotaNode
    """The ClusterQueue that they are charged to."""
    below: QuotaNode
    """Nearest common ancestor of `node` and the ClusterQueue of the preemptor."""
    cause: PreemptionCause
    only_without_borrowing: bool
    """They are candidates only if the preemptor does not borrow afterwards (P3)."""


_Candidates = list[tuple[Entry, _Origin]]
_RECLAIMS: Final = PreemptionCause.IN_COHORT_RECLAMATION
_RECLAIMS_WHILE_BORROWING: Final = PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING


def classical_victims(search: PreemptionSearch) -> list[Target]:
    """Return a set of victims without which the request fits, in order; empty if there is none (P1)."""
    own = search.sort(search.unprotected(search.node, PreemptionCause.IN_CLUSTER_QUEUE))
    here = _Origin(search.node, search.node, PreemptionCause.IN_CLUSTER_QUEUE, False)
    same = [(entry, here) for entry in own]
    reclaimed, by_priority = _elsewhere(search)
    ranked = [*reclaimed, *by_priority, *same]
    if not ranked:
        return []
    if search.any_terminating:
        ranked.sort(key=lambda candidate: not terminating(candidate[0]))
    for allow_borrowing in _attempts(search, bool(reclaimed), bool(reclaimed or by_priority)):
        if victims := _attempt(search, ranked, allow_borrowing):
            return victims
    if barred := sum(1 for _, origin in ranked if origin.only_without_borrowing):
        search.rejected.barred(barred, search.borrowed())
    search.rejected.tried(len(ranked) - barred)
    return []


def _attempts(search: PreemptionSearch, reclaims: bool, elsewhere: bool) -> tuple[bool, ...]:
    """Return for each attempt, in order, whether the preemptor may borrow afterwards (P4)."""
    never = search.rules.borrow_within_cohort is None
    node = search.node
    if not elsewhere or (never and any(node.usage[c] >= node.nominal[c] for c in search.needed)):
        return (True,)
    return (False, True) if never and not reclaims else (True, False)


def _elsewhere(search: PreemptionSearch) -> tuple[_Candidates, _Candidates]:
    """Return the sorted candidates of other ClusterQueues: with hierarchical advantage, and without (P3)."""
    reclaimed: _Candidates = []
    by_priority: _Candidates = []
    if search.rules.reclaim_within_cohort is PreemptionPolicy.NEVER:
        return reclaimed, by_priority
    node = search.node
    rest = dict(search.cells)
    advantage = all(node.usage[cell] + amount <= node.subtree[cell] for cell, amount in rest.items())
    visited, at = node, node.parent
    rest = {cell: max(0, amount - node.private_free(cell)) for cell, amount in rest.items()}
    while at is not None:
        for queue in _borrowers(search, at, visited):
            if advantage:
                there = _Origin(queue, at, _RECLAIMS, False)
                reclaimed += [(entry, there) for entry in search.unprotected(queue, there.cause)]
            else:
                by_priority += _by_priority(search, queue, at)
        advantage |= all(at.usage[cell] + amount <= at.subtree[cell] for cell, amount in rest.items())
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
) -> Iterator[tuple[Entry, _Origin]]:
    """Yield the candidates in `queue`, over which the preemptor has no hierarchical advantage (P3)."""
    rules, priority = search.rules.borrow_within_cohort, search.entry.priority
    times = search.snapshot.rules(queue).min_run_time
    timed = any(map(times.seconds, (_RECLAIMS, _RECLAIMS_WHILE_BORROWING)))
    for entry in search.eligible(queue):
        bound = (
            rules is None
            or entry.priority >= priority
            or (rules.most_priority is not None and entry.priority > rules.most_priority)
        )
        cause = _RECLAIMS if bound else _RECLAIMS_WHILE_BORROWING
        if not ((timed or entry.preempted_at) and search.is_protected(entry, queue, cause)):
            yield entry, _Origin(queue, below, cause, bound)


def _borrowers(search: PreemptionSearch, cohort: QuotaNode, visited: QuotaNode) -> Iterator[QuotaNode]:
    """Yield ClusterQueues of `cohort` outside `visited` that borrow on a cell that needs preemption (P2)."""
    needed = tuple(search.needed)
    todo = [child for child in cohort.children.values() if child is not visited]
    while todo:
        at = todo.pop()
        usage, subtree = at.usage, at.subtree
        for cell in needed:  # a generator, and a call for each node, take seven times as long
            if usage[cell] > subtree[cell]:
                break
        else:
            continue
        if at.kind == "Cohort":
            todo.extend(at.children.values())
        else:
            yield at


def _attempt(search: PreemptionSearch, ranked: _Candidates, allow_borrowing: bool) -> list[Target]:
    """Return the victims among `ranked` (P6); empty if the request does not fit without all of them."""
    targets: list[Target] = []
    with search.limits.trying() as trial:
        for entry, origin in ranked:
            if origin.node is not search.node and (
                (origin.only_without_borrowing and allow_borrowing)
                or not search.holds_what_is_borrowed(entry, origin.node, origin.below)
            ):
                continue
            trial.remove(held_by(search.tree, entry))
            targets.append(Target(entry, origin.cause))
            if search.fits(allow_borrowing):
                return search.fill_back(targets, allow_borrowing)
    return []
