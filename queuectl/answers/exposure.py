"""Whether a running workload may be preempted now, and by which queues (docs/answers.md, A8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from queuectl.answers.explanation import Visibility
from queuectl.answers.queue_states import QueueState
from queuectl.answers.state import CommittedState, in_parts
from queuectl.core.model.policy import ClusterQueue, PreemptionPolicy
from queuectl.core.model.reasons import Family, PreemptionCause
from queuectl.core.model.resources import FlavorResource
from queuectl.core.model.workload import Phase, StoredWorkload, WorkloadId
from queuectl.core.quota.tree import QuotaNode, QuotaTree


@dataclass(frozen=True, slots=True)
class ExposureThreat:
    """Pending workloads of ClusterQueues that may preempt a workload by one rule."""

    cluster_queue: str | None
    """Null for all together that the caller may not read."""
    cause: PreemptionCause
    policy: PreemptionPolicy | None
    """Of that queue; null where that is null."""
    pending: int
    """How many wait now that the rule allows to preempt it, and that request what it holds."""
    protected_until: datetime | None
    """End of its minimum run time against this rule. Null: it is over, or there is none."""


async def threats(workload: StoredWorkload, state: CommittedState, now: datetime) -> list[ExposureThreat]:
    """By ClusterQueue, its own first; empty for a workload that is not admitted."""
    attempt = workload.attempt
    if attempt is None or workload.phase is not Phase.ADMITTED:
        return []
    home = state.queues.get(attempt.assignment.cluster_queue)
    if home is None:
        return []
    held = [cell for cell, amount in attempt.assignment.usage().items() if amount]
    threats_of_queues = [one async for one in _own(workload, home, held, state)] if home.queue else []
    others = (one for one in state.in_tree_of(home.name) if one.name != home.name)
    for other in sorted(others, key=lambda one: one.name):
        threats_of_queues += [one async for one in _other(workload, home, other, held, state)]
        await asyncio.sleep(0)
    return [_protected(one, home.queue, attempt.admitted_at, now) for one in threats_of_queues]


def as_seen(threats: Iterable[ExposureThreat], caller: Visibility) -> tuple[ExposureThreat, ...]:
    """Those of queues that the caller may read, then the others, added up by rule and end of protection."""
    shown: list[ExposureThreat] = []
    hidden: Counter[tuple[PreemptionCause, datetime | None]] = Counter()
    for one in threats:
        if one.cluster_queue is not None and caller.cluster_queue(one.cluster_queue) is not None:
            shown.append(one)
        else:
            hidden[one.cause, one.protected_until] += one.pending
    return (
        *shown,
        *(ExposureThreat(None, cause, None, pending, until) for (cause, until), pending in hidden.items()),
    )


async def _own(
    workload: StoredWorkload, home: QueueState, held: list[FlavorResource], state: CommittedState
) -> AsyncIterator[ExposureThreat]:
    assert home.queue is not None
    policy = home.queue.preemption.within_cluster_queue
    if policy is PreemptionPolicy.NEVER:
        return
    newer = policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
    pending = 0
    async for one in _waiting(home, state, held):
        equal = newer and one.priority == workload.priority and _older(one, workload)
        pending += one.priority > workload.priority or equal
    yield ExposureThreat(home.name, PreemptionCause.IN_CLUSTER_QUEUE, policy, pending, None)


def _older(one: StoredWorkload, other: StoredWorkload) -> bool:
    first, second = (work.past.ordered_from or work.created_at for work in (one, other))
    return int(first.timestamp()) < int(second.timestamp())


async def _other(
    workload: StoredWorkload,
    home: QueueState,
    other: QueueState,
    held: list[FlavorResource],
    state: CommittedState,
) -> AsyncIterator[ExposureThreat]:
    """Another queue may take only what the workload's queue borrows, at each level up to the common one."""
    policy = other.queue.preemption.reclaim_within_cohort if other.queue else PreemptionPolicy.NEVER
    if policy is PreemptionPolicy.NEVER:
        return
    tree = state.tree_of(other.name)
    lender = tree.queue(other.name)
    lent = [cell for cell in held if _borrowed(tree, tree.queue(home.name), lender, cell)]
    if not lent:
        return
    pending = 0
    async for one in _waiting(other, state, lent):
        pending += policy is PreemptionPolicy.ANY or one.priority > workload.priority
    yield ExposureThreat(other.name, _cause(tree, lender, lent, other, state), policy, pending, None)


def _borrowed(tree: QuotaTree, node: QuotaNode, lender: QuotaNode, cell: FlavorResource) -> bool:
    above, number = set(lender.path()), tree.cell(cell)
    return all(at.borrows(number) for at in node.path() if at not in above)


def _cause(
    tree: QuotaTree,
    lender: QuotaNode,
    lent: Iterable[FlavorResource],
    other: QueueState,
    state: CommittedState,
) -> PreemptionCause:
    if any(lender.usage[number] < lender.subtree[number] for number in map(tree.cell, lent)):
        return PreemptionCause.IN_COHORT_RECLAMATION
    if tree.shares_fairly(lender):
        return PreemptionCause.IN_COHORT_FAIR_SHARING
    if other.queue is not None and other.queue.preemption.borrow_within_cohort is not None:
        return PreemptionCause.IN_COHORT_RECLAIM_WHILE_BORROWING
    return PreemptionCause.IN_COHORT_RECLAMATION


async def _waiting(
    queue: QueueState, state: CommittedState, cells: Iterable[FlavorResource]
) -> AsyncIterator[StoredWorkload]:
    """Its pending workloads that request one of these resources, and may get it."""
    resources = {cell.resource for cell in cells}
    async for _, place in in_parts(queue.workloads.order):
        one = state.workloads[WorkloadId(place[-1])]
        if one.reason is not None and one.reason.family is Family.NEVER:
            continue
        if any(name in resources for pods in one.pod_sets for name, _ in pods.requests):
            yield one


def _protected(
    one: ExposureThreat, queue: ClusterQueue | None, admitted_at: datetime, now: datetime
) -> ExposureThreat:
    seconds = queue.preemption.min_run_time.seconds(one.cause) if queue else 0
    until = admitted_at + timedelta(seconds=seconds)
    if not seconds or until <= now:
        return one
    return ExposureThreat(one.cluster_queue, one.cause, one.policy, one.pending, until)
