"""Observing: the state of a cluster as the engine gets it, and the decisions in the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from queuectl.controller.loop import Controller, LoopOptions
from queuectl.core.engine import DEFAULT_BUDGET, Engine
from queuectl.core.model.events import (
    ContextGone,
    ContextObserved,
    Event,
    Listed,
    WorkloadGone,
    WorkloadObserved,
)
from queuectl.core.model.policy import Gate, Namespace, Policy
from queuectl.core.model.workload import Workload, WorkloadId, WorkloadOutcome
from queuectl.ports.ledger import LedgerUnavailable
from queuectl.ports.reader import DecisionRow
from queuectl.shadow.cluster import Mirror, MirroredLedger
from tests.builders import SOURCES, T0, flavor, local_queue, policy, queue, seen, workload
from tests.doubles.ledger import MemoryLedger, MemoryStore
from tests.unit.controller.site import DEADLINE, Silent

LOOKED = T0 + timedelta(milliseconds=400)
"""Start of the observation; builders create workloads later in the same second."""
BEFORE = -100.0
"""Seconds: `created` of a workload that existed before the observation."""


@dataclass
class Real:
    """The real state of a Job."""

    workload: Workload
    suspended: bool = False
    finished: WorkloadOutcome | None = None
    generation: int = 1

    @property
    def event(self) -> WorkloadObserved:
        state = seen(suspended=self.suspended, finished=self.finished, generation=self.generation)
        started = None if self.suspended else self.workload.created_at
        return WorkloadObserved(self.workload, replace(state, started_at=started))


@dataclass
class Watched:
    """A cluster without writes and an observer's ledger; both stay when an observer ends."""

    policies: list[Policy] = field(
        default_factory=lambda: [flavor("default"), queue("cq", 2), local_queue("lq", "cq")]
    )
    jobs: dict[WorkloadId, Real] = field(default_factory=dict)
    store: MemoryStore = field(default_factory=MemoryStore)
    mirror: Mirror | None = None
    ledger_away: int = 0
    """Number of failures when the ledger's decisions are read."""
    _ticks: int = 0

    def _clock(self) -> datetime:
        self._ticks += 1
        return T0 + timedelta(seconds=self._ticks)

    # --- changes in the cluster

    def create(self, *workloads: Workload, suspended: bool = False) -> None:
        for one in workloads:
            self.jobs[one.id] = Real(one, suspended)
            self._tell(self.jobs[one.id].event)

    def finish(self, name: str, outcome: WorkloadOutcome = WorkloadOutcome.SUCCEEDED) -> None:
        self._change(name, finished=outcome)

    def suspend(self, name: str, suspended: bool = True) -> None:
        self._change(name, suspended=suspended)

    def hold(self, name: str) -> None:
        job = self.jobs[WorkloadId(f"uid-{name}")]
        job.workload = replace(job.workload, hold=True)
        self._tell(job.event)

    def delete(self, name: str) -> None:
        found = self.jobs.pop(WorkloadId(f"uid-{name}"))
        self._tell(WorkloadGone(found.workload.id))

    def set_policy(self, value: Policy) -> None:
        self.policies.append(value)
        self._tell(policy(value))

    def _change(self, name: str, **to: object) -> None:
        found = self.jobs[WorkloadId(f"uid-{name}")]
        for key, value in to.items():
            setattr(found, key, value)
        found.generation += "suspended" in to
        self._tell(found.event)

    def _tell(self, event: Event) -> None:
        if self.mirror is not None:
            self.mirror.see([event])

    def listed(self) -> list[Event]:
        given = [policy(value) for value in self.policies]
        jobs = [job.event for job in self.jobs.values()]
        return [
            ContextObserved(Namespace("ns")),
            *given,
            Listed("policies"),
            *jobs,
            Listed("Job", frozenset(self.jobs)),
        ]

    # --- observers

    async def _recorded(self, workloads: Sequence[WorkloadId]) -> frozenset[WorkloadId]:
        if self.ledger_away:
            self.ledger_away -= 1
            raise LedgerUnavailable("away")
        return frozenset({row.workload for row in self.store.decisions if row.workload} & set(workloads))

    @contextlib.asynccontextmanager
    async def observed(self, budget: int = DEFAULT_BUDGET) -> AsyncIterator[Controller]:
        """An observer that has read all sources."""
        mirror = Mirror(lambda: LOOKED, self._recorded)
        memory = MemoryLedger(self._clock, self.store, beside=mirror.reality)
        controller = Controller(
            ledger=MirroredLedger(memory, mirror),
            cluster=mirror,
            engine=Engine(SOURCES),
            observer=Silent(),
            holder="test",
            options=LoopOptions(
                status_seconds=0.01,
                confirm_seconds=3600.0,
            ),
        )
        mirror.show_to(controller.emit)
        mirror.see(self.listed())
        self.mirror = mirror
        async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as tasks:
            leading = tasks.create_task(controller.run())
            doubting = tasks.create_task(mirror.settle_doubts())
            try:
                await self.until(lambda: controller.ready)
                yield controller
            finally:
                self.mirror = None
                controller.stop()
                await asyncio.wait([leading])
                doubting.cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.001)

    # --- the ledger

    def rows(self, name: str) -> list[DecisionRow]:
        return [row for row in self.store.decisions if row.ref is not None and row.ref.name == name]

    def reality(self, name: str) -> list[str]:
        """State of the object at each decision on it."""
        return [json.loads(json.dumps(row.payload))["reality"]["state"] for row in self.rows(name)]

    def story(self, name: str) -> list[str]:
        """Verdicts on it; those with a reason by its code."""
        return [row.reason.code.value if row.reason else row.verdict for row in self.rows(name)]

    async def told(self, name: str, *story: str) -> None:
        """Wait until these are all decisions on it."""
        try:
            await self.until(lambda: self.story(name) == list(story))
        except TimeoutError:
            assert self.story(name) == list(story)

    def held(self) -> list[str]:
        return sorted(w.ref.name for w in self.store.workloads.values() if w.attempt is not None)


