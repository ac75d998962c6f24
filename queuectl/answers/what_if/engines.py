"""What-ifs for readers of the ledger: engines of the trees that are asked about, kept for some seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from queuectl.answers.what_if.counterfactuals import counterfactuals, quote
from queuectl.answers.what_if.plan import planned
from queuectl.answers.what_if.trials import Abandoned, Trials, trials_of
from queuectl.core.events import PolicyGone, PolicyObserved
from queuectl.core.model import Workload, WorkloadId
from queuectl.core.what_if import Counterfactuals, PlannedPolicy
from queuectl.ports.reader import Basis

KEPT: Final = 8
"""How many engines are kept, those used last."""
FRESH_SECONDS: Final = 3.0
"""An engine of an older state is used for so long."""

Answer = TypeVar("Answer")
Key = frozenset[str] | None


@dataclass(slots=True)
class _Kept:
    trials: Trials
    epoch: int
    read_at: float


class TriedWhatIfs:
    """readings.WhatIfs. One question is answered at a time, in a thread of its own; one whose task is
    cancelled ends with its next trial. `clock`: monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._left: list[Trials] = []
        """Not kept any more, and still to be closed."""
        self._worker = ThreadPoolExecutor(1, "what-if")

    async def counterfactuals(self, basis: Basis, workload: WorkloadId) -> Counterfactuals:
        def serves(trials: Trials) -> bool:
            return workload in trials.workloads

        return await self._run(basis, lambda trials: counterfactuals(trials, workload), serves)

    async def quote(self, basis: Basis, workload: Workload) -> Counterfactuals:
        return await self._run(basis, lambda trials: quote(trials, workload))

    async def plan(self, basis: Basis, changes: Sequence[PolicyObserved | PolicyGone]) -> PlannedPolicy:
        return await self._run(basis, lambda trials: planned(trials, changes))

    async def _run(
        self,
        basis: Basis,
        ask: Callable[[Trials], Answer],
        serves: Callable[[Trials], bool] = lambda trials: True,
    ) -> Answer:
        abandoned = threading.Event()

        def answer() -> Answer:
            if abandoned.is_set():
                raise Abandoned
            kept = self._taken(basis, serves)
            kept.trials.abandoned = abandoned.is_set
            try:
                found = ask(kept.trials)
            except Abandoned:
                self._keep(basis.queues, kept)
                raise
            except BaseException:
                self._leave(kept)  # what fails half way is not used again
                raise
            self._keep(basis.queues, kept)
            return found

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, answer)
        except asyncio.CancelledError:
            abandoned.set()
            raise

    def _taken(self, basis: Basis, serves: Callable[[Trials], bool]) -> _Kept:
        """The engine of this part of the state: the one that is kept, if it is fresh and serves."""
        self._close()
        kept, now = self._kept.pop(basis.queues, None), self._clock()
        if kept is None or not (self._is_fresh(kept, basis, now) and serves(kept.trials)):
            whole = basis.queues is None  # a plan moves many workloads
            if kept is not None:
                self._leave(kept)
            if whole:
                self._close()  # such engines are large
            trials = trials_of(basis.snapshot(), basis.configuration, whole=whole)
            kept = _Kept(trials, basis.epoch, now)
        return kept

    def _keep(self, key: Key, kept: _Kept) -> None:
        self._kept[key] = kept
        while len(self._kept) > KEPT:
            _, last_used = self._kept.popitem(last=False)
            self._leave(last_used)

    def _leave(self, kept: _Kept) -> None:
        """Its engine is freed after the answer that is being made, and before the next one."""
        self._left.append(kept.trials)
        self._worker.submit(self._close)

    def _close(self) -> None:
        while self._left:
            self._left.pop().close()

    @staticmethod
    def _is_fresh(kept: _Kept, basis: Basis, now: float) -> bool:
        same = (kept.trials.read, kept.epoch) == (basis.sequence, basis.epoch)
        return same or now - kept.read_at < FRESH_SECONDS
