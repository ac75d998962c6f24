"""The planted bugs apply to the code. Whether tests catch them takes minutes: `make mutants`."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.acceptance.mutants.patches import CHECKOUT, DoesNotApply, Patch, all_patches

PATCHES = list(all_patches())
OLD = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
PATCH = Patch("p", "Q1", "says", "f.py", ((" two", " three", "-four", "+FOUR", " five", " six"),))


def test_every_part_that_decides_has_planted_bugs() -> None:
    assert len(PATCHES) >= 36
    assert len({patch.path for patch in PATCHES}) >= 15
    for patch in PATCHES:
        assert patch.path.startswith("queuectl/core/" if not patch.tests else "queuectl/"), patch.name
        assert all((CHECKOUT / test).is_file() for test in patch.tests), patch.name
    assert len({patch.sentence for patch in PATCHES}) == len(PATCHES)


def test_every_planted_bug_breaks_a_documented_rule() -> None:
    pages = (CHECKOUT / "docs/scheduling.md", CHECKOUT / "docs/answers.md")
    stated = {
        rule
        for page in pages
        for rule in re.findall(r"^\*\*([A-Z][0-9]+)\.\*\*", page.read_text(), re.MULTILINE)
    }
    assert {patch.rule for patch in PATCHES} <= stated


@cache
def code(path: str) -> tuple[str, str]:
    """The text of a file, and the tree of its code."""
    text = (CHECKOUT / path).read_text()
    return text, ast.dump(ast.parse(text))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_planted_bug_applies_and_changes_the_code(patch: Patch) -> None:
    text, as_it_is = code(patch.path)
    changed = ast.parse(patch.applied(text))
    compile(changed, patch.path, "exec")
    assert ast.dump(changed) != as_it_is


def test_a_patch_applies_where_its_text_has_moved_to() -> None:
    assert PATCH.applied("zero\n" * 50 + OLD).endswith("three\nFOUR\nfive\nsix\nseven\n")


def test_a_patch_applies_after_an_edit_two_lines_away() -> None:
    assert "FOUR" in PATCH.applied(OLD.replace("two", "2").replace("six", "6"))


def test_a_patch_for_code_that_has_changed_is_refused() -> None:
    with pytest.raises(DoesNotApply, match=r"p: the changed code is not in f\.py"):
        PATCH.applied(OLD.replace("four", "4"))


def test_a_patch_that_applies_in_two_places_is_refused() -> None:
    with pytest.raises(DoesNotApply, match=r"occurs in f\.py 2 times"):
        PATCH.applied(OLD + OLD)
