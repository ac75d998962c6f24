"""Flavors whose nodes did not come in time are not used for a while (M20)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuectl.core.decisions import Decision, Evict
from queuectl.core.engine import Engine
from queuectl.core.model.events import ContextObserved, Listed, TimeCame
from queuectl.core.model.policy import (
    CapacityMode,
    FlavorNodes,
    Namespace,
    NodeRules,
    RequeuingStrategy,
    ResourceFlavor,
    SchedulingConfiguration,
    WaitForPodsReady,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import LedgerSnapshot, Workload
from tests.builders import (
    GPU,
    SOURCES,
    T0,
    flavor,
    group,
    local_queue,
    observed,
    pending_row,
    pod_set,
    policy,
    queue,
    workload,
)
from tests.doubles.invariants import violations
from tests.unit.core.node_worlds import NodeWorld, node
from tests.unit.core.test_waiting_for_flavors import taken, waiting

ELASTIC = FlavorNodes(mode=CapacityMode.ELASTIC)
QUOTAS = {"spot": {GPU: 8}, "dear": {GPU: 8}}
FAILED = {"suspended": False, "generation": 2, "ready": False}


def settings(seconds: int = 600) -> SchedulingConfiguration:
    return SchedulingConfiguration(
        cooldown=0,
        nodes=NodeRules(stock_out_seconds=seconds),
        requeueing=RequeuingStrategy(base_seconds=1, most_seconds=1),
    )


def policies(spot: FlavorNodes = ELASTIC, wait: int = 0) -> list[object]:
    ready = WaitForPodsReady(scheduling=60)
    return [
        ResourceFlavor(name="spot", nodes=spot),
        flavor("dear"),
        queue("cq", groups=[waiting(group(QUOTAS), wait)], wait_for_pods_ready=ready),
        local_queue("lq", "cq"),
    ]


class Pools(NodeWorld):
    """Spot nodes first, then others."""

    def __init__(self, spot: FlavorNodes = ELASTIC, wait: int = 0, seconds: int = 600) -> None:
        super().__init__(node("n0"), policies=policies(spot, wait), settings=settings(seconds))  # type: ignore[arg-type]

    def fails(self, one: Workload, *bound: str) -> list[Decision]:
        """It starts, and not all of its pods are bound to nodes in time. Return what is decided then."""
        self.submit(one)
        self.run()
        self.settle()
        self.tell(observed(one, **FAILED))
        self.bind(one.ref.name, *bound)
        self.run()
        self.pass_time(60)
        return self.run()

    @property
    def warnings(self) -> list[str]:
        return [one.message for one in self.engine.cluster_report().warnings]


def test_other_workloads_take_the_next_flavor_until_the_time_is_over() -> None:
    world = Pools()
    assert [type(one) for one in world.fails(workload("a"))] == [Evict]
    assert world.warnings == [
        "nodes of ResourceFlavor spot did not come in time: it is not used until 2030-01-01T00:11:00Z"
    ]
    assert taken(world.asks(workload("b", created=61))) == {"b": "dear"}
    assert world.engine.due_at is not None
    world.pass_time(599)
    assert taken(world.asks(workload("c", created=600))) == {"c": "dear"}
    world.pass_time(1)
    assert world.warnings == []
    assert taken(world.asks(workload("d", created=601))) == {"d": "spot"}


@pytest.mark.parametrize(
    ("spot", "seconds", "one", "bound"),
    [
        (FlavorNodes(), 600, workload("a"), ()),
        (ELASTIC, 0, workload("a"), ()),
        (ELASTIC, 600, workload("a", pods=[pod_set(1, {GPU: 1}, node_selector=(("disk", "ssd"),))]), ()),
    ],
    ids=["its nodes do not come on demand", "it is switched off", "pods with a node selector of their own"],
)
def test_a_flavor_is_used_all_the_same(
    spot: FlavorNodes, seconds: int, one: Workload, bound: tuple[str, ...]
) -> None:
    world = Pools(spot, seconds=seconds)
    assert [type(found) for found in world.fails(one, *bound)] == [Evict]
    assert (world.warnings, taken(world.asks(workload("b", created=61)))) == ([], {"b": "spot"})


def test_pods_that_are_on_nodes_and_not_ready_say_nothing_about_nodes() -> None:
    world = Pools()
    ready = WaitForPodsReady(startup=60)
    world.tell(policy(queue("cq", groups=[group(QUOTAS)], wait_for_pods_ready=ready)))
    assert [type(found) for found in world.fails(workload("a"), "n0")] == [Evict]
    assert taken(world.asks(workload("b", created=61))) == {"b": "spot"}


def test_what_can_get_no_other_flavor_waits_with_a_reason_and_is_admitted_then() -> None:
    world = Pools()
    world.fails(workload("a"))
    world.tell(policy(queue("cq", groups=[group({"spot": {GPU: 8}})])))
    world.submit(workload("b", created=61))
    assert taken(world.run()) == {}
    reason = world.reason("b")
    assert reason is not None
    assert reason.code is Code.CAPACITY_MISSING
    assert reason.message == (
        "CapacityMissing in flavor spot, until 2030-01-01T00:11:00Z: its nodes did not come in time"
    )
    world.pass_time(600)
    assert taken(world.run())["b"] == "spot"


def test_a_flavor_that_is_out_is_not_waited_for() -> None:
    world = Pools(wait=3000)
    filler = workload("filler", gpus=8, created=0)
    world.asks(filler)
    assert taken(world.asks(workload("late", created=1))) == {}
    world.settle()
    world.tell(observed(filler, **FAILED))
    world.run()
    world.pass_time(60)
    assert taken(world.run()) == {"late": "dear"}


def test_a_newly_started_controller_knows_it_from_the_workload_that_failed() -> None:
    world = Pools()
    (evict,) = (one for one in world.fails(workload("a")) if isinstance(one, Evict))
    assert evict.past is not None
    assert (evict.past.missed, evict.past.missed_at) == (("spot",), T0 + timedelta(seconds=60))
    one = workload("a")
    stored = pending_row(one, arrival=1, attempts=1, past=evict.past)
    for since, expected in ((100, "dear"), (700, "spot")):
        engine = Engine(SOURCES, settings())
        now = T0 + timedelta(seconds=since)
        engine.restore(LedgerSnapshot(sequence=3, now=now, workloads=(stored,)))
        engine.handle([ContextObserved(Namespace("ns")), *map(policy, policies()), Listed("policies")])  # type: ignore[arg-type]
        other = workload("b", created=61)
        engine.handle([observed(other), Listed("Job", frozenset({other.id})), TimeCame(now)])
        assert violations(engine) == []
        assert taken(list(engine.decide(now).decisions)) == {"b": expected}
