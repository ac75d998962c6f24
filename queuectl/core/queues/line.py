"""The order of a pending queue, as status, REST and CLI show it (O7).

It is the order in which its workloads are admitted where quota becomes available for one after another. The
controller has the workloads in memory, REST has the rows of the ledger: both use what is here.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from queuectl.core.directory import Directory
from queuectl.core.entries import Entry
from queuectl.core.model.policy import LocalQueueName
from queuectl.core.model.reasons import Code, Family, Reason, waits_for_victims
from queuectl.core.model.workload import Phase, Place, StoredWorkload
from queuectl.core.past_usage import PlannedUsage, Turn, UsageOrder, UsageValue
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
        found = _in_turns(found, queue, directory, past, now)
    claim = queue.claim
    if claim is not None:
        found = sorted(found, key=lambda entry: entry.id != claim.owner)
    return found


def _in_turns(
    entries: Sequence[Entry], queue: PendingQueue, directory: Directory, past: UsageOrder, now: datetime
) -> list[Entry]:
    """Return `entries`, which are in the order of O1 and O2, in the order of U1 and U6.

    An admission changes the usage of its own LocalQueue, and there that of its own user, alone.
    """
    queue_flavors = directory.queue_flavors(queue.name)
    usage = PlannedUsage(past, directory.local_queues, now)
    waiting: defaultdict[Turn, deque[Entry]] = defaultdict(deque)
    for entry in entries:
        waiting[queue.turn(entry)].append(entry)
    users: defaultdict[LocalQueueName, list[tuple[tuple[UsageValue, ...], Place, Turn]]] = defaultdict(list)
    for turn, found in waiting.items():
        users[turn.local_queue].append((usage.of_turn(turn)[1:], found[0].order, turn))
    for heap in users.values():
        heapq.heapify(heap)

    def place(name: LocalQueueName) -> tuple[UsageValue, Place, LocalQueueName]:
        *_, order, turn = users[name][0]
        return usage.of_turn(turn)[0], order, name

    first = [place(name) for name in users]
    heapq.heapify(first)
    line: list[Entry] = []
    while first:
        name = first[0][-1]
        turn = heapq.heappop(users[name])[-1]
        entry = waiting[turn].popleft()
        line.append(entry)
        amounts: defaultdict[str, int] = defaultdict(int)
        for charge in entry.shape:
            for resource, amount in queue_flavors.pod_charge(charge):
                amounts[resource] += amount * charge.pod_set.count
        usage.admit(turn, amounts)
        if waiting[turn]:
            heapq.heappush(users[name], (usage.of_turn(turn)[1:], waiting[turn][0].order, turn))
        if users[name]:
            heapq.heapreplace(first, place(name))
        else:
            heapq.heappop(first)
    return line


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
        past=workload.past,
        loses_place=loses_place,
    )
    return (not preempted, place)


def _is_ineligible(reason: Reason) -> bool:
    """Return whether a workload that waits with that reason is in no pending queue."""
    if reason.code is Code.RESOURCE_NOT_COVERED:
        return not is_refusal(reason)  # G1
    return reason.family is Family.HELD or reason.code in _OUTSIDE or _awaits_pods(reason)


def _awaits_pods(reason: Reason) -> bool:
    """Return whether its pods are not known yet: a pod group that misses one."""
    return reason.code is Code.PENDING_EVALUATION and reason.detail is not None
