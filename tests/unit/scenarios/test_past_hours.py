"""As of any time, the ledger has the state that was stored then, and an engine from it decides as then."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pytest

from queuectl.core.decisions import Admit, Evict, Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import Event, TimeCame
from queuectl.core.model.resources import FlavorResource
from queuectl.kinds.policy import policy_event
from queuectl.scenarios.anonymous import anonymous
from queuectl.scenarios.build import SOURCE
from queuectl.scenarios.dump import NoSuchTree, dump
from queuectl.scenarios.reader import read_scenarios
from queuectl.scenarios.rebuilt_engine import engine_of
from queuectl.scenarios.run import ScenarioRun
from queuectl.simulation.stage import play, read_simulation
from tests.builders import GPU
from tests.doubles import engine_state
from tests.doubles.invariants import violations
from tests.unit.answers.hours import HOUR, START, TEAMS, Hour, cluster_queue, flavors, moves
from tests.unit.core import profiles
from tests.unit.core.driver import wait_for

pytestmark = pytest.mark.acceptance

MANY = 10_000
"""Budget of one plan."""
SECONDS = HOUR / 2


def times(seed: int, count: int) -> list[datetime]:
    dice = Random(seed)
    return [START + timedelta(seconds=dice.uniform(1, SECONDS)) for _ in range(count)]


@cache
def hour(*, on_nodes: bool) -> Hour:
    played = Hour(7, times(3, 60 if on_nodes else 200), on_nodes=on_nodes, seconds=SECONDS)
    played.run()
    return played


HOURS = pytest.mark.parametrize("on_nodes", [False, True], ids=["quota", "shortage"])


def some_of(played: Hour, most: int) -> list[datetime]:
    """About that many of its times in CI, and six or more by default: at some of them little is decided."""
    stored = list(played.stored)
    return stored[:: max(1, len(stored) // max(6, profiles.examples(most)))]


def started(played: Hour, when: datetime) -> Engine:
    """A controller that starts then, on what is stored and what is in the cluster."""
    engine = Engine(frozenset({SOURCE}), played.settings)
    engine.restore(played.stored[when])
    events, now = played.there[when]
    engine.handle([*events, TimeCame(now)])
    return engine


@HOURS
def test_the_hour_is_busy(on_nodes: bool) -> None:
    played = hour(on_nodes=on_nodes)
    assert len(played.stored) > (55 if on_nodes else 190)
    assert len({one.sequence for one in played.stored.values()}) > (30 if on_nodes else 100)
    verdicts = {row.verdict for row in played.ledger.store.decisions}
    assert len(verdicts) >= (7 if on_nodes else 8), verdicts
    assert any(one.preempted_at for state in played.stored.values() for one in state.workloads)
    assert max(len(state.workloads) for state in played.stored.values()) > 30


@HOURS
def test_as_of_a_time_the_state_is_what_was_stored_then(on_nodes: bool) -> None:
    played = hour(on_nodes=on_nodes)
    for when, stored in played.stored.items():
        found = wait_for(played.ledger.at(when))
        expected = replace(stored, now=found.now, capacities=played.capacities[when])
        assert found == expected, when


def test_an_engine_from_the_ledger_decides_as_a_controller_that_starts_then() -> None:
    played = hour(on_nodes=False)
    what_if: list[Event] = [policy_event(cluster_queue("research", 40))]
    differing = 0
    for when in some_of(played, 25):
        now = when + timedelta(seconds=1)
        rebuilt, live = engine_of(wait_for(played.ledger.at(when)), played.settings), started(played, when)
        assert violations(rebuilt) == []
        assert moves(rebuilt.decide(now, MANY)) == moves(live.decide(now, MANY)), when
        for engine in (rebuilt, live):
            engine.handle([*what_if, TimeCame(now)])
        decided = moves(rebuilt.decide(now, MANY))
        assert decided == moves(live.decide(now, MANY)), when
        differing += bool(decided)
    assert 2 * differing > len(some_of(played, 25)), "the plans that are compared are almost all empty"


def test_an_engine_from_the_newest_state_shares_a_shortage_as_a_controller_that_starts_then() -> None:
    played = hour(on_nodes=True)
    what_if: list[Event] = [policy_event(cluster_queue("research", 40))]
    reduced = 0
    for when, newest in played.newest.items():
        now = when + timedelta(seconds=1)
        rebuilt, live = engine_of(newest, played.settings), started(played, when)
        for engine in (rebuilt, live):
            assert violations(engine) == []
            engine.handle([*what_if, TimeCame(now)])
        assert counting(rebuilt) == counting(live), when
        assert moves(rebuilt.decide(now, MANY)) == moves(live.decide(now, MANY)), when
        reduced += bool(engine_state.tree(live).reduced)
    assert reduced > 20, "there was hardly a shortage"


def counting(engine: Engine) -> dict[str, list[int]]:
    """What counts of the nominal quotas for GPUs of a100, by node."""
    tree = engine_state.tree(engine)
    cell = tree.cells[FlavorResource("a100", GPU)]
    return {str(node): [node.nominal[cell], node.promised[cell]] for node in tree.nodes()}


def run_of(document: dict[str, Any]) -> Engine:
    """The engine of `queuectl test` on this document, as it would be read from a file."""
    (scenario,) = read_scenarios(json.dumps(document).encode(), "dump.json")
    assert scenario.left_out == ""
    return ScenarioRun(scenario)._engine


def test_a_dump_of_any_time_decides_as_the_controller_would_have() -> None:
    played = hour(on_nodes=False)
    differing = 0
    for when in some_of(played, 25):
        snapshot = wait_for(played.ledger.at(when))
        document = dump(snapshot, played.settings, now=when)
        assert violations(run_of(document)) == []
        live = started(played, when)
        assert moves(run_of(document).decide(when, MANY)) == moves(live.decide(when, MANY)), when
        larger = cluster_queue("research", 40)
        objects = [one for one in document["objects"] if one["metadata"]["name"] != "research"]
        objects += [one for one in document["objects"] if one["kind"] in ("Namespace", "LocalQueue")]
        kept = {json.dumps(one): one for one in (*objects, larger)}
        live.handle([policy_event(larger)])
        decided = moves(run_of({**document, "objects": list(kept.values())}).decide(when, MANY))
        assert decided == moves(live.decide(when, MANY)), when
        differing += bool(decided)
    assert 2 * differing > len(some_of(played, 25)), "the plans that are compared are almost all empty"


def test_a_dump_without_names_decides_the_same_and_has_no_name() -> None:
    played = hour(on_nodes=False)
    when = list(played.stored)[120]
    named = dump(wait_for(played.ledger.at(when)), played.settings, now=when)
    document = anonymous(named)
    text = json.dumps(document)
    for name in (
        *(f'"{one}"' for one in (*TEAMS, "ada", "grace", "alone", "other")),
        "research-",
        "students-",
    ):
        assert name in json.dumps(named)
        assert name not in text, name
    plans = []
    for one in (named, document):
        queues = [obj for obj in one["objects"] if obj["kind"] == "ClusterQueue"]
        large = next(obj for obj in queues if "admissionScope" in obj["spec"])
        large["spec"]["resourceGroups"] = flavors(a100=60, spot=2)
        plans.append(run_of(one).decide(when, MANY))
    assert moves(plans[0])
    assert sizes(plans[0]) == sizes(plans[1])


def sizes(plan: Plan) -> list[object]:
    """What is admitted and evicted, in order, without names."""
    return [
        one.attempt.assignment.usage() if isinstance(one, Admit) else one.reason.cause
        for one in plan.decisions
        if isinstance(one, Admit | Evict)
    ]


def test_a_dump_of_one_tree_has_that_tree_only_and_decides_the_same_about_it() -> None:
    played = hour(on_nodes=False)
    when = list(played.stored)[100]
    snapshot = wait_for(played.ledger.at(when))
    whole = dump(snapshot, played.settings, now=when)
    for name in ("gpus", "research", "students"):
        assert dump(snapshot, played.settings, now=when, tree=name)["workloads"] == whole["workloads"]
    alone = [one for one in whole["objects"] if one["metadata"]["name"] == "alone"]
    assert alone
    document = dump(snapshot, played.settings, now=when, tree="alone")
    assert document["workloads"] == []
    assert [one["metadata"]["name"] for one in document["objects"] if one["kind"] == "ClusterQueue"] == [
        "alone"
    ]
    with pytest.raises(NoSuchTree, match="nowhere is neither a Cohort nor a ClusterQueue"):
        dump(snapshot, played.settings, now=when, tree="nowhere")


def test_a_dump_is_simulated_with_the_run_time_that_is_given() -> None:
    played = hour(on_nodes=False)
    when = list(played.stored)[100]
    snapshot = wait_for(played.ledger.at(when))
    document = dump(snapshot, played.settings, now=when, run_seconds=600)
    found = play(read_simulation(json.dumps(document).encode(), "dump.json"))
    assert found["total"]["workloads"] == len(snapshot.workloads)
