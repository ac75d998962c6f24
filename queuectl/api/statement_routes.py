"""What usage costs: statements of months, divided by keys, and as rows of FOCUS (docs/accounting.md)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field, RootModel

from queuectl.answers.costs import MILLIONTHS, STATEMENT_AXES, CostItem, charges, cost_by, unpriced
from queuectl.answers.focus import VERSION, Bill, focus_rows
from queuectl.api import schemas
from queuectl.api.http import bad_request, not_found, unavailable
from queuectl.api.requests import Parameter, Question, always, endpoint
from queuectl.api.schemas import Committed, Document
from queuectl.api.usage_routes import BY, MOST_ITEMS, axes_of, check_items, visible_namespaces
from queuectl.api.view import AnswerSource, Routes, Sight, committed, now
from queuectl.ports.periods import MONTH_PATTERN, Piece, month_after, month_bounds
from queuectl.ports.rates import RateCard, money, rounded
from queuectl.ports.reader import USAGE_AXES, TooMuchHistory
from queuectl.ports.statements import ClosedMonth, StatementLine, StatementReadings

MOST_ROWS: Final = 30_000
"""Of FOCUS in one answer, with 1.5 kB each."""
_PATH: Final = "/api/v1/statements/{month}"
FOCUS: Final = Parameter(
    "version",
    Literal["1.2"],
    "Of FOCUS.",
    f"one of the versions that are written: {VERSION}",
    default=VERSION,
)
CardOf = Callable[[str], RateCard | None]
"""Reads the rate card of a configuration that the ledger has. Raises ValueError."""


class StatementSummary(Document):
    """A month."""

    month: str
    status: Literal["Open", "Closed"]
    zone: str = Field(description="In which the month begins.")
    since: datetime
    until: datetime
    currency: str | None = Field(description="Of ISO 4217. Null: the month is open.")
    total: str | None = Field(description="Exact, with 6 decimals. Null: the month is open.")
    lines: int | None
    digest: str | None = Field(description="SHA-256 of its lines. Null: the month is open.")
    closed_at: datetime | None
    closed_by: str | None = Field(description="Role of the database.")


class StatementReport(StatementSummary, Committed):
    """What a month costs, or so far."""

    by: tuple[str, ...]
    decimals: int
    rounded: str = Field(description="The total in those decimals, half to even.")
    items: tuple[CostItem, ...]
    unpriced: tuple[str, ...] = Field(
        description="`FLAVOR/RESOURCE` of which something that the caller may read was held without a rate."
    )
    corrections: str = Field(description="What later months have as corrections of this one, exact.")


class FocusRow(RootModel[dict[str, str | None]]):
    """Values by column of FOCUS 1.2. Own columns begin with `x_`."""


class FocusRows(Committed):
    """An export."""

    items: tuple[FocusRow, ...]


class _Month(NamedTuple):
    """What is known of a month."""

    name: str
    zone: str
    period: Piece
    currency: str
    decimals: int
    account_key: str | None
    lines: list[StatementLine]
    closed: ClosedMonth | None


def _readable(lines: Iterable[StatementLine], visible: Callable[[str | None], bool]) -> list[StatementLine]:
    """Those of namespaces that the caller may read."""
    return [line for line in lines if visible(line.booked and line.booked.namespace)]


def _report(
    found: _Month,
    by: tuple[str, ...],
    visible: Callable[[str | None], bool],
    later: list[StatementLine],
    state: Mapping[str, Any],
) -> StatementReport:
    """`later`: corrections in other months. `state`: how old the answer is. Raises a 400 as `check_items`."""
    items = cost_by(found.lines, by, visible, found.decimals)
    check_items(by, len(items))
    unit = 10 ** (MILLIONTHS - found.decimals)
    total = sum(line.cost for line in found.lines)
    summary = _summary(found.name, found.zone, found.period, found.closed)
    return StatementReport(
        **dict(summary)
        | {"currency": found.currency, "total": money(total, MILLIONTHS), "lines": len(found.lines)},
        by=by,
        decimals=found.decimals,
        rounded=money(rounded(total, unit) * unit, found.decimals),
        items=tuple(items),
        unpriced=tuple(
            f"{flavor}/{resource}" for flavor, resource in unpriced(_readable(found.lines, visible))
        ),
        corrections=money(sum(line.cost for line in later), MILLIONTHS),
        **state,
    )


class StatementRoutes(Routes):
    def __init__(
        self, source: AnswerSource, statements: StatementReadings | None, card_of: CardOf | None
    ) -> None:
        """Without `statements` every answer is a 503."""
        self._source = source
        self._statements = statements
        self._card_of = card_of

    @endpoint(
        "/api/v1/statements",
        "Months that are closed, and open ones: what usage costs",
        schemas.Page[StatementSummary],
        heavy=always,
    )
    async def months(self, question: Question) -> schemas.Committed:
        sight = self._source.sight()
        readings = self._readings()
        zone = await self._source.ask(self._source.readings.usage_zone())
        closed = await self._source.ask(readings.statements())
        since = await self._source.ask(readings.usage_since()) or now(sight)
        first, present = (f"{when.astimezone(ZoneInfo(zone)):%Y-%m}" for when in (since, now(sight)))
        items = [_summary(one.month, one.zone, Piece(one.begins, one.ends), one) for one in closed]
        month = month_after(closed[-1].month) if closed else first
        while month <= present:
            items.append(_summary(month, zone, month_bounds(month, ZoneInfo(zone)), None))
            month = month_after(month)
        return schemas.Page[StatementSummary](items=tuple(items[::-1]), next=None, **committed(sight))

    @endpoint(
        _PATH,
        "What the usage of a month costs",
        StatementReport,
        (BY,),
        heavy=always,
        notes="An open month is computed by the rates that are configured now. Namespaces in which the "
        f"caller may not list workloads are one item. At most {MOST_ITEMS} items. `by` also: "
        f"{', '.join(STATEMENT_AXES)}.",
    )
    async def statement(self, question: Question) -> schemas.Committed:
        sight = self._source.sight()
        found = await self._month(question, sight)
        by = question.values.get("by", ("user",))
        by = await asyncio.to_thread(axes_of, by, found.lines, (*USAGE_AXES, *STATEMENT_AXES))
        visible = await visible_namespaces(question, found.lines)
        later = await self._source.ask(self._readings().corrections(found.name))
        return await asyncio.to_thread(_report, found, by, visible, later, committed(sight))

    @endpoint(
        f"{_PATH}/focus",
        "The lines of a statement as rows of FOCUS",
        FocusRows,
        (FOCUS,),
        heavy=always,
        notes="Of namespaces in which the caller may list workloads; who may list all of them also gets "
        f"what is booked on none. At most {MOST_ROWS}.",
    )
    async def focus(self, question: Question) -> schemas.Committed:
        sight = self._source.sight()
        found = await self._month(question, sight)
        visible = await visible_namespaces(question, found.lines)
        lines = await asyncio.to_thread(_readable, found.lines, visible)
        if len(lines) > MOST_ROWS:
            raise bad_request(f"{found.name} has {len(lines)} lines: an export has at most {MOST_ROWS}")
        bill = Bill(found.period, found.currency, found.account_key)
        rows = await asyncio.to_thread(lambda: tuple(map(FocusRow, focus_rows(lines, bill))))
        return FocusRows(items=rows, **committed(sight))

    async def _month(self, question: Question, sight: Sight) -> _Month:
        """Raises a 404, or a 400 for an open month that cannot be computed."""
        month, readings = str(question.path["month"]), self._readings()
        if not re.fullmatch(MONTH_PATTERN, month):
            raise not_found()
        stored = {one.month: one for one in await self._source.ask(readings.statements())}
        lines = await self._source.ask(readings.lines(month))
        if (closed := stored.get(month)) is not None:
            period = Piece(closed.begins, closed.ends)
            money_of = (closed.currency, closed.decimals, closed.account_key)
            return _Month(month, closed.zone, period, *money_of, lines, closed)
        if (card := await self._card(readings)) is None:
            raise bad_request("no rates are configured (accounting.rateCard), so that nothing has a price")
        zone = await self._source.ask(self._source.readings.usage_zone())
        period = month_bounds(month, ZoneInfo(zone))
        if period.begins > now(sight):
            raise not_found()
        pieces = card.pieces(period)
        try:
            billable = await self._source.ask(readings.billable(pieces))
        except TooMuchHistory:
            raise bad_request(
                f"{month}: history of that month is gone, or it has too many different bookings"
            ) from None
        money_of = (card.currency, card.decimals, card.account_key)
        computed = await asyncio.to_thread(charges, billable, pieces, card)
        return _Month(month, zone, period, *money_of, [*computed, *lines], None)

    async def _card(self, readings: StatementReadings) -> RateCard | None:
        spec = await self._source.ask(readings.configuration())
        return None if spec is None or self._card_of is None else self._card_of(spec)

    def _readings(self) -> StatementReadings:
        if self._statements is None:
            raise unavailable("this server has no statements")
        return self._statements


def _summary(month: str, zone: str, period: Piece, closed: ClosedMonth | None) -> StatementSummary:
    return StatementSummary(
        month=month,
        status="Open" if closed is None else "Closed",
        zone=zone,
        since=period.begins,
        until=period.ends,
        currency=closed and closed.currency,
        total=closed and money(closed.total, MILLIONTHS),
        lines=closed and closed.lines,
        digest=closed and closed.digest,
        closed_at=closed and closed.closed_at,
        closed_by=closed and closed.closed_by,
    )
