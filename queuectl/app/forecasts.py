"""Forecasts for REST: reads the past from the ledger, and computes one forecast at a time, in a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from queuectl.answers.forecast import backtest
from queuectl.answers.forecast.forecast import MOST_WORK, WINDOW, Forecast, Known, Unknown, obstacle
from queuectl.answers.forecast.samples import known_at
from queuectl.answers.queue_states import queue_of
from queuectl.core.model.workload import LedgerSnapshot, WorkloadId
from queuectl.ledger.history.state_at import Configure, configuration_of
from queuectl.ports.ledger import LedgerUnavailable, NotStored, SchemaMismatch
from queuectl.ports.reader import Calibration, NotAtRest, PastLives, PastWork, StartForecast
from queuectl.simulation.player import NeverEnds

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 10.0
"""How long the forecasts of one state are given."""
CALIBRATED_SECONDS: Final = 6 * 3600.0
"""After so long the forecasts of a tree are checked again."""
WHOLE_SECONDS: Final = 6 * 3600.0
"""After so long the past is read again, and not only what has changed since."""
KEPT: Final = 8
"""How many trees are remembered."""
_CHECK_WORK: Final = MOST_WORK // 18

Found = TypeVar("Found")
Queues = frozenset[str]


@dataclass(slots=True)
class _Tree:
    """What is remembered of one cohort tree, with the times at which it was made."""

    forecast: Forecast
    at: datetime
    made: float
    calibration: Calibration | None = None
    checked: float = float("-inf")


class Forecaster:
    """ports.reader.Forecasts over the past of the ledger. `run` checks forecasts of past times meanwhile."""

    def __init__(
        self, past: PastWork, configure: Configure, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._past = past
        self._configure = configure
        self._clock = clock
        self._trees: OrderedDict[Queues, _Tree] = OrderedDict()
        """Those used last at the end."""
        self._lives: PastLives | None = None
        """As read last: the next time only what has changed since is read."""
        self._read_whole = float("-inf")
        self._lock = asyncio.Lock()
        self._worker = ThreadPoolExecutor(1, "forecast")
        self._unchecked: asyncio.Queue[tuple[Queues, datetime]] = asyncio.Queue(KEPT)

    async def start_of(self, workload: WorkloadId, now: datetime) -> StartForecast:
        async with self._lock:
            tree = self._fresh(workload) or await self._made(workload, now)
            if isinstance(tree, StartForecast):
                return tree
            stored = tree.forecast.known(workload)
            assert stored is not None, "a tree is chosen by its workloads"
            sequence = tree.forecast.sequence
            if (why := obstacle(stored)) is not None:
                return StartForecast(tree.at, sequence, why)
            try:
                found = await self._compute(partial(tree.forecast.of, [workload]))
            except NeverEnds as error:
                return StartForecast(tree.at, sequence, f"the state cannot be played: {error}")
            if isinstance(found, Unknown):
                return StartForecast(tree.at, sequence, found.why)
            self._to_check(tree, now)
            return StartForecast(tree.at, sequence, None, *found[workload], tree.calibration)

    async def run(self) -> None:
        """Check forecasts of past times, until cancelled."""
        try:
            while True:
                queues, now = await self._unchecked.get()
                try:
                    calibration = await self.calibration(queues, now)
                except (LedgerUnavailable, SchemaMismatch) as error:
                    log.warning("forecasts of past times could not be checked: %s", error)
                    continue
                if (tree := self._trees.get(queues)) is not None:
                    tree.calibration = calibration
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def calibration(self, queues: Queues, now: datetime) -> Calibration | None:
        """Return how often forecasts of the last days held in the tree of these ClusterQueues; None: too few
        could be checked. Raises LedgerUnavailable or SchemaMismatch."""
        past = await self._past_lives(now)
        results: list[bool] = []
        times = list(backtest.past_times(now, past.since, int(now.timestamp() // CALIBRATED_SECONDS)))
        for number, when in enumerate(times):
            try:
                snapshot = await self._past.at(when)
            except NotStored:
                continue
            results += await self._compute(partial(self._checked, snapshot, when, queues, past, now, number))
        if len(results) < backtest.LEAST_CHECKED:
            return None
        return Calibration(len(results), sum(results), min(times), max(times))

    def _checked(
        self,
        snapshot: LedgerSnapshot,
        when: datetime,
        queues: Queues,
        past: PastLives,
        now: datetime,
        seed: int,
    ) -> list[bool]:
        there = {key.name for key, _ in snapshot.configs if key.kind == "ClusterQueue"}
        if not (known := sorted(queues & there)):
            return []
        forecast = Forecast(self._basis(snapshot, when, past), known[0], _CHECK_WORK)
        targets = backtest.targets_of(forecast.waiting, seed)
        return backtest.check(forecast, targets, when, past, now) if targets else []

    def _fresh(self, workload: WorkloadId) -> _Tree | None:
        for queues, tree in self._trees.items():
            if self._clock() - tree.made < FRESH_SECONDS and tree.forecast.known(workload) is not None:
                self._trees.move_to_end(queues)
                return tree
        return None

    async def _made(self, workload: WorkloadId, now: datetime) -> _Tree | StartForecast:
        """Read the state of now, and what is known of earlier times."""
        snapshot = await self._past.at(now)
        stored = next((one for one in snapshot.workloads if one.id == workload), None)
        if stored is None or stored.cluster_queue is None:
            why = "it is in no ClusterQueue"
            if stored is None:  # it ended before, or was queued later
                why = f"it did not wait at {now.isoformat()}"
            return StartForecast(now, snapshot.sequence, why)
        snapshot = replace(snapshot, nodes=await self._past.nodes_now())
        past = await self._past_lives(now)
        queue = queue_of(stored) or stored.cluster_queue
        try:
            basis = self._basis(snapshot, now, past)
            forecast = await self._compute(partial(Forecast, basis, queue))
        except KeyError:
            return StartForecast(now, snapshot.sequence, f"ClusterQueue {queue} does not exist")
        except NotAtRest as error:
            return StartForecast(now, snapshot.sequence, f"the state cannot be played: {error}")
        except ValueError as error:
            log.warning("no forecast: %s", error)
            return StartForecast(now, snapshot.sequence, "the policy in the ledger cannot be read")
        former = self._trees.pop(forecast.queues, None)
        tree = _Tree(forecast, now, self._clock())
        if former is not None:
            tree.calibration, tree.checked = former.calibration, former.checked
        self._trees[forecast.queues] = tree
        if len(self._trees) > KEPT:
            self._trees.popitem(last=False)
        return tree

    def _basis(self, snapshot: LedgerSnapshot, now: datetime, past: PastLives) -> Known:
        configuration = configuration_of(snapshot.configs, self._configure)
        return Known(snapshot, now, known_at(past, now, WINDOW), configuration)

    async def _past_lives(self, now: datetime) -> PastLives:
        """Also of the time that checked forecasts draw from."""
        known, self._lives = self._lives, None  # after an error it may be another database
        if known is None or self._clock() - self._read_whole >= WHOLE_SECONDS:
            known, self._read_whole = None, self._clock()
        since = now - WINDOW - backtest.LOOKED_BACK
        self._lives = await self._past.past_lives(since=since, known=known)
        return self._lives

    def _to_check(self, tree: _Tree, now: datetime) -> None:
        if self._clock() - tree.checked >= CALIBRATED_SECONDS and not self._unchecked.full():
            tree.checked = self._clock()
            self._unchecked.put_nowait((tree.forecast.queues, now))

    async def _compute(self, work: Callable[[], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)
