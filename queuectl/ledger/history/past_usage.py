"""Past usage (U5) and recent preemptions of each workload (P11), as the ledger has them.

Read once at a start. Closed holds are read from the newest backwards, in windows of sequence numbers (each by
an index), until they are too old to count (20 half-lives). They are added up at once: memory holds one window
and the sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Row, Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.decisions import Verdict
from queuectl.core.features.usage_history.decay import UsageHistory, counted_from
from queuectl.core.model.policy import AdmissionFairSharing
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import (
    AttemptState,
    Attribution,
    UsageAccount,
    UsageSum,
    WorkloadId,
    usage_accounts,
)
from queuectl.ledger import tables as t

PREEMPTIONS_KEPT: Final = 16
"""Of one workload. The eviction budget can't be larger."""
_WINDOW: Final = 10_000
"""Sequence numbers; each closes one attempt at most."""
_BOOKED: Final = t.attribution.c
_IS_BOOKED: Final = and_(
    _BOOKED.cluster_id == t.hold_line.c.cluster_id, _BOOKED.id == t.hold_line.c.attribution
)


class _ClosedHold(NamedTuple):
    """What a workload held from one decision to another."""

    accounts: tuple[UsageAccount, ...]
    start: datetime
    end: datetime
    amounts: dict[str, int]
    """By resource, in base units."""


async def past_usage(
    connection: AsyncConnection,
    cluster: str,
    sharing: AdmissionFairSharing | None,
    sequence: int,
    now: datetime | None,
    *,
    earlier: bool = False,
) -> tuple[UsageSum, ...]:
    """Of all holds that were closed up to `sequence`, which was decided at `now`; nothing if none counts.

    `earlier`: there may be later decisions.
    """
    if sharing is None or not sharing.half_life or now is None:
        return ()
    history = UsageHistory(sharing)
    since = history.horizon(now)
    async for window in _closed_holds(connection, cluster, sequence):
        for held in window:
            if held.end >= since:
                history.add_interval(held.accounts, held.amounts, held.start, held.end)
        if window[-1].end < since:
            break
    await _correct_starts(connection, cluster, history, now, sequence if earlier else None)
    return history.sums(now)


async def _closed_holds(
    connection: AsyncConnection, cluster: str, sequence: int
) -> AsyncIterator[list[_ClosedHold]]:
    """In windows of the sequence numbers that closed them, the newest first; no window is empty."""
    decided = select(func.min(t.decision.c.sequence)).where(t.decision.c.cluster_id == cluster)
    first: int | None = (await connection.execute(decided)).scalar_one()
    row = t.hold_line.c
    query = select(
        *(row.workload, row.from_seq, row.to_seq, row.from_at, row.closed_at, row.cluster_queue),
        *(_BOOKED.namespace, _BOOKED.queue, _BOOKED.user_name, row.resource, row.count, row.amount),
    ).join(t.attribution, _IS_BOOKED, isouter=True)
    while first is not None and sequence >= first:
        window = query.where(row.cluster_id == cluster, ~row.open)
        window = window.where(row.to_seq > sequence - _WINDOW, row.to_seq <= sequence)
        found: dict[tuple[str, int, int], _ClosedHold] = {}
        rows = await connection.execute(window.order_by(row.to_seq.desc()))
        for workload, from_seq, to_seq, start, end, *whose, resource, count, amount in rows:
            held = found.get((workload, from_seq, to_seq))
            if held is None:
                held = _ClosedHold(_accounts(*whose), start, end, {})
                found[workload, from_seq, to_seq] = held
            held.amounts[resource] = held.amounts.get(resource, 0) + count * amount
        if found:
            yield list(found.values())
        sequence -= _WINDOW


def _accounts(
    cluster_queue: str, namespace: str | None, queue: str | None, user: str | None
) -> tuple[UsageAccount, ...]:
    """For which what is booked so counts. Without a namespace it is not booked."""
    if namespace is None or queue is None:
        return usage_accounts(cluster_queue, None)
    return usage_accounts(cluster_queue, Attribution(namespace=namespace, queue=queue, user=user))


