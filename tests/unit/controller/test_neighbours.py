"""Whatever the API server refuses, delays or loses of one workload, the writes of all others go on.

What was refused is tried again with a bound. The same for the other queues of the controller:

| queue | its test |
|---|---|
| starts, stops, counts of pods, checks of owners, Events | here |
| status of queues | test_statuses |
| facts for readers | test_facts |
| decisions that the ledger refuses or fails to store | test_poison, test_loop |
| acknowledgements | here |
| lists, watches and discovery of kinds | tests/integration/kube/test_kinds_that_went_away |
| messages of a sink | tests/unit/notifications/test_delivery |
| certificates | tests/integration/certificates/test_secret |
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Set

import pytest

from queuectl.controller import effects
from queuectl.controller.effects import Lanes
from queuectl.core.decisions import ChildToCheck, PodOwnerToRead, PodsToCount
from queuectl.core.model.events import (
    EffectSettled,
    Event,
    PodsCounted,
    Result,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.workload import Assignment, Attempt, AttemptState, Effect, EffectKey, ObjectRef, Verb
from queuectl.ports.cluster import ClusterUnavailable, Notice, WriteDenied
from tests.builders import T0, seen, workload
from tests.unit.controller.fakes import Crashes, JobCluster
from tests.unit.controller.site import Site

WORKERS, BAD, GOOD = 4, 20, 50
DEADLINE = 10.0


class Neighbours(JobCluster):
    """Requests for workloads named bad… fail once, and then get no answer, or other errors."""

    def __init__(self, trouble: str) -> None:
        super().__init__(Crashes())
        self.trouble = trouble
        self.tries: Counter[str] = Counter()
        self.done: list[str] = []
        self.healed = asyncio.Event()

    async def _request(self, name: str) -> None:
        self.tries[name] += 1
        if name.startswith("bad") and not self.healed.is_set():
            if self.trouble == "denied":
                raise WriteDenied("a webhook says no")
            if self.trouble == "bug":
                raise KeyError(name)
            if self.trouble == "silent" and self.tries[name] > 1:
                await self.healed.wait()
            raise ClusterUnavailable("no answer in time")
        self.done.append(name)

    async def start(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        await self._request(effect.workload.ref.name)
        return EffectSettled(effect.key, Result.DONE, 2), None

    async def withdraw(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        return EffectSettled(effect.key, Result.DENIED), None

    async def stop(self, effect: Effect) -> tuple[EffectSettled, WorkloadObserved | WorkloadGone | None]:
        return await self.start(effect)

    async def anything_alive(
        self,
        ref: ObjectRef,
        *,
        still: float = 0.0,
        unreachable: Set[str] = frozenset(),
    ) -> bool:
        await self._request(ref.name)
        return False

    async def count_fewer(self, count: PodsToCount, unreachable: Set[str] = frozenset()) -> list[Event]:
        await self._request(count.ref.name)
        return [PodsCounted(count.workload, count.attempt, alive=False, at_most=count.at_most)]

    async def check(self, child: ChildToCheck | PodOwnerToRead) -> list[Event]:
        assert isinstance(child, ChildToCheck)
        await self._request(child.ref.name)
        return []

    async def announce(self, notice: Notice) -> None:
        await self._request(notice.ref.name)


def effect(name: str, verb: Verb) -> Effect:
    job = workload(name)
    assignment = Assignment(cluster_queue="cq", pod_sets=())
    state = AttemptState.ADMITTED
    attempt = Attempt(workload=job.id, number=1, state=state, assignment=assignment, admitted_at=T0)
    key = EffectKey(job.id, 1, verb)
    return Effect(key=key, workload=job, observation=seen(), attempt=attempt, flavors=())


def add(lanes: Lanes, what: str, name: str) -> None:
    job = workload(name)
    match what:
        case "start":
            lanes.add_effects([effect(name, Verb.START)])
        case "stop":
            lanes.add_effects([effect(name, Verb.STOP)])
        case "count":
            lanes.add_probes([PodsToCount(job.id, job.ref, 1)])
        case "check":
            lanes.add_checks([ChildToCheck(job.id, job.ref, ())])
        case _:
            lanes.add_notices([(job.id, Notice(job.ref, "Pending", "it waits"))])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_FIRST_RETRY", 0.001)
    monkeypatch.setattr(effects, "_LAST_RETRY", 0.01)
    monkeypatch.setattr(effects, "_CHECK_AFTER", 1)


@pytest.mark.parametrize("trouble", ["silent", "unavailable", "denied", "bug"])
@pytest.mark.parametrize("what", ["start", "stop", "count", "check", "event"])
async def test_requests_that_fail_delay_no_others_and_are_tried_again(what: str, trouble: str) -> None:
    cluster = Neighbours(trouble)
    lanes = Lanes(cluster, lambda _: None, lambda *_, **__: None, workers=WORKERS, unreachable=frozenset)
    bad = [f"bad{number}" for number in range(BAD)]
    good = [f"good{number}" for number in range(GOOD)]
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
        tasks.create_task(lanes.run())
        for name in bad:
            add(lanes, what, name)
        once = 1 if trouble == "silent" else 0
        await until(lambda: sum(cluster.tries[name] > once for name in bad) >= WORKERS // 2)
        for name in good:
            add(lanes, "start", name)
        await until(lambda: set(good) <= set(cluster.done))
        cluster.healed.set()
        if what != "event" and (what, trouble) != ("start", "denied"):  # those are given up after some tries
            await until(lambda: set(bad) <= set(cluster.done))
        lanes.stop()


async def test_acknowledgements_that_are_lost_with_a_commit_are_stored_with_a_later_one() -> None:
    site = Site()
    async with site.leading():
        site.cluster.submit(workload("a"))
        await site.until(lambda: site.cluster.running() == ["a"])
        site.ledger.unavailable = 3
        site.cluster.submit(workload("b", created=1))
        await site.until(lambda: site.cluster.running() == ["a", "b"])
        await site.until(lambda: not site.store.effects)
