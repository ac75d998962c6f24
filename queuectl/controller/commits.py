"""What a controller stores in the ledger, however long the ledger is unavailable."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from queuectl.controller.reports import LoopObserver
from queuectl.core.decisions import Plan
from queuectl.core.model.events import OutcomesRead
from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import NOTHING_FOR_READERS, EffectKey, ForReaders, LedgerSnapshot
from queuectl.ports.ledger import Ledger, LedgerRefused, LedgerUnavailable, PlanFailed

T = TypeVar("T")
log = logging.getLogger(__name__)

_GATHER, _GATHER_TIMES, _LONGEST_GATHER = 0.02, 4.0, 0.1
"""From the end of one transaction to the next: the least seconds; if that is longer, so many times the
duration of the last transaction, so that they take at most a fifth of the time; and the most seconds. After
a pause an event is handled at once."""
_ALONE = 0.5
"""Seconds after which acknowledged writes are stored even if nothing is decided. Until then they are stored
with the next plan. If the process dies before, the next leader sends them again, which changes nothing."""
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0
_HAND_OVER = 1.0
"""Seconds; the Lease is released after it."""
_SAME_FAILURES = 3
"""Equal failures of a plan after which it is stored in parts."""


class Stopped(Exception):
    """Asked to stop while the ledger is unavailable."""


class SteppedDown(Stopped):
    """The ledger was unavailable for too long."""


class Commits:
    """The transactions of one epoch, with the Kubernetes writes that each acknowledges."""

    def __init__(
        self,
        ledger: Ledger,
        observer: LoopObserver,
        stopping: asyncio.Event,
        wake: Callable[[], None],
        step_down_seconds: float | None,
    ) -> None:
        """`wake` is called when a commit is due by itself; `step_down_seconds`: how long the ledger may be
        unavailable; None: without end."""
        self._ledger = ledger
        self._observer = observer
        self._stopping = stopping
        self._wake = wake
        self._step_down_seconds = step_down_seconds
        self.due = False
        """Commit even if nothing is decided: to store what is acknowledged, or to check the epoch."""
        self.epoch = 0
        self._batch = 0
        self.ended_at = float("-inf")
        """When the last transaction ended, by the event loop's clock."""
        self._seconds = 0.0
        """Duration of the last transaction."""
        self._acknowledged: list[EffectKey] = []
        self._alone: asyncio.TimerHandle | None = None
        """When acknowledged writes are stored by themselves."""

    async def lead(self, holder: str) -> LedgerSnapshot:
        """Take the epoch, and return what the ledger has. Raises Stopped."""
        self.epoch = await self._reach(lambda: self._ledger.take_epoch(holder))
        self._observer.took_epoch(self.epoch)
        return await self.load()

    async def load(self) -> LedgerSnapshot:
        return await self._reach(self._ledger.load)

    async def look(self) -> LedgerSnapshot:
        """As `load`, once. Raises LedgerUnavailable."""
        return await self._ledger.load()

    async def now(self) -> datetime:
        """Return the time by the ledger's clock."""
        return await self._reach(self._ledger.now)

    async def outcomes(self, names: Sequence[NamedWorkload]) -> OutcomesRead:
        """Return how workloads that are over ended."""
        return OutcomesRead(tuple(await self._reach(lambda: self._ledger.outcomes(names))))

    def acknowledge(self, keys: Iterable[EffectKey]) -> None:
        """Store with the next commit that these writes are done."""
        self._acknowledged += keys
        if self._acknowledged and self._alone is None:
            self._alone = asyncio.get_running_loop().call_later(_ALONE, self.ask)

    def ask(self) -> None:
        """Commit soon, even if nothing is decided."""
        self.due = True
        self._wake()

    async def gather(self) -> None:
        """Wait if a transaction has just ended, for more events: ten workloads cost as much as one."""
        wait = self.ended_at + self._pause - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)

    @property
    def _pause(self) -> float:
        """Least seconds from the end of the last transaction to the next."""
        return min(max(_GATHER, _GATHER_TIMES * self._seconds), _LONGEST_GATHER)

    async def commit(
        self, plan: Plan, tries: int = _SAME_FAILURES, for_readers: ForReaders = NOTHING_FOR_READERS
    ) -> int:
        """Store the plan, however long the ledger is unavailable; nothing else is decided meanwhile.

        Raises PlanFailed after that number of equal failures.
        """
        self._batch += 1
        self.due = False
        if self._alone is not None:
            self._alone.cancel()
            self._alone = None
        batch = f"{self.epoch}-{self._batch}"
        done, self._acknowledged = self._acknowledged, []
        started = asyncio.get_running_loop().time()
        try:
            first = await self._reach(
                lambda: self._ledger.commit(
                    plan, done, epoch=self.epoch, batch=batch, for_readers=for_readers
                ),
                tries,
            )
        except (LedgerRefused, PlanFailed):
            self._acknowledged = done + self._acknowledged
            raise
        self.ended_at = asyncio.get_running_loop().time()
        self._seconds = self.ended_at - started
        last = first + len(plan.recorded) - 1
        self._observer.committed(plan, seconds=self._seconds, sequence=last)
        return first

    async def commit_acknowledged(self) -> None:
        """At the end: otherwise the next leader would send again what was done since the last commit."""
        if self._acknowledged:
            with contextlib.suppress(PlanFailed):
                await self.commit(Plan(version=0, cycle=0, now=await self.now()))

    async def hand_over(self, read_up_to: Mapping[str, int]) -> None:
        """All has stopped. Without it the next leader lists everything."""
        with contextlib.suppress(LedgerUnavailable, TimeoutError):
            async with asyncio.timeout(_HAND_OVER):
                await self._ledger.hand_over(self.epoch, read_up_to)

    async def _reach(self, call: Callable[[], Awaitable[T]], tries: int = _SAME_FAILURES) -> T:
        """Repeat a call until the ledger answers; meanwhile nothing is admitted, and running work goes on.

        Raises PlanFailed after `tries` equal failures, and Stopped when asked to stop meanwhile, or when the
        database was silent for too long: the next leader finds out what was stored, and sends again what was
        not acknowledged.
        """
        delay = _FIRST_RETRY
        failures: list[str] = []
        time = asyncio.get_running_loop().time
        heard = time()
        while True:
            try:
                return await call()
            except LedgerUnavailable as error:
                self._observer.ledger_unavailable()
                log.warning("ledger unavailable, admitting nothing: %s", error)
                state = error.state if isinstance(error, PlanFailed) else None
                failures = [one for one in failures if one == state] + [state or ""]
                if state is not None:
                    heard = time()
                    if len(failures) >= tries:
                        raise
                if self._step_down_seconds is not None and time() - heard >= self._step_down_seconds:
                    raise SteppedDown from error
            await self._wait(delay)
            delay = min(delay * 2, _LAST_RETRY)

    async def back_off(self) -> None:
        """Wait as long as between two of many tries. Raises Stopped."""
        await self._wait(_LAST_RETRY)

    async def _wait(self, seconds: float) -> None:
        """Raises Stopped when asked to stop meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
            raise Stopped
