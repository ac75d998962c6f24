"""Selectors, taints and affinities match as in Kubernetes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuectl.core.flavors.queue_flavors import mismatch
from queuectl.core.model.policy import LabelSelector, Requirement, Taint, Toleration
from queuectl.core.model.selectors import meets, selects, tolerated
from tests.builders import flavor, pod_set

LABELS = {"team": "a", "size": "5", "empty": ""}


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (Requirement("team", "In", ("a", "b")), True),
        (Requirement("team", "In", ("b",)), False),
        (Requirement("team", "In"), False),
        (Requirement("none", "In", ("",)), False),
        (Requirement("team", "NotIn", ("a",)), False),
        (Requirement("team", "NotIn", ("b",)), True),
        (Requirement("none", "NotIn", ("a",)), True),
        (Requirement("team", "Exists"), True),
        (Requirement("empty", "Exists"), True),
        (Requirement("none", "Exists"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("team", "DoesNotExist"), False),
        (Requirement("size", "Gt", ("4",)), True),
        (Requirement("size", "Gt", ("5",)), False),
        (Requirement("size", "Lt", ("6",)), True),
        (Requirement("size", "Lt", ("-6",)), False),
        (Requirement("team", "Gt", ("4",)), False),
        (Requirement("size", "Gt", ("x",)), False),
        (Requirement("size", "Gt", ()), False),
        (Requirement("size", "Gt", ("1", "2")), False),
        (Requirement("none", "Lt", ("4",)), False),
        (Requirement("size", "Gt", ("-" + "9" * 100_000,)), True),
        (Requirement("team", "Like", ("a",)), False),
    ],
)
def test_an_expression_matches_as_in_kubernetes(requirement: Requirement, expected: bool) -> None:
    assert meets(requirement, LABELS) is expected


def test_an_empty_selector_selects_everything_and_all_of_a_full_one_must_match() -> None:
    exists = Requirement("team", "Exists")
    assert selects(LabelSelector(), {})
    assert selects(LabelSelector((("team", "a"),), (exists,)), LABELS)
    assert not selects(LabelSelector((("team", "b"),), (exists,)), LABELS)
    assert not selects(LabelSelector((("team", "a"),), (Requirement("none", "Exists"),)), LABELS)


SPOT = Taint("spot", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("taint", "toleration", "expected"),
    [
        (SPOT, None, False),
        (Taint("spot", "yes", "PreferNoSchedule"), None, True),
        (Taint("spot", "yes", "NoExecute"), None, False),
        (SPOT, Toleration("spot", "Exists"), True),
        (SPOT, Toleration("other", "Exists"), False),
        (SPOT, Toleration(None, "Exists"), True),
        (SPOT, Toleration(None, None, "yes"), False),
        (SPOT, Toleration("spot", "Equal", "yes"), True),
        (SPOT, Toleration("spot", None, "yes"), True),
        (SPOT, Toleration("spot", "Equal", "no"), False),
        (SPOT, Toleration("spot", "Equal"), False),
        (Taint("spot", "", "NoSchedule"), Toleration("spot", "Equal"), True),
        (SPOT, Toleration("spot", "Exists", None, "NoSchedule"), True),
        (SPOT, Toleration("spot", "Exists", None, "NoExecute"), False),
        (SPOT, Toleration("spot", "Exists", None, "NoSchedule", 60), True),
    ],
)
def test_a_toleration_tolerates_as_in_kubernetes(
    taint: Taint, toleration: Toleration | None, expected: bool
) -> None:
    assert tolerated(taint, [toleration] if toleration else []) is expected


A = Requirement("zone", "In", ("a",))
B = Requirement("zone", "In", ("b",))
ELSEWHERE = Requirement("disk", "In", ("ssd",))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"node_selector": (("zone", "a"),)}, None),
        ({"node_selector": (("zone", "b"),)}, "zone=b"),
        ({"node_selector": (("disk", "ssd"),)}, None),
        ({"affinity": ((A,),)}, None),
        ({"affinity": ((B,),)}, "affinity"),
        ({"affinity": ((B,), (A,))}, None),
        ({"affinity": ((A, ELSEWHERE),)}, None),
        ({"affinity": ((B, ELSEWHERE),)}, "affinity"),
        ({"affinity": ((ELSEWHERE,),)}, None),
        ({"affinity": ((),)}, None),
    ],
)
def test_a_podset_is_matched_only_against_labels_that_the_flavor_defines(
    fields: dict[str, Any], why: str | None
) -> None:
    found = mismatch(flavor("f", labels={"zone": "a"}), replace(pod_set(1, {"cpu": 1}), **fields))
    assert (found is None) is (why is None)
    assert (why or "") in (found or "")


def test_the_flavors_own_tolerations_count_and_an_untolerated_taint_is_named() -> None:
    bare = flavor("f", taints=[SPOT])
    assert mismatch(bare, pod_set()) == "taint spot=yes:NoSchedule is not tolerated"
    assert mismatch(flavor("f", taints=[SPOT], tolerations=[Toleration("spot", "Exists")]), pod_set()) is None
