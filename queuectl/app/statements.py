"""`queuectl statement close` and `correct`: they write to the ledger, with the rights of the database URL."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from queuectl.answers.costs import charges, computable, differences
from queuectl.app.api import rate_card, the_one
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.statements import close_month, store_correction
from queuectl.ledger.pool import Pool, connection_pool
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.ledger.read.statements import LedgerStatements
from queuectl.ports.ledger import LedgerRefused
from queuectl.ports.periods import Piece, month_bounds
from queuectl.ports.rates import RateCard
from queuectl.ports.reader import TooMuchHistory
from queuectl.ports.statements import BillableMonth, ChargeKind, ClosedMonth
from queuectl.settings import ConfigurationError, Settings


class Correction(NamedTuple):
    """Lines that were stored about a closed month."""

    open_month: str
    """The month that has them: with no lines, the closed one."""
    lines: int
    cost: int
    """Of all lines, in millionths of the currency."""
    currency: str


async def close(settings: Settings, month: str, cluster: str | None) -> ClosedMonth:
    """Close a month that is over, at the rates that are configured.

    Raises LedgerRefused with the reason if it cannot be closed, ConfigurationError, LedgerUnavailable.
    """
    async with _ledger(settings) as pool:
        cluster = await _cluster(pool, cluster)
        card, configured = await _card(pool, cluster)
        zone = await LedgerReadings(pool, cluster).usage_zone()
        period = month_bounds(month, ZoneInfo(zone))
        billable, pieces = await _billable(pool, cluster, month, period, card)
        if missing := set(ChargeKind) - computable(billable, card):
            names = ", ".join(sorted(missing))
            raise LedgerRefused(f"{month} cannot be closed: the history for lines of kind {names} is gone")
        priced = (card, configured, charges(billable, pieces, card))
        return await close_month(pool, cluster, month, zone, period, priced)


async def correct(settings: Settings, month: str, reason: str, cluster: str | None) -> Correction:
    """Add what a closed month lacks: what it costs at the rates that are configured now, beyond what it and
    its corrections have. Raises as `close` does."""
    async with _ledger(settings) as pool:
        cluster = await _cluster(pool, cluster)
        statements = LedgerStatements(pool, cluster)
        closed = {summary.month: summary for summary in await statements.statements()}.get(month)
        if closed is None:
            raise LedgerRefused(f"{month} is not closed: there is nothing to correct")
        card, _ = await _card(pool, cluster)
        if card.currency != closed.currency:
            raise LedgerRefused(f"{month} is in {closed.currency}, and rates are in {card.currency}")
        corrections = await statements.corrections(month)
        own = [line for line in await statements.lines(month) if line.of_month is None]
        billable, pieces = await _billable(pool, cluster, month, Piece(closed.begins, closed.ends), card)
        kinds = computable(billable, card)
        now, before = (
            [line for line in lines if line.kind in kinds]
            for lines in (charges(billable, pieces, card), [*own, *corrections])
        )
        lines = differences(now, before, month, reason)
        open_month = month
        if lines:
            open_month = await store_correction(pool, cluster, month, lines, len(corrections))
        total = sum(line.cost for line in lines)
        return Correction(open_month, len(lines), total, closed.currency)


async def _billable(
    pool: Pool, cluster: str, month: str, period: Piece, card: RateCard
) -> tuple[BillableMonth, list[Piece]]:
    pieces = card.pieces(period)
    try:
        return await LedgerStatements(pool, cluster).billable(pieces), pieces
    except TooMuchHistory:
        raise LedgerRefused(f"{month} has too many different bookings, or its history is gone") from None


async def _card(pool: Pool, cluster: str) -> tuple[RateCard, Any]:
    """The rates that the controller recorded, and as they are configured."""
    spec = await LedgerStatements(pool, cluster).configuration()
    card = None if spec is None else rate_card(spec)
    if spec is None or card is None:
        raise ConfigurationError("accounting.rateCard is not set in the configuration of the controller")
    return card, json.loads(spec)["accounting"]["rateCard"]


@contextlib.asynccontextmanager
async def _ledger(settings: Settings) -> AsyncIterator[Pool]:
    """Raises SchemaMismatch."""
    await schema.check(settings.database_url, writing=True)
    async with connection_pool(settings.database_url) as pool:
        yield pool


async def _cluster(pool: Pool, cluster: str | None) -> str:
    known = await clusters(pool)
    if cluster is not None and cluster not in known:
        raise ConfigurationError(f"the ledger has no cluster {cluster}: it has {', '.join(known) or 'none'}")
    if not known:
        raise ConfigurationError("the ledger has no cluster: no controller has used it yet")
    return cluster or the_one(known)