async def test_a_job_that_really_runs_is_observed_as_suspended_until_admitted() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.told("a", "Queued", "Admitted")
        await site.told("b", "Queued", "WaitingForQuota")
        site.finish("a")
        await site.told("a", "Queued", "Admitted", "Retired")
        await site.told("b", "Queued", "WaitingForQuota", "Admitted")
    assert site.held() == ["b"]
    assert not site.store.effects


async def test_a_job_that_ends_while_it_would_be_pending_was_pending_until_then() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.told("b", "Queued", "WaitingForQuota")
        site.finish("b")
        await site.told("b", "Queued", "WaitingForQuota", "Retired")
        assert site.reality("b") == ["Running", "Running", "Succeeded"]
    assert site.held() == ["a"]


async def test_a_job_that_ran_before_the_observation_is_charged_as_debt() -> None:
    site = Watched()
    site.create(workload("old", gpus=3, created=BEFORE), workload("over", created=BEFORE))
    site.finish("over")
    async with site.observed():
        await site.told("old", "Queued", "Admitted")
        assert site.rows("old")[1].payload["debt"] is True
        site.create(workload("new"))
        await site.told("new", "Queued", "WaitingForQuota")
        site.finish("old")
        await site.told("new", "Queued", "WaitingForQuota", "Admitted")
    assert site.story("over") == []


async def test_a_job_that_ran_before_and_gets_its_queue_later_is_charged_as_debt_after_a_restart_too() -> (
    None
):
    site = Watched(policies=[flavor("default"), queue("cq", 2)])
    site.create(workload("old", gpus=3, created=BEFORE))
    async with site.observed():
        await site.told("old", "Queued", "QueueNotFound")
    async with site.observed():
        site.set_policy(local_queue("lq", "cq"))
        await site.until(lambda: site.held() == ["old"])
    assert site.rows("old")[-1].payload["debt"] is True


async def test_a_job_that_ends_before_its_first_decision_is_still_decided() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("quick"))
        site.finish("quick")
        site.create(workload("gone"))
        site.delete("gone")
        assert site.mirror is not None
        site.mirror.see([Listed("Job", frozenset(site.jobs))])
        await site.told("quick", "Queued", "Admitted", "Retired")
        await site.told("gone", "Queued", "Admitted", "Retired")
    assert site.held() == []


async def test_a_virtual_eviction_gives_the_quota_to_others_and_the_job_runs_on() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a", gpus=2), workload("b", gpus=2, created=1))
        await site.told("a", "Queued", "Admitted")
        site.hold("a")
        await site.told("a", "Queued", "Admitted", "UserHold", "Released", "OnHold")
        await site.told("b", "Queued", "WaitingForQuota", "Admitted")
        assert set(site.reality("a")) == {"Running"}
        site.finish("a")
        await site.told("a", "Queued", "Admitted", "UserHold", "Released", "OnHold", "Retired")


