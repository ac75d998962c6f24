"""The quota tree compared with a recursive form of docs/scheduling.md, Q2 to Q7, on random forests."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.directory import condition, cycle_condition
from queuectl.core.model.policy import (
    ClusterQueue,
    Cohort,
    Condition,
    FlavorQuotas,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from queuectl.core.model.resources import FlavorResource
from queuectl.core.quota.cohort_trees import CohortTrees
from queuectl.core.quota.tree import QuotaNode, QuotaTree

CELLS = (FlavorResource("a", "gpu"), FlavorResource("b", "gpu"))
AMOUNT = st.integers(0, 9)
LIMIT = st.none() | AMOUNT
QUOTA = st.builds(ResourceQuota, nominal=AMOUNT, borrowing_limit=LIMIT, lending_limit=LIMIT)
GROUPS = st.builds(
    lambda a, b: (
        ResourceGroup(
            covered=("gpu",),
            flavors=tuple(
                FlavorQuotas(name=name, resources=(("gpu", quota),)) for name, quota in (("a", a), ("b", b))
            ),
        ),
    ),
    QUOTA,
    QUOTA,
)
COHORTS = [f"c{n}" for n in range(5)]
QUEUES = [f"q{n}" for n in range(5)]


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[Cohort], list[ClusterQueue]]:
    """Cohorts whose parents precede them, so that there are no cycles, and queues in any of them."""
    cohorts = [
        Cohort(
            name=name,
            parent=draw(st.sampled_from([None, *COHORTS[:number]])),
            resource_groups=draw(GROUPS | st.just(())),
        )
        for number, name in enumerate(COHORTS)
    ]
    queues = [
        ClusterQueue(name=name, cohort=draw(st.sampled_from([None, *COHORTS])), resource_groups=draw(GROUPS))
        for name in QUEUES
    ]
    return cohorts, queues


CHARGES = st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 1), st.integers(0, 12)), max_size=12)


def grown(cohorts: list[Cohort], queues: list[ClusterQueue]) -> QuotaTree:
    tree = QuotaTree()
    for cell in CELLS:
        tree.cell(cell)
    for cohort in cohorts:
        tree.set_cohort(cohort)
    for queue in queues:
        tree.set_queue(queue)
    return tree


def picture(tree: QuotaTree) -> dict[str, tuple[list[int], list[int], str]]:
    """Return all values of a tree, without empty nodes."""
    found = {}
    for node in tree.nodes():
        if any(node.nominal) or any(node.usage) or node.children or node.parent:
            found[str(node)] = (list(node.subtree), list(node.usage), str(node.parent))
    return found


# --- reference: recursive, from nominal quota and the usage of queues alone


def subtree(node: QuotaNode, cell: int) -> int:
    return node.nominal[cell] + sum(
        subtree(child, cell) - private(child, cell) for child in node.children.values()
    )


def private(node: QuotaNode, cell: int) -> int:
    limit = node.lending[cell]
    return 0 if limit is None else max(0, subtree(node, cell) - limit)


def usage(node: QuotaNode, cell: int) -> int:
    if node.kind == "ClusterQueue":
        return node.usage[cell]
    return sum(max(0, usage(child, cell) - private(child, cell)) for child in node.children.values())


def available(node: QuotaNode, cell: int) -> int:
    if node.parent is None:
        return subtree(node, cell) - usage(node, cell)
    from_parent = available(node.parent, cell)
    limit = node.borrowing[cell]
    if limit is not None:
        in_parent = subtree(node, cell) - private(node, cell)
        used_up = max(0, usage(node, cell) - private(node, cell))
        from_parent = min(from_parent, in_parent - used_up + limit)
    return max(0, private(node, cell) - usage(node, cell)) + from_parent


def potential(node: QuotaNode, cell: int) -> int:
    if node.parent is None:
        return subtree(node, cell)
    reach = private(node, cell) + potential(node.parent, cell)
    limit = node.borrowing[cell]
    return reach if limit is None else min(reach, subtree(node, cell) + limit)


def check(tree: QuotaTree) -> None:
    for node in tree.nodes():
        for cell in range(len(CELLS)):
            assert node.subtree[cell] == subtree(node, cell), node
            assert node.usage[cell] == usage(node, cell), node
            assert tree.available(node, cell) == available(node, cell), node
            assert tree.potential(node, cell) == potential(node, cell), node


@given(forests(), CHARGES)
def test_every_number_equals_its_definition(
    forest: tuple[list[Cohort], list[ClusterQueue]], charges: list[tuple[str, int, int]]
) -> None:
    tree = grown(*forest)
    check(tree)
    for queue, cell, amount in charges:
        tree.add(tree.queue(queue), [(cell, amount)])
    check(tree)


@given(forests(), CHARGES, st.randoms(use_true_random=False))
def test_remove_reverts_add_in_any_order(
    forest: tuple[list[Cohort], list[ClusterQueue]], charges: list[tuple[str, int, int]], random: object
) -> None:
    tree = grown(*forest)
    before = picture(tree)
    for queue, cell, amount in charges:
        tree.add(tree.queue(queue), [(cell, amount)])
    random.shuffle(charges)  # type: ignore[attr-defined]
    for queue, cell, amount in charges:
        tree.remove(tree.queue(queue), [(cell, amount)])
        check(tree)
    assert picture(tree) == before


@given(forests(), forests(), CHARGES)
def test_a_changed_tree_equals_a_newly_built_one(
    first: tuple[list[Cohort], list[ClusterQueue]],
    second: tuple[list[Cohort], list[ClusterQueue]],
    charges: list[tuple[str, int, int]],
) -> None:
    tree = grown(*first)
    for queue, cell, amount in charges:
        tree.add(tree.queue(queue), [(cell, amount)])
    for changed in reversed(second[1]):
        tree.set_queue(changed)
        check(tree)
    for cohort in reversed(second[0]):
        tree.set_cohort(cohort)
        check(tree)
    fresh = grown(*second)
    for queue, cell, amount in charges:
        fresh.add(fresh.queue(queue), [(cell, amount)])
    assert picture(tree) == picture(fresh)


@given(forests(), CHARGES, st.sampled_from(QUEUES), st.sampled_from(COHORTS))
def test_a_deleted_node_loses_its_quota_and_keeps_its_usage(
    forest: tuple[list[Cohort], list[ClusterQueue]],
    charges: list[tuple[str, int, int]],
    queue: str,
    cohort: str,
) -> None:
    tree = grown(*forest)
    for name, cell, amount in charges:
        tree.add(tree.queue(name), [(cell, amount)])
    held = list(tree.queue(queue).usage)
    tree.drop_queue(queue)
    tree.drop_cohort(cohort)
    check(tree)
    assert tree.queue(queue).usage == held
    assert tree.queue(queue).parent is None


@given(st.lists(st.tuples(st.sampled_from(COHORTS), st.none() | st.sampled_from(COHORTS)), max_size=14))
def test_a_cohort_cycle_deactivates_only_its_members_and_the_queues_below(
    edits: list[tuple[str, str | None]],
) -> None:
    tree = QuotaTree()
    parents: dict[str, str | None] = dict.fromkeys(COHORTS)
    cohorts: dict[str, Cohort] = {}
    queues = [ClusterQueue(name=name, cohort=f"c{name[1:]}") for name in QUEUES]
    for queue in queues:
        tree.set_queue(queue)
    for child, parent in edits:
        parents[child] = parent
        cohorts[child] = Cohort(name=child, parent=parent)
        tree.set_cohort(cohorts[child])
        for queue in queues:
            reason = condition(queue, {}, cohorts).reason
            assert reason == ("CohortCycle" if circular(queue.cohort, parents) else "Ready")
        for node in tree.nodes():
            assert len(list(node.path())) <= len(COHORTS) + 1
            attached = node.parent is not None and node.parent.name == node.wanted
            assert attached or node.wanted is None or closes(node, tree), (
                f"{node} is detached without a cycle"
            )
    check_all(tree)


def circular(name: str | None, parents: dict[str, str | None]) -> bool:
    seen: list[str | None] = []
    at: str | None = name
    while at is not None and at not in seen:
        seen.append(at)
        at = parents[at]
    return at is not None


def closes(node: QuotaNode, tree: QuotaTree) -> bool:
    """Return whether the parent by spec leads back to the node."""
    above = next(other for other in tree.nodes() if other.kind == "Cohort" and other.name == node.wanted)
    return node in list(above.path())


def check_all(tree: QuotaTree) -> None:
    for cell in CELLS:
        tree.cell(cell)
    check(tree)


def test_a_tree_of_depth_one_thousand_works() -> None:
    tree = QuotaTree()
    cell = tree.cell(CELLS[0])
    names = [f"c{n}" for n in range(1000)]
    cohorts = {child: Cohort(name=child, parent=parent) for child, parent in pairwise(names)}
    for cohort in cohorts.values():
        tree.set_cohort(cohort)
    group = FlavorQuotas(name="a", resources=(("gpu", ResourceQuota(nominal=3)),))
    groups = (ResourceGroup(covered=("gpu",), flavors=(group,)),)
    queue = ClusterQueue(name="q", cohort="c0", resource_groups=groups)
    tree.set_queue(queue)
    tree.add(tree.queue("q"), [(cell, 2)])
    assert tree.available(tree.queue("q"), cell) == 1
    assert tree.potential(tree.queue("q"), cell) == 3
    assert condition(queue, {"a": ResourceFlavor(name="a")}, cohorts).active


def test_a_queue_and_a_cohort_may_have_the_same_name() -> None:
    tree = QuotaTree()
    tree.set_cohort(Cohort(name="x", parent="y"))
    tree.set_cohort(Cohort(name="y", parent="x"))
    tree.set_queue(ClusterQueue(name="x", cohort="x"))
    tree.set_queue(ClusterQueue(name="y", cohort=None))
    tree.set_cohort(Cohort(name="y", parent=None))
    cohorts = {"x": Cohort(name="x", parent="y"), "y": Cohort(name="y", parent=None)}
    assert condition(ClusterQueue(name="x", cohort="x"), {}, cohorts).active
    assert [str(node) for node in tree.queue("x").path()] == ["ClusterQueue/x", "Cohort/x", "Cohort/y"]


def test_a_cycle_of_cohorts_is_said_once_for_queues_and_cohorts() -> None:
    cohorts = {
        name: Cohort(name=name, parent=parent)
        for name, parent in (("below", "one"), ("one", "two"), ("two", "one"), ("apart", "root"))
    }
    trees = CohortTrees(cohorts.values())
    message = "cohort one is its own ancestor, by spec.parentName of one, two"
    assert trees.above("below") == ["below", "one", "two"], "each once"
    assert cycle_condition("below", trees.parent) == Condition(False, "CohortCycle", message)
    assert condition(ClusterQueue(name="q", cohort="below"), {}, cohorts).message == message
    assert cycle_condition("apart", trees.parent) is cycle_condition(None, trees.parent) is None
    assert (trees.root("below"), trees.root("two"), trees.root("apart")) == ("one", "one", "root")


def test_a_message_names_some_cohorts_of_a_large_cycle() -> None:
    parents = {f"c{n}": f"c{(n + 1) % 20}" for n in range(20)}
    found = cycle_condition("c3", parents.get)
    assert found is not None
    assert found.message == (
        "cohort c3 is its own ancestor, by spec.parentName of c3, c4, c5, c6, c7, c8, c9, c10 and 12 more"
    )
