"""The engines of what-ifs: one question at a time, and each engine is freed with the answer."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from typing import Any

import pytest

from queuectl.answers import trial_snapshot as basis
from queuectl.answers.state import CommittedState
from queuectl.answers.what_if import engines, trials
from queuectl.answers.what_if.engines import TriedWhatIfs
from queuectl.answers.what_if.trials import TooFewWorkloads, Trials
from queuectl.core.entries import Entry
from queuectl.core.model.what_if import Tried
from queuectl.core.model.workload import LedgerSnapshot, Workload, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import Basis, NotAtRest
from tests.unit.api.canned import EPOCH_START
from tests.unit.api.test_what_ifs import ledger


async def asked_about() -> tuple[Basis, WorkloadId]:
    """A workload that waits, and the state to try changes on."""
    state = CommittedState().advance(await ledger().since(0), parse_policy)
    of = basis.of_namespace(state, EPOCH_START, "default")
    return of, next(one.id for one in state.workloads.values() if one.ref.name == "waits")


def entries() -> int:
    return sum(isinstance(one, Entry) for one in gc.get_objects())


async def test_engines_are_freed_without_the_garbage_collector() -> None:
    of, waits = await asked_about()
    what_ifs = TriedWhatIfs()
    answers = [await what_ifs.counterfactuals(of, waits)]
    gc.collect()
    gc.disable()
    try:
        before = entries()
        answers += [await what_ifs.counterfactuals(of, waits) for _ in range(8)]
        assert entries() == before
    finally:
        gc.enable()
    assert answers[0].found
    assert all(one == answers[0] for one in answers)


async def test_where_too_few_workloads_are_tried_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    of, waits = await asked_about()
    expected = await TriedWhatIfs().counterfactuals(of, waits)
    namespaces: list[str | None] = []

    def reduced(*args: Any, namespace: str | None, **more: Any) -> Trials:
        namespaces.append(namespace)
        if namespace is not None:
            raise TooFewWorkloads
        return trials.trials_of(*args, namespace=namespace, **more)

    monkeypatch.setattr(engines, "trials_of", reduced)
    assert await TriedWhatIfs().counterfactuals(of, waits) == expected
    assert namespaces == ["default", None]


async def test_a_question_that_nothing_waits_for_ends_before_the_next_one_begins() -> None:
    of, waits = await asked_about()
    begun, goes_on, reads = threading.Event(), threading.Event(), list[str]()

    def slow() -> LedgerSnapshot:
        begun.set()
        assert goes_on.wait(30)
        reads.append("first")
        return of.snapshot()

    def second() -> LedgerSnapshot:
        reads.append("second")
        return of.snapshot()

    what_ifs = TriedWhatIfs()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(what_ifs.counterfactuals(replace(of, snapshot=slow), waits))
        assert await asyncio.to_thread(begun.wait, 30)
        first.cancel()
        await asyncio.wait([first])
        asked = replace(of, snapshot=second)
        following = tasks.create_task(what_ifs.counterfactuals(asked, waits))
        await asyncio.to_thread(lambda: None)
        assert reads == []
        goes_on.set()
    assert following.result().found
    assert reads == ["first", "second"]


async def test_a_question_that_is_cancelled_ends_with_its_next_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of, waits = await asked_about()
    begun, goes_on, tried = threading.Event(), threading.Event(), list[str]()
    with_workload = Trials.with_workload

    def slow(self: Trials, workload: Workload) -> Tried:
        tried.append("begun")
        found = with_workload(self, workload)
        begun.set()
        assert goes_on.wait(30)
        tried.append("ended")
        return found

    what_ifs = TriedWhatIfs()
    expected = await what_ifs.counterfactuals(of, waits)
    monkeypatch.setattr(Trials, "with_workload", slow)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(what_ifs.counterfactuals(of, waits))
        waiting = tasks.create_task(what_ifs.counterfactuals(of, waits))
        assert await asyncio.to_thread(begun.wait, 30)
        for one in (task, waiting):
            one.cancel()
        await asyncio.wait([task, waiting])
        monkeypatch.setattr(Trials, "with_workload", with_workload)
        goes_on.set()
        assert await what_ifs.counterfactuals(of, waits) == expected
    assert tried == ["begun", "ended"]


async def test_an_engine_that_does_not_come_to_rest_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of, waits = await asked_about()
    what_ifs = TriedWhatIfs()
    expected = await what_ifs.counterfactuals(of, waits)
    gc.collect()
    before = entries()
    with monkeypatch.context() as patched:
        patched.setattr(trials, "PLANS", 0)
        with pytest.raises(NotAtRest):
            await what_ifs.counterfactuals(of, waits)
    assert entries() == before
    assert await what_ifs.counterfactuals(of, waits) == expected
