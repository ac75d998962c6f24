"""Label selectors as text."""

from __future__ import annotations

import pytest

from queuectl.kinds.selectors import label_selector

LABELS = {"team": "vision", "tier": "a", "example.com/run": "7"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("team=vision", True),
        ("team==vision,tier=a", True),
        ("team=vision,tier=b", False),
        ("team!=vision", False),
        ("owner!=bob", True),
        ("team", True),
        ("!team", False),
        ("!owner", True),
        ("tier in (a, b)", True),
        ("tier notin (a,b)", False),
        ("owner notin (bob), example.com/run = 7", True),
        ("team=", False),
    ],
)
def test_a_selector_has_the_meaning_of_kubernetes(text: str, matches: bool) -> None:
    assert label_selector(text)(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["a b", "!a=b", "in (a)", "a in b", "a=(b)", "a in (b", "=a", ",", "a=b,", ",a", "a,,b"]
)
def test_a_text_that_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector"):
        label_selector(text)
