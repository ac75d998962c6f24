"""Closing a month and correcting a closed one, and the comparison of statements with what they are made of.

A statement and its lines are never changed: triggers refuse it. A correction of a closed month is lines of
the month after the last closed one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.model.resources import FlavorResource
from queuectl.ledger import tables as t
from queuectl.ledger.codec import clean, clean_or_none, cleaned
from queuectl.ledger.history.replay import LedgerFinding
from queuectl.ledger.history.usage_hours import rolled
from queuectl.ledger.pool import ledger_call
from queuectl.ledger.read.statements import closed_months, digest_of, lines_of
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.ledger import LedgerRefused
from queuectl.ports.periods import Piece, border_to, month_after
from queuectl.ports.rates import RateCard
from queuectl.ports.statements import ClosedMonth, StatementLine

_ALONE: Final = text(f"LOCK TABLE {SCHEMA}.statement IN SHARE ROW EXCLUSIVE MODE")
"""Of two that close or correct at the same time the second one sees what the first one stored."""


@ledger_call
async def close_month(
    pool: AsyncEngine,
    cluster: str,
    month: str,
    zone: str,
    period: Piece,
    priced: tuple[RateCard, Any, Sequence[StatementLine]],
) -> ClosedMonth:
    """Store the lines of a month and its statement. `priced`: the rate card, as it was configured, lines.

    Raises LedgerRefused with the reason if the month cannot be closed.
    """
    card, configured, lines = priced
    async with pool.begin() as connection:
        await connection.execute(_ALONE)
        await _check_next(connection, cluster, month)
        await _check_rolled(connection, cluster, month, period)
        await _store(connection, cluster, month, lines)
        all_lines = await lines_of(connection, cluster, t.statement_line.c.month == month)
        await connection.execute(
            t.statement.insert().values(
                cluster_id=cluster,
                month=month,
                zone=zone,
                begins_at=period.begins,
                ends_at=period.ends,
                currency=card.currency,
                decimals=card.decimals,
                lines=len(all_lines),
                total=sum(line.cost for line in all_lines),
                digest=digest_of(all_lines),
                rate_card=configured,
            )
        )
        return (await closed_months(connection, cluster))[-1]


@ledger_call
async def store_correction(
    pool: AsyncEngine, cluster: str, month: str, lines: Sequence[StatementLine], known: int
) -> str:
    """Store lines about a closed month; returns the open month that has them.

    `known`: how many corrections of the month the lines were computed from. Raises LedgerRefused if there are
    more by now.
    """
    async with pool.begin() as connection:
        await connection.execute(_ALONE)
        closed = await closed_months(connection, cluster)
        if month not in {one.month for one in closed}:
            raise LedgerRefused(f"{month} is not closed: what changes it now is in its statement anyway")
        row = t.statement_line.c
        count = select(func.count()).where(row.cluster_id == cluster, row.of_month == month)
        if (await connection.execute(count)).scalar_one() != known:
            raise LedgerRefused(f"{month} was corrected at the same time: try again")
        open_month = month_after(closed[-1].month)
        await _store(connection, cluster, open_month, lines)
        return open_month


async def _check_next(connection: AsyncConnection, cluster: str, month: str) -> None:
    closed = await closed_months(connection, cluster)
    if not closed:
        return
    if month in {one.month for one in closed}:
        raise LedgerRefused(f"{month} is closed already: `queuectl statement correct {month}` adds lines")
    if month != (wanted := month_after(closed[-1].month)):
        raise LedgerRefused(f"{month} cannot be closed: {wanted} is the next")


async def _check_rolled(connection: AsyncConnection, cluster: str, month: str, period: Piece) -> None:
    state = await rolled(connection, cluster)
    if state is None or state.until < period.ends:
        until = "not at all" if state is None else f"up to {state.until.isoformat()}"
        raise LedgerRefused(
            f"{month} ends at {period.ends.isoformat()}, and usage is rolled up {until}: "
            "the leading controller does that, up to a day later"
        )
    if period.ends <= state.since:
        raise LedgerRefused(f"{month} is over before {state.since.isoformat()}, from when on usage is known")
    for when in period:
        if state.since < when and border_to(when, state.zone_at(when)) != when:
            raise LedgerRefused(
                f"{month} has a border at {when.isoformat()}, where usage is not cut: its zone was changed"
            )


async def _store(
    connection: AsyncConnection, cluster: str, month: str, lines: Sequence[StatementLine]
) -> None:
    row = t.statement_line.c
    query = select(func.max(row.number)).where(row.cluster_id == cluster, row.month == month)
    last: int = (await connection.execute(query)).scalar_one() or 0
    if lines:
        rows = [_row(cluster, month, last + n, line) for n, line in enumerate(lines, start=1)]
        await connection.execute(t.statement_line.insert(), rows)


def _row(cluster: str, month: str, number: int, line: StatementLine) -> dict[str, Any]:
    booked = line.booked
    return {
        "cluster_id": cluster,
        "month": month,
        "number": number,
        "kind": line.kind.value,
        "begins_at": line.begins,
        "ends_at": line.ends,
        "booked": booked is not None,
        "namespace": booked and clean(booked.namespace),
        "queue": booked and clean(booked.queue),
        "submitter": booked and clean_or_none(booked.submitter),
        "user_name": booked and clean_or_none(booked.user),
        "priority_class": booked and clean_or_none(booked.priority_class),
        "account": booked and cleaned(booked.account),
        "cluster_queue": line.cluster_queue,
        "flavor": line.flavor,
        "resource": line.resource,
        "amount": line.amount,
        "price": line.price,
        "list_price": line.list_price,
        "cost": line.cost,
        "of_month": line.of_month,
        "reason": clean_or_none(line.reason),
    }


# --- comparison

_HELD: Final = text(
    "SELECT cluster_queue, flavor, resource, stored.amount, rolled.amount FROM ("
    f"SELECT cluster_queue, flavor, resource, sum(amount) AS amount FROM {SCHEMA}.statement_line "
    "WHERE cluster_id = :cluster AND kind = 'Usage' AND coalesce(of_month, month) = :month GROUP BY 1, 2, 3"
    ") stored FULL JOIN ("
    f"SELECT cluster_queue, flavor, resource, sum(amount) AS amount FROM {SCHEMA}.usage_hour "
    "WHERE cluster_id = :cluster AND begins_at >= :begins AND begins_at < :ends GROUP BY 1, 2, 3"
    ") rolled USING (cluster_queue, flavor, resource) WHERE coalesce(stored.amount, 0) <> "
    "coalesce(rolled.amount, 0) ORDER BY 1, 2, 3 LIMIT 100"
)


async def compare_statements(
    connection: AsyncConnection, cluster: str, checked: Collection[str]
) -> tuple[list[LedgerFinding], set[str]]:
    """Return the differences between closed months and their lines, and between what was held by these and by
    roll-ups; and the months without any. `checked`: months that are left out."""
    findings, good = list[LedgerFinding](), set[str](checked)
    for one in await closed_months(connection, cluster):
        if one.month in checked:
            continue
        name, before = f"the statement of {one.month}", len(findings)
        lines = await lines_of(connection, cluster, t.statement_line.c.month == one.month)
        stored = (len(lines), sum(line.cost for line in lines), digest_of(lines))
        if stored != (one.lines, one.total, one.digest):
            told = f"was closed with {(one.lines, one.total, one.digest[:12])}, its lines are {stored[:2]}"
            findings.append(LedgerFinding("Statements", name, f"{told} (lines, millionths, digest)"))
        given = {"cluster": cluster, "month": one.month, "begins": one.begins, "ends": one.ends}
        for queue, flavor, resource, amount, held in await connection.execute(_HELD, given):
            cell = FlavorResource(flavor, resource)
            numbers = f"has {amount or 0}, roll-ups have {held or 0} (base units x microseconds)"
            findings.append(LedgerFinding("Statements", f"{name}, ClusterQueue {queue}, {cell}", numbers))
        if len(findings) == before:
            good.add(one.month)
    return findings, good
