"""What-ifs for readers of the ledger: each is answered with an engine of its own.

What another policy decides as soon as it is in force is tried on a copy, where stops end pods at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from queuectl.answers.what_if.counterfactuals import counterfactuals, quote
from queuectl.answers.what_if.trials import (
    BUDGET,
    PLANS,
    Abandoned,
    TooFewWorkloads,
    Trials,
    commit,
    trials_of,
)
from queuectl.core.copies import dissolve
from queuectl.core.decisions import Admit, Decision, Evict, Keep, PodsToCount
from queuectl.core.engine import Engine
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    PodGone,
    PodsCounted,
    PolicyGone,
    PolicyObserved,
    Result,
    WorkloadObserved,
)
from queuectl.core.model.reasons import Family, Reason
from queuectl.core.model.what_if import ChangedOutcome, Counterfactuals, PlannedPolicy, PolicyChange
from queuectl.core.model.workload import Effect, ObjectRef, Phase, Verb, Workload, WorkloadId
from queuectl.ports.reader import Basis, NotAtRest
from queuectl.scenarios.rebuilt_engine import written

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


PolicyEvent = PolicyObserved | PolicyGone


def planned(trials: Trials, changes: Iterable[PolicyEvent]) -> PlannedPolicy:
    """Return what changes: decisions up to rest at this time. Starts and stops are carried out at once; pods
    of stopped workloads end when nothing else is left to decide, all together.

    Raises Abandoned and NotAtRest.
    """
    engine = trials.fork()
    try:
        return _planned(trials, engine, changes)
    finally:
        dissolve(engine)


def _planned(trials: Trials, engine: Engine, changes: Iterable[PolicyEvent]) -> PlannedPolicy:
    before = {report.name: report.condition for report in engine.take_reports()[1]}
    engine.handle(changes)
    found = _Found(trials)
    sequence = trials.sequence
    stopped: set[WorkloadId] = set()
    counted: list[PodsToCount] = []
    for _ in range(PLANS):
        trials.go_on()
        plan = engine.decide(trials.now, BUDGET)
        counted += (probe for probe in plan.probes if probe.workload in stopped)
        if plan.decisions or plan.more:
            found.note(plan.decisions)
            sequence = commit(engine, plan, sequence)
            effects = engine.take_effects()
            engine.handle([event for effect in effects for event in _carried_out(effect)])
            stopped |= {effect.key.workload for effect in effects if effect.key.verb is Verb.STOP}
        elif counted:
            if plan.probes:
                sequence = commit(engine, plan, sequence)
            engine.handle([event for probe in counted for event in _ended(probe, trials)])
            counted.clear()
        else:
            break
    else:
        raise NotAtRest(f"it does not come to rest within {PLANS} plans")
    after = {report.name: report.condition for report in engine.take_reports()[1]}
    inactive = [
        (name, condition)
        for name, condition in sorted(after.items())
        if not condition.active and before.get(name) != condition
    ]
    return PlannedPolicy(sequence=trials.read, affected=tuple(found.affected()), inactive=tuple(inactive))


def _carried_out(effect: Effect) -> Iterator[Event]:
    """Yield what is observed when this write has been made."""
    # The workload of an effect is without the pods that have ended.
    seen = replace(written(effect.observation, effect), reclaimable=())
    yield WorkloadObserved(effect.workload, seen)
    yield EffectSettled(effect.key, Result.DONE, seen.generation)


def _ended(probe: PodsToCount, trials: Trials) -> Iterator[Event]:
    """Yield what is observed when all pods of a stopped workload have ended."""
    yield from map(PodGone, trials.pods.get(probe.workload, ()))
    yield PodsCounted(probe.workload, probe.attempt, alive=False, at_most=probe.at_most)


class _Found:
    """The last decision about each workload, and whether it was admitted or evicted meanwhile."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._evicted: dict[WorkloadId, Evict] = {}
        self._last: dict[WorkloadId, Admit | Keep] = {}
        self._refs: dict[WorkloadId, ObjectRef] = {}

    def note(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Admit():
                    self._last[decision.attempt.workload] = decision
                    self._refs[decision.attempt.workload] = decision.ref
                case Keep():
                    self._last[decision.workload] = decision
                    self._refs[decision.workload] = decision.ref
                case Evict():
                    self._evicted[decision.workload] = decision
                    self._last.pop(decision.workload, None)
                    self._refs[decision.workload] = decision.ref

    def affected(self) -> Iterator[ChangedOutcome]:
        for id in sorted(self._refs, key=lambda id: self._refs[id]):
            last, evicted = self._last.get(id), self._evicted.get(id)
            one = ChangedOutcome(workload=id, ref=self._refs[id], change=PolicyChange.EVICTED)
            if evicted is not None:
                yield replace(one, reason=evicted.reason)
            if isinstance(last, Admit):
                yield replace(one, change=PolicyChange.ADMITTED, assignment=last.attempt.assignment)
            elif last is not None:
                before, never = self._reason_before(id), last.reason.family is Family.NEVER
                if never and (before is None or before.family is not Family.NEVER):
                    yield replace(one, change=PolicyChange.STRANDED, reason=last.reason)
                elif before is not None and before.key != last.reason.key:
                    yield replace(one, change=PolicyChange.OTHER_REASON, reason=last.reason)

    def _reason_before(self, id: WorkloadId) -> Reason | None:
        """Return why it waits without the change; None: it does not wait."""
        stored = self._trials.workloads.get(id)
        waits = stored is not None and stored.phase is Phase.PENDING
        return self._trials.unchanged(id).reason if waits else None
