"""CEL rules over objects: answers, what has none, and what bounds their cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.kinds.cel import MAX_EXPRESSION, MAX_TEXT, MAX_VALUES, BadExpression, check, first_true
from queuectl.kinds.json_fields import BadField

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}]},
    "spec": {"mode": "cluster", "groups": [{"size": 1}, {"size": 4}], "large": 2**70, "none": None},
}


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.mode == 'cluster'",
        "object.spec.?mode.orValue('client') == 'cluster'",
        "!object.spec.?absent.hasValue()",
        "object.spec[?'absent'].orValue(true)",
        "has(object.spec.groups) && !has(object.spec.absent)",
        "object.spec.groups.exists(group, group.size > 3)",
        "object.spec.groups.all(group, group.?replicas.orValue(1) == 1)",
        "object.spec.mode.matches('^[a-z]+$')",
        "object.spec.large > 1.0",
        "object.spec.none == null",
        "!has(object.metadata.managedFields)",
    ],
)
def test_an_expression_that_is_true_of_the_object_is_found(expression: str) -> None:
    assert first_true(["false", expression, "true"], OBJECT) == 1
    assert first_true([f"!({expression})"], OBJECT) is None


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.spec.absent == 1", "has no answer: NOT_FOUND: Key not found in map"),
        ("object.spec.groups[7].size == 1", "has no answer: UNKNOWN: Index error: index=7 size=2"),
        ("object.spec.mode", "has no answer: cluster"),
        ("object.spec.mode.matches('(')", "has no answer: invalid regular expression: missing )"),
    ],
)
def test_an_expression_without_an_answer_is_named(expression: str, problem: str) -> None:
    with pytest.raises(BadField) as refusal:
        first_true([expression], OBJECT)
    assert repr(expression) in str(refusal.value)
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("object.spec.mode ==", "line 1, column 20: Syntax error"),
        ("objekt.spec.mode == 'x'", "undeclared reference to 'objekt"),
        ("object.spec.mode.size()", "must be true or false, not of type int"),
        ("object.spec.mode.size() > 'a'", "found no matching overload for '_>_'"),
        ("('a' + 1) == 'a'", "found no matching overload"),
        (f"object.spec.mode == '{'x' * MAX_EXPRESSION}'", f"at most {MAX_EXPRESSION} are read"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit"),
    ],
)
def test_a_malformed_expression_is_refused_before_any_object_comes(expression: str, problem: str) -> None:
    with pytest.raises(BadExpression) as refusal:
        check(expression)
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "spec",
    [
        {"items": [0] * MAX_VALUES},
        {"text": "x" * (MAX_TEXT + 1)},
        {"x" * (MAX_TEXT + 1): 1},
        {"number": 10**400},
        {"bytes": b"x"},
    ],
    ids=["values", "text", "keys", "number", "no JSON"],
)
def test_an_object_that_is_too_large_is_refused_in_words(spec: dict[str, Any]) -> None:
    with pytest.raises(BadField, match=r"too large|not JSON"):
        first_true(["true"], {"spec": spec})


def test_an_object_that_is_nested_too_deep_is_refused_in_words() -> None:
    deep: dict[str, Any] = {}
    for _ in range(900):
        deep = {"a": deep}
    with pytest.raises(BadField, match="64 levels"):
        first_true(["object == object"], deep)


def test_loops_in_loops_end_at_a_number_of_steps() -> None:
    items = {"items": list(range(1000))}
    with pytest.raises(BadField, match="Iteration budget exceeded"):
        first_true(["object.items.all(a, object.items.all(b, a + b >= 0))"], items)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(obj=st.dictionaries(st.text(max_size=3), _VALUES, max_size=3))
def test_every_object_gets_an_answer(obj: dict[str, Any]) -> None:
    assert first_true(["!(object == object) && object != object", "object.all(key, key in object)"], obj) == 1
