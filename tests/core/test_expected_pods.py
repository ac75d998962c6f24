"""Where pods that are not bound yet are expected (M7): kept up to date, and computed anew."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model import WorkloadId
from queuectl.core.nodes.pods import Pod, PodGroup, PodShape
from queuectl.core.nodes.room import NodeRoom
from queuectl.core.policy import NODE_RULES, Node, ResourceFlavor
from tests.builders import GPU, T0

ZONE = "zone"
FLAVORS = {"default": ResourceFlavor(name="default")}
NODES = tuple(
    Node(f"n{number}", ((ZONE, "a" if number % 2 else "b"),), ((GPU, gpus),))
    for number, gpus in enumerate((2, 4, 4, 3, 6))
)
SHAPES = tuple(
    PodShape(((GPU, gpus),), ((GPU, "default"),), ((ZONE, zone),) if zone else ())
    for gpus in (1, 2, 3)
    for zone in ("", "a")
)
"""Two of each size: pods that take as much are expected in order of admission."""


class Step(NamedTuple):
    """A workload holds pods of one shape from now on, or nothing; or its only bound pod is observed."""

    workload: int
    shape: int
    pods: int
    bound: str | None
    settles: bool


STEPS = st.builds(
    Step,
    st.integers(0, 5),
    st.integers(0, len(SHAPES) - 1),
    st.integers(0, 4),
    st.none() | st.sampled_from([node.name for node in NODES]),
    st.booleans(),
)


def room() -> NodeRoom:
    found = NodeRoom(FLAVORS, NODE_RULES)
    for node in NODES:
        found.observe(node, T0)
    for shape in SHAPES:
        found.matcher.match(shape)  # nodes are told apart by their zones from the start
    return found


def spots(found: NodeRoom) -> list[tuple[str, tuple[int, ...]]]:
    found.settle()
    return list(found.expected)


@given(st.lists(STEPS, max_size=12))
def test_what_is_expected_is_the_same_as_if_it_was_computed_anew(steps: list[Step]) -> None:
    kept = room()
    held: dict[int, Step] = {}
    bound: dict[str, Pod] = {}
    for step in steps:
        owner = WorkloadId(f"w{step.workload}")
        if step.bound is not None:
            uid, requests = f"p{step.workload}", SHAPES[step.shape].requests
            pod = Pod(uid=uid, namespace="ns", name="p", node=step.bound, requests=requests, workload=owner)
            bound[uid] = pod
            kept.observe_pod(pod, T0)
        elif step.pods:
            held[step.workload] = step
            kept.hold(owner, step.workload, (PodGroup(SHAPES[step.shape], step.pods),))
        else:
            held.pop(step.workload, None)
            bound.pop(f"p{step.workload}", None)
            kept.drop(owner)
            kept.forget_pod(f"p{step.workload}")
        if not step.settles:
            continue
        anew = room()
        for pod in bound.values():
            anew.observe_pod(pod, T0)
        for number, one in held.items():
            anew.hold(WorkloadId(f"w{number}"), number, (PodGroup(SHAPES[one.shape], one.pods),))
        assert spots(kept) == spots(anew)
