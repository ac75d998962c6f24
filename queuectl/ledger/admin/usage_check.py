"""Compares roll-ups of usage with the holds that they were made of, as far as these are kept."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.device_use import IDLE_OF
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.history.usage_hours import (
    HELD,
    MOST_PIECES,
    SUMS,
    UsageSums,
    decided_before,
    kept_from,
    parameters,
    rolled,
)
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.periods import border_to, pieces

_UTC: Final = ZoneInfo("UTC")
_MOST: Final = 100
"""Findings."""
_ROUNDED: Final = 2
"""Shares of idle devices are rounded in each piece of an hour."""
_DIFFERENCES: Final = text(
    "WITH held (begins, ends, cluster_queue, attribution, flavor, resource, amount) AS ("
    f"{HELD.text}), found (begins, cluster_queue, attribution, flavor, resource, amount) AS ("
    "SELECT date_trunc('hour', begins_at, 'UTC'), cluster_queue, attribution, flavor, resource, sum(amount) "
    f"FROM {SCHEMA}.usage_hour WHERE cluster_id = :cluster AND begins_at >= :since AND begins_at < :until "
    "GROUP BY 1, 2, 3, 4, 5) "
    "SELECT begins, cluster_queue, attribution, flavor, resource, found.amount, held.amount "
    "FROM held FULL JOIN found USING (begins, cluster_queue, attribution, flavor, resource) "
    "WHERE abs(coalesce(found.amount, 0) - coalesce(held.amount, 0)) > CASE "
    f"WHEN starts_with(resource, '{IDLE_OF}') THEN {_ROUNDED} ELSE 0 END ORDER BY 1, 2, 3, 4, 5 LIMIT 100"
)


def _sums(sums: UsageSums) -> TextClause:
    """The times whose sum is not that of their parts."""
    return text(
        "SELECT * FROM (SELECT begins_at, sum(amount) AS stored, ("
        f"SELECT sum(amount) FROM {sums.parts.fullname} part WHERE part.cluster_id = :cluster "
        "AND part.begins_at >= whole.begins_at AND part.begins_at < whole.ends_at) AS parts "
        f"FROM {sums.table.fullname} whole WHERE cluster_id = :cluster AND ends_at > :since "
        "GROUP BY begins_at, ends_at) compared WHERE stored IS DISTINCT FROM parts ORDER BY 1 LIMIT 100"
    )


async def compare_usage(
    connection: AsyncConnection, cluster: str, since: datetime | None
) -> tuple[list[LedgerFinding], datetime | None]:
    """Return the differences in hours of UTC from `since` on, and up to when all hours were compared.

    `since`: None for all that holds are kept of. Without roll-ups there is nothing to compare.
    """
    state = await rolled(connection, cluster)
    kept = await kept_from(connection, cluster, _UTC)
    if state is None or kept is None:
        return [], since
    begins = max(state.since, kept, *([since] if since is not None else []))
    until, findings = border_to(state.until, _UTC), list[LedgerFinding]()
    while begins < until and len(findings) < _MOST:
        some = pieces(begins, until, _UTC)[:MOST_PIECES]
        if not some:
            break
        after = await decided_before(connection, cluster, begins)
        for hour, queue, attribution, flavor, resource, stored, held in await connection.execute(
            _DIFFERENCES, parameters(cluster, some, after)
        ):
            name = f"ClusterQueue {queue}, {flavor}/{resource}, {hour.isoformat()}, booked on {attribution}"
            numbers = (
                f"stored are {int(stored or 0)}, holds sum to {int(held or 0)} (base units x microseconds)"
            )
            findings.append(LedgerFinding("UsageHours", name, numbers))
        begins = some[-1].ends
    for sums in SUMS:
        name = sums.table.name.removeprefix("usage_")
        for when, total, parts in await connection.execute(
            _sums(sums), {"cluster": cluster, "since": since or state.since}
        ):
            numbers = f"is {total}, its parts sum to {parts} (base units x microseconds)"
            findings.append(LedgerFinding("UsageSums", f"the {name} from {when.isoformat()}", numbers))
    return findings, begins
