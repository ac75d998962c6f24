"""What readers see of nodes: by flavor, what there is, who uses it, what is free, and what waits."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.features.nodes.facts import MOST_NAMESPACES
from queuectl.core.model.capacity import (
    AwaitedLimit,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    PodDemand,
)
from queuectl.core.model.events import PodGone, PodObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import CapacityMode, FlavorNodes, Taint, Toleration
from queuectl.core.model.resources import amounts
from queuectl.core.model.workload import WorkloadId
from tests.builders import GPU, flavor, group, local_queue, queue
from tests.doubles.invariants import violations
from tests.unit.core.node_worlds import NodeWorld, gang, node

A100, H100 = {"gpu": "a100"}, {"gpu": "h100"}
A100_FLAVOR = flavor("a100", labels=A100)
POLICIES = (
    A100_FLAVOR,
    flavor("h100", labels=H100),
    queue("cq", groups=[group({"a100": {GPU: 16}, "h100": {GPU: 8}})]),
    local_queue("lq", "cq"),
)


def capacities(world: NodeWorld) -> dict[str, FlavorCapacity]:
    found = world.engine.features.nodes.take_capacities()
    assert found is not None
    return {one.flavor: one for one in found}


def gpus(world: NodeWorld, name: str) -> FlavorResourceCapacity:
    return gpus_of(capacities(world)[name])


def pod(name: str, where: str | None, count: int = 1, namespace: str = "ns") -> Pod:
    return Pod(uid=name, namespace=namespace, name=name, node=where, requests=amounts({GPU: count}))


def test_nodes_are_summed_by_flavor_and_state() -> None:
    world = NodeWorld(
        node("a", 8, A100),
        node("b", 8, A100, cordoned=True),
        node("c", 4, H100, ready=False),
        node("d", 2),
        policies=POLICIES,
    )
    found = capacities(world)
    assert found["a100"].nodes == (("Ready", 1), ("Cordoned", 1))
    [a100] = found["a100"].resources
    assert a100.allocatable == (("Ready", 8), ("Cordoned", 8))
    assert (a100.free, a100.shapes) == (8, (FreeNodes(8, 1),))
    [h100] = found["h100"].resources
    assert (h100.allocatable, h100.free, h100.shapes) == ((("NotReady", 4),), 0, ())
    [stray] = found[""].resources
    assert found[""].nodes == (("Ready", 1),)
    assert stray.allocatable == (("Ready", 2),)


def test_use_is_told_apart_by_workloads_and_by_namespaces_of_other_pods() -> None:
    world = NodeWorld(node("a", 8, A100), node("b", 8, A100), policies=POLICIES)
    world.tell(
        PodObserved(pod("x", "a", 3, "kube-system")),
        PodObserved(pod("y", "a", 1, "notebooks")),
        PodObserved(pod("not-bound", None, 4, "notebooks")),
    )
    world.asks(gang("job", 2, 2))
    world.bind("job", "b", gpus=2)
    found = gpus(world, "a100")
    assert found.used == 2
    assert found.unmanaged == (("kube-system", 3), ("notebooks", 1))
    assert found.expected == 2
    assert found.free == 8
    assert found.shapes in (((4, 2),), ((6, 1), (2, 1)))


def test_use_of_pods_that_are_gone_is_not_counted() -> None:
    world = NodeWorld(node("a", 8, A100), policies=POLICIES)
    world.tell(PodObserved(pod("x", "a", 3)))
    assert gpus(world, "a100").free == 5
    world.tell(PodGone("x"))
    found = gpus(world, "a100")
    assert (found.unmanaged, found.free) == ((), 8)


def test_a_flavor_without_nodes_has_the_resources_that_quota_is_promised_for() -> None:
    world = NodeWorld(policies=POLICIES)
    assert capacities(world)["a100"] == FlavorCapacity(
        flavor="a100",
        resources=(FlavorResourceCapacity(resource=GPU, mode=CapacityMode.OBSERVE, available=0),),
    )


TAINT = Taint(GPU, "present", "NoSchedule")


def test_nodes_with_a_taint_that_the_flavor_does_not_tolerate_have_nothing_free() -> None:
    tainted = node("b", 8, A100, taints=[TAINT])
    world = NodeWorld(node("a", 4, A100), tainted, policies=POLICIES)
    found = capacities(world)["a100"]
    assert found.nodes == (("Ready", 1), ("Tainted", 1))
    [gpu] = found.resources
    assert gpu.allocatable == (("Ready", 4), ("Tainted", 8))
    assert (gpu.free, gpu.available, gpu.shapes) == (4, 4, (FreeNodes(4, 1),))
    [_, warning] = found.warnings
    assert (warning.code, warning.message) == (
        "NodesTainted",
        f"1 node has taint {GPU}=present:NoSchedule, which ResourceFlavor a100 does not tolerate",
    )


def test_a_taint_that_the_flavor_tolerates_takes_nothing_away() -> None:
    tolerates = replace(A100_FLAVOR, tolerations=(Toleration(key=GPU, operator="Exists"),))
    world = NodeWorld(node("b", 16, A100, taints=[TAINT]), policies=(tolerates, *POLICIES[1:]))
    found = capacities(world)["a100"]
    assert (found.nodes, found.warnings) == ((("Ready", 1),), ())
    assert gpus_of(found).available == 16


def test_new_pods_cannot_have_the_headroom_of_their_flavor() -> None:
    kept = replace(A100_FLAVOR, nodes=FlavorNodes(headroom=((GPU, 3),)))
    world = NodeWorld(node("a", 8, A100), policies=(kept, *POLICIES[1:]))
    found = gpus(world, "a100")
    assert (found.free, found.available) == (8, 5)


def gpus_of(found: FlavorCapacity) -> FlavorResourceCapacity:
    [one] = [one for one in found.resources if one.resource == GPU]
    return one


def test_warnings_are_told_with_the_flavor_that_they_are_about() -> None:
    world = NodeWorld(node("a", 8, A100), node("b", 2), policies=POLICIES)
    found = capacities(world)
    [beyond], [stray] = found["a100"].warnings, found[""].warnings
    assert (beyond.code, beyond.resource) == ("QuotaBeyondNodes", GPU)
    assert (stray.code, stray.message) == ("NodesWithoutFlavor", "1 node has the labels of no ResourceFlavor")
    world.nodes(node("b", 8, A100))
    assert {one.warnings for one in capacities(world).values()} == {()}


def test_the_mode_of_each_resource_is_told() -> None:
    elastic = replace(A100_FLAVOR, nodes=FlavorNodes(mode=CapacityMode.ELASTIC))
    world = NodeWorld(node("a", 8, A100), node("b", 8, H100), policies=(elastic, *POLICIES[1:]))
    assert gpus(world, "a100").mode is CapacityMode.ELASTIC
    world = NodeWorld(node("b", 8, H100), policies=POLICIES)
    assert gpus(world, "h100").mode is CapacityMode.ENFORCE


def test_nothing_is_told_again_that_did_not_change() -> None:
    world = NodeWorld(node("a", 8, A100), policies=POLICIES)
    capacities(world)
    assert world.engine.features.nodes.take_capacities() is None
    world.nodes(node("a", 8, A100))
    assert world.engine.features.nodes.take_capacities() is None
    world.nodes(node("a", 8, A100, cordoned=True))
    assert capacities(world)["a100"].nodes == (("Cordoned", 1),)


def test_namespaces_above_the_limit_are_summed() -> None:
    world = NodeWorld(node("a", 100, A100), policies=POLICIES)
    world.tell(*(PodObserved(pod(f"p{n}", "a", 1, f"ns-{n:03}")) for n in range(MOST_NAMESPACES + 3)))
    found = gpus(world, "a100").unmanaged
    assert (len(found), found[-1]) == (MOST_NAMESPACES + 1, ("", 3))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, "a", "b"]), st.integers(1, 8))))
def test_use_does_not_depend_on_the_pods_before(changes: list[tuple[int, str | None, int]]) -> None:
    world = NodeWorld(node("a", 64, A100), node("b", 64, A100), policies=POLICIES)
    last: dict[int, Pod] = {}
    for number, where, count in changes:
        last[number] = pod(f"p{number}", where, count)
        world.tell(PodObserved(last[number]))
    fresh = NodeWorld(node("a", 64, A100), node("b", 64, A100), policies=POLICIES)
    fresh.tell(*map(PodObserved, last.values()))
    assert capacities(world) == capacities(fresh)
    assert violations(world.engine) == []


def demand(world: NodeWorld) -> tuple[PodDemand, ...]:
    _, queues, _ = world.engine.take_reports()
    [found] = [one for one in queues if one.name == "cq"]
    return found.demand


def unscheduled(work: str) -> Pod:
    return replace(pod(f"{work}-0", None), workload=WorkloadId(f"uid-{work}"), unschedulable="0/1 nodes fit")


def test_a_pod_that_is_not_scheduled_is_a_miss_of_its_admission_once() -> None:
    world = NodeWorld(node("a", 8, A100), policies=POLICIES)
    world.asks(gang("job", 2, 2))
    world.tell(PodObserved(unscheduled("job")), PodObserved(replace(unscheduled("job"), uid="other")))
    assert world.engine.features.nodes.take_predictions() == (1, 1)
    assert [(alarm.ref.name, alarm.attempt, alarm.message) for alarm in world.engine.take_alarms()] == [
        ("job", 1, "kube-scheduler places pod job-0 nowhere, though nodes had room: 0/1 nodes fit")
    ]
    assert world.engine.features.nodes.take_predictions() == (0, 0)
    assert world.engine.take_alarms() == []


def test_an_admission_that_nodes_do_not_limit_predicts_nothing() -> None:
    elastic = replace(A100_FLAVOR, nodes=FlavorNodes(mode=CapacityMode.ELASTIC))
    world = NodeWorld(node("a", 8, A100), policies=(elastic, *POLICIES[1:]))
    world.asks(gang("job", 2, 2))
    world.tell(PodObserved(unscheduled("job")))
    assert world.engine.features.nodes.take_predictions() == (0, 0)


def test_demand_is_summed_over_workloads_that_wait_for_the_same() -> None:
    world = NodeWorld(
        node("a", 8, A100),
        policies=(POLICIES[0], queue("cq", groups=[group({"a100": {GPU: 16}})]), POLICIES[3]),
    )
    world.bind(None, *["a"] * 4)
    world.asks(gang("small", 2, 2))
    world.submit(gang("wide-1", 1, 8), gang("wide-2", 1, 8), gang("more", 7, 2))
    world.run()
    assert demand(world) == (
        PodDemand(flavor="a100", awaits=AwaitedLimit.QUOTA, workloads=1, pods=7, requests=((GPU, 2),)),
        PodDemand(flavor="a100", awaits=AwaitedLimit.ROOM, workloads=2, pods=2, requests=((GPU, 8),)),
    )


def test_what_runs_is_no_demand() -> None:
    world = NodeWorld(
        node("a", 4, A100),
        policies=(POLICIES[0], queue("cq", groups=[group({"a100": {GPU: 16}})]), POLICIES[3]),
    )
    world.submit(gang("runs", 4, 1))
    world.run()
    assert demand(world) == ()
