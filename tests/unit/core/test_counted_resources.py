"""Which resources nodes limit (M1, M2), while nodes come, change and go one by one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.features.nodes.inventory import Inventory
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.pods import PodGroup, PodShape
from queuectl.core.model.policy import NODE_RULES, Node, ResourceFlavor
from tests.builders import GPU, T0

KIND = "kind"
FLAVORS = {one: ResourceFlavor(name=one, node_labels=((KIND, one),)) for one in ("a", "b")}
DEVICES = (GPU, "example.com/fpga")
PODS = tuple(
    (PodGroup(PodShape(((device, 1),), ((device, flavor),)), 1),) for flavor in FLAVORS for device in DEVICES
)


def node(name: str, flavor: str | None, devices: frozenset[str]) -> Node:
    labels = ((KIND, flavor),) if flavor is not None else ()
    return Node(name, labels, tuple((device, 2) for device in sorted(devices)))


CHANGES = st.tuples(
    st.sampled_from(["n1", "n2", "n3"]),
    st.none() | st.sampled_from(sorted(FLAVORS)),
    st.none() | st.frozensets(st.sampled_from(DEVICES)),
)
"""Name of a node, the flavor that it has the labels of, and its devices; None: the node is gone."""


def told(nodes: dict[str, Node]) -> NodeRoom:
    found = NodeRoom(FLAVORS, NODE_RULES)
    for one in nodes.values():
        found.observe(one, T0)
    found.settle()
    return found


@given(st.lists(CHANGES, max_size=10))
def test_nodes_that_change_one_by_one_limit_the_same_as_if_all_had_come_at_once(
    changes: list[tuple[str, str | None, frozenset[str] | None]],
) -> None:
    room, nodes = told({}), dict[str, Node]()
    for name, flavor, devices in changes:
        if devices is None:
            nodes.pop(name, None)
            room.forget(name, T0)
        else:
            nodes[name] = node(name, flavor, devices)
            room.observe(nodes[name], T0)
        room.settle()
        again = told(nodes)
        assert bool(room) is bool(again)
        assert [room.fits(pods) for pods in PODS] == [again.fits(pods) for pods in PODS]
        if again:
            assert room.inventory.resources == again.inventory.resources


def test_a_node_like_others_does_not_have_them_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[set[str]] = []
    original = Inventory.count

    def count(inventory: Inventory, resources: Iterable[str]) -> None:
        counts.append(set(resources))
        original(inventory, counts[-1])

    monkeypatch.setattr(Inventory, "count", count)
    room = NodeRoom(FLAVORS, NODE_RULES)
    for number in range(20):
        room.observe(node(f"n{number}", "a", frozenset({GPU})), T0)
        room.settle()
    for number in range(1, 20):
        room.forget(f"n{number}", T0)
        room.settle()
    assert counts == [{GPU}]
