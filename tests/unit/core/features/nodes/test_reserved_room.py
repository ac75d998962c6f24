"""Where pods are expected while others are tried, and room that claims of several trees reserve (M7, M8)."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.decisions import Evict
from queuectl.core.model.events import PodsCounted
from queuectl.core.model.policy import CapacityMode, FlavorNodes, Node, Preemption, PreemptionPolicy
from queuectl.core.model.workload import WorkloadId
from tests.builders import (
    GPU,
    admitted,
    flavor,
    group,
    local_queue,
    observed,
    pod_set,
    policy,
    priority,
    queue,
    workload,
)
from tests.unit.core.node_worlds import NodeWorld, gang, node, reasons

PREEMPTS = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def two_trees(*nodes: Node) -> NodeWorld:
    """Two queues without a cohort: `q1`, which is decided first, and `q2`, which preempts."""
    policies = (
        flavor("default"),
        queue("q1", 100),
        queue("q2", 100, preemption=PREEMPTS),
        local_queue("l1", "q1"),
        local_queue("l2", "q2"),
    )
    world = NodeWorld(*nodes, policies=policies)
    world.tell(priority("high", 10))
    return world


def run(world: NodeWorld, name: str, local: str, gpus: int, *where: str) -> None:
    """A workload of one pod is admitted, and runs; without `where` its pod is not bound yet."""
    one = gang(name, 1, gpus, queue=local)
    assert admitted(world.asks(one)) == [name]
    world.settle()
    world.tell(observed(one, suspended=False, generation=2))
    world.bind(name, *where, gpus=gpus)


def test_what_the_plan_admits_is_moved_with_what_is_expected_when_a_victim_is_tried_away() -> None:
    """Else two are counted in one place, and room elsewhere seems free: `low` was evicted in vain."""
    world = two_trees(node("a", 4), node("b", 6))
    run(world, "low", "l2", 1, "a")
    run(world, "expected", "l1", 4)
    world.submit(gang("first", 4, 1, queue="l1", created=1))
    made = world.asks(gang("urgent", 1, 3, queue="l2", priority_class="high", created=1))
    assert admitted(made) == ["first"]
    assert [d for d in made if isinstance(d, Evict)] == []


def test_room_of_a_released_workload_is_its_preemptors_in_the_same_plan() -> None:
    world = two_trees(node("a", 9))
    run(world, "low", "l2", 8)
    made = world.asks(gang("urgent", 1, 9, queue="l2", priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["low"]
    world.settle(generation=3)
    world.run()
    world.submit(gang("late", 1, 1, queue="l1", created=2))
    world.tell(PodsCounted(WorkloadId("uid-low"), 1, alive=False))
    assert admitted(world.run()) == ["urgent"]


def test_preemptors_of_two_trees_whose_victims_end_together_do_not_take_each_others_room() -> None:
    """M8: `small` would fit on either node, `large` on the second alone. Both start."""
    world = two_trees(node("a", 1), node("b", 2))
    world.tell(policy(queue("q1", 1, preemption=PREEMPTS)))
    run(world, "low", "l1", 1, "a")
    run(world, "other", "l2", 1, "b")
    world.asks(gang("small", 1, 1, queue="l1", priority_class="high", created=1))
    made = world.asks(gang("large", 1, 2, queue="l2", priority_class="high", created=2))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["other"]
    world.end_pods("low", 1)
    world.end_pods("other", 1)
    world.settle(generation=3)
    world.run()
    world.tell(*(PodsCounted(WorkloadId(f"uid-{name}"), 1, alive=False) for name in ("low", "other")))
    assert sorted(admitted(world.run())) == ["large", "small"]


def test_a_workload_of_another_tree_does_not_start_where_a_preemptor_needs_all_that_is_free() -> None:
    world = two_trees(node("a", 8), node("b", 8))
    world.bind(None, "b", gpus=7)
    run(world, "low", "l2", 4, "a")
    world.asks(gang("urgent", 1, 8, queue="l2", priority_class="high", created=1))
    made = world.asks(gang("late", 1, 1, queue="l1", created=2))
    assert admitted(made) == []
    assert reasons(made)["late"].reserved
    world.end_pods("low", 1)
    world.end_eviction("low")
    assert admitted(world.decided) == ["low", "urgent", "late"]


def test_each_node_that_a_claim_reserves_counts() -> None:
    """M8: `late` might be bound to `b`, and not to `a`, the first one that the claim reserves."""
    world = two_trees(node("a", 9), node("b", 8), node("c", 1))
    run(world, "low", "l2", 8, "a")
    made = world.asks(gang("urgent", 2, 8, queue="l2", priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["low"]
    assert admitted(world.asks(gang("late", 1, 1, queue="l1", created=2))) == []


def test_room_that_a_victim_was_expected_in_is_free_for_the_scheduler() -> None:
    """M8: no pod of `low` is bound, so that one of `late` may be, on the node that the claim needs."""
    world = two_trees(node("a", 8), node("b", 8))
    world.bind(None, "b", gpus=6)
    run(world, "low", "l2", 7)
    made = world.asks(gang("urgent", 1, 8, queue="l2", priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["low"]
    assert admitted(world.asks(gang("late", 1, 1, queue="l1", created=2))) == []


def test_pods_that_fit_only_packed_are_expected_so_and_their_room_is_not_given_away() -> None:
    world = two_trees(node("a", 3), node("b", 1), node("c", 6), node("d", 2))
    for name, gpus in (("one", 2), ("two", 2), ("three", 3), ("four", 2)):
        assert admitted(world.asks(gang(name, 1, gpus, queue="l1"))) == [name]
    world.nodes(node("d", 2, cordoned=True))
    assert admitted(world.asks(gang("last", 2, 1, queue="l1"))) == []


def test_devices_count_before_other_resources_in_what_takes_most() -> None:
    """M7. Else the pod that takes cpu is expected first, and the larger one finds no node."""
    limits = replace(flavor("default"), nodes=FlavorNodes(mode=CapacityMode.ENFORCE))
    quotas = group({"default": {GPU: 100, "cpu": 100}})
    policies = (limits, queue("cq", groups=[quotas]), local_queue("lq", "cq"))
    world = NodeWorld(node("a", 4), node("b", 3), policies=policies)
    for name, requests in (("large", {GPU: 4}), ("small", {GPU: 1, "cpu": 2})):
        assert admitted(world.asks(workload(name, pods=[pod_set(1, requests)]))) == [name]
    assert world.free() == {"a": 0, "b": 2}
