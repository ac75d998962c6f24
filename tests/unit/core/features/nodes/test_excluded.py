"""A reason names which nodes the pods cannot use and why, and says what waiting cannot help (M10)."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.model.policy import Node, Taint, Toleration
from queuectl.core.model.reasons import Code, Family, Reason
from queuectl.core.model.workload import Workload
from tests.builders import GPU, admitted, flavor, group, local_queue, pod_set, queue, workload
from tests.unit.core.node_worlds import NodeWorld, excluded, gang, node, reasons

A100 = {"gpu": "a100"}
FLAVOR = flavor("a100", labels=A100)
QUEUES = (queue("cq", groups=[group({"a100": {GPU: 100}})]), local_queue("lq", "cq"))
TAINT = Taint(GPU, "present", "NoSchedule")


def nodes(*found: Node, tolerations: tuple[Toleration, ...] = ()) -> NodeWorld:
    return NodeWorld(*found, policies=(replace(FLAVOR, tolerations=tolerations), *QUEUES))


def reason(world: NodeWorld, work: Workload) -> Reason:
    return reasons(world.asks(work))[work.ref.name]


def test_a_taint_is_named_with_the_nodes_that_have_it_and_waiting_does_not_help() -> None:
    world = nodes(*(node(f"n{n}", 8, A100, taints=[TAINT]) for n in range(3)))
    found = reason(world, gang("a", 1, 4))
    assert (found.code, found.family) == (Code.NO_NODE_CAN_FIT, Family.NEVER)
    why = f"with taint {GPU}=present:NoSchedule, which neither the pods nor ResourceFlavor a100 tolerate"
    assert excluded(found) == [(3, why)]
    assert found.message == (
        f"NoNodeCanFit: requests 4 {GPU} in flavor a100, 0 available, short by 4 "
        f"(bound by ResourceFlavor/a100): 0 of 1 pods fit now; not usable: 3 nodes {why}"
    )


def test_it_starts_once_the_taint_is_gone() -> None:
    world = nodes(node("n", 8, A100, taints=[TAINT]))
    assert reason(world, gang("a", 1, 4)).code is Code.NO_NODE_CAN_FIT
    world.nodes(node("n", 8, A100))
    assert admitted(world.run()) == ["a"]


def test_it_starts_once_the_flavor_tolerates_the_taint() -> None:
    world = nodes(node("n", 8, A100, taints=[TAINT]), tolerations=(Toleration(key=GPU, operator="Exists"),))
    world.submit(gang("a", 1, 4))
    assert admitted(world.run()) == ["a"]


def test_a_taint_that_kubernetes_takes_away_is_waited_for() -> None:
    taint = Taint("node.kubernetes.io/network-unavailable", "", "NoSchedule")
    found = reason(nodes(node("n", 8, A100, taints=[taint])), gang("a", 1, 4))
    assert (found.code, excluded(found)[0][0]) == (Code.CAPACITY_MISSING, 1)


def test_a_pod_that_is_larger_than_any_node_can_never_run() -> None:
    found = reason(nodes(node("a", 8, A100), node("b", 4, A100)), gang("large", 1, 9))
    assert (found.code, excluded(found)) == (Code.NO_NODE_CAN_FIT, [(2, f"with at most 8 {GPU}")])


def test_a_pod_that_is_larger_than_the_nodes_that_are_free_waits_for_the_larger_ones() -> None:
    world = nodes(node("a", 8, A100), node("b", 4, A100))
    world.submit(gang("first", 1, 8))
    assert admitted(world.run()) == ["first"]
    found = reason(world, gang("second", 1, 8))
    assert (found.code, excluded(found)) == (Code.CAPACITY_MISSING, [(1, f"with at most 4 {GPU}")])


def test_cordoned_nodes_are_counted_and_waited_for() -> None:
    found = reason(nodes(node("a", 8, A100, cordoned=True), node("b", 8, A100, cordoned=True)), gang("a", 1))
    assert (found.code, excluded(found)) == (Code.CAPACITY_MISSING, [(2, "cordoned")])


def test_a_label_that_no_node_of_the_flavor_has_is_named() -> None:
    zone_b = replace(pod_set(1, {GPU: 1}), node_selector=(("zone", "b"),))
    world = nodes(node("a", 8, {**A100, "zone": "a"}), node("b", 8, A100))
    found = reason(world, workload("a", pods=[zone_b]))
    assert (found.code, excluded(found)) == (Code.NO_NODE_CAN_FIT, [(2, "without label zone=b")])


def test_a_gang_that_is_larger_than_all_nodes_together_waits_for_more_of_them() -> None:
    found = reason(nodes(node("a", 8, A100)), gang("a", 2, 8))
    assert (found.code, excluded(found)) == (Code.CAPACITY_MISSING, [])


def test_a_flavor_without_a_node_may_get_one() -> None:
    world = nodes(node("other", 8, {"gpu": "h100"}))
    never = (one for one in reasons(world.asks(gang("a", 1, 4))).values() if one.family is Family.NEVER)
    assert list(never) == []


def test_no_autoscaler_is_asked_for_nodes_that_would_not_help() -> None:
    world = nodes(node("n", 8, A100, taints=[TAINT]))
    reason(world, gang("a", 1, 4))
    _, cluster_queues, _ = world.engine.take_reports()
    assert [one.demand for one in cluster_queues] == [()]
