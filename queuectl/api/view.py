"""Keeps the newest committed state at hand, and says how old it is."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from queuectl.api.state import Parse, State
from queuectl.ports import LedgerUnavailable, Readings, SchemaMismatch

log = logging.getLogger(__name__)

READ_SECONDS = 10.0
"""How long the ledger may take to say what is new."""
PATIENT_SECONDS = 2.0
"""How long it may take before what is known counts as stale meanwhile."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A committed state and how far it can be trusted now."""

    state: State
    age_seconds: float
    """Since the ledger last confirmed that this is its newest state."""
    stale: bool
    """The ledger did not answer when last asked, or has been silent since for too long."""
    observed: bool = False
    """It is an observer's: nothing of it was done."""


class View:
    """One reader of the ledger for all requests of this process."""

    def __init__(
        self,
        readings: Readings,
        parse: Parse,
        clock: Callable[[], float] = time.monotonic,
        *,
        observed: bool = False,
    ) -> None:
        """`clock`: seconds that never run back; `observed`: it is an observer's ledger."""
        self._observed = observed
        self._readings = readings
        self._parse = parse
        self._clock = clock
        self._lock = asyncio.Lock()
        self._state: State | None = None
        self._news = asyncio.Event()
        """Set, and replaced, when there is another state."""
        self.awaited = 0
        """How many wait for another state."""
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        """When the ledger was last asked, and has not answered yet if that is later than `_read_at`."""
        self.problem: str | None = "the ledger has not been read yet"
        """Why the state can't be brought up to date; None: it can."""

    def sight(self) -> Sight | None:
        """None: nothing was ever read."""
        if self._state is None:
            return None
        now = self._clock()
        silent = self._asked_at > self._read_at and now - self._asked_at > PATIENT_SECONDS
        stale = self.problem is not None or silent
        return Sight(self._state, max(0.0, now - self._read_at), stale, self._observed)

    async def run(self, period_seconds: float) -> None:
        """Look for news until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(period_seconds)

    async def refresh(self, since: float | None = None) -> None:
        """Bring the state up to date, unless that was tried after `since` on the clock. Raises nothing of the
        ledger's: `problem` tells."""
        async with self._lock:
            # Also where it did not answer: those who ask at one time wait for it once, not in turn.
            if since is not None and self._asked_at >= since:
                return
            self._asked_at = self._clock()
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._read()
            except (LedgerUnavailable, SchemaMismatch, TimeoutError) as error:
                problem = str(error) or f"the ledger did not answer within {READ_SECONDS:g} s"
                if problem != self.problem:
                    log.warning("ledger not readable: %s", problem)
                self.problem = problem
            except Exception as error:
                # A defect, of which one row of the ledger must not make an end of reading all others.
                if self.problem != (problem := f"{type(error).__name__}: {error}"):
                    log.exception("what the ledger says can't be understood")
                self.problem = problem

    def moment(self) -> float:
        return self._clock()

    async def beyond(self, sequence: int, seconds: float) -> None:
        """Until there is a state above `sequence`, or the time is over."""
        self.awaited += 1
        try:
            async with asyncio.timeout(seconds):
                while self._state is None or self._state.sequence <= sequence:
                    await self._news.wait()
        except TimeoutError:
            return
        finally:
            self.awaited -= 1

    async def _read(self) -> None:
        # After trouble it may be another database, made again from a backup or from the cluster.
        known = self._state if self.problem is None else None
        reading = await self._readings.since(known.sequence if known else 0)
        if known and (reading.sequence < known.sequence or reading.epoch != known.epoch):
            known = None
            reading = await self._readings.since(0)
        if known is None or reading.workloads or reading.configs or reading.sequence != known.sequence:
            self._state = (known or State()).advance(reading, self._parse)
            self._news.set()
            self._news = asyncio.Event()
        self._read_at = self._asked_at
        self.problem = None
