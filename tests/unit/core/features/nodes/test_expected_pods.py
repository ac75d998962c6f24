"""Where pods that are not bound yet are expected (M7): kept up to date, and computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.features.nodes.inventory import Inventory
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.pods import Pod, PodGroup, PodShape
from queuectl.core.model.policy import NODE_RULES, Node, ResourceFlavor
from queuectl.core.model.workload import WorkloadId
from tests.builders import GPU, T0

ZONE = "zone"
FLAVORS = {"default": ResourceFlavor(name="default")}
NODES = tuple(
    Node(f"n{number}", ((ZONE, "a" if number % 2 else "b"),), ((GPU, gpus),))
    for number, gpus in enumerate((2, 4, 4, 4, 6))
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


class Trial(NamedTuple):
    """A workload ends, or is away with its bound pods; a pod is given a node; or the last trial is undone."""

    kind: str
    workload: int
    node: str


NAMES = [node.name for node in NODES]
HELD = st.tuples(st.integers(0, len(SHAPES) - 1), st.integers(1, 2), st.none() | st.sampled_from(NAMES))
TRIALS = st.builds(
    Trial,
    st.sampled_from(("end", "away", "give", "undo")),
    st.integers(0, 6),
    st.sampled_from(NAMES),
)
STEPS = st.builds(
    Step,
    st.integers(0, 5),
    st.integers(0, len(SHAPES) - 1),
    st.integers(0, 4),
    st.none() | st.sampled_from(NAMES),
    st.booleans(),
)


ASKED = (PodGroup(SHAPES[0], 1),)


def room() -> NodeRoom:
    found = NodeRoom(FLAVORS, NODE_RULES)
    for node in NODES:
        found.observe(node, T0)
    for shape in SHAPES:
        found.matcher.match(shape)  # nodes are told apart by their zones from the start
    return found


class Holders:
    """What workloads hold, in a room that is kept up to date."""

    def __init__(self) -> None:
        self.kept = room()
        self.held: dict[int, Step] = {}
        self.bound: dict[int, Pod] = {}

    def do(self, step: Step) -> None:
        number, owner = step.workload, WorkloadId(f"w{step.workload}")
        if step.bound is not None:
            uid, requests = f"p{number}", SHAPES[step.shape].requests
            pod = Pod(uid=uid, namespace="ns", name="p", node=step.bound, requests=requests, workload=owner)
            self.bound[number] = pod
            self.kept.observe_pod(pod, T0)
        elif step.pods:
            self.held[number] = step
            self.kept.hold(owner, number, (PodGroup(SHAPES[step.shape], step.pods),))
        else:
            self.held.pop(number, None)
            self.bound.pop(number, None)
            self.kept.drop(owner)
            self.kept.forget_pod(f"p{number}")

    def anew(self, away: Mapping[int, bool]) -> NodeRoom:
        """Return a room with all but the holders `away`: True where their bound pods are there still."""
        found = room()
        for number, pod in self.bound.items():
            if away.get(number, True):
                found.observe_pod(pod, T0)
        for number, one in self.held.items():
            if number not in away:
                found.hold(WorkloadId(f"w{number}"), number, (PodGroup(SHAPES[one.shape], one.pods),))
        return found


def spots(found: NodeRoom) -> list[tuple[str, tuple[int, ...]]]:
    found.settle()
    return list(found.expected)


def free(found: NodeRoom) -> dict[str, tuple[int, ...]]:
    found.fits(ASKED)
    return {record.name: record.free for record in found.inventory.nodes()}


@given(st.lists(STEPS, max_size=12))
def test_what_is_expected_is_the_same_as_if_it_was_computed_anew(steps: list[Step]) -> None:
    holders = Holders()
    for step in steps:
        holders.do(step)
        if step.settles:
            assert spots(holders.kept) == spots(holders.anew({}))


@given(st.lists(HELD, min_size=4, max_size=7), st.lists(TRIALS, min_size=2, max_size=8))
def test_what_is_expected_without_holders_is_as_if_they_held_nothing(
    held: list[tuple[int, int, str | None]], trials: list[Trial]
) -> None:
    """A holder that is away has ended, so that its bound pods are there still, or its bound pods are gone.

    Pods that are given nodes meanwhile may leave others elsewhere until all is undone.
    """
    holders = Holders()
    for number, (shape, pods, bound) in enumerate(held):
        for node in (None, bound) if bound is not None else (None,):
            holders.do(Step(number, shape, pods, node, settles=False))
    kept = holders.kept
    before = spots(kept)
    made: list[Trial] = []
    given = False
    for trial in trials:
        if trial.kind == "undo" and made:
            undo(kept, made.pop())
        elif trial.kind != "undo" and trial.workload < len(held) and trial.workload not in names(made):
            tried(kept, trial)
            made.append(trial)
        kept.fits(ASKED)
        given = bool(made) and (given or made[-1].kind == "give")
        if not given:
            anew = holders.anew({one.workload: one.kind == "end" for one in made})
            assert free(kept) == free(settled(anew))
    while made:
        undo(kept, made.pop())
    assert spots(kept) == before


def names(made: Iterable[Trial]) -> set[int]:
    return {one.workload for one in made}


def tried(kept: NodeRoom, trial: Trial) -> None:
    owner = WorkloadId(f"w{trial.workload}")
    if trial.kind == "give":
        vector = kept.inventory.vector(((GPU, 1),))
        kept.add(WorkloadId(f"g{trial.workload}"), ASKED, [(trial.node, vector)])
    else:
        kept.remove(owner, ended=trial.kind == "end")


def undo(kept: NodeRoom, trial: Trial) -> None:
    if trial.kind == "give":
        kept.remove(WorkloadId(f"g{trial.workload}"))
    else:
        kept.add(WorkloadId(f"w{trial.workload}"), ())


def settled(found: NodeRoom) -> NodeRoom:
    found.settle()
    return found


def small(*gpus: int) -> NodeRoom:
    """Nodes with these GPUs; every second one is in another zone, which pods ask for."""
    found = NodeRoom(FLAVORS, NODE_RULES)
    for number, amount in enumerate(gpus):
        found.observe(Node(f"n{number}", ((ZONE, "ab"[number % 2]),), ((GPU, amount),)), T0)
    found.matcher.match(SHAPES[1])
    return found


def gpus_free(found: NodeRoom) -> list[int]:
    return [amount for (amount,) in free(found).values()]


def test_some_pods_and_then_others_are_placed_where_all_are_placed_together() -> None:
    """Nodes that are equal but for a label that pods of another shape ask for are taken by name."""
    for first in range(3):
        kept = small(2, 2, 2)
        kept.hold(WorkloadId("a"), 1, (PodGroup(SHAPES[0], first),))
        kept.settle()
        kept.hold(WorkloadId("b"), 2, (PodGroup(SHAPES[0], 2 - first),))
        assert sorted(name for name, _ in spots(kept)) == ["n0", "n1"]


def test_a_holder_that_comes_back_has_pods_expected_elsewhere_again() -> None:
    kept = small(4, 2)
    bound = Pod(uid="v", namespace="ns", name="v", node="n0", requests=((GPU, 4),), workload=WorkloadId("v"))
    kept.observe_pod(bound, T0)
    for number, name in enumerate("vax"):
        kept.hold(WorkloadId(name), number, (PodGroup(SHAPES[0], 1),))
    kept.settle()
    kept.remove(WorkloadId("x"), ended=True)
    kept.remove(WorkloadId("v"))
    assert gpus_free(kept) == [3, 2]
    kept.add(WorkloadId("v"), ())
    assert gpus_free(kept) == [0, 1]


def test_pods_are_expected_beside_what_is_reserved() -> None:
    kept = small(2, 2)
    for number, name in enumerate("ax"):
        kept.hold(WorkloadId(name), number, (PodGroup(SHAPES[0], 1),))
    kept.settle()
    kept.add(WorkloadId("claim"), ASKED, [("n0", (2,))])
    kept.remove(WorkloadId("x"), ended=True)
    assert gpus_free(kept) == [0, 1]


def test_the_end_of_a_workload_moves_no_pods_of_others_of_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 pods that are expected, those are placed again that a plan changes, however many there are."""
    kept = NodeRoom(FLAVORS, NODE_RULES)
    for number in range(100):
        kept.observe(Node(f"n{number:03}", (), ((GPU, 4),)), T0)
    pods = (PodGroup(SHAPES[0], 1),)
    for number in range(200):
        kept.hold(WorkloadId(f"w{number:03}"), number, pods)
    kept.settle()
    charged: list[str] = []
    charge = Inventory.charge

    def noted(self: Inventory, name: str, *amounts: object) -> None:
        charged.append(name)
        charge(self, name, *amounts)  # type: ignore[arg-type]

    monkeypatch.setattr(Inventory, "charge", noted)
    for number in range(8):
        kept.remove(WorkloadId(f"w{number:03}"), ended=True)
    assert kept.fits(pods)
    for number in reversed(range(8)):
        kept.add(WorkloadId(f"w{number:03}"), ())
    assert len(charged) == 16
    for number in range(8):
        kept.drop(WorkloadId(f"w{number:03}"))
        kept.hold(WorkloadId(f"x{number:03}"), 200 + number, pods)
    kept.settle()
    assert len(charged) == 16
    kept.hold(WorkloadId("y"), 300, pods)
    kept.settle()
    assert len(charged) == 17
