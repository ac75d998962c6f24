"""Tells sinks when the expected start of a pending workload has moved.

Forecasts are made here, beside the controller, and so many a minute at most. What is to be told is stored
before it is sent, so that a message that is sent again is the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from queuectl.core.model.workload import WorkloadId
from queuectl.notifications.delivery import DeliveryObserver, Sink, SinkFailed
from queuectl.notifications.messages import moved
from queuectl.ports.ledger import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.ports.outbox import ToldStart, ToldStarts
from queuectl.ports.reader import Forecasts

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 60.0
FORECASTS: Final = 32
"""Of one round, for all sinks together: as many as there may be sinks."""


class StartWatch:
    """The rules `StartMoved` of all sinks. One task may use it."""

    def __init__(
        self,
        cluster: str,
        sinks: Sequence[Sink],
        known: ToldStarts,
        forecasts: Forecasts,
        observer: DeliveryObserver,
    ) -> None:
        """`sinks`: those with such a rule."""
        self._cluster = cluster
        self._sinks = sinks
        self._known = known
        self._forecasts = forecasts
        self._observer = observer

    async def run(self) -> None:
        """Until cancelled. Failures of ledger and sinks are logged, and tried again in the next round."""
        while True:
            try:
                await self.round()
            except (LedgerUnavailable, NotStored, SchemaMismatch) as error:
                log.warning("starts are not compared, again in %g s: %s", ROUND_SECONDS, error)
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Ask for the starts of some workloads of each sink, and tell what moved.

        Raises LedgerUnavailable, NotStored, SchemaMismatch.
        """
        await self._known.forget()
        for sink in self._sinks:
            least, selection = sink.selection.moved_more_than, sink.selection
            assert least is not None, "only sinks with such a rule are watched"
            now, waiting = await self._known.waiting(
                sink.name, selection.namespaces, selection.queues, max(1, FORECASTS // len(self._sinks))
            )
            try:
                for one in waiting:
                    await self._one(sink, one, least, now)
            except SinkFailed as problem:
                self._observer.failed(sink.name)
                log.warning("sink %s: a moved start failed, again next round: %s", sink.name, problem)

    async def _one(self, sink: Sink, known: ToldStart, least: timedelta, now: datetime) -> None:
        if known.moved is None:
            start, at = await self._expected(known.workload, now)
            if start is None or known.start is None or abs(start - known.start) <= least:
                await self._known.found(known, start)
                return
            known = await self._known.moved(known, start, at)
        await sink.send(moved(self._cluster, known))
        await self._known.accepted(known)
        self._observer.sent(sink.name)

    async def _expected(self, workload: WorkloadId, now: datetime) -> tuple[datetime | None, datetime]:
        """The median start, and the time of the forecast."""
        found = await self._forecasts.start_of(workload, now)
        start = None if found.median is None else found.at + timedelta(seconds=found.median)
        return start, found.at
