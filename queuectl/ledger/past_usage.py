"""Past usage of LocalQueues, and recent preemptions of workloads, from the ledger's history.

Read once at a start. Closed holds are read from the newest backwards, in windows of sequence numbers (by an
index), until they are too old to count (20 half-lives), and summed while they are read: memory holds one
window and the sums.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import ARRAY, Text, and_, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.decay import PastUsage
from queuectl.core.decisions import Verdict
from queuectl.core.model import LocalQueueName, PastUse, WorkloadId
from queuectl.core.reasons import Code
from queuectl.core.rules import UsageSharing
from queuectl.ledger import tables as t

PREEMPTIONS_KEPT: Final = 16
"""Preemptions of one workload; the largest eviction budget that can be configured."""
_WINDOW: Final = 10_000
"""Sequence numbers in one window; each ends at most one attempt."""


class _Ended(NamedTuple):
    """The usage that a workload held from one decision to another."""

    workload: str
    from_seq: int
    to_seq: int
    start: datetime
    end: datetime
    cells: dict[str, int]


async def past_usage(
    connection: AsyncConnection, cluster: str, sharing: UsageSharing, sequence: int, now: datetime
) -> tuple[PastUse, ...]:
    """Past usage of all holds that ended up to `sequence`, which was decided at `now`."""
    past = PastUsage(sharing)
    since = past.horizon(now)
    async for window in _ended(connection, cluster, sequence):
        queues = await _queues(connection, cluster, window)
        for held, queue in zip(window, queues, strict=True):
            if queue is not None and held.end >= since:
                past.used(queue, held.cells, held.start, held.end)
        if window[-1].end < since:
            break
    await _leave_out_what_began_later(connection, cluster, past)
    return past.past(now)


async def _ended(connection: AsyncConnection, cluster: str, sequence: int) -> AsyncIterator[list[_Ended]]:
    """In windows of the sequence numbers that ended them, the newest first; no window is empty."""
    decided = select(func.min(t.decision.c.sequence)).where(t.decision.c.cluster_id == cluster)
    first: int | None = (await connection.execute(decided)).scalar_one()
    row = t.hold_line.c
    query = select(
        *(row.workload, row.from_seq, row.to_seq, row.from_at, row.closed_at),
        *(row.resource, row.count, row.amount),
    )
    while first is not None and sequence >= first:
        window = query.where(row.cluster_id == cluster, ~row.open)
        window = window.where(row.to_seq > sequence - _WINDOW, row.to_seq <= sequence)
        found: dict[tuple[str, int, int], _Ended] = {}
        for *which, start, end, resource, count, amount in await connection.execute(
            window.order_by(row.to_seq.desc())
        ):
            workload, from_seq, to_seq = which
            held = found.get((workload, from_seq, to_seq))
            if held is None:
                held = _Ended(workload, from_seq, to_seq, start, end, {})
                found[workload, from_seq, to_seq] = held
            held.cells[resource] = held.cells.get(resource, 0) + count * amount
        if found:
            yield list(found.values())
        sequence -= _WINDOW


async def _queues(
    connection: AsyncConnection, cluster: str, window: Sequence[_Ended]
) -> list[LocalQueueName | None]:
    """The LocalQueue of each hold; None: it is no longer known."""
    row = t.workload.c
    over = select(row.closed_seq, row.namespace, row.queue).where(
        row.cluster_id == cluster,
        ~row.open,
        row.closed_seq >= window[-1].to_seq,
        row.closed_seq <= window[0].to_seq,
    )
    with_it = {
        sequence: LocalQueueName(namespace, queue)
        for sequence, namespace, queue in await connection.execute(over)
    }
    # A workload that was pending again may have moved since: the queue at the time of the hold counts.
    others = {held.workload for held in window if held.to_seq not in with_it}
    queued = await _queued(connection, cluster, others) if others else {}

    def queue_of(held: _Ended) -> LocalQueueName | None:
        moves = queued.get(held.workload, [])
        place = bisect.bisect_left(moves, held.from_seq, key=lambda move: move[0])
        return moves[place - 1][1] if place else None

    return [with_it.get(held.to_seq) or queue_of(held) for held in window]


async def _queued(
    connection: AsyncConnection, cluster: str, workloads: Collection[str]
) -> dict[str, list[tuple[int, LocalQueueName]]]:
    """The queues of each workload with the sequence of the move, the first one first."""
    row = t.decision.c
    query = (
        select(row.workload, row.sequence, row.namespace, row.payload["queue"].astext)
        .where(
            row.cluster_id == cluster,
            row.workload == func.any(bindparam("workloads", type_=ARRAY(Text))),
            row.verdict == Verdict.QUEUED.value,
        )
        .order_by(row.sequence)
    )
    moves: defaultdict[str, list[tuple[int, LocalQueueName]]] = defaultdict(list)
    rows = await connection.execute(query, {"workloads": sorted(workloads)})
    for workload, sequence, namespace, queue in rows:
        moves[workload].append((sequence, LocalQueueName(namespace, queue)))
    return moves


async def _leave_out_what_began_later(connection: AsyncConnection, cluster: str, past: PastUsage) -> None:
    """Usage of an open attempt counts from its admission: subtract the time before a hold that began later.

    A hold that was made smaller is a new one from that time, and a rebuilt one begins with the rebuild.
    """
    row, held, queued = t.hold_line.c, t.attempt.c, t.workload.c
    query = (
        select(queued.namespace, queued.queue, row.resource, row.count, row.amount)
        .add_columns(held.admitted_at, row.from_at)
        .join(
            t.attempt,
            and_(held.cluster_id == row.cluster_id, held.workload == row.workload, held.open),
        )
        .join(
            t.workload,
            and_(queued.cluster_id == row.cluster_id, queued.id == row.workload, queued.open),
        )
        .where(row.cluster_id == cluster, row.open, row.from_at > held.admitted_at)
    )
    for namespace, queue, resource, count, amount, admitted_at, from_at in await connection.execute(query):
        past.used(LocalQueueName(namespace, queue), {resource: -count * amount}, admitted_at, from_at)


async def preemptions(
    connection: AsyncConnection, cluster: str, sequence: int, since: datetime
) -> dict[WorkloadId, tuple[datetime, ...]]:
    """Times of preemptions of open workloads since then, oldest first: the last PREEMPTIONS_KEPT of each.

    `sequence` is that of the last decision.
    """
    first = await _first_since(connection, cluster, sequence, since)
    row, queued = t.decision.c, t.workload.c
    query = (
        select(row.workload, row.now)
        # Preemptions of a former object with the same id do not count.
        .join(t.workload, and_(queued.cluster_id == row.cluster_id, queued.id == row.workload))
        .where(row.cluster_id == cluster, queued.open, row.sequence > queued.queued_seq)
        .where(row.sequence >= first, row.now >= since, row.verdict == Verdict.EVICTED.value)
        .where(row.reason["code"].astext == Code.PREEMPTED.value)
        .order_by(row.sequence)
    )
    times: defaultdict[WorkloadId, list[datetime]] = defaultdict(list)
    for workload, now in await connection.execute(query):
        times[WorkloadId(workload)].append(now)
    return {workload: tuple(found[-PREEMPTIONS_KEPT:]) for workload, found in times.items()}


async def _first_since(connection: AsyncConnection, cluster: str, last: int, since: datetime) -> int:
    """A sequence number below all decisions from that time on, and above most earlier ones.

    There is no index on times; they never decrease with rising sequence numbers.
    """
    row = t.decision.c
    query = select(row.now).where(row.cluster_id == cluster).order_by(row.sequence).limit(1)
    low, high = 1, last + 1
    while high - low > _WINDOW:
        middle = (low + high) // 2
        now: datetime | None = (await connection.execute(query.where(row.sequence >= middle))).scalar()
        if now is not None and now < since:
            low = middle
        else:
            high = middle
    return low
