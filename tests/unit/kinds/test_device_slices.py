"""ResourceSlices, DeviceClasses and DeviceTaintRules, from JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from queuectl.core.model.devices import Device, DeviceTaintRule, ResourceSlice
from queuectl.core.model.events import ContextGone, ContextObserved, Event
from queuectl.kinds.devices import DeviceSlices, device_taint_rule

Json = dict[str, Any]

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig"
CLASSES = (("gpu.nvidia.com", GPU), ("mig.nvidia.com", MIG))
DRIVER = "gpu.nvidia.com"
OF_DRIVER = f"device.driver == '{DRIVER}'"
OF_TYPE = OF_DRIVER + " && device.attributes['gpu.nvidia.com'].type == '{}'"


def device_class(name: str, *expressions: str) -> Json:
    selectors = [{"cel": {"expression": one}} for one in expressions]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}


def device(name: str, **attributes: Any) -> Json:
    kinds = {str: "string", int: "int", bool: "bool"}
    return {"name": name, "attributes": {key: {kinds[type(one)]: one} for key, one in attributes.items()}}


def slice_(*devices: Json, **spec: Any) -> Json:
    pool = {"name": "n1", "generation": 3, "resourceSliceCount": 1}
    found = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": list(devices), **spec}
    return {"metadata": {"name": "a"}, "spec": found}


def read(obj: Json, *classes: Json) -> ResourceSlice | None:
    slices = DeviceSlices(CLASSES)
    for one in classes:
        slices.observe_class(one)
    event = slices.observe_slice(obj)
    if event is None:
        return None
    assert isinstance(event.value, ResourceSlice)
    return event.value


def resources(device: Json, *classes: Json) -> list[str]:
    found = read(slice_(device), *classes)
    assert found is not None
    return [one.resource for one in found.devices]


BOTH = (
    device_class("gpu.nvidia.com", OF_TYPE.format("gpu")),
    device_class("mig.nvidia.com", OF_TYPE.format("mig")),
)


@pytest.mark.parametrize(
    ("found", "classes", "expected"),
    [
        pytest.param(device("a", type="gpu"), BOTH, [GPU], id="the class of whole devices"),
        pytest.param(device("a", type="mig"), BOTH, [MIG], id="the class of parts"),
        pytest.param(device("a", type="vfio"), BOTH, [], id="no class"),
        pytest.param(device("a"), BOTH, [], id="an attribute that it does not have"),
        pytest.param(device("a", type="gpu"), (), [], id="a class that does not exist"),
        pytest.param(device("a"), (device_class("gpu.nvidia.com"),), [GPU], id="a class without selectors"),
        pytest.param(
            device("a"),
            (device_class("mig.nvidia.com", OF_DRIVER), device_class("gpu.nvidia.com", OF_DRIVER)),
            [GPU],
            id="of two classes the first in the configuration",
        ),
        pytest.param(
            device("a", memory=80),
            (device_class("gpu.nvidia.com", OF_DRIVER, "device.attributes['gpu.nvidia.com'].memory > 80"),),
            [],
            id="one of two selectors is not true",
        ),
        pytest.param(
            device("a", **{"pci.example.com/root": "x"}),
            (device_class("gpu.nvidia.com", "device.attributes['pci.example.com'].root == 'x'"),),
            [GPU],
            id="an attribute with a domain of its own",
        ),
        pytest.param(
            {"name": "a", "attributes": {"type": {"strings": ["gpu"]}, "large": {"int": 2**70}}},
            (
                device_class("gpu.nvidia.com", "device.attributes['gpu.nvidia.com'].type == 'gpu'"),
                device_class("mig.nvidia.com", "has(device.attributes['gpu.nvidia.com'].large)"),
            ),
            [],
            id="attributes of other types than text, number and boolean",
        ),
        pytest.param(
            {"name": "a"},
            (device_class("other.example.com", OF_DRIVER),),
            [],
            id="a class that is in no mapping",
        ),
    ],
)
def test_a_device_is_charged_as_the_resource_of_the_class_that_selects_it(
    found: Json, classes: tuple[Json, ...], expected: list[str]
) -> None:
    assert resources(found, *classes) == expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("device.driver ==", "spec.selectors[0].cel.expression: line 1, column "),
        (
            "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
            "spec.selectors[0].cel.expression: line 1, column 60: undeclared reference to 'quantity'",
        ),
        ("device.driver", ""),
    ],
)
def test_a_class_that_cannot_be_evaluated_selects_nothing_and_says_why(expression: str, problem: str) -> None:
    slices = DeviceSlices(CLASSES)
    slices.observe_class(device_class("gpu.nvidia.com", expression))
    event = slices.observe_slice(slice_(device("a")))
    assert event is not None
    assert isinstance(event.value, ResourceSlice)
    assert event.value.devices == ()
    if problem:
        assert slices.problems["gpu.nvidia.com"].startswith(problem)


def test_a_class_that_changes_changes_the_slices_that_are_known() -> None:
    slices = DeviceSlices(CLASSES)
    slices.observe_slice(slice_(device("a", type="gpu")))
    gpu, mig = BOTH

    def after(observed: Json) -> list[list[str]]:
        slices.observe_class(observed)
        return charged(slices.again(9))

    assert after(gpu) == [[GPU]]
    assert after(gpu) == [], "nothing changed"
    assert after(mig) == [[GPU]]
    assert after(device_class("gpu.nvidia.com", "device.driver == 7 +")) == [[]]
    assert slices.problems.keys() == {"gpu.nvidia.com"}
    assert after(gpu) == [[GPU]]
    assert not slices.problems
    slices.forget_class("gpu.nvidia.com")
    assert charged(slices.again(9)) == [[]]
    slices.forget_class("gpu.nvidia.com")
    assert slices.again(9) == []
    assert slices.forget_slice("a") == ContextGone(ResourceSlice, "a")
    assert after(gpu) == []


def charged(events: Iterable[Event]) -> list[list[str]]:
    """Return what the devices of each slice are charged as."""
    found = []
    for event in events:
        assert isinstance(event, ContextObserved)
        assert isinstance(event.value, ResourceSlice)
        found.append([one.resource for one in event.value.devices])
    return found


def test_slices_are_read_again_some_at_a_time_and_as_they_are_then() -> None:
    slices = DeviceSlices(CLASSES)
    for name in "abcde":
        slices.observe_slice({**slice_(device("x", type="gpu")), "metadata": {"name": name}})
    slices.observe_class(BOTH[0])
    assert charged(slices.again(2)) == [[GPU], [GPU]]
    slices.observe_slice({**slice_(), "metadata": {"name": "c"}})  # it is read with the new class at once
    slices.forget_slice("d")
    assert charged(slices.again(2)) == [[GPU]]
    assert slices.again(2) == []
    slices.observe_class(BOTH[1])
    assert charged(slices.again(3)) == [[GPU], [GPU], []]
    slices.forget_class("gpu.nvidia.com")  # while one is left: all are read again
    assert charged(slices.again(9)) == [[], [], [], []]


def test_a_slice_whose_devices_are_malformed_counts_only_while_no_class_selects_them() -> None:
    slices = DeviceSlices(CLASSES)
    for name, one in (("bad", {"name": 4}), ("good", {"name": "x"})):
        slices.observe_slice({**slice_(one), "metadata": {"name": name}})
    slices.observe_class(device_class("gpu.nvidia.com"))
    gone, good = slices.again(9)
    assert gone == ContextGone(ResourceSlice, "bad")
    assert charged([good]) == [[GPU]]
    slices.forget_class("gpu.nvidia.com")
    assert charged(slices.again(9)) == [[], []]


def test_a_slice_is_read_with_what_its_devices_share_and_where_they_are() -> None:
    counters = {"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}, "engines": {"value": "1"}}}
    taint = {"key": "example.com/bad", "value": "x", "effect": "NoSchedule"}
    part = {"name": "a", "nodeName": "n2", "taints": [taint], "consumesCounters": [counters]}
    shared = {"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}
    found = read(
        slice_(part, {"name": "b"}, perDeviceNodeSelection=True, nodeName=None, sharedCounters=[shared]),
        device_class("gpu.nvidia.com"),
    )
    gibibyte = 1000 * 2**30
    assert found == ResourceSlice(
        name="a",
        driver=DRIVER,
        pool="n1",
        generation=3,
        counters=(("gpu-0", "memory", 80 * gibibyte),),
        devices=(
            Device(
                name="a",
                resource=GPU,
                node="n2",
                taints=(("example.com/bad", "NoSchedule"),),
                consumes=(("gpu-0", "engines", 1000), ("gpu-0", "memory", 40 * gibibyte)),
            ),
            Device(name="b", resource=GPU),
        ),
    )


@pytest.mark.parametrize("where", [{"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": []}}])
def test_devices_that_several_nodes_reach_have_no_node(where: Json) -> None:
    found = read(slice_(device("a"), nodeName=None, **where), device_class("gpu.nvidia.com"))
    assert found is not None
    assert [one.node for one in found.devices] == [None]


@pytest.mark.parametrize(
    "change",
    [
        {"driver": None},
        {"pool": {"generation": 1}},
        {"devices": [{"name": 4}]},
        {"devices": [{"name": "a", "consumesCounters": [{"counterSet": "x", "counters": {"m": {}}}]}]},
        {"sharedCounters": [{"name": "x", "counters": {"m": {"value": "much"}}}]},
    ],
    ids=["driver", "pool", "name", "consumed counters", "shared counters"],
)
def test_a_malformed_slice_is_not_relevant(change: Json) -> None:
    assert read(slice_(**change), device_class("gpu.nvidia.com")) is None


def test_a_taint_rule_is_read() -> None:
    spec = {
        "deviceSelector": {"driver": DRIVER, "pool": "n1", "device": "a"},
        "taint": {"key": "example.com/repair", "effect": "NoExecute"},
    }
    event = device_taint_rule({"metadata": {"name": "r"}, "spec": spec})
    assert event is not None
    assert event.value == DeviceTaintRule(
        name="r", key="example.com/repair", effect="NoExecute", driver=DRIVER, pool="n1", device="a"
    )
    assert device_taint_rule({"metadata": {"name": "r"}, "spec": {}}) is None
