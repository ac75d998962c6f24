"""What-ifs for readers of the ledger: each is answered with an engine of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from queuectl.answers.what_if.counterfactuals import counterfactuals, quote
from queuectl.answers.what_if.plan import planned
from queuectl.answers.what_if.trials import Abandoned, TooFewWorkloads, Trials, trials_of
from queuectl.core.model.events import PolicyGone, PolicyObserved
from queuectl.core.model.what_if import Counterfactuals, PlannedPolicy
from queuectl.core.model.workload import Workload, WorkloadId
from queuectl.ports.reader import Basis

Answer = TypeVar("Answer")


class TriedWhatIfs:
    """ports.reader.WhatIfs. One question is answered at a time, in a thread of its own; one whose task is
    cancelled ends with its next trial."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, "what-if")

    async def counterfactuals(self, basis: Basis, workload: WorkloadId) -> Counterfactuals:
        return await self._run(basis, lambda trials: counterfactuals(trials, workload), workload)

    async def quote(self, basis: Basis, workload: Workload) -> Counterfactuals:
        return await self._run(basis, lambda trials: quote(trials, workload), workload.id)

    async def plan(self, basis: Basis, changes: Sequence[PolicyObserved | PolicyGone]) -> PlannedPolicy:
        return await self._run(basis, lambda trials: planned(trials, changes))

    async def _run(
        self, basis: Basis, ask: Callable[[Trials], Answer], workload: WorkloadId | None = None
    ) -> Answer:
        abandoned = threading.Event()

        def answer(namespace: str | None) -> Answer:
            if abandoned.is_set():
                raise Abandoned
            snapshot = basis.snapshot()
            trials = trials_of(snapshot, basis.configuration, namespace=namespace, asked=workload)
            trials.abandoned, trials.outcomes = abandoned.is_set, basis.outcomes
            try:
                return ask(trials)
            finally:
                trials.close()

        def with_enough_workloads() -> Answer:
            try:
                return answer(basis.namespace)
            except TooFewWorkloads:
                return answer(None)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, with_enough_workloads)
        except asyncio.CancelledError:
            abandoned.set()
            raise
