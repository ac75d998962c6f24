"""In which order Kubernetes writes are sent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from queuectl.controller import effects
from queuectl.controller.effects import Lanes
from queuectl.core.decisions import PodsToCount, Release
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    PodsCounted,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Effect,
    EffectKey,
    Eviction,
    Verb,
)
from queuectl.kinds.patches import TO_FAIL
from queuectl.ports.cluster import ClusterUnavailable, Notice
from tests.builders import T0, seen, workload
from tests.unit.controller.fakes import Crashes, JobCluster
from tests.world.loop import virtual_loop


class OneAfterAnother(JobCluster):
    """Keeps what is written, in order. The first Event waits for `answer`."""

    def __init__(self) -> None:
        super().__init__(Crashes())
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.written: list[str] = []

    async def announce(self, notice: Notice) -> None:
        self.asked.set()
        await self.answer.wait()
        self.written.append(f"Event {notice.ref.name}")

    async def start(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        self.written.append(f"start {effect.workload.ref.name}")
        return EffectSettled(effect.key, Result.DONE, 2), None


def start(name: str) -> Effect:
    job = workload(name)
    assignment = Assignment(cluster_queue="cq", pod_sets=())
    return Effect(
        key=EffectKey(job.id, 1, Verb.START),
        workload=job,
        observation=seen(),
        attempt=Attempt(
            workload=job.id, number=1, state=AttemptState.ADMITTED, assignment=assignment, admitted_at=T0
        ),
        flavors=(),
    )


async def test_starts_come_before_events_that_wait() -> None:
    cluster = OneAfterAnother()
    lanes = Lanes(cluster, lambda events: None, lambda *_, **__: None, workers=1, unreachable=frozenset)
    events = [(workload(name).id, Notice(workload(name).ref, "Pending", "it waits")) for name in "abc"]
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(lanes.run())
        lanes.add_notices(events)
        await cluster.asked.wait()
        lanes.add_effects([start("c"), start("d")])  # c has an Event that waits, d has none
        cluster.answer.set()
        while len(cluster.written) < 5:
            await asyncio.sleep(0)
        lanes.stop()
    assert cluster.written == ["Event a", "start c", "start d", "Event b", "Event c"]


class NeverGone(OneAfterAnother):
    """Its pods never end. The first count waits for `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def anything_alive(self, *_: object, **__: object) -> bool:
        self.looks += 1
        self.asked.set()
        await self.answer.wait()
        return True


@pytest.mark.parametrize("under_way", [True, False])
@pytest.mark.parametrize("starts", [True, False])
async def test_pods_are_not_counted_after_the_end_of_their_attempt(under_way: bool, starts: bool) -> None:
    """An attempt may end without a count: by force (L28), or as a later one runs (L30)."""
    cluster = NeverGone()
    lanes = Lanes(cluster, lambda events: None, lambda *_, **__: None, workers=1, unreachable=frozenset)
    job = workload("c")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        if under_way:
            tasks.create_task(lanes.run())
            lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
            await cluster.asked.wait()
        else:
            lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
        lanes.end_counts([Release(job.id, job.ref, 1, "by force")])
        if starts:
            lanes.add_effects([start("c")])
        cluster.answer.set()
        if not under_way:
            tasks.create_task(lanes.run())
        while lanes._lanes:
            await asyncio.sleep(0)
        lanes.stop()
    assert (cluster.written, cluster.looks) == (["start c"] * starts, int(under_way))


async def test_pods_are_counted_again_when_their_object_changes_and_its_controller_is_not_silent_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise quota would wait for the end of a pause that becomes longer with each count."""
    asked: list[float] = []

    class Ending(OneAfterAnother):
        async def anything_alive(self, *_: object, still: float = 0.0, **__: object) -> bool:
            asked.append(still)
            return len(asked) < 4

    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
    told: list[Event] = []
    lanes = Lanes(Ending(), told.extend, lambda *_, **__: None, workers=1, unreachable=frozenset)
    job = workload("c")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(lanes.run())
        lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
        while len(asked) < 2:
            await asyncio.sleep(0)
        monkeypatch.setattr(effects, "_FIRST_RETRY", 1000.0)  # of the pause after the third count
        while lanes._lanes[job.id].pause is None or len(asked) < 3:
            await asyncio.sleep(0)
        monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
        lanes.changed(job.id)
        while not told:
            await asyncio.sleep(0)
        lanes.stop()
    assert told == [PodsCounted(job.id, 1, alive=False)]
    first, second, third, last = asked
    assert first == last == 0 < second < third


async def test_pods_are_counted_again_soon_if_their_object_changes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[int] = []

    class Changing(NeverGone):
        async def anything_alive(self, *_: object, **__: object) -> bool:
            pauses.append(lanes._lanes[job.id].tries)
            if len(pauses) < 3:
                lanes.changed(job.id)
                lanes.changed(job.id)
            return len(pauses) < 5

    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.0)
    lanes = Lanes(Changing(), lambda _: None, lambda *_, **__: None, workers=1, unreachable=frozenset)
    job = workload("c")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(lanes.run())
        lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
        while lanes._lanes:
            await asyncio.sleep(0)
        lanes.stop()
    assert pauses == [0, 0, 0, 1, 2], "only pauses after which nothing has changed become longer"


class NeverFails(JobCluster):
    """The controller of its objects does not look at their deadline."""

    def __init__(self) -> None:
        super().__init__(Crashes())
        self.tries: list[tuple[float, bool]] = []

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        assert effect.eviction is not None
        self.tries.append((asyncio.get_running_loop().time(), effect.eviction.fails))
        if effect.eviction.fails:
            raise ClusterUnavailable("it has not failed by its deadline yet")
        return EffectSettled(effect.key, Result.DONE, 2), None


@pytest.mark.parametrize("ahead", [-timedelta(hours=1), timedelta(), timedelta(hours=1)], ids=str)
def test_what_is_to_fail_has_a_minute_wherever_the_clock_of_the_ledger_is(ahead: timedelta) -> None:
    loop, cluster = virtual_loop(Random(1)), NeverFails()
    eviction = Eviction(Reason(code=Code.MAXIMUM_EXECUTION_TIME_EXCEEDED), T0 + ahead, fails=True)
    begun = start("late")
    stop = replace(begun, key=begun.key._replace(verb=Verb.STOP), eviction=eviction)

    async def settle() -> None:
        settled = asyncio.Event()
        lanes = Lanes(
            *(cluster, lambda _: None, lambda *_, **__: settled.set()), workers=1, unreachable=frozenset
        )
        lanes.add_effects([stop])
        async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
            tasks.create_task(lanes.run())
            await settled.wait()
            lanes.stop()

    loop.run_until_complete(settle())
    loop.close()
    *before, (at, fails) = cluster.tries
    assert all(to_fail and time < TO_FAIL for time, to_fail in before)
    assert not fails
    assert TO_FAIL <= at < 2 * TO_FAIL


def test_an_event_between_two_counts_does_not_begin_the_time_without_a_word_anew() -> None:
    """After so long, what is suspended makes no pods any more: an alarm would keep its quota for longer."""
    asked: list[float] = []

    class Silent(OneAfterAnother):
        async def anything_alive(self, *_: object, still: float = 0.0, **__: object) -> bool:
            asked.append(still)
            if len(asked) == 4:
                lanes.add_notices([(job.id, Notice(job.ref, "StillTerminating", "was evicted"))])
            return len(asked) < 8

    loop, cluster, job = virtual_loop(Random(1)), Silent(), workload("c")
    lanes = Lanes(cluster, lambda _: None, lambda *_, **__: None, workers=1, unreachable=frozenset)
    cluster.answer.set()

    async def count() -> None:
        async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
            tasks.create_task(lanes.run())
            lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
            while len(asked) < 8:
                await asyncio.sleep(1.0)
            lanes.stop()

    loop.run_until_complete(count())
    loop.close()
    assert cluster.written == ["Event c"]
    assert asked == sorted(asked), "the time without a word begins with the first count"


class Restarted(JobCluster):
    """Another client starts its object again at once after each stop."""

    def __init__(self) -> None:
        super().__init__(Crashes())
        self.times: list[float] = []

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        self.times.append(asyncio.get_running_loop().time())
        return EffectSettled(effect.key, Result.DONE, 2), None


def test_an_object_that_is_started_again_after_each_stop_is_stopped_after_pauses_that_grow() -> None:
    """The controller of a JobSet resumes a Job of it, as often as that is stopped."""
    loop, cluster = virtual_loop(Random(1)), Restarted()
    begun = start("c")
    stop = replace(begun, key=begun.key._replace(verb=Verb.STOP))

    async def fight() -> None:
        settled = asyncio.Event()
        lanes = Lanes(
            *(cluster, lambda _: None, lambda *_, **__: settled.set()), workers=1, unreachable=frozenset
        )

        async def stopped(effect: Effect) -> None:
            settled.clear()
            lanes.add_notices([(effect.key.workload, Notice(effect.workload.ref, "Stopped", "again"))])
            lanes.add_effects([effect])
            await settled.wait()

        async with asyncio.timeout(3600), asyncio.TaskGroup() as tasks:
            tasks.create_task(lanes.run())
            for _ in range(12):
                await stopped(stop)
            lanes.end_counts([Release(stop.key.workload, stop.workload.ref, 1, "its pods are gone")])
            again = asyncio.get_running_loop().time()
            await stopped(replace(stop, key=stop.key._replace(attempt=2)))
            assert cluster.times[-1] - again < 0.1, "the first stop of another attempt is sent at once"
            lanes.stop()

    loop.run_until_complete(fight())
    loop.close()
    first, *pauses = [after - before for before, after in pairwise(cluster.times[:12])]
    assert first < 1
    assert all(after >= 1.5 * before or after >= 29 for before, after in pairwise([first, *pauses]))
    assert 29 < pauses[-1] < 31
