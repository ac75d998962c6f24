"""REST and the engine agree on positions, usage, conditions and reasons after the same commits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from queuectl.answers.charged_pods import demands_of
from queuectl.answers.explanation import as_of
from queuectl.answers.state import CommittedState
from queuectl.api.view import View
from queuectl.core.model.capacity import AwaitedLimit
from queuectl.core.model.events import PolicyGone, PolicyObserved, WorkloadObserved
from queuectl.core.model.policy import LocalQueueName, ResourceFlavor
from queuectl.core.model.workload import ConfigKey, Verb, WorkloadOutcome
from queuectl.core.reports import ClusterQueueReport, LocalQueueReport
from queuectl.kinds.policy import parse_policy, policy_event
from tests.builders import GPU, World, observed, seen, workload
from tests.doubles.readers import ReadableLedger


def cluster_queue(name: str, gpus: int, **spec: object) -> PolicyObserved:
    quota = {"name": "default", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    return event("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups, **spec})


def event(kind: str, name: str, spec: dict[str, object], namespace: str = "") -> PolicyObserved:
    found = policy_event({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    assert isinstance(found, PolicyObserved), found
    return found


class Story:
    """An engine that commits to a ledger, and a view of that ledger."""

    def __init__(self) -> None:
        self.world = World(ResourceFlavor(name="unused"))
        self.ledger = ReadableLedger(lambda: self.world.now)
        self.view = View(self.ledger, parse_policy)
        self.local: dict[LocalQueueName, LocalQueueReport] = {}
        self.cluster: dict[str, ClusterQueueReport] = {}
        self.told: set[AwaitedLimit] = set()

    async def commit(self) -> None:
        for batch in range(1000):
            plan = self.world.plan()
            if not plan.decisions:
                break
            first = await self.ledger.commit(
                plan, (), epoch=self.ledger.store.epoch, batch=f"{self.world.sequence}-{batch}"
            )
            assert first == self.world.sequence + 1
            self.world.commit(plan)
        local, cluster, gone = self.world.engine.take_reports()
        self.local |= {report.name: report for report in local}
        self.cluster |= {report.name: report for report in cluster}
        for name in gone:
            self.cluster.pop(name, None)
        await self.view.refresh()

    @property
    def state(self) -> CommittedState:
        sight = self.view.sight()
        assert sight is not None
        return sight.state

    def compare(self) -> None:
        state = self.state
        assert state.sequence == self.world.sequence
        demands = dict(demands_of(state))
        for name, report in self.cluster.items():
            queue = state.queues[name]
            assert (queue.condition, queue.pending) == (report.condition, report.pending)
            assert len(queue.holders) == report.admitted
            assert dict(queue.nominal) == dict(report.nominal)
            assert demands[name] == report.demand  # A31
            self.told |= {one.awaits for one in report.demand}
            assert {cell: queue.used.get(cell, 0) for cell, _ in report.used} == dict(report.used)
        for local, said in self.local.items():
            found = state.local_queue(local)
            assert found is not None
            assert (found.condition, found.pending, found.admitted) == (
                said.condition,
                said.pending,
                said.admitted,
            )
            for waiting in said.first:
                one = state.find(*waiting.ref[:3])
                assert one is not None
                assert one.reason is not None
                assert (state.position(one) or 0) == waiting.position, waiting
                # The engine keeps the numbers of its last evaluation; both are updated to this state.
                assert as_of(one.reason, state) == as_of(waiting.reason, state), waiting


@pytest.mark.acceptance
async def test_positions_usage_conditions_and_reasons_agree_through_random_histories() -> None:
    dice = random.Random(11)
    story = Story()
    await story.ledger.take_epoch("test")
    world = story.world
    world.tell(
        event("ResourceFlavor", "default", {}),
        *(cluster_queue(name, 8) for name in ("a", "b")),
        *(event("LocalQueue", f"l{name}", {"clusterQueue": name}, "ns") for name in ("a", "b", "none")),
    )
    alive: dict[str, Any] = {}
    for step in range(250):
        for _ in range(dice.randrange(3)):
            new = workload(
                f"w{step}-{len(alive)}",
                dice.choice(("la", "la", "lb", "lnone", "lost")),
                gpus=dice.choice((1, 2, 3, 6, 9)),
                created=dice.randrange(100),
                hold=dice.random() < 0.1,
            )
            alive[new.ref.name] = new
            world.submit(new)
        for settled in world.settle():
            if settled.key.verb is Verb.START:
                name = settled.key.workload.removeprefix("uid-")
                world.tell(WorkloadObserved(alive[name], seen(suspended=False, generation=2)))
        running = [one for one in story.ledger.store.workloads.values() if one.attempt]
        if running and dice.random() < 0.6:
            name = dice.choice(running).ref.name
            world.tell(
                observed(alive[name], suspended=False, generation=2, finished=WorkloadOutcome.SUCCEEDED)
            )
        if dice.random() < 0.1:
            stop = dice.choice(("None", "Hold"))
            world.tell(cluster_queue(dice.choice("ab"), dice.choice((4, 8)), stopPolicy=stop))
        if dice.random() < 0.05:
            world.tell(PolicyGone(ConfigKey("ResourceFlavor", "", "default")))
        if dice.random() < 0.3:
            world.tell(event("ResourceFlavor", "default", {}))
        await story.commit()
        story.compare()
    reasons: Sequence[str] = sorted({one.reason.code for one in story.state.workloads.values() if one.reason})
    assert story.told == {AwaitedLimit.QUOTA}
    assert {"ExceedsMaxQuota", "OnHold", "QueueNotFound", "WaitingForQuota"} <= set(reasons)
