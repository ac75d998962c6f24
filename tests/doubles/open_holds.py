"""All quota that a ledger holds, to compare one ledger with another."""

from __future__ import annotations

from sqlalchemy import select

from queuectl.ledger import tables as t
from queuectl.ledger.pool import connection_pool, reading

OpenHold = tuple[str, int, str, int, str, str, int]
"""Workload, attempt, podset, count, flavor, resource, amount of one pod."""


async def open_holds(url: str, cluster_id: str | None = None) -> list[OpenHold]:
    """All quota held at the moment, sorted."""
    row = t.hold_line.c
    columns = (row.workload, row.attempt, row.pod_set, row.count, row.flavor, row.resource, row.amount)
    query = select(*columns).where(row.open)
    if cluster_id is not None:
        query = query.where(row.cluster_id == cluster_id)
    async with connection_pool(url, read_only=True) as pool, reading(pool) as connection:
        return sorted((*one,) for one in await connection.execute(query))
