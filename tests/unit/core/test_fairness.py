"""The tournament: the order of heads under fair sharing (docs/scheduling.md, S4, S5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.workload import Place
from queuectl.core.quota.shares import tournament
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from tests.unit.core.sharing import (
    QUEUES,
    REQUEST,
    cells_of,
    charge,
    cohort,
    forests,
    queue,
    slow_share,
    tree_of,
    usages,
)

T0 = datetime(2030, 1, 1, tzinfo=UTC)
GPU = "x/gpu"


class Head(NamedTuple):
    name: str
    node: QuotaNode
    cells: Cells
    order: Place


def head(
    tree: QuotaTree, name: str, queue: str, amounts: Mapping[str, int], *, priority: int = 0, created: int = 0
) -> Head:
    return Head(name, tree.queue(queue), cells_of(tree, amounts), (-priority, created, 0, name))


def out(tree: QuotaTree, heads: Sequence[Head], *, charging: bool = True) -> list[str]:
    """Return the names in order. Each head is admitted before the next one is requested."""
    names = []
    for winner in tournament(tree, heads):
        names.append(winner.name)
        if charging:
            tree.add(winner.node, winner.cells)
    return names


# --- the tournament


def test_the_smaller_share_is_first_regardless_of_priority() -> None:
    tree = tree_of(
        cohort("all", None, {GPU: 10}), *(queue(name, "all", {GPU: 2}) for name in ("a", "b", "c"))
    )
    heads = [
        head(tree, "much", "a", {GPU: 7}, priority=9),
        head(tree, "nothing", "b", {GPU: 2}, created=5),
        head(tree, "little", "c", {GPU: 4}),
    ]
    assert out(tree, heads) == ["nothing", "little", "much"]


def test_at_equal_shares_priority_then_time_then_name_decide() -> None:
    tree = tree_of(*(queue(name, "all", {GPU: 2}) for name in "abcd"))
    heads = [
        head(tree, "z", "a", {GPU: 1}),
        head(tree, "y", "b", {GPU: 2}),
        head(tree, "later", "c", {GPU: 1}, created=1),
        head(tree, "high", "d", {GPU: 1}, priority=1, created=2),
    ]
    assert out(tree, heads) == ["high", "y", "z", "later"]


def test_a_larger_weight_makes_a_smaller_share() -> None:
    tree = tree_of(
        cohort("all", None, {GPU: 10}),
        queue("light", "all"),
        queue("heavy", "all", weight=2000),
        queue("last", "all", weight=0),
    )
    heads = [
        head(tree, "last", "last", {GPU: 1}),
        head(tree, "light", "light", {GPU: 3}),
        head(tree, "heavy", "heavy", {GPU: 4}),
    ]
    assert out(tree, heads) == ["heavy", "light", "last"]


def test_a_head_that_does_not_borrow_on_its_cells_precedes_one_that_does() -> None:
    tree = tree_of(
        cohort("all", None, {"new/gpu": 100, "old/gpu": 100}),
        queue("a", "all", {"new/gpu": 4}),
        queue("b", "all"),
    )
    charge(tree, "a", {"old/gpu": 50})
    heads = [head(tree, "small", "b", {"new/gpu": 1}), head(tree, "own", "a", {"new/gpu": 4})]
    assert out(tree, heads) == ["own", "small"]


def test_cohorts_compete_by_their_own_share_and_queues_inside_them_by_theirs() -> None:
    tree = tree_of(
        cohort("root", None, {GPU: 100}),
        cohort("left", "root"),
        cohort("right", "root"),
        *(queue(name, "left") for name in ("l1", "l2")),
        queue("r1", "right"),
    )
    charge(tree, "l1", {GPU: 30})
    charge(tree, "r1", {GPU: 20})
    heads = [head(tree, name, name, {GPU: 5}) for name in ("l1", "l2", "r1")]
    assert out(tree, heads) == ["r1", "l2", "l1"]


@pytest.mark.parametrize(
    ("charging", "expected"), [(True, ["l1", "r1", "l2", "r2"]), (False, ["l1", "l2", "r1", "r2"])]
)
def test_an_admission_between_two_heads_counts_at_every_level(charging: bool, expected: list[str]) -> None:
    tree = tree_of(
        cohort("root", None, {GPU: 100}),
        cohort("left", "root"),
        cohort("right", "root"),
        *(queue(name, "left") for name in ("l1", "l2")),
        *(queue(name, "right") for name in ("r1", "r2")),
    )
    heads = [head(tree, name, name, {GPU: 5}) for name in ("l1", "l2", "r1", "r2")]
    assert out(tree, heads, charging=charging) == expected


def test_a_queue_without_a_cohort_yields_its_head_and_no_heads_yield_nothing() -> None:
    tree = tree_of(queue("alone", None, {GPU: 1}))
    assert out(tree, [head(tree, "one", "alone", {GPU: 1})]) == ["one"]
    assert out(tree, []) == []


def test_a_head_in_a_tree_of_depth_one_thousand_is_yielded() -> None:
    chain = [cohort(f"c{n}", f"c{n + 1}" if n < 999 else None) for n in range(1000)]
    tree = tree_of(*chain, queue("deep", "c0"), queue("shallow", "c999", {GPU: 1}))
    heads = [head(tree, "deep", "deep", {GPU: 1}), head(tree, "shallow", "shallow", {GPU: 1})]
    assert out(tree, heads) == ["shallow", "deep"]


def slow_tournament(tree: QuotaTree, heads: Sequence[Head]) -> Head:
    """Return the winner by recursion: the key of each head at each level, then the choice."""
    standing: dict[tuple[QuotaNode, str], tuple[object, ...]] = {}
    for one in heads:
        tree.add(one.node, one.cells)
        for node in one.node.path():
            borrowing = any(node.usage[cell] > node.subtree[cell] for cell, amount in one.cells if amount)
            standing[node, one.name] = (borrowing, slow_share(tree, node), one.order)
        tree.remove(one.node, one.cells)

    def winner(node: QuotaNode) -> Head | None:
        if node.kind == "ClusterQueue":
            return next((one for one in heads if one.node is node), None)
        found = [(child, winner(child)) for child in node.children.values()]
        best = min(
            ((child, one) for child, one in found if one),
            key=lambda c: standing[c[0], c[1].name],
            default=None,
        )
        return best[1] if best else None

    found = winner(tree.root(heads[0].node))
    assert found is not None
    return found


HEADS = st.dictionaries(
    st.sampled_from(QUEUES), st.tuples(REQUEST, st.integers(0, 1), st.integers(0, 2)), min_size=1
)
CHARGES = st.lists(st.tuples(st.sampled_from(QUEUES), REQUEST), max_size=8)


@given(forests(), CHARGES, HEADS, st.lists(st.booleans(), min_size=6, max_size=6))
def test_each_head_is_yielded_once_in_the_order_of_the_slow_reference(
    tree: QuotaTree,
    charges: list[tuple[str, dict[str, int]]],
    asked: dict[str, tuple[dict[str, int], int, int]],
    charging: list[bool],
) -> None:
    for name, amounts in charges:
        charge(tree, name, amounts)
    left = [
        head(tree, name, name, amounts, priority=priority, created=created)
        for name, (amounts, priority, created) in asked.items()
    ]
    for turn, winner in enumerate(tournament(tree, list(left))):
        before = usages(tree)
        assert winner is slow_tournament(tree, left)
        assert usages(tree) == before
        left.remove(winner)
        if charging[turn]:
            tree.add(winner.node, winner.cells)
    assert not left


@given(forests(), CHARGES, HEADS)
def test_a_tournament_without_admissions_leaves_the_tree_unchanged(
    tree: QuotaTree,
    charges: list[tuple[str, dict[str, int]]],
    asked: dict[str, tuple[dict[str, int], int, int]],
) -> None:
    for name, amounts in charges:
        charge(tree, name, amounts)
    before = usages(tree)
    heads = [head(tree, name, name, amounts) for name, (amounts, _, _) in asked.items()]
    assert len(out(tree, heads, charging=False)) == len(heads)
    assert usages(tree) == before
