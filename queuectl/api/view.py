"""The newest committed state of the ledger, in memory, with its age."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from queuectl.answers.state import Configure, Parse, State
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from queuectl.ports.reader import GONE_KEPT, Readings

log = logging.getLogger(__name__)

READ_SECONDS = 10.0
"""How long one read of the ledger may take."""
PATIENT_SECONDS = 2.0
"""How long a read may take before the state in memory counts as stale."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A committed state, its age, and whether it is stale."""

    state: State
    age_seconds: float
    """Since the ledger last confirmed that this is its newest state."""
    committed_at: datetime
    """When the leading controller last committed, as far as is known."""
    silent_seconds: float
    """Since then, by the clock of the ledger."""
    stale: bool
    """The last read of the ledger failed, or the one in progress takes too long."""
    observed: bool = False
    """It is an observer's: none of its decisions was carried out."""


class View:
    """One reader of the ledger for all requests of this process."""

    def __init__(
        self,
        readings: Readings,
        parse: Parse,
        clock: Callable[[], float] = time.monotonic,
        *,
        observed: bool = False,
        configure: Configure | None = None,
    ) -> None:
        """`clock`: monotonic, in seconds; `observed`: it is an observer's ledger."""
        self._configure = configure
        self._observed = observed
        self._readings = readings
        self._parse = parse
        self._clock = clock
        self._lock = asyncio.Lock()
        self._state: State | None = None
        self._committed_at = datetime.min.replace(tzinfo=UTC)
        """Of the last read."""
        self._silence = 0.0
        """Seconds from there to the last read, by the clock of the ledger."""
        self._news = asyncio.Event()
        """Set, and replaced, at each new state."""
        self.awaited = 0
        """How many requests wait for a new state."""
        self._read_at = float("-inf")
        self._asked_at = float("-inf")
        """Start of the last read; it is still in progress if this is later than `_read_at`."""
        self.problem: str | None = "the ledger has not been read yet"
        """Why the state cannot be brought up to date; None: it can."""

    def sight(self) -> Sight | None:
        """None before the first read."""
        if self._state is None:
            return None
        now = self._clock()
        age = max(0.0, now - self._read_at)
        slow = self._asked_at > self._read_at and now - self._asked_at > PATIENT_SECONDS
        stale = self.problem is not None or slow
        return Sight(self._state, age, self._committed_at, self._silence + age, stale, self._observed)

    async def run(self, period_seconds: float) -> None:
        """Read changes until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(period_seconds)

    async def refresh(self, since: float | None = None) -> None:
        """Bring the state up to date, unless that was tried after `since` on the clock. Ledger errors are not
        raised, but kept in `problem`."""
        async with self._lock:
            # Also after a failure: requests that wait at the same time share one read.
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
                # A defect: one bad row must not end the reading of all others.
                if self.problem != (problem := f"{type(error).__name__}: {error}"):
                    log.exception("a reading of the ledger could not be processed")
                self.problem = problem

    def moment(self) -> float:
        return self._clock()

    async def beyond(self, sequence: int, seconds: float) -> None:
        """Return once there is a state above `sequence`, or after the timeout."""
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
        # After an error it may be another database, restored from a backup or rebuilt from the cluster.
        known = self._state if self.problem is None else None
        reading = await self._readings.since(*((known.sequence, known.batch) if known else (0, 0)))
        if known and (
            reading.sequence < known.sequence
            or reading.epoch != known.epoch
            or reading.batch - known.batch > GONE_KEPT
        ):
            known = None
            reading = await self._readings.since(0)
        # A batch without decisions changes nothing else.
        changed = reading.workloads or reading.configs or any(reading.for_readers)
        if known is None or changed or reading.sequence != known.sequence:
            self._state = (known or State()).advance(reading, self._parse, self._configure)
            self._news.set()
            self._news = asyncio.Event()
        self._committed_at = reading.committed_at
        self._silence = max(0.0, (reading.read_at - reading.committed_at).total_seconds())
        self._read_at = self._asked_at
        self.problem = None
