"""Devices of ResourceSlices on nodes, and what pods hold of them (docs/scheduling.md, M16 to M19)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.features.devices import PodDevices
from queuectl.core.features.devices.claims import DeviceClaims
from queuectl.core.features.devices.slices import NodeDevices
from queuectl.core.model.devices import (
    Device,
    DeviceRequest,
    DeviceTaintRule,
    PodClaim,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from queuectl.core.model.events import ContextGone, ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.policy import Context, Node, NodeRules, SchedulingConfiguration
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import ResourceForms, amounts
from tests.builders import GPU, admitted, pod_set, workload
from tests.doubles import engine_state
from tests.doubles.invariants import violations
from tests.unit.core.node_worlds import NodeWorld, node, reasons

MIG = "nvidia.com/mig"
CLASSES = (("gpu.nvidia.com", GPU), ("mig.nvidia.com", MIG))
MAPPED = SchedulingConfiguration(resources=ResourceForms(device_classes=CLASSES), cooldown=0)
RULES = NodeRules(unusable_taints=("example.com/burnt",))


def device(name: str, node: str | None = "n", resource: str = GPU, **fields: Any) -> Device:
    return Device(name=name, node=node, resource=resource, **fields)


def gpus(count: int, node: str | None = "n", **fields: Any) -> tuple[Device, ...]:
    return tuple(device(f"gpu-{number}", node, **fields) for number in range(count))


def slice_(name: str, *devices: Device, pool: str = "n", generation: int = 1, **fields: Any) -> ResourceSlice:
    return ResourceSlice(
        name=name, driver="gpu.nvidia.com", pool=pool, generation=generation, devices=devices, **fields
    )


def counted(*values: ResourceSlice | DeviceTaintRule) -> dict[str, dict[str, int]]:
    found = NodeDevices(RULES, (GPU, MIG))
    for value in values:
        found.observe(value)
    return {name: found.of(name) for name in found.nodes()}


def rule(**fields: Any) -> DeviceTaintRule:
    return DeviceTaintRule(name="rule", **{"key": "example.com/repair", "effect": "NoExecute", **fields})


PARTITIONS = (("gpu-0", "memory", 4000),)
WHOLE = device("whole", consumes=(("gpu-0", "memory", 4000),))
PARTS = tuple(device(f"part-{i}", resource=MIG, consumes=(("gpu-0", "memory", 1000),)) for i in range(4))


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([slice_("a", *gpus(8))], {"n": {GPU: 8}}, id="devices of one node"),
        pytest.param(
            [slice_("a", *gpus(2)), slice_("b", device("x"), device("y", resource=MIG))],
            {"n": {GPU: 3, MIG: 1}},
            id="a pool of two slices",
        ),
        pytest.param(
            [slice_("a", *gpus(8), generation=4), slice_("b", *gpus(2), generation=5)],
            {"n": {GPU: 2}},
            id="slices of an old generation are ignored, also where the new one is not complete",
        ),
        pytest.param(
            [slice_("a", *gpus(8)), slice_("b", *gpus(2), pool="other", generation=5)],
            {"n": {GPU: 10}},
            id="generations of different pools are not compared",
        ),
        pytest.param(
            [
                slice_("a", *gpus(1)),
                replace(slice_("b", *gpus(1), generation=9), driver="other.example.com"),
            ],
            {"n": {GPU: 2}},
            id="pools of different drivers with one name are two",
        ),
        pytest.param([slice_("a", *gpus(2)), slice_("b", *gpus(2))], {"n": {GPU: 2}}, id="no device twice"),
        pytest.param([slice_("a", *gpus(4, None))], {}, id="devices that are not local to a node"),
        pytest.param(
            [slice_("a", device("x", "n"), device("y", "m"))],
            {"n": {GPU: 1}, "m": {GPU: 1}},
            id="devices with a node each",
        ),
        pytest.param(
            [slice_("a", *gpus(2), device("x", taints=(("example.com/bad", "NoSchedule"),)))],
            {"n": {GPU: 2}},
            id="a taint that keeps pods away",
        ),
        pytest.param(
            [slice_("a", *gpus(2), device("x", taints=(("example.com/note", "None"),)))],
            {"n": {GPU: 3}},
            id="a taint that only informs",
        ),
        pytest.param(
            [slice_("a", *gpus(2), device("x", taints=(("example.com/burnt", "None"),)))],
            {"n": {GPU: 2}},
            id="a taint that the admin names",
        ),
        pytest.param([slice_("a", *gpus(2)), rule()], {}, id="a rule that selects all devices"),
        pytest.param(
            [slice_("a", *gpus(2)), rule(driver="gpu.nvidia.com", pool="n", device="gpu-1")],
            {"n": {GPU: 1}},
            id="a rule for one device",
        ),
        pytest.param(
            [slice_("a", *gpus(2)), rule(pool="other")], {"n": {GPU: 2}}, id="a rule for another pool"
        ),
        pytest.param(
            [slice_("a", WHOLE, *PARTS), slice_("b", counters=PARTITIONS)],
            {"n": {GPU: 1}},
            id="of devices that share counters, those of the first mapping that fit together",
        ),
        pytest.param(
            [
                slice_("a", replace(WHOLE, taints=(("example.com/bad", "NoSchedule"),)), *PARTS),
                slice_("b", counters=PARTITIONS),
            ],
            {"n": {MIG: 4}},
            id="counters are free that a device with a taint would take",
        ),
        pytest.param(
            [slice_("a", WHOLE, *PARTS)], {}, id="devices whose counters were not seen do not count"
        ),
    ],
)
def test_devices_of_slices_count_for_nodes(
    slices: list[ResourceSlice | DeviceTaintRule], expected: dict[str, dict[str, int]]
) -> None:
    assert counted(*slices) == expected
    assert counted(*reversed(slices)) == expected


SLICES = st.lists(
    st.builds(
        lambda name, pool, generation, there: slice_(
            name, *(device(f"{name}-{one}", where) for one, where in there), pool=pool, generation=generation
        ),
        st.sampled_from("abcd"),
        st.sampled_from(("p", "q")),
        st.integers(1, 3),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("n", "m", None))), max_size=4),
    ),
    max_size=12,
)


@given(SLICES, st.data())
def test_devices_follow_from_what_is_there_whatever_was_before(
    slices: list[ResourceSlice], data: st.DataObject
) -> None:
    known, there = NodeDevices(RULES, (GPU,)), dict[str, ResourceSlice]()
    for one in slices:
        if data.draw(st.booleans()):
            known.observe(one)
            there[one.name] = one
        else:
            known.forget(ResourceSlice, one.name)
            there.pop(one.name, None)
    assert {name: known.of(name) for name in known.nodes()} == counted(*there.values()) == known.again()


@pytest.mark.parametrize(
    ("plugin", "published", "total"),
    [(0, 4, 4), (8, 4, 8), (2, 4, 4)],
    ids=["only slices", "the same devices by both", "fewer by the plugin"],
)
def test_a_device_that_a_device_plugin_counts_too_counts_once(
    plugin: int, published: int, total: int
) -> None:
    devices = NodeDevices(RULES, (GPU,))
    devices.observe(slice_("a", *gpus(published)))
    assert dict(devices.node(node("n", plugin)).allocatable)[GPU] == total


# --- in the engine

ONE_GPU = ResourceClaimTemplate("ns/one", (DeviceRequest("exactly", (("gpu.nvidia.com", 1),)),))
TWO_SHARED = ResourceClaim("ns/two", (DeviceRequest("exactly", (("gpu.nvidia.com", 2),)),))
OWN = PodClaim("spec.resourceClaims[0]", "one", template=True)
SHARED = PodClaim("spec.resourceClaims[0]", "two", template=False)


def world(*values: Context, claims: tuple[Context, ...] = (ONE_GPU, TWO_SHARED)) -> NodeWorld:
    found = NodeWorld(node("n", 0), node("m", 0), settings=MAPPED)
    found.tell(*map(ContextObserved, (*claims, *values)))
    return found


def pod(uid: str, where: str | None, **fields: Any) -> Pod:
    return Pod(uid=uid, namespace="ns", name=uid, node=where, requests=amounts({"cpu": 100}), **fields)


def other(uid: str, claim: PodClaim, where: str | None = "n") -> PodObserved:
    return PodObserved(pod(uid, where, claims=(claim,)))


def claiming(name: str, pods: int, claim: PodClaim = OWN) -> Any:
    return workload(name, pods=[pod_set(pods, {}, claims=(claim,))])


def test_a_workload_with_claims_needs_room_on_the_devices_of_slices() -> None:
    found = world(slice_("a", *gpus(2)), slice_("b", *gpus(2, "m"), pool="m"))
    made = found.asks(claiming("fits", 3))
    assert admitted(made) == ["fits"]
    made = found.asks(claiming("waits", 2))
    assert reasons(made)["waits"].code is Code.CAPACITY_MISSING
    found.tell(ContextObserved(slice_("a", *gpus(3), generation=2)))
    assert admitted(found.run()) == ["waits"]


def test_a_device_with_a_taint_is_no_capacity_until_the_taint_is_gone() -> None:
    bad = replace(device("gpu-1"), taints=(("example.com/bad", "NoSchedule"),))
    found = world(slice_("a", device("gpu-0"), bad))
    assert reasons(found.asks(claiming("pair", 2)))["pair"].code is Code.CAPACITY_MISSING
    found.tell(ContextObserved(slice_("a", *gpus(2), generation=2)))
    assert admitted(found.run()) == ["pair"]


def test_slices_of_a_node_may_come_before_the_node() -> None:
    found = NodeWorld(node("m", 0), settings=MAPPED)
    found.tell(ContextObserved(ONE_GPU), ContextObserved(slice_("a", *gpus(2))))
    found.nodes(node("n", 0))
    assert found.free() == {"m": 0, "n": 2}
    found.lose("n")
    found.nodes(node("n", 0))
    assert found.free() == {"m": 0, "n": 2}
    found.tell(ContextGone(ResourceSlice, "a"))
    found.nodes(node("m", 1))
    assert found.free() == {"m": 1, "n": 0}


@pytest.mark.parametrize("template_first", [True, False])
def test_pods_that_no_queue_knows_hold_the_devices_of_their_claims(template_first: bool) -> None:
    found = world(slice_("a", *gpus(4)), claims=(ONE_GPU,) if template_first else ())
    found.tell(other("x", OWN), other("y", OWN), other("not-bound", OWN, None))
    found.tell(ContextObserved(ONE_GPU))
    assert found.free() == {"m": 0, "n": 2}
    assert engine_state.room(found.engine).usage.of("n")["ns", GPU] == 2
    found.tell(ContextGone(ResourceClaimTemplate, "ns/one"))
    assert found.free() == {"m": 0, "n": 2}, "a template that is deleted frees nothing"
    found.tell(PodGone("x"), PodGone("y"))
    assert found.free() == {"m": 0, "n": 4}
    assert not violations(found.engine)


def test_a_claim_that_pods_share_is_held_once_until_the_last_of_them_is_gone() -> None:
    found = world(slice_("a", *gpus(4)))
    found.tell(other("x", SHARED), other("y", SHARED))
    assert found.free()["n"] == 2
    found.tell(PodGone("x"))
    assert found.free()["n"] == 2
    found.tell(PodGone("y"))
    assert found.free()["n"] == 4
    assert not violations(found.engine)


def test_bound_pods_of_a_workload_are_not_expected_again() -> None:
    found = world(slice_("a", *gpus(4)))
    assert admitted(found.asks(claiming("pair", 2))) == ["pair"]
    owner = claiming("pair", 2).id
    for uid in ("p", "q"):
        found.tell(PodObserved(pod(uid, "n", workload=owner, claims=(OWN,))))
    assert list(engine_state.room(found.engine).expected) == []
    assert found.free()["n"] == 2


def test_devices_of_a_fork_are_its_own() -> None:
    found = world(slice_("a", *gpus(2)))
    fork = found.engine.fork()
    fork.handle([ContextGone(ResourceSlice, "a")])
    assert found.engine.features.devices.nodes.of("n") == {GPU: 2}
    assert fork.features.devices.nodes.of("n") == {}
    assert isinstance(engine_state.room(found.engine).inventory.records["n"].node, Node)


def test_pods_keep_the_devices_of_a_template_that_is_deleted_or_replaced() -> None:
    found = world(slice_("a", *gpus(8)))
    found.tell(other("x", OWN))
    found.tell(ContextGone(ResourceClaimTemplate, "ns/one"))
    found.tell(PodObserved(pod("x", "n", claims=(OWN,), terminating=True)))
    assert found.free()["n"] == 7
    found.tell(ContextObserved(ResourceClaimTemplate("ns/one", TWO_SHARED.requests)))
    found.tell(PodObserved(pod("x", "n", claims=(OWN,))))
    assert found.free()["n"] == 7, "the claim of a pod does not change"
    found.tell(other("y", OWN))
    assert found.free()["n"] == 5, "that of a later pod is made from the template of its time"
    found.tell(PodGone("x"), other("x", OWN))
    assert found.free()["n"] == 4
    assert not violations(found.engine)


def test_a_controller_that_starts_after_a_template_is_deleted_knows_what_pods_hold() -> None:
    made = PodClaim("spec.resourceClaims[0]", "x-gpu-b7k2", template=False)
    generated = ResourceClaim("ns/x-gpu-b7k2", ONE_GPU.requests, generated=True)
    events: list[Event] = [ContextObserved(generated), other("x", made)]
    for order in (events, events[::-1]):
        started = world(slice_("a", *gpus(8)), claims=())
        started.tell(*order)
        assert started.free()["n"] == 7
        started.tell(ContextGone(ResourceClaim, generated.name), other("x", made))
        assert started.free()["n"] == 7
        started.tell(PodGone("x"))
        assert started.free()["n"] == 8


class _Compared(str):
    """A UID that counts how often UIDs are compared."""

    __slots__ = ()
    compared: ClassVar = 0

    def __lt__(self, other: str) -> bool:
        _Compared.compared += 1
        return str.__lt__(self, other)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_pod_that_shares_a_claim_costs_the_same_however_many_share_it(mapped: bool) -> None:
    claims = DeviceClaims({"gpu.nvidia.com": GPU} if mapped else {}, {})
    claims.observe(TWO_SHARED)
    devices, pods = PodDevices(claims), 1000
    _Compared.compared = observed = 0
    uids = [_Compared(f"{number * 7919 % pods:04}") for number in range(pods)]
    for uid in uids:
        observed += len(devices.observe(pod(uid, "n", claims=(SHARED,))))
    for uid in uids:
        observed += len(devices.observe(pod(uid, "n", claims=(SHARED,), terminating=True)))
    for uid in uids:
        observed += len(devices.forget(uid))
    assert observed <= 5 * pods
    assert _Compared.compared <= 40 * pods if mapped else _Compared.compared == 0
    if not mapped:
        assert observed == 2 * pods


_CLAIMS = st.lists(st.sampled_from((OWN, SHARED)), max_size=3).map(tuple)
_STEPS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd"), _CLAIMS), max_size=30)


@given(_STEPS)
def test_devices_of_pods_are_those_of_claims_when_they_were_first_known(steps: list[Any]) -> None:
    """Shared claims count once, for the first of their pods; own ones as their template was."""
    claims = DeviceClaims({"gpu.nvidia.com": GPU}, {})
    devices, shown = PodDevices(claims), dict[str, Pod]()
    there: dict[str, tuple[PodClaim, ...]] = {}
    own: dict[str, int] = {}
    shared = template = 0
    for step, uid, asked in steps:
        changed: list[Pod] = []
        if step <= 1:
            changed = devices.observe(pod(uid, "n", claims=asked))
            there[uid] = asked
        elif step == 2:
            changed = devices.forget(uid)
            there.pop(uid, None)
            shown.pop(uid, None)
        elif step == 3:
            template = 1 + len(asked)
            value = ResourceClaimTemplate("ns/one", (DeviceRequest("e", (("gpu.nvidia.com", template),)),))
            claims.observe(value)
            changed = devices.changed(ResourceClaimTemplate, "ns/one")
        elif step == 4:
            template = 0
            claims.forget(ResourceClaimTemplate, "ns/one")
        else:
            shared = 2
            claims.observe(TWO_SHARED)
            changed = devices.changed(ResourceClaim, "ns/two")
        own = {uid: own.get(uid) or template for uid, asked in there.items() if OWN in asked}
        shown |= {one.uid: one for one in changed}
        sharing = sorted(uid for uid, asked in there.items() if SHARED in asked)
        for uid, asked in there.items():
            expected = own.get(uid, 0) * asked.count(OWN) + shared * (sharing[:1] == [uid])
            assert dict(shown[uid].requests).get(GPU, 0) == expected
