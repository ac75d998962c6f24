"""Statements of constructed values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from queuectl.ports.periods import Piece
from queuectl.ports.reader import UsageOfTime
from queuectl.ports.statements import BillableMonth, ClosedMonth, LostHold, StatementLine

if TYPE_CHECKING:
    from tests.unit.api.canned import CannedReadings


class CannedStatements:
    """Implements StatementReadings: an open month has what is booked in the readings, at 2.50 a GPU-hour."""

    def __init__(self, readings: CannedReadings) -> None:
        self._readings = readings
        self.card: dict[str, Any] | None = {
            "currency": "EUR",
            "account": "project",
            "rates": [{"resource": "nvidia.com/gpu", "from": "2020-01-01", "price": "2.50"}],
        }
        self.since: datetime | None = None
        self.closed: list[ClosedMonth] = []
        self.stored: dict[str, list[StatementLine]] = {}
        """Lines by the month of their statement."""
        self.lost: list[LostHold] = []

    async def configuration(self) -> str | None:
        keys = [{"name": "project", "label": "example.com/project"}]
        return json.dumps({"accounting": {"keys": keys, "rateCard": self.card}})

    async def usage_since(self) -> datetime | None:
        return self.since

    async def statements(self) -> list[ClosedMonth]:
        return self.closed

    async def lines(self, month: str) -> list[StatementLine]:
        return self.stored.get(month, [])

    async def corrections(self, month: str) -> list[StatementLine]:
        return [line for lines in self.stored.values() for line in lines if line.of_month == month]

    async def billable(self, pieces: Sequence[Piece]) -> BillableMonth:
        times = [UsageOfTime(*piece, self._readings.booked, self._readings.had) for piece in pieces]
        return BillableMonth(times, self.lost, [])
