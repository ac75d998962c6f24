"""Reading history for answers about waits, preemptions and shares: bounded, each by an index."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnClause,
    DateTime,
    Row,
    Select,
    Text,
    cast,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.decisions import Verdict
from queuectl.core.model.resources import FlavorResource, by_resource
from queuectl.core.model.workload import ConfigKey
from queuectl.ledger import tables as t
from queuectl.ledger.history.past_usage import first_since
from queuectl.ledger.pool import stream
from queuectl.ledger.rows import decision_row
from queuectl.ports.reader import (
    MOST_HELD,
    MOST_STARTS,
    Held,
    PastHolds,
    PreemptionRow,
    Revision,
    StartsSpan,
    TooMuchHistory,
    WorkloadStarts,
)

# Written as in the partial indexes of migration 0008: as parameters they might not be matched.
_STARTED: Final = text("verdict = 'Admitted'")
_PREEMPTED: Final = text("verdict = 'Evicted' AND reason ->> 'code' = 'Preempted'")
_CLUSTER_QUEUE: Final[ColumnClause[str]] = literal_column("payload ->> 'clusterQueue'")


async def starts(connection: AsyncConnection, cluster: str, span: StartsSpan) -> WorkloadStarts:
    found = starts_in(cluster, span).subquery()
    query = select(func.count(), func.max(found.c.now))
    return WorkloadStarts(*(await connection.execute(query)).one())


def starts_in(cluster: str, span: StartsSpan) -> Select[Any]:
    """The times of the last MOST_STARTS."""
    row = t.decision.c
    return (
        select(row.now)
        .where(row.cluster_id == cluster, _STARTED, _CLUSTER_QUEUE.in_([span.cluster_queue]))
        .where(row.sequence > span.after, row.sequence < span.before)
        .order_by(row.sequence.desc())
        .limit(MOST_STARTS)
    )


class HeldLine(NamedTuple):
    """A hold line of an attempt, up to a decision."""

    cluster_queue: str
    attribution: str
    """Its id; empty: it is not booked."""
    flavor: str
    resource: str
    amount: int
    """Base units, of all its pods."""
    begins: datetime
    ends: datetime


class AttemptDecision(NamedTuple):
    """A decision on an attempt."""

    sequence: int
    workload: str
    attempt: int
    verdict: str
    now: datetime


async def decisions_on_attempts(
    connection: AsyncConnection, cluster: str, workloads: Collection[str], until: int | None = None
) -> list[AttemptDecision]:
    """The decisions that begin, shrink or end an attempt, oldest first."""
    row = t.decision.c
    query = select(row.sequence, row.workload, row.attempt, row.verdict, row.now).where(
        row.cluster_id == cluster,
        row.workload == func.any(literal(sorted(workloads), ARRAY(Text))),
        row.verdict.in_(_DECISIONS),
        row.attempt.is_not(None),
    )
    if until is not None:
        query = query.where(row.sequence <= until)
    return [AttemptDecision(*one) for one in await connection.execute(query.order_by(row.sequence))]


_DECISIONS: Final = (Verdict.ADMITTED, Verdict.SHRUNK, Verdict.RELEASED, Verdict.RETIRED)


async def held_until(
    connection: AsyncConnection,
    cluster: str,
    ends: Collection[AttemptDecision],
    known: Iterable[AttemptDecision] | None = None,
) -> dict[int, list[HeldLine]]:
    """What attempts held from their admission until a decision on each, by its sequence.

    `known`: `decisions_on_attempts` of their workloads, if they were read already.
    """
    workloads = sorted({one.workload for one in ends})
    known = await decisions_on_attempts(connection, cluster, workloads) if known is None else known
    admitted = defaultdict[tuple[str, int], list[int]](lambda: [0])
    closing = []
    for one in known:
        if one.verdict == Verdict.ADMITTED:
            admitted[one.workload, one.attempt].append(one.sequence)
        else:
            closing.append(one.sequence)
    by_attempt = defaultdict[tuple[str, int], list[tuple[int, AttemptDecision]]](list)
    for one in ends:  # an id that is used again has several attempts of a number
        times = admitted[one.workload, one.attempt]
        by_attempt[one.workload, one.attempt].append((times[bisect_left(times, one.sequence) - 1], one))
    row, found = t.hold_line.c, dict[int, list[HeldLine]]()
    which = (
        row.open & (row.workload == func.any(literal(workloads, ARRAY(Text)))),
        ~row.open & (row.to_seq == func.any(literal(closing, ARRAY(BigInteger)))),
    )
    of_attempt = (row.workload, row.attempt, row.from_seq, row.from_at, row.closed_at)
    whose = (row.cluster_queue, func.coalesce(row.attribution, ""), row.flavor, row.resource)
    for part in which:
        query = select(*of_attempt, *whose, row.count, row.amount).where(
            row.cluster_id == cluster, part, row.count > 0, row.amount > 0
        )
        async for *key, sequence, begins, closed_at, queue, booked, flavor, resource, count, amount in stream(
            connection, query
        ):
            for since, one in by_attempt.get((key[0], key[1]), ()):
                until = min(closed_at or one.now, one.now)
                if since <= sequence < one.sequence and begins < until:
                    line = HeldLine(queue, booked, flavor, resource, count * amount, begins, until)
                    found.setdefault(one.sequence, []).append(line)
    return found


def sums(lines: Iterable[HeldLine]) -> dict[FlavorResource, int]:
    """The product that `usage_hours` adds up: base units times microseconds."""
    held: Counter[FlavorResource] = Counter()
    for one in lines:
        cell = FlavorResource(one.flavor, one.resource)
        held[cell] += one.amount * ((one.ends - one.begins) // timedelta(microseconds=1))
    return dict(held)


async def held_by_attempts(
    connection: AsyncConnection, cluster: str, workloads: Collection[str], until: int
) -> dict[int, dict[str, int]]:
    known = await decisions_on_attempts(connection, cluster, workloads, until)
    ends = [one for one in known if one.verdict in (Verdict.RELEASED, Verdict.RETIRED)]
    found = await held_until(connection, cluster, ends, known)
    return {sequence: by_resource(sums(lines).items()) for sequence, lines in found.items()}


async def preemptions(
    connection: AsyncConnection,
    cluster: str,
    before: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[PreemptionRow]:
    """Newest first."""
    rows = (await connection.execute(preempted(cluster, before, since, until, limit))).all()
    wanted = sorted({row.workload for row in rows})
    of = t.attempt.c
    query = (
        select(of.workload, of.number, of.sequence, of.admitted_at, of.cluster_queue)
        .where(of.cluster_id == cluster, of.workload == func.any(literal(wanted, ARRAY(Text))))
        .order_by(of.sequence)
    )
    attempts: dict[tuple[str, int], list[Row[Any, Any, Any, Any, Any]]] = {}
    for one in await connection.execute(query):
        attempts.setdefault((one.workload, one.number), []).append(one)
    ends = [AttemptDecision(row.sequence, row.workload, row.attempt, row.verdict, row.now) for row in rows]
    held = await held_until(connection, cluster, ends)
    found = []
    for row in rows:
        ended = [one for one in attempts.get((row.workload, row.attempt), ()) if one.sequence < row.sequence]
        when, queue = (ended[-1].admitted_at, ended[-1].cluster_queue) if ended else (None, None)
        found.append(PreemptionRow(decision_row(row), when, queue, sums(held.get(row.sequence, ()))))
    return found


def preempted(
    cluster: str, before: int | None, since: datetime | None, until: datetime | None, limit: int
) -> Select[Any]:
    row = t.decision.c
    query = select(t.decision).where(row.cluster_id == cluster, _PREEMPTED)
    if before is not None:
        query = query.where(row.sequence < before)
    if since is not None:
        query = query.where(row.now >= since)
    if until is not None:
        query = query.where(row.now < until)
    return query.order_by(row.sequence.desc()).limit(limit)


async def past_holds(
    connection: AsyncConnection, cluster: str, since: datetime, until: datetime
) -> PastHolds:
    """Raises TooMuchHistory."""
    last = select(t.leadership.c.sequence).where(t.leadership.c.cluster_id == cluster)
    sequence: int = (await connection.execute(last)).scalar() or 0
    start = await first_since(connection, cluster, sequence, since)
    holds: list[Held] = []
    for query in (ended_holds(cluster, start, since, until), open_holds(cluster, until)):
        holds += [Held(*row) for row in await connection.execute(query.limit(MOST_HELD + 1))]
    revisions = await revisions_in(connection, cluster, since, until, MOST_HELD + 1)
    if max(len(holds), len(revisions)) > MOST_HELD:
        raise TooMuchHistory
    oldest = select(t.decision.c.now).where(t.decision.c.cluster_id == cluster)
    first = (await connection.execute(oldest.order_by(t.decision.c.sequence).limit(1))).scalar()
    return PastHolds(holds, revisions, first)


_LINE: Final = t.hold_line.c
_AMOUNT: Final = cast(func.sum(_LINE.count * _LINE.amount), BigInteger)
_WHOSE: Final = (_LINE.cluster_queue, _LINE.flavor, _LINE.resource)


def ended_holds(cluster: str, sequence: int, since: datetime, until: datetime) -> Select[Any]:
    """Those that ended after `since`. `sequence`: at or before the first decision since then."""
    times = (_LINE.from_at, _LINE.closed_at)
    return (
        select(*_WHOSE, _AMOUNT, *times)
        .where(_LINE.cluster_id == cluster, ~_LINE.open, _LINE.to_seq >= sequence)
        .where(_LINE.closed_at > since, _LINE.from_at < until)
        .group_by(*_WHOSE, *times)
    )


def open_holds(cluster: str, until: datetime) -> Select[Any]:
    return (
        select(*_WHOSE, _AMOUNT, _LINE.from_at, literal(None, DateTime))
        .where(_LINE.cluster_id == cluster, _LINE.open, _LINE.from_at < until)
        .group_by(*_WHOSE, _LINE.from_at)
    )


async def revisions_in(
    connection: AsyncConnection, cluster: str, since: datetime, until: datetime, most: int | None = None
) -> list[Revision]:
    """Those of ClusterQueues and Cohorts; of more than `most` any so many."""
    row = t.config_revision.c
    query = select(row.kind, row.namespace, row.name, row.spec, row.from_at, row.to_at).where(
        row.cluster_id == cluster,
        row.kind.in_(("ClusterQueue", "Cohort")),
        row.from_at < until,
        or_(row.to_at.is_(None), row.to_at > since),
    )
    rows = await connection.execute(query.limit(most))
    return [Revision(ConfigKey(*found[:3]), *found[3:]) for found in rows]
