"""Nodes under several podsets, queues and trees (M)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuectl.core.decisions import Evict
from queuectl.core.model.events import WorkloadGone
from queuectl.core.model.policy import CapacityMode as Mode
from queuectl.core.model.policy import FlavorNodes, Preemption, PreemptionPolicy
from queuectl.core.model.reasons import Code
from tests.builders import (
    GPU,
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
from tests.doubles import engine_state
from tests.unit.core.node_worlds import NodeWorld, gang, node, reasons

PREEMPTS = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def test_podsets_with_selectors_on_different_labels_are_judged_together() -> None:
    one = workload(
        "one",
        pods=[
            pod_set(1, {GPU: 8}, name="p0", node_selector=(("zone", "x"),)),
            pod_set(1, {GPU: 8}, name="p1", node_selector=(("rack", "1"),)),
        ],
    )
    world = NodeWorld(node("a", 8, {"zone": "x", "rack": "2"}), node("b", 8, {"zone": "y", "rack": "1"}))
    assert admitted(world.asks(one)) == ["one"]


def test_no_room_is_looked_for_before_a_resource_has_its_flavor() -> None:
    """M1: GPUs come from `cloud`, whose nodes limit nothing. The flavor of cpu has nodes with GPUs, too."""
    world = NodeWorld(
        node("a", 1),
        policies=(
            flavor("any"),
            replace(flavor("cloud", {"pool": "cloud"}), nodes=FlavorNodes(mode=Mode.ELASTIC)),
            queue(
                "cq",
                groups=[group({"any": {"cpu": 9000}}), group({"cloud": {GPU: 9}})],
                preemption=PREEMPTS,
            ),
            local_queue("lq", "cq"),
        ),
    )
    world.tell(priority("high", 10))
    world.bind(None, "a")
    assert admitted(world.asks(workload("low", pods=[pod_set(1, {"cpu": 1})]))) == ["low"]
    pods = [pod_set(1, {"cpu": 1, GPU: 1}, name=name) for name in ("leader", "worker")]
    made = world.asks(workload("urgent", pods=pods, priority_class="high"))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == []
    assert admitted(made) == ["urgent"]


def test_a_podset_that_lacks_room_with_another_flavor_keeps_a_later_one_waiting_for_that() -> None:
    """F5, W6: the second podset needs all of f2, where the first one is while the node of f1 is full."""
    world = NodeWorld(
        node("a", 1, {"pool": "f1"}),
        node("b", 3, {"pool": "f2"}),
        policies=(
            *(flavor(name, {"pool": name}) for name in ("f1", "f2")),
            queue("cq", groups=[group({"f1": {GPU: 1}, "f2": {GPU: 3}})]),
            local_queue("lq", "cq"),
        ),
    )
    world.bind(None, "a")
    pods = [pod_set(count, {GPU: 1}, name=f"p{count}") for count in (1, 3)]
    reason = reasons(world.asks(workload("two", pods=pods)))["two"]
    assert (reason.code, reason.flavor) == (Code.CAPACITY_MISSING, "f1")
    world.end_pods(None, 1)
    assert admitted(world.run()) == ["two"]


def test_flavors_that_an_earlier_plan_tried_are_tried_again_when_room_came_since() -> None:
    """F8: the plan that goes on behind f1 finds that both podsets fit there, and nothing is reserved."""
    policies = (
        flavor("f1", {"pool": "f1"}),
        flavor("f2", {"pool": "f2"}),
        queue("cq", groups=[group({"f1": {GPU: 3}, "f2": {GPU: 0}})]),
        queue("others", groups=[group({"f1": {GPU: 9}})]),
        local_queue("lq", "cq"),
        local_queue("lo", "others"),
    )
    world = NodeWorld(node("a", 3, {"pool": "f1"}), policies=policies)
    world.bind(None, "a", gpus=2)
    world.asks(gang("waits", 1, 4, queue="lo"))  # for room, so that growth is looked for
    world.submit(workload("two", pods=[pod_set(count, {GPU: 1}, name=f"p{count}") for count in (1, 2)]))
    world.commit(world.engine.decide(world.now, 1000, 1))
    world.end_pods(None, 1)
    assert admitted(world.run()) == ["two"]


def test_room_for_the_least_count_of_a_workload_that_never_fits_in_full_requeues_it() -> None:
    """W6, F9."""
    policies = (flavor("default"), queue("cq", 2), local_queue("lq", "cq"))
    world = NodeWorld(node("a", 2), policies=policies)
    world.bind(None, "a", gpus=2)
    some = workload("some", pods=[pod_set(2, {GPU: 2}, min_count=1)])
    assert admitted(world.asks(some)) == []
    world.end_pods(None, 1)
    assert admitted(world.run()) == ["some"]


def test_what_is_tried_and_undone_is_no_growth() -> None:
    """W6: groups that might preempt are nominated again when nodes have more room, and not else."""
    policies = (
        flavor("default"),
        queue("cq", 100),
        queue("qa", 100, preemption=PREEMPTS),
        local_queue("lq", "cq"),
        local_queue("la", "qa"),
    )
    world = NodeWorld(node("a", 6), node("b", 6), policies=policies)
    world.asks(gang("large", 1, 8, queue="la"))
    sets = [pod_set(2, {GPU: 4}, name="p0"), pod_set(1, {GPU: 3}, name="p1")]
    world.asks(workload("pieces", pods=sets))
    plans = 0
    world.bind(None, "a", gpus=1)
    world.end_pods(None, 1)
    while world.engine.due:
        plan = world.engine.decide(world.now)
        world.engine.commit(plan, world.sequence)
        plans += 1
        assert plans < 5, "nominated again and again"
    assert not engine_state.room(world.engine).take_grown()


def test_a_bound_pod_that_requests_more_than_its_template_is_not_expected_again() -> None:
    """A sidecar was added when it was created (M7)."""
    enforced = flavor("default")
    enforced = replace(enforced, nodes=FlavorNodes(mode=Mode.ENFORCE))
    policies = (enforced, queue("cq", 100), local_queue("lq", "cq"))
    world = NodeWorld(node("a", 16), policies=policies)
    assert admitted(world.asks(gang("first", 1, 4))) == ["first"]
    world.bind("first", "a", gpus=5)
    assert world.free() == {"a": 11}


@pytest.mark.parametrize("mode", [Mode.STATIC, None])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_bound_pod_stands_for_none_of_another_podset_that_runs_on_other_nodes(
    mode: Mode | None, gpus: int
) -> None:
    """M7: whether nodes of its flavor limit anything or not, and whether it requests as much or more."""
    other = replace(flavor("f2", {"pool": "f2"}), nodes=FlavorNodes(mode=mode))
    quotas = group({"f1": {GPU: 100}, "f2": {GPU: 100}})
    policies = (
        flavor("f1", {"pool": "f1"}),
        other,
        queue("cq", groups=[quotas]),
        local_queue("lq", "cq"),
    )
    world = NodeWorld(node("a", 4, {"pool": "f1"}), node("b", 4, {"pool": "f2"}), policies=policies)
    sets = [
        pod_set(2, {GPU: 1}, name="p0", node_selector=(("pool", "f1"),)),
        pod_set(1, {GPU: gpus}, name="p1", node_selector=(("pool", "f2"),)),
    ]
    assert admitted(world.asks(workload("two", pods=sets))) == ["two"]
    world.bind("two", "b", gpus=gpus)
    assert world.free() == {"a": 2, "b": 4 - gpus}


def run(world: NodeWorld, name: str, where: str, local: str) -> None:
    one = gang(name, 1, 8, queue=local)
    assert admitted(world.asks(one)) == [name]
    world.settle()
    world.tell(observed(one, suspended=False, generation=2))
    world.bind(name, where, gpus=8)


def two_trees() -> NodeWorld:
    """Two nodes, and two queues without a cohort: `qa` preempts."""
    policies = (
        flavor("default"),
        queue("qa", 100, preemption=PREEMPTS),
        queue("qb", 100),
        local_queue("la", "qa"),
        local_queue("lb", "qb"),
    )
    world = NodeWorld(node("a", 8), node("b", 8), policies=policies)
    world.tell(priority("high", 10))
    return world


def test_the_room_that_a_preemptor_waits_for_is_not_given_to_another_tree() -> None:
    """M8: nodes belong to no tree."""
    world = two_trees()
    run(world, "one", "a", "la")
    run(world, "two", "b", "la")
    made = world.asks(gang("urgent", 2, 8, queue="la", priority_class="high", created=1))
    assert [d.ref.name for d in made if isinstance(d, Evict)] == ["one", "two"]
    assert admitted(world.asks(gang("other", 1, 8, queue="lb"))) == []
    world.end_pods("one", 1)
    world.end_eviction("one")
    assert world.free()["a"] == 8
    assert admitted(world.run()) == []
    world.end_pods("two", 1)
    world.end_eviction("two")
    assert admitted(world.decided) == ["one", "two", "urgent"]


def test_the_room_of_a_claim_that_ends_goes_to_another_tree() -> None:
    world = two_trees()
    run(world, "one", "a", "la")
    urgent = gang("urgent", 2, 8, queue="la", priority_class="high", created=1)
    world.asks(urgent)
    assert admitted(world.asks(gang("other", 1, 8, queue="lb"))) == []
    world.tell(WorkloadGone(urgent.id))
    assert admitted(world.run()) == ["other"]
