"""A fork of an engine decides as the engine does, and nothing that happens to one changes the other."""

from __future__ import annotations

import gc
import pickle
from collections import Counter, defaultdict, deque
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given

from queuectl.core.copies import dissolve, fork
from queuectl.core.decisions import Admit, Evict
from queuectl.core.entries import Entry
from queuectl.core.model.events import TimeCame
from queuectl.core.model.values import value
from tests.doubles import engine_state
from tests.doubles.invariants import violations
from tests.unit.core import profiles
from tests.unit.core.actions import JOBS, SCRIPT, SETUP, on_quota, play, submit_some
from tests.unit.core.driver import Driver
from tests.unit.core.node_worlds import NodeWorld, gang, node
from tests.unit.core.trees import Dice


@profiles.sequences(150)
@given(SETUP, JOBS, SCRIPT, JOBS)
def test_what_happens_to_an_engine_and_to_its_fork_is_independent(
    made: bytes, jobs: list[bytes], script: list[bytes], late: list[bytes]
) -> None:
    running = play(on_quota(made), jobs, script)
    engine, other, third = running.engine, running.engine.fork(), running.engine.fork()
    assert violations(other) == []
    assert other.decide(running.now) == engine.decide(running.now)
    before = pickle.dumps(other)
    live_on(running, late)
    assert pickle.dumps(other) == before, "what happened to the engine changed its fork"
    after = pickle.dumps(engine)
    running.engine = third
    third.handle([*running.everything(), TimeCame(running.now)])
    third.commit(third.decide(running.now), 1)
    assert violations(third) == []
    assert pickle.dumps(engine) == after, "what happened to a fork changed the engine"


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(10))
def test_what_a_dissolved_engine_had_is_freed_at_once_and_others_keep_what_they_have(seed: int) -> None:
    dice = Random(seed)
    jobs, script = ([dice.randbytes(36) for _ in range(8)] for _ in range(2))
    running = play(on_quota(dice.randbytes(420)), jobs, script)
    engine = running.engine
    before = pickle.dumps(engine)
    gc.collect()
    gc.disable()
    try:
        known = entries()
        other = engine.fork()
        other.decide(running.now)
        assert engine_state.entries(engine)
        assert entries() == known + len(engine_state.entries(engine))
        dissolve(other)
        assert entries() == known
    finally:
        gc.enable()
    assert pickle.dumps(engine) == before


def entries() -> int:
    return sum(isinstance(one, Entry) for one in gc.get_objects())


def test_a_fork_has_the_nodes_and_their_pods_as_its_own() -> None:
    world = NodeWorld(*(node(f"n{number}", 2) for number in range(4)))
    world.asks(gang("runs", 3, 2))
    world.settle()
    world.asks(gang("waits", 2, 2))
    world.bind("runs", "n0", "n1", "n2", gpus=2)
    engine, other, third = world.engine, world.engine.fork(), world.engine.fork()
    before = pickle.dumps(other)
    world.bind(None, "n3")
    world.lose("n0")
    evicted = world.run()
    assert [type(one) for one in evicted if isinstance(one, Evict)] == [Evict]
    assert pickle.dumps(other) == before, "what happened to the engine changed its fork"
    world.engine = third
    world.nodes(node("n4", 4))
    assert {one.ref.name for one in world.run() if isinstance(one, Admit)} == {"waits"}
    assert violations(third) == violations(other) == violations(engine) == []


def live_on(running: Driver, late: list[bytes]) -> None:
    for one in late:
        submit_some(running, Dice(one))
        running.act(Dice(one[::-1]))
    running.now += timedelta(seconds=100)
    running.tell_time()
    running.come_to_rest()


class Node:
    """A class with slots and one with a dictionary below it."""

    __slots__ = ("above", "below", "unset")

    def __init__(self, above: Node | None) -> None:
        self.above = above
        self.below: list[Node] = []


class Named(Node):
    def __init__(self, name: str) -> None:
        super().__init__(None)
        self.rename(name)

    def rename(self, name: str) -> None:
        self.name = name


@value(frozen=True, slots=True)
class Colour:
    red: int


def test_a_chain_of_any_depth_and_its_cycles_are_copied() -> None:
    top = Named("top")
    last: Node = top
    for _ in range(20_000):
        one = Node(last)
        last.below.append(one)
        last = one
    copy = fork(top)
    assert (copy.name, type(copy)) == ("top", Named)
    node: Node = copy
    for _ in range(20_000):
        assert node.below[0].above is node
        node = node.below[0]
    assert node.below == []


def test_containers_are_copied_once_each_and_values_are_shared() -> None:
    node, colour = Node(None), Colour(1)
    shared: list[object] = [node, colour]
    heap = [((1, 2), node), ((0, 1), colour)]
    known: dict[str, Any] = {
        "twice": (shared, shared),
        "set": {node},
        "keys": {node: 1},
        "deque": deque([node]),
        "default": defaultdict(list, {1: [node]}),
        "counter": Counter({"a": 2}),
        "heap": heap,
        "empty": [[], {}, set()],
    }
    copy = fork(known)
    first, second = copy["twice"]
    assert first is second is not shared
    other = first[0]
    assert isinstance(other, Node)
    assert other is not node
    assert first[1] is colour
    assert copy["set"] == {other}
    assert copy["keys"] == {other: 1}
    assert copy["deque"] == deque([other])
    assert copy["default"] == {1: [other]}
    assert copy["default"][5] == []
    assert copy["counter"] == Counter({"a": 2})
    assert type(copy["counter"]) is Counter
    assert copy["heap"] == [((1, 2), other), ((0, 1), colour)]
    assert copy["heap"][1] is heap[1], "a tuple of values is shared"
    assert copy["empty"] == [[], {}, set()]
    assert copy["empty"][0] is not known["empty"][0]


@pytest.mark.parametrize(
    "function", [lambda: None, [].append, Named("a").rename], ids=["lambda", "builtin", "bound"]
)
def test_a_function_cannot_be_forked(function: object) -> None:
    with pytest.raises(TypeError, match="cannot fork"):
        fork({"what": [function]})
