"""Writes of the status of queues: what changed its condition at once, the others at a bounded rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

from queuectl.core.model.policy import Condition, LocalQueueName
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.ports.cluster import ClusterUnavailable

Name = LocalQueueName | str
Report = TypeVar("Report", bound=LocalQueueReport | ClusterQueueReport)
log = logging.getLogger(__name__)

EACH_SECOND: Final = 5
"""Writes of one kind of queue. Where 1,000 queues change all the time, a write each would be a quarter of the
work of the API server."""
MOST_UNWRITTEN: Final = 3
"""Failed writes after which a part of a round ends: if the API server is away, each of them takes its whole
deadline."""


class Statuses(Generic[Report]):
    """Of the queues of one kind."""

    def __init__(self, publish: Callable[[Report], Awaitable[None]], period_seconds: float) -> None:
        """`publish` writes one status. Raises ClusterUnavailable. `period_seconds`: between two rounds."""
        self._publish = publish
        self._most = max(1, round(EACH_SECOND * period_seconds))
        self._late: dict[Name, Report] = {}
        """What is not written, those that wait longest first."""
        self._refused: dict[Name, None] = {}
        """Those of which the last write failed, those that were not tried for longest first."""
        self._written: dict[Name, Condition] = {}

    def changed(self, reports: Iterable[Report]) -> None:
        """Each of these is to be written; an earlier report of the same queue is not."""
        for report in reports:
            self._late[report.name] = report

    async def run(self, period_seconds: float) -> None:
        """Write what is due once in a period, until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(period_seconds)

    async def write(self) -> None:
        """Write those that are due: changed conditions, then others, then those that were refused before."""
        refused = list(self._refused)
        turned, others = self._due()
        for part in (turned, others[: self._most], refused):
            await self._write_some(part)

    async def _write_some(self, names: Iterable[Name]) -> None:
        failures = 0
        for name in names:
            report = self._late.pop(name, None)
            self._refused.pop(name, None)
            if report is None:
                continue
            try:
                await self._publish(report)
            except ClusterUnavailable as error:
                log.warning("queue status not written, will be again: %s", error)
                self._late.setdefault(name, report)
                self._refused[name] = None
                failures += 1
                if failures == MOST_UNWRITTEN:
                    return
            else:
                self._written[name] = report.condition

    def _due(self) -> tuple[list[Name], list[Name]]:
        turned: list[Name] = []
        others: list[Name] = []
        for name, one in self._late.items():
            if name not in self._refused:
                (others if self._written.get(name) == one.condition else turned).append(name)
        return turned, others
