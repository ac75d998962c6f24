"""Reading history for answers about waits, preemptions and shares: bounded, each by an index."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnClause, Select, func, literal_column, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.ledger import tables as t
from queuectl.ports import MOST_STARTS, StartsSpan, WorkloadStarts

# Written as in the partial indexes of migration 0008: as parameters they might not be matched.
_STARTED: Final = text("verdict = 'Admitted'")
_CLUSTER_QUEUE: Final[ColumnClause[str]] = literal_column("payload ->> 'clusterQueue'")


async def starts(connection: AsyncConnection, cluster: str, span: StartsSpan) -> WorkloadStarts:
    found = starts_in(cluster, span).subquery()
    query = select(func.count(), func.max(found.c.now))
    return WorkloadStarts(*(await connection.execute(query)).one())


def starts_in(cluster: str, span: StartsSpan) -> Select[Any]:
    """The times of the last MOST_STARTS."""
    row = t.decision.c
    query = (
        select(row.now)
        .where(row.cluster_id == cluster, _STARTED, _CLUSTER_QUEUE.in_([span.cluster_queue]))
        .where(row.sequence > span.after)
        .order_by(row.sequence.desc())
        .limit(MOST_STARTS)
    )
    return query if span.before is None else query.where(row.sequence < span.before)
