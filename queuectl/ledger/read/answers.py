"""Reading history for answers about waits, preemptions and shares: bounded, each by an index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

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

from queuectl.core.model.workload import Assignment, ConfigKey
from queuectl.ledger import tables as t
from queuectl.ledger.codec import pod_sets_from_json
from queuectl.ledger.history.past_usage import first_since
from queuectl.ledger.rows import decision_row
from queuectl.ledger.tables import SCHEMA
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
    held = t.attempt.c
    query = (
        select(held.workload, held.number, held.sequence, held.admitted_at)
        .add_columns(held.cluster_queue, held.pod_sets)
        .where(held.cluster_id == cluster, held.workload == func.any(literal(wanted, ARRAY(Text))))
        .order_by(held.sequence)
    )
    attempts: dict[tuple[str, int], list[Row[Any]]] = {}
    for one in await connection.execute(query):
        attempts.setdefault((one.workload, one.number), []).append(one)
    return [_preemption(row, attempts.get((row.workload, row.attempt), ())) for row in rows]


def _preemption(row: Row[Any], attempts: Sequence[Row[Any]]) -> PreemptionRow:
    """`attempts`: of this number; an id that is used again has several."""
    ended = [one for one in attempts if one.sequence < row.sequence]
    if not ended:
        return PreemptionRow(decision_row(row), None, None)
    one = ended[-1]
    held = Assignment(cluster_queue=one.cluster_queue, pod_sets=pod_sets_from_json(one.pod_sets))
    return PreemptionRow(decision_row(row), one.admitted_at, held)


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


HELD_BY_ATTEMPTS: Final = text(
    "WITH smaller AS (SELECT sequence, now, min(sequence) FILTER (WHERE verdict <> 'Shrunk') "
    "OVER (PARTITION BY workload ORDER BY sequence DESC) AS ended "
    f"FROM {SCHEMA}.decision WHERE cluster_id = :cluster AND workload = ANY(CAST(:workloads AS text[])) "
    "AND sequence <= :until AND verdict IN ('Shrunk', 'Released', 'Retired')) "
    "SELECT smaller.ended, line.resource, sum(CAST(line.count AS numeric) * line.amount "
    "* CAST(1000000 * extract(epoch FROM greatest(line.closed_at - line.from_at, interval '0')) AS bigint)) "
    f"FROM smaller JOIN {SCHEMA}.hold_line line ON line.cluster_id = :cluster AND NOT line.open "
    "AND line.to_seq = smaller.sequence AND line.closed_at = smaller.now "
    "WHERE smaller.ended IS NOT NULL GROUP BY 1, 2"
)
"""By the decision that ended an attempt: the product that `usage_hours` adds up, of all its hold lines."""


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
    revisions = [
        Revision(ConfigKey(kind, namespace, name), spec, begin, end)
        for kind, namespace, name, spec, begin, end in await connection.execute(
            revisions_in(cluster, since, until).limit(MOST_HELD + 1)
        )
    ]
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


def revisions_in(cluster: str, since: datetime, until: datetime) -> Select[Any]:
    row = t.config_revision.c
    return select(row.kind, row.namespace, row.name, row.spec, row.from_at, row.to_at).where(
        row.cluster_id == cluster,
        row.kind.in_(("ClusterQueue", "Cohort")),
        row.from_at < until,
        or_(row.to_at.is_(None), row.to_at > since),
    )
