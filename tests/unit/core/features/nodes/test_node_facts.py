"""What readers are told of nodes, and engines that are made from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Configure, Plan
from queuectl.core.engine import Engine
from queuectl.core.features.nodes.facts import take_facts, with_unmanaged
from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.events import ContextObserved, PodGone, PodObserved, PolicyObserved, TimeCame
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Namespace
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import ForReaders, LedgerSnapshot, WorkloadId
from queuectl.scenarios.rebuilt_engine import engine_of
from tests.builders import GPU
from tests.doubles import engine_state
from tests.doubles.engine_state import free_on_nodes
from tests.doubles.invariants import violations
from tests.unit.core import profiles
from tests.unit.core.actions import JOBS, SCRIPT_ON_NODES, SETUP, on_nodes, play, random_event, submit_some
from tests.unit.core.driver import Driver, wait_for
from tests.unit.core.features.devices.test_devices import OWN, gpus, other, slice_
from tests.unit.core.features.devices.test_devices import world as devices_on_two_nodes
from tests.unit.core.features.nodes.test_node_loss import (
    RULES,
    SETTINGS,
    UNHEALTHY,
    evictions,
    nodes_with_two,
    runs,
)
from tests.unit.core.node_worlds import NodeWorld, gang, node
from tests.unit.core.plans import Law, When, meaning, moves
from tests.unit.core.trees import Dice


def told(world: NodeWorld) -> dict[str, NodeFacts]:
    found = world.engine.features.nodes.take_facts()
    assert found is not None
    return {one.name: one for one in found.changed}


def test_nothing_is_told_before_all_is_listed() -> None:
    engine = Engine(frozenset({"policies"}))
    engine.handle([ContextObserved(node("a"))])
    assert engine.features.nodes.take_facts() is None


def test_all_nodes_are_told_once_and_then_those_that_changed() -> None:
    world = NodeWorld(node("a"), node("b"), node("c"))
    first = world.engine.features.nodes.take_facts()
    assert first is not None
    assert first.every is not None
    assert sorted(first.every) == ["a", "b", "c"]
    assert [one.node for one in first.changed] == [node("a"), node("b"), node("c")]
    world.nodes(node("b", cordoned=True), node("c"))
    later = world.engine.features.nodes.take_facts()
    assert later is not None
    assert later.every is None
    assert later.changed == (NodeFacts(name="b", node=node("b", cordoned=True)),)
    assert told(world) == {}


def test_nodes_that_changed_first_are_told_first() -> None:
    world = NodeWorld(*(node(f"n{number}") for number in range(5)))
    room = engine_state.room(world.engine)
    assert [len(take_facts(room, 2).changed) for _ in range(4)] == [2, 2, 1, 0]
    for name in ("n3", "n1", "n2", "n3"):
        world.bind(f"pod-of-{name}", name)
        world.end_pods(f"pod-of-{name}", 1)
    assert [one.name for one in take_facts(room, 2).changed] == ["n1", "n3"]
    assert [one.name for one in take_facts(room, 2).changed] == ["n2"]


def test_equal_pods_of_a_workload_are_one_item_and_unmanaged_ones_are_summed_by_namespace() -> None:
    world = NodeWorld(node("a"))
    world.asks(gang("job", 3))
    world.bind("job", "a", "a")
    world.bind(None, "a", "a", gpus=2)
    kube = Pod(uid="k", namespace="kube-system", name="k", node="a", requests=(("cpu", 100),))
    world.tell(PodObserved(kube), PodObserved(replace(kube, uid="l", terminating=True)))
    assert told(world)["a"].pods == (
        PodsOnNode("kube-system", None, (("cpu", 100),)),
        PodsOnNode("kube-system", None, (("cpu", 100),), terminating=True),
        PodsOnNode("ns", None, ((GPU, 4),)),
        PodsOnNode("ns", "uid-job", ((GPU, 1),), 2),
    )
    world.tell(PodObserved(replace(kube, terminating=True)))
    assert told(world)["a"].pods[0] == PodsOnNode("kube-system", None, (("cpu", 200),), terminating=True)


def test_pods_that_are_not_bound_are_told_with_the_nodes_where_they_are_expected() -> None:
    world = NodeWorld(node("a", 2), node("b", 1))
    world.asks(gang("job", 3))
    id = WorkloadId("uid-job")
    found = world.engine.features.nodes.expected(id)
    assert sorted(where for where, _ in found) == ["a", "a", "b"]
    assert {dict(requests)[GPU] for _, requests in found} == {1}
    world.bind("job", "a", "a")
    assert [where for where, _ in world.engine.features.nodes.expected(id)] == ["b"]
    world.bind("job", "a", "a", "b")
    assert world.engine.features.nodes.expected(id) == []
    assert world.engine.features.nodes.expected(WorkloadId("uid-unknown")) == []


def test_devices_of_slices_and_what_claims_hold_of_them_are_told_as_amounts() -> None:
    world = devices_on_two_nodes(slice_("a", *gpus(4)))
    told(world)
    world.tell(other("claims", OWN))
    held = amounts({"cpu": 100, GPU: 1})
    assert told(world)["n"].pods == (PodsOnNode("ns", None, held),)
    world.tell(ContextObserved(slice_("a", *gpus(3), generation=2)))
    found = told(world)["n"].node
    assert found is not None
    assert dict(found.allocatable)[GPU] == 3


def test_pods_of_workloads_that_an_engine_does_not_have_become_unmanaged() -> None:
    pods = (
        PodsOnNode("ns", None, (("cpu", 5), (GPU, 1))),
        PodsOnNode("ns", "mine", ((GPU, 1),), 2),
        PodsOnNode("ns", "theirs", ((GPU, 1),), 2, terminating=True),
        PodsOnNode("ns", "theirs", ((GPU, 2),), 3),
    )
    facts = NodeFacts(name="a", node=node("a", 16), pods=pods)
    assert with_unmanaged(facts, {"others"}) is facts
    assert with_unmanaged(facts, {"theirs"}).pods == (
        PodsOnNode("ns", None, (("cpu", 5), (GPU, 7))),
        PodsOnNode("ns", None, ((GPU, 2),), terminating=True),
        PodsOnNode("ns", "mine", ((GPU, 1),), 2),
    )


def test_a_node_is_told_to_be_gone_once_no_pod_is_on_it() -> None:
    world = NodeWorld(node("a"), node("b"))
    world.bind(None, "a")
    told(world)
    world.lose("a")
    assert told(world)["a"] == NodeFacts(name="a", node=None, pods=(PodsOnNode("ns", None, ((GPU, 1),)),))
    world.end_pods(None, 1)
    [gone] = told(world).values()
    assert gone.gone


def states(engine: Engine) -> dict[str, NodeState]:
    return {one.name: one.state for one in engine_state.room(engine).inventory.nodes()}


def test_an_engine_that_is_made_from_them_knows_what_settles_and_what_is_avoided_and_until_when() -> None:
    world = nodes_with_two(3)
    for number in range(2):
        one = runs(world, f"gang-{number}", "n0")
        world.nodes(node("n0", 2, conditions=UNHEALTHY))
        assert list(evictions(world.run())) == [f"gang-{number}"]
        world.end_pods(f"gang-{number}", 1)
        world.finish(one)
        world.run()
        world.nodes(node("n0", 2))
    old = world.now - timedelta(days=1)
    world.nodes(replace(node("n1", 2), created_at=old, ready_since=world.now - timedelta(seconds=20)))
    facts = tuple(told(world).values())
    settings = replace(SETTINGS, nodes=replace(RULES, settle_seconds=30))
    engine = engine_of(LedgerSnapshot(sequence=0, now=world.now, nodes=facts), settings)
    avoided, settling, ready = NodeState.AVOIDED, NodeState.SETTLING, NodeState.READY
    assert states(engine) == {"n0": avoided, "n1": settling, "n2": ready}
    engine.handle([TimeCame(world.now + timedelta(seconds=10))])
    assert states(engine) == {"n0": avoided, "n1": ready, "n2": ready}
    engine.handle([TimeCame(world.now + timedelta(seconds=3600))])
    assert states(engine) == {"n0": ready, "n1": ready, "n2": ready}


def rebuilt(running: Driver) -> Engine:
    """An engine from the rows alone. Test policies have no specs that can be parsed: they are given to it."""
    engine = engine_of(replace(wait_for(running.ledger.at(None)), configs=()), running.setup.settings)
    rules = (
        event
        for event in running.everything()
        if isinstance(event, PolicyObserved)
        or (isinstance(event, ContextObserved) and isinstance(event.value, Namespace))
    )
    engine.handle([*rules, TimeCame(running.now)])
    assert violations(engine) == []
    return engine


def tell_nodes(driver: Driver) -> None:
    """Tell readers of the nodes that have changed."""
    found = driver.engine.features.nodes.take_facts()
    assert found is not None
    driver.batch += 1
    told = ForReaders(nodes=found.changed, all_nodes=found.every)
    plan, batch = Plan(version=0, cycle=0, now=driver.now), f"told-{driver.batch}"
    wait_for(driver.ledger.commit(plan, (), epoch=driver.epoch, batch=batch, for_readers=told))


def decided(engine: Engine, now: datetime) -> list[Counter[str]]:
    """Plan by plan what is decided until nothing is left to decide, but for policy."""
    found = []
    for first in range(1, 5000, 100):
        plan = engine.decide(now, 10_000)
        if not plan.decisions and not plan.more:
            break
        engine.commit(plan, first)
        others = tuple(one for one in plan.decisions if not isinstance(one, Configure))
        found.append(meaning(replace(plan, decisions=others)))
    return [one for one in found if one]


def at_rest(made: bytes, jobs: list[bytes], script: list[bytes]) -> Driver:
    running = on_nodes(made, Law("readers are told after each action", When.ACTION, tell_nodes))
    play(running, jobs, script).come_to_rest()
    running.now += timedelta(seconds=100)
    running.come_to_rest()
    tell_nodes(running)
    return running


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT_ON_NODES, st.binary(min_size=28, max_size=28))
def test_an_engine_from_the_ledger_decides_on_nodes_as_a_controller_that_starts(
    made: bytes, jobs: list[bytes], script: list[bytes], late: bytes
) -> None:
    running = at_rest(made, jobs, script)
    from_rows, started = rebuilt(running), running.fresh()
    assert free_on_nodes(from_rows) == free_on_nodes(running.engine)
    started.handle([TimeCame(running.now)])
    event = random_event(running, Dice(late))
    # Rows have no identity of pods of others: that one has ended is told as the facts of its node.
    events = [event] if event is not None and not isinstance(event, PodGone) else []
    for engine in (from_rows, started):
        engine.handle(events)
    assert decided(from_rows, running.now) == decided(started, running.now)


@profiles.sequences(100)
@given(SETUP, JOBS, SCRIPT_ON_NODES, JOBS)
def test_an_engine_from_the_ledger_admits_on_nodes_what_the_running_one_admits(
    made: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]
) -> None:
    running = at_rest(made, jobs, script)
    other = rebuilt(running)
    assert moves(other.decide(running.now, 10_000)) == []
    for one in late:
        submit_some(running, Dice(one))
    events, running.watch = running.watch, []
    for engine in (running.engine, other):
        engine.handle(events)
    assert moves(other.decide(running.now, 10_000)) == moves(running.engine.decide(running.now, 10_000))
