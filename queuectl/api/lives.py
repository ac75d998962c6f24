"""The decisions on one workload, and when it started and ended by them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from queuectl.api.view import AnswerSource
from queuectl.core.model.workload import WorkloadId
from queuectl.ports.history import history_of
from queuectl.ports.reader import DecisionRow

PAGE: Final = 1000
PAGES: Final = 10
"""Decisions on one workload are read in so many pages at most."""


class Times(NamedTuple):
    """Of a workload that does not wait. None: it did not, or that is not known."""

    started: datetime | None = None
    """Its last admission."""
    ended: datetime | None = None

    def __str__(self) -> str:
        known = (("started", self.started), ("ended", self.ended))
        told = " and ".join(f"{what} at {time.isoformat()}" for what, time in known if time is not None)
        return f"it {told}" if told else "it has ended"


async def decisions_on(
    source: AnswerSource, workload: WorkloadId, last: int
) -> tuple[list[DecisionRow], bool]:
    """Oldest first, up to sequence `last`, and whether there are more. Raises a 503."""
    rows: list[DecisionRow] = []
    for _ in range(PAGES):
        after = rows[-1].sequence if rows else 0
        found = await source.ask(source.readings.history(workload, after=after, limit=PAGE))
        rows += [row for row in found if row.sequence <= last]
        if len(found) < PAGE or found[-1].sequence >= last:
            return rows, False
    return rows, True


def times(rows: Iterable[DecisionRow]) -> Times:
    """By the decisions on one workload, oldest first. A former life with the same id does not count."""
    history = history_of(rows)
    started = history.attempts[-1].admitted_at if history.attempts else None
    return Times(started, history.ended_at)
