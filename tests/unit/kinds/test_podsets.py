"""Podsets of an object, by the description of its kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.kinds.jobs import value_at
from queuectl.kinds.json_fields import BadField
from queuectl.kinds.podsets import Count, Each, PodSetGroup, Templates

HEAD = PodSetGroup(name="head", at=("spec", "cluster", "head"), template=("pod",))
GROUPS = PodSetGroup(
    at=("spec", "cluster", "groups", Each("id")),
    counts=(
        Count(("size",), default=0, at_least=("limits", "low"), at_most=("limits", "high")),
        Count(("hosts",)),
    ),
    template=("pod",),
)
EXTRA = PodSetGroup(name="extra", at=("spec", "extra"), optional=True)
FORM = Templates(groups=(HEAD, GROUPS, EXTRA))
POD = {"spec": {"containers": [{"name": "c"}]}}


def group(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "pod": POD, **fields}


def obj(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"cluster": {"head": {"pod": POD}, "groups": list(groups)}, **spec}}


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({}, 0),
        ({"size": 3}, 3),
        ({"size": 3, "hosts": 2}, 6),
        ({"size": 3, "limits": {"low": 5}}, 5),
        ({"size": 9, "limits": {"low": 1, "high": 4}}, 4),
        ({"hosts": 2, "limits": {"low": 1, "high": 4}}, 2),
    ],
)
def test_the_number_of_pods_is_a_product_of_bounded_numbers(fields: dict[str, Any], pods: int) -> None:
    found = FORM.find(obj(group("a", **fields)))
    assert [(one.name, one.pods) for one in found] == [("head", 1), ("a", pods)]


def test_a_podset_that_may_be_missing_is_found_where_it_is() -> None:
    found = FORM.find(obj(group("a"), extra={"template": POD}))
    assert [(one.name, one.path) for one in found][2:] == [("extra", "spec.extra.template")]


@given(st.lists(st.text("abc", min_size=1), unique=True, min_size=1, max_size=5), st.booleans())
def test_the_path_of_a_template_leads_to_the_podset_of_this_name_and_place(
    names: list[str], extra: bool
) -> None:
    pods = {name: {"spec": {"containers": [{"name": name}]}} for name in names}
    given = obj(*({"id": name, "pod": pod} for name, pod in pods.items()))
    if extra:
        given["spec"]["extra"] = {"template": POD}
    for place, found in enumerate(FORM.find(given)):
        at: Any = given
        for step in FORM.template(found.name, place) or ():
            at = at[step]
        assert at["spec"] is found.spec


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "spec.cluster.head.pod.spec: no pod spec"),
        (obj(), "spec.cluster.groups: no podsets"),
        (obj(group("a"), group("a")), "spec.cluster.groups: two podsets have the name a"),
        (obj(group("head")), "spec.cluster.groups: two podsets have the name head"),
        (obj({"pod": POD}), "spec.cluster.groups[0].id: null is not text"),
        (obj(group("a", size=-1)), "spec.cluster.groups[0].size: -1 is outside 0 to"),
        (
            obj(group("a", limits={"low": "x"})),
            "spec.cluster.groups[0].limits.low: 'x' is not a whole number",
        ),
        (
            obj(group("a", size=2**31 - 1, hosts=2)),
            "spec.cluster.groups[0].size: 2147483647 x 2 are more than",
        ),
        (obj(group("a"), extra={"template": 7}), "spec.extra.template: 7 is not an object"),
    ],
)
def test_a_malformed_object_is_a_problem_that_names_the_field(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadField) as raised:
        FORM.find(given)
    assert str(raised.value).startswith(problem)


def test_a_map_of_any_podsets_is_read_in_the_order_of_their_names() -> None:
    roles = Templates(groups=(PodSetGroup(at=("spec", "roles", Each()), counts=(Count(("n",)),)),))
    given = {"spec": {"roles": {"b": {"n": 2, "template": POD}, "a": {"template": POD}}}}
    assert [(one.name, one.pods) for one in roles.find(given)] == [("a", 1), ("b", 2)]
    assert value_at(given, tuple(map(str, roles.template("b", 1) or ()))) is POD


@pytest.mark.parametrize(
    "groups", [(GROUPS, GROUPS), (EXTRA, GROUPS)], ids=["two lists", "maybe before a list"]
)
def test_a_form_whose_places_are_not_certain_is_refused(groups: tuple[PodSetGroup, ...]) -> None:
    with pytest.raises(ValueError, match="one list or map of any podsets"):
        Templates(groups=groups)


@pytest.mark.parametrize(
    ("name", "at"), [("", ("spec",)), ("a", ("spec", Each())), ("", ("spec", Each(), "x"))]
)
def test_a_group_is_one_podset_with_a_name_or_each_at_the_end_of_a_path(name: str, at: Any) -> None:
    with pytest.raises(ValueError, match="one podset has a name"):
        PodSetGroup(name=name, at=at)
