"""Dominant shares (docs/scheduling.md, S2 and S3)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.core.model.policy import ResourceQuota
from queuectl.core.quota.shares import Share, dominant_share
from queuectl.core.quota.tree import QuotaTree
from tests.unit.core.sharing import (
    QUEUES,
    QUOTAS,
    REQUEST,
    borrows,
    cells_of,
    charge,
    cohort,
    forests,
    node_of,
    queue,
    slow_share,
    tree_of,
)


def share(tree: QuotaTree, name: str) -> Share:
    return dominant_share(tree, node_of(tree, name))


def two(weight: int = 1000) -> QuotaTree:
    """Return `mine` and `theirs` with 5 GPUs and 20 cpu each, under one cohort."""
    own = {"x/gpu": 5, "x/cpu": 20}
    return tree_of(queue("mine", "all", own, weight=weight), queue("theirs", "all", own))


def test_usage_within_the_own_quota_has_share_zero() -> None:
    tree = two()
    charge(tree, "mine", {"x/gpu": 5, "x/cpu": 20})
    assert (share(tree, "mine").reported, share(tree, "mine").borrowing) == (0, False)


def test_a_share_is_the_borrowed_part_of_the_lendable_quota_in_thousandths() -> None:
    tree = two()
    charge(tree, "mine", {"x/gpu": 7, "x/cpu": 21})
    found = share(tree, "mine")
    assert (found.reported, found.resource, found.borrowing) == (200, "gpu", True)
    assert share(tree, "theirs").reported == 0


@pytest.mark.parametrize(
    ("weight", "reported"), [(1000, 200), (2000, 100), (500, 400), (3000, 67), (0, None)]
)
def test_a_share_is_divided_by_its_weight_and_rounded_up_in_reports(
    weight: int, reported: int | None
) -> None:
    tree = two(weight)
    charge(tree, "mine", {"x/gpu": 7})
    assert share(tree, "mine").reported == reported


def test_weight_zero_does_not_matter_without_borrowing() -> None:
    tree = two(0)
    charge(tree, "mine", {"x/gpu": 5})
    found = share(tree, "mine")
    assert (found.reported, found.infinite) == (0, False)


def test_a_queue_without_a_cohort_and_a_root_have_share_zero() -> None:
    tree = tree_of(queue("alone", None, {"x/gpu": 1}), queue("member", "root"), cohort("root"))
    charge(tree, "alone", {"x/gpu": 9})
    charge(tree, "member", {"x/gpu": 9})
    assert [share(tree, name).reported for name in ("alone", "root")] == [0, 0]


def test_flavors_of_one_resource_count_together() -> None:
    tree = tree_of(
        queue("mine", "all", {"new/gpu": 2, "old/gpu": 8}), queue("theirs", "all", {"other/gpu": 10})
    )
    charge(tree, "mine", {"new/gpu": 3, "old/gpu": 1})
    assert share(tree, "mine").reported == 50
    charge(tree, "mine", {"old/gpu": 8})
    assert share(tree, "mine").reported == 100


def test_of_equal_resources_the_first_by_name_is_dominant() -> None:
    tree = tree_of(queue("mine", "all"), queue("theirs", "all", {"x/gpu": 10, "x/cpu": 20}))
    charge(tree, "mine", {"x/gpu": 1, "x/cpu": 2})
    assert share(tree, "mine").resource == "cpu"


def test_lendable_quota_is_the_potential_of_the_parent_not_of_the_root() -> None:
    limited = {"x/gpu": ResourceQuota(nominal=0, borrowing_limit=10)}
    tree = tree_of(
        cohort("root", None, {"x/gpu": 50}), cohort("middle", "root", limited), queue("mine", "middle")
    )
    charge(tree, "mine", {"x/gpu": 10})
    assert (share(tree, "mine").reported, share(tree, "middle").reported) == (1000, 200)


def test_borrowing_without_lendable_quota_has_share_zero() -> None:
    tree = tree_of(queue("mine", "all", weight=0), queue("theirs", "all", {"x/cpu": 1}))
    charge(tree, "mine", {"x/gpu": 3})
    found = share(tree, "mine")
    assert (found.reported, found.infinite, found.borrowing, found.resource) == (0, False, True, "")


def test_one_borrowed_unit_of_a_huge_quota_is_more_than_share_zero() -> None:
    tree = tree_of(queue("mine", "all"), queue("theirs", "all", {"x/cpu": 10**21}))
    charge(tree, "mine", {"x/cpu": 1})
    assert share(tree, "mine").reported == 1
    assert share(tree, "theirs") < share(tree, "mine")


def test_a_change_of_quota_elsewhere_changes_a_share_at_once() -> None:
    tree = two()
    charge(tree, "mine", {"x/gpu": 7})
    assert share(tree, "mine").reported == 200
    tree.set_queue(queue("theirs", "all", {"x/gpu": 15}))
    assert share(tree, "mine").reported == 100
    tree.drop_queue("theirs")
    assert share(tree, "mine").reported == 400


def test_a_new_resource_has_no_lendable_quota() -> None:
    tree = two()
    charge(tree, "mine", {"x/gpu": 7})
    assert share(tree, "mine").reported == 200
    charge(tree, "mine", {"x/disk": 7})
    assert share(tree, "mine").reported == 200


def test_borrowers_with_weight_zero_compare_by_ratio_above_all_other_shares() -> None:
    most, more, less = Share(10**30), Share(2, 3, infinite=True), Share(1, 2, infinite=True)
    assert sorted([more, most, less, Share()]) == [Share(), most, less, more]


SHARES = st.builds(Share, st.integers(0, 6), st.integers(1, 6), infinite=st.booleans())


@given(SHARES, SHARES, SHARES)
def test_shares_are_in_one_total_order(a: Share, b: Share, c: Share) -> None:
    assert [a < b, a == b, b < a].count(True) == 1
    assert (a <= b) == (a < b or a == b)
    assert (a > b, a >= b) == (b < a, b <= a)
    if a <= b <= c:
        assert a <= c
    if a == b == c:
        assert a == c
    if a.infinite is b.infinite:
        first, second = (Fraction(s.numerator, s.denominator) for s in (a, b))
        assert (a < b) == (first < second)


CHARGES = st.lists(st.tuples(st.sampled_from(QUEUES), REQUEST), max_size=10)


@given(forests(), CHARGES, st.sampled_from(QUEUES), QUOTAS)
def test_after_every_change_a_share_equals_its_definition(
    tree: QuotaTree, charges: list[tuple[str, dict[str, int]]], changed: str, quotas: dict[str, ResourceQuota]
) -> None:
    def check() -> None:
        for node in tree.nodes():
            found = dominant_share(tree, node)
            assert (found.infinite, Fraction(found.numerator, found.denominator)) == slow_share(tree, node)
            assert found.borrowing == borrows(node)

    check()
    for name, amounts in charges:
        charge(tree, name, amounts)
        check()
    tree.set_queue(queue(changed, "c1", quotas, weight=500))
    check()
    for name, amounts in charges:
        tree.remove(tree.queue(name), cells_of(tree, amounts))
    check()
