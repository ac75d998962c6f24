"""Workloads whose nodes are lost (docs/scheduling.md, M12 to M14, L23)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.decisions import Decision, Evict, Release
from queuectl.core.inbox import Inbox
from queuectl.core.model.events import ContextGone, ContextObserved, Event, PodGone
from queuectl.core.model.policy import Node, NodeRules, Policy, SchedulingConfiguration, Taint
from queuectl.core.model.workload import Workload
from tests.builders import GPU, T0, admitted, flavor, group, local_queue, observed, queue
from tests.doubles import engine_state
from tests.unit.core.node_worlds import NodeWorld, excluded, gang, node, reasons

UNHEALTHY = (("GpuHealthy", "False"),)
RULES = NodeRules(unusable_conditions=UNHEALTHY, unusable_taints=("broken",), settle_seconds=0)
SETTINGS = SchedulingConfiguration(cooldown=0, nodes=RULES)


def nodes_with_two(count: int) -> NodeWorld:
    """Nodes n0, n1 and so on, with two devices each."""
    return NodeWorld(*(node(f"n{number}", 2) for number in range(count)), settings=SETTINGS)


def not_ready(name: str, world: NodeWorld) -> None:
    world.nodes(replace(node(name, 2), ready=False, ready_since=world.now))


def runs(world: NodeWorld, name: str, *where: str) -> Workload:
    """A workload that runs with one pod on each of these nodes, one device each."""
    one = gang(name, len(where))
    assert admitted(world.asks(one)) == [name]
    world.settle()
    world.tell(observed(one, suspended=False, generation=2))
    world.bind(name, *where)
    return one


def evictions(decisions: list[Decision]) -> dict[str, str]:
    return {d.ref.name: d.reason.message for d in decisions if isinstance(d, Evict)}


def test_a_workload_is_evicted_at_once_when_the_node_under_one_of_its_pods_is_deleted() -> None:
    world = nodes_with_two(4)
    runs(world, "gang", "n0", "n1")
    runs(world, "other", "n2", "n3")
    world.lose("n1")
    assert evictions(world.run()) == {"gang": "NodeFailures at Node/n1: the node is gone"}


def test_a_workload_is_evicted_when_a_node_has_not_been_ready_for_loss_seconds() -> None:
    world = nodes_with_two(4)
    runs(world, "gang", "n0", "n1")
    runs(world, "other", "n2", "n3")
    not_ready("n1", world)
    world.pass_time(59)
    assert evictions(world.run()) == {}
    world.pass_time(1)
    assert evictions(world.run()) == {"gang": "NodeFailures at Node/n1: the node is not ready"}


def test_a_node_that_is_ready_again_in_time_is_not_lost() -> None:
    world = nodes_with_two(4)
    runs(world, "gang", "n0", "n1")
    not_ready("n1", world)
    world.pass_time(59)
    world.nodes(node("n1", 2))
    world.pass_time(1000)
    assert evictions(world.run()) == {}


@pytest.mark.parametrize(
    "change",
    [{"conditions": UNHEALTHY}, {"taints": (Taint("broken", "", "NoSchedule"),)}],
    ids=["a condition", "a taint"],
)
def test_a_workload_is_evicted_at_once_from_a_node_that_is_unhealthy_by(change: dict[str, object]) -> None:
    world = nodes_with_two(4)
    runs(world, "gang", "n0", "n1")
    world.nodes(replace(node("n0", 2), **change))  # type: ignore[arg-type]
    assert evictions(world.run()) == {"gang": "NodeFailures at Node/n0: the node is unhealthy"}


def test_a_cordon_evicts_nothing() -> None:
    world = nodes_with_two(4)
    runs(world, "gang", "n0", "n1")
    world.nodes(node("n0", 2, cordoned=True))
    world.pass_time(1000)
    assert evictions(world.run()) == {}


def test_pods_that_the_scheduler_puts_on_an_unhealthy_node_later_are_left_alone() -> None:
    world = nodes_with_two(4)
    world.nodes(node("n0", 2, conditions=UNHEALTHY))
    runs(world, "gang", "n0", "n1")
    assert evictions(world.run()) == {}


def test_a_gang_of_eight_starts_elsewhere_although_pods_on_the_lost_node_never_end() -> None:
    world = NodeWorld(*(node(f"n{number}", 4) for number in range(4)), settings=SETTINGS)
    where = ["n0"] * 4 + ["n1"] * 4
    one = runs(world, "gang", *where)
    runs(world, "small", "n2")
    assert admitted(world.asks(gang("later", 8, created=5))) == []
    world.lose("n1")
    assert list(evictions(world.run())) == ["gang"]
    world.bind("gang", *where, terminating=True)
    world.end_eviction("gang")
    world.tell(observed(one, generation=3))
    assert admitted(world.run()) == [], "its pods on n0 still end"
    world.tell(*(PodGone(f"gang-{number}") for number in range(4)))
    assert admitted(world.run()) == ["gang"], "it keeps its place, before the later one"


def test_pods_that_end_on_an_unhealthy_node_are_waited_for() -> None:
    world = nodes_with_two(3)
    runs(world, "gang", "n0", "n1")
    world.nodes(node("n0", 2, conditions=UNHEALTHY))
    world.run()
    world.bind("gang", "n0", "n1", terminating=True)
    world.end_eviction("gang")
    assert not any(isinstance(d, Release) for d in world.decided)
    world.end_pods("gang", 2)
    world.run()
    assert any(isinstance(d, Release) for d in world.decided)


def test_a_lost_node_uses_no_retry_budget_no_backoff_and_no_preemption_budget() -> None:
    world = nodes_with_two(3)
    one = runs(world, "gang", "n0", "n1")
    world.lose("n1")
    (evict,) = (d for d in world.run() if isinstance(d, Evict))
    assert evict.past is not None
    assert (evict.past.failures, evict.past.barred, evict.past.until) == (0, None, None)
    assert engine_state.entry(world.engine, one.id).preempted_at == ()


def test_nothing_is_evicted_when_more_than_55_percent_of_the_nodes_of_a_flavor_are_lost_at_once() -> None:
    world = nodes_with_two(5)
    runs(world, "gang", "n0", "n1")
    for name in ("n0", "n1", "n2"):
        not_ready(name, world)
    world.pass_time(60)
    assert evictions(world.run()) == {}
    world.nodes(node("n2", 2))
    assert list(evictions(world.run())) == ["gang"], "two of five are no outage"


def test_an_outage_of_one_flavor_does_not_hide_a_lost_node_of_another() -> None:
    policies: list[Policy] = [
        flavor("a", {"gpu": "a"}),
        flavor("b", {"gpu": "b"}),
        queue("cq-a", groups=[group({"a": {GPU: 1000}})]),
        queue("cq-b", groups=[group({"b": {GPU: 1000}})]),
        local_queue("lq", "cq-a"),
        local_queue("b", "cq-b"),
    ]
    of_a = [node(f"a{number}", 2, {"gpu": "a"}) for number in range(3)]
    of_b = [node(f"b{number}", 2, {"gpu": "b"}) for number in range(3)]
    world = NodeWorld(*of_a, *of_b, policies=policies, settings=SETTINGS)
    runs(world, "on-a", "a0")
    world.submit(gang("on-b", 1, queue="b"))
    assert admitted(world.run()) == ["on-b"]
    world.bind("on-b", "b0")
    for one in (*of_a, of_b[0]):
        world.nodes(replace(one, ready=False, ready_since=world.now))
    world.pass_time(60)
    assert list(evictions(world.run())) == ["on-b"]


def test_nothing_is_evicted_when_the_last_node_is_lost_or_the_list_is_empty() -> None:
    world = nodes_with_two(2)
    runs(world, "gang", "n0", "n1")
    world.lose("n0")
    world.lose("n1")
    world.pass_time(1000)
    assert evictions(world.run()) == {}


def test_a_pod_on_a_node_that_was_never_seen_waits_for_its_node_before_it_is_lost() -> None:
    world = nodes_with_two(2)
    runs(world, "gang", "n0", "late")
    world.pass_time(0)
    world.pass_time(59)
    assert evictions(world.run()) == {}
    world.pass_time(1)
    assert evictions(world.run()) == {"gang": "NodeFailures at Node/late: the node is gone"}


def test_a_node_that_was_lost_twice_under_workloads_is_avoided_for_an_hour() -> None:
    world = nodes_with_two(3)
    for number in range(2):
        one = runs(world, f"gang-{number}", "n0")
        world.nodes(node("n0", 2, conditions=UNHEALTHY))
        assert list(evictions(world.run())) == [f"gang-{number}"]
        world.end_pods(f"gang-{number}", 1)
        world.finish(one)
        world.run()
        world.nodes(node("n0", 2))
        if number == 0:
            six = gang("six", 6)
            assert admitted(world.asks(six)) == ["six"], "lost once, it still counts"
            world.finish(six)
            world.run()
    made = world.asks(gang("again", 6))
    assert excluded(reasons(made)["again"]) == [(1, "avoided after repeated failures")]
    world.pass_time(3600)
    assert admitted(world.run()) == ["again"]


def test_two_workloads_that_one_loss_evicts_are_one_failure_of_the_node() -> None:
    world = nodes_with_two(3)
    runs(world, "one", "n0")
    runs(world, "two", "n0")
    world.nodes(node("n0", 2, conditions=UNHEALTHY))
    assert sorted(evictions(world.run())) == ["one", "two"]
    world.end_pods("one", 1)
    world.end_pods("two", 1)
    world.nodes(node("n0", 2))
    assert engine_state.room(world.engine).inventory.avoided == {}


def test_pods_of_an_evicted_workload_that_do_not_end_are_said_once_with_their_nodes() -> None:
    world = nodes_with_two(3)
    one = runs(world, "gang", "n0", "n1")
    world.tell(observed(replace(one, hold=True), suspended=False, generation=2))
    assert list(evictions(world.run())) == ["gang"]
    world.end_pods("gang", 1)
    world.pass_time(599)
    assert (world.engine.take_alarms(), world.engine.numbers()[0].value) == ([], 0)
    world.pass_time(1)
    assert [alarm.message for alarm in world.engine.take_alarms()] == [
        "was evicted, and 600 s later not all of its pods have ended: gang-1 on node n1; "
        "its quota is not released before that, unless an admin releases it by force"
    ]
    assert (world.engine.take_alarms(), world.engine.numbers()[0].value) == ([], 1)
    world.tell(PodGone("gang-1"))
    world.end_eviction("gang")
    assert world.engine.numbers()[0].value == 0


def made_again(name: str, uid: str, **changes: object) -> ContextObserved:
    return ContextObserved(replace(node(name, 2), uid=uid, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("deletion_seen", [True, False])
def test_a_node_that_is_made_again_within_a_batch_is_lost_under_the_pods_of_the_former_one(
    deletion_seen: bool,
) -> None:
    world = nodes_with_two(4)
    world.tell(*(made_again(f"n{number}", f"old-{number}") for number in range(4)))
    runs(world, "gang", "n0", "n1")
    runs(world, "other", "n1", "n2")
    inbox = Inbox()
    inbox.extend([ContextGone(Node, "n1")] * deletion_seen + [made_again("n1", "new")])
    world.tell(*inbox.events())
    lost = "NodeFailures at Node/n1: the node is gone"
    assert evictions(world.run()) == {"gang": lost, "other": lost}
    assert engine_state.room(world.engine).inventory.avoided == {}, "one loss is one failure"


def test_a_node_that_was_made_again_is_a_node_like_any_other() -> None:
    world = nodes_with_two(2)
    world.tell(made_again("n0", "old"), made_again("n0", "new"))
    runs(world, "gang", "n0")
    world.tell(made_again("n0", "new", ready=False, ready_since=world.now))
    world.tell(made_again("n0", "new"))
    assert evictions(world.run()) == {}


def test_nodes_that_register_again_in_an_outage_keep_their_pods() -> None:
    world = nodes_with_two(4)
    world.tell(*(made_again(f"n{number}", f"old-{number}") for number in range(4)))
    runs(world, "gang", "n0", "n1", "n2")
    world.tell(*(made_again(f"n{number}", f"new-{number}") for number in range(3)))
    assert evictions(world.run()) == {}


NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
CHANGES: dict[str, dict[str, object]] = {
    "unready": {"ready": False, "ready_since": T0},
    "unhealthy": {"conditions": UNHEALTHY},
}
HAPPENS = st.lists(
    st.tuples(
        st.sampled_from(NAMES[:2]), st.sampled_from(["ready", "unready", "unhealthy", "gone", "again"])
    ),
    max_size=8,
)


@given(HAPPENS)
def test_events_of_nodes_that_are_merged_lose_the_same_pods_as_one_by_one(
    happens: list[tuple[str, str]],
) -> None:
    uids, events = Counter[str](), list[Event]()
    for name, what in happens:
        uids[name] += what in ("gone", "again")
        changes = CHANGES.get(what, {})
        gone = what == "gone"
        events.append(ContextGone(Node, name) if gone else made_again(name, f"{uids[name]}", **changes))
    worlds = [NodeWorld(*(node(name, 2) for name in NAMES), settings=SETTINGS) for _ in range(2)]
    for world in worlds:
        world.tell(*(made_again(name, "0") for name in NAMES))
        runs(world, "gang", "n0", "n1")
        runs(world, "other", "n1", "n2")
    inbox = Inbox()
    inbox.extend(events)
    for event in events:
        worlds[0].tell(event)
    worlds[1].tell(*inbox.events())
    assert evictions(worlds[0].run()) == evictions(worlds[1].run())