async def _correct_starts(
    connection: AsyncConnection, cluster: str, history: UsageHistory, now: datetime, last: int | None
) -> None:
    """Subtract from `history` the time between an open attempt's admission and the start of its hold.

    A controller that starts counts what an open attempt holds from its admission on (`counted_from`). But a
    smaller hold starts when the attempt shrinks, and that of an attempt that was found running when it was
    found. `last`: as of that decision; None: now.
    """
    row, held = t.hold_line.c, t.attempt.c
    open_then = row.open if last is None else and_(row.from_seq <= last, or_(row.open, row.to_seq > last))
    of_attempt = held.open if last is None else held.number == row.attempt
    query = (
        select(row.cluster_queue, _BOOKED.namespace, _BOOKED.queue, _BOOKED.user_name)
        .add_columns(row.resource, row.count, row.amount, held.admitted_at, row.from_at)
        .join(
            t.attempt,
            and_(held.cluster_id == row.cluster_id, held.workload == row.workload, of_attempt),
        )
        .join(t.attribution, _IS_BOOKED, isouter=True)
        .where(row.cluster_id == cluster, open_then, row.from_at != held.admitted_at)
    )
    for *whose, resource, count, amount, admitted_at, from_at in await connection.execute(query):
        begun = counted_from(admitted_at, now)
        history.add_interval(_accounts(*whose), {resource: -count * amount}, begun, from_at)


async def preemptions(
    connection: AsyncConnection, cluster: str, sequence: int, since: datetime
) -> dict[WorkloadId, tuple[datetime, ...]]:
    """When each workload that is not over was preempted since then, oldest first: the last PREEMPTIONS_KEPT.

    `sequence` is that of the last decision.
    """
    first = await first_since(connection, cluster, sequence, since)
    row, queued = t.decision.c, t.workload.c
    query = (
        preempted_since(cluster, since)
        .join(t.workload, and_(queued.cluster_id == row.cluster_id, queued.id == row.workload))
        # Decisions up to `queued_seq` are of an earlier workload with the same id.
        .where(queued.open, row.sequence > queued.queued_seq, row.sequence >= first)
    )
    return last_times(await connection.execute(query))


def preempted_since(cluster: str, since: datetime) -> Select[str, datetime]:
    """Each preemption, oldest first: the workload, and when it was decided."""
    row = t.decision.c
    return (
        select(row.workload, row.now)
        .where(row.cluster_id == cluster, row.now >= since, row.verdict == Verdict.EVICTED.value)
        .where(row.reason["code"].astext == Code.PREEMPTED.value)
        .order_by(row.sequence)
    )


def last_times(rows: Iterable[Row[str, datetime]]) -> dict[WorkloadId, tuple[datetime, ...]]:
    """The last PREEMPTIONS_KEPT of each workload. `rows`: of `preempted_since`."""
    times: defaultdict[WorkloadId, list[datetime]] = defaultdict(list)
    for workload, now in rows:
        times[WorkloadId(workload)].append(now)
    return {workload: tuple(found[-PREEMPTIONS_KEPT:]) for workload, found in times.items()}


async def evictions(
    connection: AsyncConnection, cluster: str
) -> dict[WorkloadId, tuple[datetime, WorkloadId | None]]:
    """Of each workload that is being evicted, the time of that decision, and its preemptor if any."""
    row, held = t.decision.c, t.attempt.c
    preemptor = row.payload["preemptor"].astext
    query = (
        select(row.workload, row.now, preemptor)
        .join(
            t.attempt,
            and_(
                held.cluster_id == row.cluster_id,
                held.workload == row.workload,
                held.number == row.attempt,
            ),
        )
        .where(row.cluster_id == cluster, held.open, held.state == AttemptState.EVICTING.value)
        .where(row.verdict == Verdict.EVICTED.value)
        .order_by(row.sequence)  # the last one counts: an earlier workload may have had the same id
    )
    found = await connection.execute(query)
    return {WorkloadId(workload): (now, WorkloadId(by) if by else None) for workload, now, by in found}


async def first_since(connection: AsyncConnection, cluster: str, last: int, since: datetime) -> int:
    """A sequence number at most _WINDOW decisions before the first decision at `since` or later.

    There is no index of times. They never decrease as sequence numbers increase: a binary search finds it.
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
