"""The engines of what-ifs: one trial at a time, and what is not kept is freed."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace

from queuectl.api import basis
from queuectl.api.state import State
from queuectl.core.entries import Entry
from queuectl.core.model import LedgerSnapshot, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.readings import Basis
from queuectl.simulator.what_ifs import KEPT, TriedWhatIfs
from tests.api.canned import EPOCH_START
from tests.api.test_what_ifs import ledger


async def asked_about() -> tuple[Basis, WorkloadId]:
    """A workload that waits, and the state to try changes on."""
    state = State().advance(await ledger().since(0), parse_policy)
    of = basis.of_namespace(state, EPOCH_START, "default")
    return of, next(one.id for one in state.workloads.values() if one.ref.name == "waits")


async def test_engines_that_are_not_kept_are_freed_without_the_garbage_collector() -> None:
    of, waits = await asked_about()
    trees = (frozenset({*(of.queues or ()), f"other-{number}"}) for number in range(3 * KEPT))
    asked = [replace(of, queues=queues) for queues in trees]
    what_ifs = TriedWhatIfs(clock=lambda: 0.0)
    answers = [await what_ifs.counterfactuals(one, waits) for one in asked[:KEPT]]
    gc.collect()
    gc.disable()
    try:
        known = sum(isinstance(one, Entry) for one in gc.get_objects())
        answers += [await what_ifs.counterfactuals(one, waits) for one in asked[KEPT:]]
        what_ifs._worker.submit(int).result(30)  # an engine is freed after the answer that takes its place
        assert sum(isinstance(one, Entry) for one in gc.get_objects()) == known
    finally:
        gc.enable()
    assert answers[0].found
    assert all(one == answers[0] for one in answers)


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
        asked = replace(of, queues=frozenset({"another"}), snapshot=second)
        following = tasks.create_task(what_ifs.counterfactuals(asked, waits))
        await asyncio.to_thread(lambda: None)
        assert reads == []
        goes_on.set()
    assert following.result().found
    assert reads == ["first", "second"]
