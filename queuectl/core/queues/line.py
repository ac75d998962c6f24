"""The order of a pending queue, as status, REST and CLI show it (O7).

It is the order in which its workloads are admitted where quota becomes available for one after another. The
controller has the workloads in memory, REST has the rows of the ledger: both use what is here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.feature import UsageOrder, UsageValue
from queuectl.core.flavors.assignment import with_pods
from queuectl.core.model.policy import NORMAL_WEIGHT, LocalQueueName
from queuectl.core.model.reasons import Code, Family, Reason, waits_for_victims
from queuectl.core.model.workload import Phase, Place, StoredWorkload
from queuectl.core.queues.pending import PendingQueue, is_refusal, queue_place

LinePlace = tuple[bool, Place]
"""Sort key: first what has preempted (C7), then O1, O2 and O6."""

_OUTSIDE: Final = frozenset(
    {
        Code.BACKING_OFF,
        Code.BUDGET_EXHAUSTED,
        Code.BUDGET_NEEDS_LIMIT,
        Code.EXCEEDS_RESOURCE_QUOTA,
        Code.MISCONFIGURED,
        Code.QUEUE_NOT_FOUND,
        Code.NAMESPACE_NOT_ALLOWED,
        Code.QUANTITY_OUT_OF_RANGE,
        Code.NEGATIVE_REQUEST,
        Code.OUTSIDE_USAGE_LIMIT,
        Code.DEPENDENCY_NEVER_SATISFIED,
        Code.PRIORITY_NOT_FOUND,
        Code.WAITING_FOR_RESOURCE_QUOTA,
        Code.WAITING_FOR_USAGE_LIMIT,
        Code.WAITING_FOR_DEPENDENCY,
        Code.WAITING_FOR_BEGIN_TIME,
        Code.WAITING_FOR_ARRAY,
    }
)
"""Workloads with these reasons, or on hold, are in no pending queue (G1 to G12, N6, L19, V1 to V4)."""


def line(
    queue: PendingQueue, directory: Directory, past: UsageOrder | None, now: datetime
) -> Sequence[Entry]:
    """Return the workloads of a pending queue in order. `now`: the time for past usage."""
    found = queue.in_order()
    if queue.usage_based and past is not None:
        found = _in_turns(found, queue.name, directory, past, now)
    claim = queue.claim
    if claim is not None:
        found = sorted(found, key=lambda entry: entry.id != claim.owner)
    return found


def _in_turns(
    entries: Sequence[Entry], cluster_queue: str, directory: Directory, past: UsageOrder, now: datetime
) -> list[Entry]:
    """Return `entries`, which are in the order of O1 and O2, in the order of U1.

    Usage of a LocalQueue never decreases by an admission. So the turn of each workload is known from the
    workloads of its own LocalQueue that come before it.
    """
    queue_flavors = directory.queue_flavors(cluster_queue)
    admitted: defaultdict[LocalQueueName, dict[str, int]] = defaultdict(dict)
    usage_of = {
        name: past.growing(name, local.weight if local is not None else NORMAL_WEIGHT, now)
        for name in {entry.local_queue for entry in entries}
        for local in (directory.local_queues.get(name),)
    }
    turns: list[tuple[UsageValue, Place, Entry]] = []
    for entry in entries:
        before = admitted[entry.local_queue]
        turns.append((usage_of[entry.local_queue](before), entry.order, entry))
        for charge in entry.shape:
            for resource, amount in with_pods(queue_flavors, charge):
                before[resource] = before.get(resource, 0) + amount * charge.pod_set.count
    turns.sort(key=lambda turn: turn[:2])
    return [entry for _, _, entry in turns]


def line_place(workload: StoredWorkload, *, loses_place: bool) -> LinePlace | None:
    """Return the place of a workload as the ledger has it; None: it is in no pending queue.

    `loses_place`: a pause delays it (O6). Past usage is not taken into account.
    """
    reason = workload.reason
    if workload.phase is not Phase.PENDING:
        return None
    if reason is not None and (reason.passed_over or _is_ineligible(reason)):
        return None
    preempted = waits_for_victims(reason)
    place = queue_place(
        workload.priority,
        workload.created_at,
        workload.arrival,
        workload.id,
        requeued_at=workload.past.until if loses_place else None,
    )
    return (not preempted, place)


def _is_ineligible(reason: Reason) -> bool:
    """Return whether a workload that waits with that reason is in no pending queue."""
    if reason.code is Code.RESOURCE_NOT_COVERED:
        return not is_refusal(reason)  # G1
    return reason.family is Family.HELD or reason.code in _OUTSIDE
