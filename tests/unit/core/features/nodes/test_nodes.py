"""Room on nodes beside quota (docs/scheduling.md, M)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from queuectl.core.decisions import Admit, Evict, Release
from queuectl.core.entries import Entry, Shape
from queuectl.core.features.nodes import Nodes
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.policy import (
    CapacityMode,
    FlavorNodes,
    Node,
    NodeRules,
    Preemption,
    PreemptionPolicy,
    RuntimeClass,
    SchedulingConfiguration,
    Taint,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Attempt
from tests.builders import (
    GPU,
    T0,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    priority,
    queue,
    workload,
)
from tests.unit.core.node_worlds import NodeWorld, gang, node, reasons
from tests.unit.core.room import RECLAIMS

FOUR_BY_TWO = [node(f"n{number}", 2) for number in range(4)]


def test_a_gang_is_admitted_only_if_all_its_pods_fit_on_nodes() -> None:
    world = NodeWorld(*FOUR_BY_TWO)
    made = world.asks(gang("fits", 4, 2))
    assert admitted(made) == ["fits"]
    made = world.asks(gang("waits", 1, 1))
    assert admitted(made) == []
    assert reasons(made)["waits"].code is Code.CAPACITY_MISSING


def test_pieces_that_are_too_small_are_told_with_numbers_and_the_nodes_that_come_closest() -> None:
    world = NodeWorld(node("a", 8), node("b", 8))
    world.bind(None, "a", gpus=3)
    made = world.asks(gang("wide", 2, 8))
    assert reasons(made)["wide"].message == (
        "CapacityMissing: requests 16 nvidia.com/gpu in flavor default, 13 available, short by 3 "
        "(bound by ResourceFlavor/default): 1 of 2 pods fit now; closest: b with 8 free, a with 5 free"
    )
    world.bind("x", "b", gpus=2)
    made = world.asks(gang("one", 1, 8))
    assert reasons(made)["one"].message == (
        "NoNodeFits: requests 8 nvidia.com/gpu in flavor default, 11 available "
        "(bound by ResourceFlavor/default): 0 of 1 pods fit now; closest: b with 6 free, a with 5 free"
    )


def test_eight_pods_do_not_start_on_four_nodes_with_two_free_each_if_they_need_a_whole_node() -> None:
    world = NodeWorld(*FOUR_BY_TWO)
    assert admitted(world.asks(gang("eight", 8, 1))) == ["eight"]
    world = NodeWorld(*FOUR_BY_TWO)
    assert reasons(world.asks(gang("eight", 1, 8)))["eight"].code is Code.NO_NODE_CAN_FIT
    world = NodeWorld(*(node(f"n{number}", 8) for number in range(4)))
    world.bind(None, *(f"n{number}" for number in range(4) for _ in range(6)))
    assert reasons(world.asks(gang("eight", 1, 8)))["eight"].code is Code.NO_NODE_FITS


def test_what_is_admitted_counts_before_its_pods_are_bound_and_not_twice_after() -> None:
    world = NodeWorld(node("a", 8))
    assert admitted(world.asks(gang("first", 6))) == ["first"]
    assert admitted(world.asks(gang("second", 3))) == []
    world.bind("first", *["a"] * 6)
    assert world.free() == {"a": 2}
    assert admitted(world.asks(gang("third", 2))) == ["third"]


def test_what_is_expected_follows_the_object_of_a_workload_and_the_context_of_its_pods() -> None:
    world = NodeWorld(node("a", 8))
    runs = workload("runs", pods=[pod_set(2, {GPU: 2}, runtime_class="kata")])
    world.tell(ContextObserved(RuntimeClass("kata")))
    assert admitted(world.asks(runs)) == ["runs"]
    assert world.free() == {"a": 4}
    world.tell(observed(runs, suspended=False, generation=2))
    assert world.free() == {"a": 4}
    world.tell(ContextObserved(RuntimeClass("kata", overhead=((GPU, 1),))))
    assert world.free() == {"a": 2}
    edited = replace(runs, pod_sets=(replace(runs.pod_sets[0], requests=((GPU, 1),)),))
    world.tell(observed(edited, suspended=False, generation=3))
    assert world.free() == {"a": 4}


def test_what_a_workload_holds_is_not_computed_again_when_it_is_observed_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = NodeWorld(node("a", 8))
    world.asks(one := gang("one", 2, 2))
    computed: list[str] = []
    hold = Nodes.hold

    def noted(self: Nodes, entry: Entry, attempt: Attempt, charges: Shape | None = None) -> None:
        computed.append(entry.ref.name)
        hold(self, entry, attempt, charges)

    monkeypatch.setattr(Nodes, "hold", noted)
    world.tell(observed(one, suspended=False, generation=2))
    world.run()
    world.finish(one)
    world.run()
    assert computed == []


def test_a_workload_starts_when_pods_end() -> None:
    world = NodeWorld(node("a", 8))
    world.bind(None, *["a"] * 4)
    assert admitted(world.asks(gang("waits", 6))) == []
    world.end_pods(None, 1)
    assert admitted(world.run()) == []
    world.end_pods(None, 2)
    assert admitted(world.run()) == ["waits"]


def test_a_finished_workload_leaves_its_room_when_its_pods_are_gone() -> None:
    world = NodeWorld(node("a", 8))
    first = gang("first", 8)
    world.asks(first)
    world.bind("first", *["a"] * 8)
    assert admitted(world.asks(gang("next", 8, created=1))) == []
    world.finish(first)
    assert admitted(world.run()) == []
    world.end_pods("first", 8)
    assert admitted(world.run()) == ["next"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cordoned": True}, Code.CAPACITY_MISSING),
        ({"ready": False}, Code.CAPACITY_MISSING),
        ({"taints": (Taint("broken", "", "NoSchedule"),)}, Code.NO_NODE_CAN_FIT),
        ({"conditions": (("GpuHealthy", "False"),)}, Code.CAPACITY_MISSING),
    ],
    ids=[
        "cordoned",
        "not ready",
        "with a taint that is not tolerated",
        "with a condition that the admin names",
    ],
)
def test_a_node_does_not_count_while_it_is(change: dict[str, object], code: Code) -> None:
    rules = NodeRules(unusable_conditions=(("GpuHealthy", "False"),))
    world = NodeWorld(node("a", 8), settings=SchedulingConfiguration(nodes=rules))
    world.nodes(replace(node("a", 8), **change))  # type: ignore[arg-type]
    assert reasons(world.asks(gang("waits", 1)))["waits"].code is code
    world.nodes(node("a", 8))
    assert admitted(world.run()) == ["waits"]


def test_a_node_that_was_lost_counts_again_when_it_has_been_ready_for_some_time() -> None:
    world = NodeWorld(node("a", 8))
    flapped = replace(node("a", 8), created_at=T0 - timedelta(days=1), ready_since=T0)
    world.nodes(flapped)
    assert admitted(world.asks(gang("waits", 1))) == []
    world.pass_time(29)
    assert admitted(world.run()) == []
    world.pass_time(1)
    assert admitted(world.run()) == ["waits"]


def test_no_nodes_limit_nothing() -> None:
    world = NodeWorld(node("a", 0))
    world.lose("a")
    assert admitted(world.asks(gang("one", 8, 8))) == ["one"]


def test_when_the_last_node_is_gone_what_waited_for_room_starts() -> None:
    world = NodeWorld(node("a", 2))
    assert admitted(world.asks(gang("one", 8, 8))) == []
    world.lose("a")
    assert admitted(world.run()) == ["one"]


@pytest.mark.parametrize(
    ("nodes", "limited"),
    [
        (FlavorNodes(), True),
        (FlavorNodes(mode=CapacityMode.STATIC), False),
        (FlavorNodes(mode=CapacityMode.OBSERVE), False),
        (FlavorNodes(mode=CapacityMode.ELASTIC), False),
        (FlavorNodes(mode=CapacityMode.ENFORCE), True),
        (FlavorNodes(mode=CapacityMode.STATIC, modes=((GPU, CapacityMode.ENFORCE),)), True),
        (FlavorNodes(modes=((GPU, CapacityMode.OBSERVE),)), False),
    ],
    ids=[
        "by default",
        "Static",
        "Observe",
        "Elastic",
        "Enforce",
        "Enforce for devices",
        "Observe for devices",
    ],
)
def test_nodes_limit_devices(nodes: FlavorNodes, limited: bool) -> None:
    policies = (replace(flavor("default"), nodes=nodes), queue("cq", 100), local_queue("lq", "cq"))
    world = NodeWorld(node("a", 2), policies=policies)
    assert admitted(world.asks(gang("three", 3))) == ([] if limited else ["three"])


def test_a_device_that_no_node_has_is_not_limited_by_default() -> None:
    world = NodeWorld(Node("cpu-only", (), (("cpu", 4000),)))
    assert admitted(world.asks(gang("one", 8))) == ["one"]


def test_with_enforce_a_device_that_no_node_has_is_missing() -> None:
    enforce = replace(flavor("default"), nodes=FlavorNodes(mode=CapacityMode.ENFORCE))
    policies = (enforce, queue("cq", 100), local_queue("lq", "cq"))
    world = NodeWorld(Node("cpu-only", (), (("cpu", 4000),)), policies=policies)
    assert reasons(world.asks(gang("one", 8)))["one"].code is Code.CAPACITY_MISSING


def test_headroom_stays_free() -> None:
    kept = replace(flavor("default"), nodes=FlavorNodes(headroom=((GPU, 2),)))
    world = NodeWorld(node("a", 8), policies=(kept, queue("cq", 100), local_queue("lq", "cq")))
    assert admitted(world.asks(gang("seven", 7))) == []
    assert admitted(world.asks(gang("six", 6, created=1))) == ["six"]


def test_a_pod_goes_only_to_nodes_with_the_labels_of_its_flavor_and_of_its_selector() -> None:
    policies = (
        flavor("a100", {"gpu": "a100"}),
        queue("cq", groups=[group({"a100": {GPU: 100}})]),
        local_queue("lq", "cq"),
    )
    world = NodeWorld(
        node("here", 2, {"gpu": "a100", "zone": "x"}),
        node("there", 4, {"gpu": "a100", "zone": "y"}),
        node("other", 8, {"gpu": "t4"}),
        policies=policies,
    )
    in_x = workload("in-x", pods=[pod_set(3, {GPU: 1}, node_selector=(("zone", "x"),))])
    assert reasons(world.asks(in_x))["in-x"].available == 2
    assert admitted(world.asks(gang("anywhere", 6, created=1))) == ["anywhere"]


def test_the_next_flavor_is_tried_where_the_first_has_quota_and_no_room() -> None:
    policies = (
        flavor("spot", {"pool": "spot"}),
        flavor("reserved", {"pool": "reserved"}),
        queue("cq", groups=[group({"spot": {GPU: 100}, "reserved": {GPU: 100}})]),
        local_queue("lq", "cq"),
    )
    world = NodeWorld(node("s", 2, {"pool": "spot"}), node("r", 8, {"pool": "reserved"}), policies=policies)
    made = world.asks(gang("one", 1, 4))
    assert admitted(made) == ["one"]
    assert world.free() == {"s": 2, "r": 4}


PREEMPTS = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def contested(*nodes: Node) -> NodeWorld:
    queues = (queue("cq", 100, cohort="c", preemption=PREEMPTS), queue("cq2", 100, cohort="c"))
    locals_ = (local_queue("lq", "cq"), local_queue("lq2", "cq2"))
    world = NodeWorld(*nodes, policies=(flavor("default"), *queues, *locals_))
    world.tell(priority("high", 10))
    return world


def run(world: NodeWorld, name: str, pods: int, gpus: int, *where: str) -> None:
    one = gang(name, pods, gpus)
    assert admitted(world.asks(one)) == [name]
    world.settle()
    world.tell(observed(one, suspended=False, generation=2))
    world.bind(name, *where, gpus=gpus)


def test_a_workload_preempts_for_room_and_takes_only_what_makes_room_for_it() -> None:
    world = contested(node("a", 8), node("b", 8))
    world.bind(None, "b", gpus=4)
    run(world, "helps", 1, 4, "a")
    world.pass_time(1)
    run(world, "newer", 1, 4, "b")
    made = world.asks(gang("urgent", 1, 8, priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["helps"]


def test_no_workload_is_evicted_for_one_that_could_not_be_placed_then() -> None:
    world = contested(node("a", 8), node("b", 8))
    run(world, "low", 2, 4, "a", "b")
    world.bind(None, "a", "b", gpus=1)
    made = world.asks(gang("urgent", 1, 8, priority_class="high", created=1))
    assert [d for d in made if isinstance(d, Evict)] == []
    assert reasons(made)["urgent"].code is Code.CAPACITY_MISSING


def test_a_preemptor_waits_for_the_pods_of_its_victims_and_takes_no_others() -> None:
    world = contested(node("a", 8), node("b", 8))
    run(world, "one", 1, 8, "a")
    run(world, "two", 1, 8, "b")
    made = world.asks(gang("urgent", 1, 8, priority_class="high", created=1))
    (gone,) = [d.ref.name for d in made if isinstance(d, Evict)]
    world.end_eviction(gone)
    assert [d for d in world.run() if isinstance(d, Admit | Release)] == []
    world.end_pods(gone, 1)
    made = world.run()
    assert admitted(made) == ["urgent"]
    assert [d for d in made if isinstance(d, Evict)] == []


def test_what_a_preemptor_waits_for_is_not_given_to_others() -> None:
    world = contested(node("a", 8), node("b", 8))
    run(world, "one", 1, 8, "a")
    run(world, "two", 1, 8, "b")
    world.asks(gang("urgent", 2, 8, priority_class="high", created=1))
    world.end_pods("one", 1)
    world.end_eviction("one")
    assert world.free()["a"] == 8
    assert admitted(world.asks(gang("late", 1, 1, created=2))) == []


def test_a_workload_does_not_start_that_may_be_bound_where_a_preemptor_needs_all_that_is_free() -> None:
    world = contested(node("a", 8), node("b", 8))
    world.bind(None, "b", gpus=7)
    run(world, "low", 1, 4, "a")
    world.asks(gang("urgent", 1, 8, priority_class="high", created=1))
    made = world.asks(gang("late", 1, 1, queue="lq2", created=2))
    assert admitted(made) == []
    assert reasons(made)["late"].reserved
    world.end_pods("low", 1)
    world.end_eviction("low")
    assert admitted(world.decided) == ["low", "urgent", "late"]


def test_a_workload_starts_beside_a_preemptor_whose_pods_fit_wherever_it_is_bound() -> None:
    world = contested(node("a", 8), node("b", 8))
    run(world, "low", 1, 6, "a")
    run(world, "other", 1, 8, "b")
    made = world.asks(gang("urgent", 1, 4, priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["low"]
    assert admitted(world.asks(gang("late", 1, 2, queue="lq2", created=2))) == ["late"]


def test_no_victim_is_taken_for_room_that_pods_leave_that_end_already() -> None:
    world = contested(node("a", 8))
    world.bind(None, "a", gpus=4, terminating=True)
    run(world, "low", 1, 4, "a")
    made = world.asks(gang("urgent", 1, 4, priority_class="high", created=1))
    assert [d for d in made if isinstance(d, Evict)] == []
    world.end_pods(None, 1)
    assert admitted(world.run()) == ["urgent"]


def test_a_preemptor_whose_victims_make_no_room_is_nominated_when_a_node_counts_again() -> None:
    """W6: quota and room both lack, and the reason says quota."""
    queues = [queue(name, 1, cohort="c", preemption=RECLAIMS) for name in ("qa", "qb")]
    locals_ = (local_queue("lq", "qa"), local_queue("lq2", "qb"))
    world = NodeWorld(node("a", 2), policies=(flavor("default"), *queues, *locals_))
    run(world, "own", 1, 1, "a")
    run(world, "borrows", 1, 1, "a")
    world.nodes(node("a", 2, cordoned=True))
    made = world.asks(gang("reclaims", 1, queue="lq2"))
    assert reasons(made)["reclaims"].code is Code.WAITING_FOR_QUOTA
    world.nodes(node("a", 2))
    assert [d.ref.name for d in world.run() if isinstance(d, Evict)] == ["borrows"]


@pytest.mark.parametrize("budget", [1, 2, 1000])
def test_equal_workloads_get_the_reason_of_a_head_that_is_nominated_when_another_one_ends(
    budget: int,
) -> None:
    policies = (flavor("default"), queue("cq", 3), local_queue("lq", "cq"))
    world = NodeWorld(node("a", 4), policies=policies)
    run(world, "ends", 1, 1, "a")
    for name in ("first", "second"):
        made = world.asks(gang(name, 1, 3))
        assert reasons(made)[name].code is Code.WAITING_FOR_QUOTA
    world.nodes(node("a", 4, cordoned=True))
    world.finish(gang("ends", 1, 1))
    world.run(budget)
    codes = [reason.code for name in ("first", "second") if (reason := world.reason(name))]
    assert codes == [Code.CAPACITY_MISSING] * 2


def test_nodes_are_expected_to_fill_evenly() -> None:
    world = NodeWorld(*FOUR_BY_TWO)
    world.asks(gang("spread", 4, 1))
    assert world.free() == dict.fromkeys(("n0", "n1", "n2", "n3"), 1)


def test_a_gang_of_unequal_pods_needs_room_for_all_of_them_together() -> None:
    both = workload("both", pods=[pod_set(1, {GPU: 2}, name="launcher"), pod_set(2, {GPU: 8}, name="worker")])
    world = NodeWorld(node("a", 8), node("b", 8), node("c", 2))
    assert admitted(world.asks(both)) == ["both"]
    world = NodeWorld(node("a", 9), node("b", 9))
    reason = reasons(world.asks(both))["both"]
    assert (reason.code, reason.detail) == (
        Code.NO_NODE_FITS,
        "each of its podsets fits, but not all of them together",
    )
