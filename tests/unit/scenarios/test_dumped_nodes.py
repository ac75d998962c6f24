"""Engines and dumps of a busy time on nodes: they decide with the room that there was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from queuectl.core.decisions import Plan
from queuectl.core.engine import Engine
from queuectl.core.features.feature_set import kernel_with
from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.events import ContextObserved, Event, PodObserved, PolicyObserved, TimeCame
from queuectl.core.model.policy import Node, ResourceFlavor
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import ForReaders, LedgerSnapshot
from queuectl.kinds.policy import policy_event
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.build import SOURCE
from queuectl.scenarios.dump import dump
from queuectl.scenarios.rebuilt_engine import engine_of
from queuectl.simulation.cluster import Other, SimulatedCluster
from queuectl.simulation.room_use import RoomUse
from queuectl.simulation.stage import play, read_simulation
from tests.builders import GPU
from tests.doubles import engine_state
from tests.doubles.invariants import violations
from tests.unit.answers.hours import START, Hour, cluster_queue, manifest, moves
from tests.unit.core.driver import wait_for
from tests.unit.scenarios.test_past_hours import MANY, run_of, sizes

pytestmark = pytest.mark.acceptance

SECONDS = 1_200
NODES = [
    *(
        Node(
            f"gpu-{n}",
            (("kubernetes.io/hostname", f"gpu-{n}"), ("pool", "a100")),
            amounts({GPU: 4, "cpu": 32}),
        )
        for n in range(5)
    ),
    *(Node(f"spot-{n}", (("pool", "spot"),), amounts({GPU: 2, "cpu": 32})) for n in range(2)),
]


class OnNodes(Hour):
    """With fewer devices than quota, nodes that fail, and pods of no queue."""

    def __init__(self) -> None:
        dice = Random(5)
        super().__init__(11, [START + timedelta(seconds=dice.uniform(60, SECONDS)) for _ in range(40)])
        self.now_stored: dict[datetime, LedgerSnapshot] = {}
        self._room = RoomUse()
        directory, _ = kernel_with((), self.settings)
        specs = ({"nodeLabels": {"pool": name}} for name in ("a100", "spot"))
        found = [
            policy_event(manifest("ResourceFlavor", spec["nodeLabels"]["pool"], spec=spec)) for spec in specs
        ]
        rules = [one for one in found if isinstance(one, PolicyObserved)]
        flavors = [one.value for one in rules if isinstance(one.value, ResourceFlavor)]
        self.pool = self._cluster = SimulatedCluster(NODES, flavors, directory, START)
        self.ruled(rules)
        self._engine.handle(rules)
        for node in NODES:
            self._engine.handle(self.pool.add(node, START))

    def run(self) -> None:
        at = 0.0
        while (at := at + self.dice.expovariate(1 / 60)) < SECONDS:
            what = self.dice.choice(("fail", "return", "cordon", "uncordon"))
            name = self.dice.choice(NODES).name
            self.happen(round(at * 1000), partial(self.pool.change, name, what))
        for number in range(6):
            other = Other("kube-system", f"other-{number}", 1, amounts({GPU: 1}))
            self.run_pods(self.dice.randint(0, SECONDS) * 1000, other, 300_000)
        self.play(self._arrivals(), until=SECONDS)

    def everything(self) -> list[Event]:
        room = engine_state.room(self._engine)
        nodes = [ContextObserved(one.node) for one in room.inventory.nodes() if one.node is not None]
        return [*nodes, *map(PodObserved, room.pods.values()), *super().everything()]

    def _keep(self) -> None:
        known = len(self.stored)
        if self._times and self._times[-1] < self._clock():
            self._tell_nodes()
        super()._keep()
        for when in list(self.stored)[known:]:
            self.now_stored[when] = wait_for(self.ledger.at(None))

    def _tell_nodes(self) -> None:
        found = self._engine.features.nodes.take_facts()
        assert found is not None
        told = ForReaders(nodes=found.changed, all_nodes=found.every)
        plan, batch = Plan(version=0, cycle=0, now=self.ledger.store.now or START), f"told-{len(self.stored)}"
        wait_for(self.ledger.commit(plan, (), epoch=self.epoch, batch=batch, for_readers=told))


@cache
def busy() -> OnNodes:
    played = OnNodes()
    played.run()
    return played


def started(played: Hour, when: datetime) -> Engine:
    """A controller that starts then, on what is stored and what is in the cluster."""
    engine = Engine(frozenset({SOURCE}), played.settings)
    engine.restore(played.stored[when])
    events, now = played.there[when]
    engine.handle([*events, TimeCame(now)])
    return engine


def bound(snapshot: LedgerSnapshot) -> Iterable[Any]:
    return (group for one in snapshot.nodes for group in one.pods)


def test_the_nodes_are_busy() -> None:
    states = busy().now_stored.values()
    assert len(states) > 30
    assert any(not one.node.ready for state in states for one in state.nodes if one.node is not None)
    assert any(group.workload is None for state in states for group in bound(state))
    assert any(group.terminating for state in states for group in bound(state))
    waits = {one.reason.code for state in states for one in state.workloads if one.reason is not None}
    assert waits & {Code.NO_NODE_FITS, Code.CAPACITY_MISSING}


MORE = [Node(f"new-{n}", (("pool", "a100"),), ((GPU, 4),)) for n in range(2)]


def more() -> list[Event]:
    """More quota, and more nodes."""
    return [policy_event(cluster_queue("research", 40)), *map(ContextObserved, MORE)]


def test_an_engine_from_the_ledger_finds_the_room_that_a_controller_finds() -> None:
    played, differing, blind = busy(), 0, 0
    for when, snapshot in played.now_stored.items():
        now = when + timedelta(seconds=1)
        without = engine_of(wait_for(played.ledger.at(when)), played.settings)
        found = engine_of(snapshot, played.settings)
        live = started(played, when)
        assert violations(found) == []
        for engine in (found, live, without):
            engine.handle([*more(), TimeCame(now)])
        decided = moves(found.decide(now, MANY))
        assert decided == moves(live.decide(now, MANY)), when
        differing += bool(decided)
        blind += moves(without.decide(now, MANY)) != decided
    assert differing > 10, "the plans that are compared are almost all empty"
    assert blind > 10, "nodes almost never decide anything"


def test_a_dump_with_nodes_decides_as_the_controller_would_have() -> None:
    played, differing = busy(), 0
    for when, snapshot in list(played.now_stored.items())[::3]:
        document = dump(snapshot, played.settings, now=when)
        objects = [one for one in document["objects"] if one["metadata"]["name"] != "research"]
        objects += [one for one in document["objects"] if one["kind"] in ("Namespace", "LocalQueue")]
        kept = {json.dumps(one): one for one in (*objects, cluster_queue("research", 40))}
        new = [{"name": one.name, "labels": dict(one.labels), "allocatable": {GPU: 4}} for one in MORE]
        changed = {**document, "objects": list(kept.values()), "nodes": [*document["nodes"], *new]}
        live = started(played, when)
        live.handle(more())
        engine = run_of(changed)
        assert violations(engine) == []
        decided = engine.decide(when, MANY)
        assert moves(decided) == moves(live.decide(when, MANY)), when
        differing += bool(moves(decided))
        nameless = anonymous(changed)
        for name in ("gpu-1", "spot-1", "kube-system", "hostname"):
            assert name not in json.dumps(nameless)
        assert sizes(run_of(nameless).decide(when, MANY)) == sizes(decided)
    assert differing > 5, "the plans that are compared are almost all empty"


def test_a_dump_with_nodes_is_simulated_from_where_its_pods_are() -> None:
    played = busy()
    when, snapshot = next(
        (when, one)
        for when, one in played.now_stored.items()
        if any(group.workload is None for group in bound(one)) and any(group.workload for group in bound(one))
    )
    document = dump(snapshot, played.settings, now=when, run_seconds=600)
    found = play(read_simulation(json.dumps(document).encode(), "dump.json"))
    assert found["total"]["workloads"] == len(snapshot.workloads)


def test_pods_are_dumped_where_they_decide_the_same() -> None:
    """Those of a node that is gone, of a workload that is over, with other requests than any podset."""
    when, snapshot = next(
        (when, one) for when, one in busy().now_stored.items() if any(w.attempt for w in one.workloads)
    )
    runs = next(one for one in snapshot.workloads if one.attempt is not None)
    [pods] = runs.pod_sets
    facts = (
        NodeFacts(name="gone", node=None, pods=(PodsOnNode(runs.ref.namespace, runs.id, pods.requests),)),
        NodeFacts(
            name="there",
            node=Node("there"),
            pods=(
                PodsOnNode("ns", "over", ((GPU, 1),), 2),
                PodsOnNode(runs.ref.namespace, runs.id, ((GPU, 3),)),
                PodsOnNode(runs.ref.namespace, runs.id, pods.requests, terminating=True),
            ),
        ),
    )
    document = dump(replace(snapshot, nodes=facts), busy().settings, now=when)
    assert document["nodes"][0] == {"name": "gone", "allocatable": {}, "ready": False}
    reference = f"{runs.ref.namespace}/{runs.ref.name}"
    given = [
        {key: one.get(key) for key in ("node", "count", "workload", "terminating")}
        for one in document["pods"]
    ]
    assert given == [
        {"node": "there", "count": 2, "workload": None, "terminating": True},
        {"node": "there", "count": 1, "workload": reference, "terminating": None},
        {"node": "there", "count": 1, "workload": reference, "terminating": True},
    ]
    dumped = next(one for one in document["workloads"] if one["ledger"]["id"] == runs.id)
    assert [one.get("nodes") for one in dumped["admission"]["podSets"].values()] == [["gone"]]
    room = engine_state.room(run_of(document))
    assert sorted(pod.requests for pod in room.pods.values() if pod.workload == runs.id) == sorted(
        [pods.requests, pods.requests, ((GPU, 3),)]
    )