async def test_a_job_suspended_by_its_user_holds_no_quota_until_it_is_resumed() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a", gpus=2))
        await site.told("a", "Queued", "Admitted")
        site.suspend("a")
        await site.told("a", "Queued", "Admitted", "UserHold", "Released", "OnHold")
        site.suspend("a", False)
        await site.told("a", "Queued", "Admitted", "UserHold", "Released", "OnHold", "Admitted")
    assert site.held() == ["a"]


async def test_a_job_created_suspended_is_pending_from_the_start() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a"), suspended=True)
        await site.told("a", "Queued", "Admitted")
        site.suspend("a", False)
        site.finish("a")
        await site.told("a", "Queued", "Admitted", "Retired")


async def test_a_gate_in_the_cluster_does_not_change_the_observation() -> None:
    site = Watched()
    async with site.observed() as controller:
        assert site.mirror is not None
        site.mirror.see([ContextObserved(Gate("queuectl-jobs", LOOKED - timedelta(days=1)))])
        site.mirror.see([ContextGone(Gate, "queuectl-jobs")])
        site.create(workload("a"))
        await site.told("a", "Queued", "Admitted")
        assert controller.leads
    assert [row.payload["spec"] for row in site.store.decisions if row.payload.get("kind") == "Gate"] == [
        {"installedAt": T0.isoformat()}
    ]


async def test_after_a_restart_decisions_stand_and_missed_changes_are_caught_up() -> None:
    site = Watched()
    async with site.observed():
        site.create(
            workload("runs"), workload("ends"), workload("goes", created=1), workload("waits", created=2)
        )
        await site.told("ends", "Queued", "Admitted")
        await site.told("waits", "Queued", "WaitingForQuota")
        await site.told("goes", "Queued", "WaitingForQuota")
    # Without an observer: one ends, a pending one ends, one is created, and one is created and ends.
    site.finish("ends")
    site.delete("goes")
    site.create(workload("comes", gpus=2, created=3), workload("missed", created=3))
    site.finish("missed")
    site.ledger_away = 1
    async with site.observed():
        await site.told("ends", "Queued", "Admitted", "Retired")
        await site.told("goes", "Queued", "WaitingForQuota", "Retired")
        await site.told("waits", "Queued", "WaitingForQuota", "Admitted")
        await site.told("comes", "Queued", "WaitingForQuota")
        await site.until(lambda: site.story("missed")[-1:] == ["Retired"])
        assert site.story("runs") == ["Queued", "Admitted"]
    assert site.held() == ["runs", "waits"]
    told = {name: site.story(name) for name in ("runs", "ends", "goes", "waits", "comes", "missed")}
    async with site.observed():
        site.create(workload("last", created=4))
        await site.until(lambda: bool(site.story("last")))
    assert {name: site.story(name) for name in told} == told


async def test_a_recorded_job_that_is_over_is_not_observed_again_and_dropped_when_deleted() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a"))
        await site.told("a", "Queued", "Admitted")
        site.finish("a")
        await site.told("a", "Queued", "Admitted", "Retired")
        site.finish("a")  # its object changes again
        site.delete("a")
        site.create(workload("b"))
        await site.told("b", "Queued", "Admitted")
        assert site.mirror is not None
        assert list(site.mirror._objects) == [workload("b").id]
    assert site.story("a") == ["Queued", "Admitted", "Retired"]


async def test_a_job_that_loses_its_label_and_gets_it_back_is_observed_again() -> None:
    site = Watched()
    async with site.observed():
        site.create(workload("a"))
        await site.told("a", "Queued", "Admitted")
        site.delete("a")
        site.create(workload("a"))
        site.finish("a")
        await site.until(lambda: site.story("a")[-1] == "Retired" and not site.held())
    assert site.store.workloads == {}


@pytest.mark.parametrize("budget", [1, 1000])
async def test_each_job_is_decided_however_many_are_created_and_end_at_once(budget: int) -> None:
    site = Watched()
    names = [f"j{number:03}" for number in range(100)]
    async with site.observed(budget):
        for number, name in enumerate(names):
            site.create(workload(name, created=number))
            if number % 2:
                site.finish(name)
            if number % 5 == 0:
                site.delete(name)
        for number, name in enumerate(names):
            if number % 2 == 0 and number % 5:
                site.finish(name)
        await site.until(lambda: all(site.story(name)[-1:] == ["Retired"] for name in names))
        for name in names:
            assert site.story(name)[0] == "Queued"
            assert len(site.story(name)) >= 3, (name, site.story(name))
    assert site.held() == []
