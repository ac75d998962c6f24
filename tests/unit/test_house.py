"""The figures of the layout, and the walks, count what they say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import house, walks


def module(name: str, text: str) -> house.Module:
    return house.Module(name, text.count("\n"), ast.parse(text))


def test_a_class_name_that_stands_in_two_modules_is_told_with_both() -> None:
    product = [
        module("queuectl.core.a", "class Hold: ...\nclass _Own: ...\n"),
        module("queuectl.core.b", "class Hold: ...\nclass _Own: ...\nclass Once: ...\n"),
    ]
    assert house.repeated_names(product) == {"Hold": ["core.a", "core.b"]}


def test_attributes_are_fields_and_what_methods_assign_to_self() -> None:
    (node,) = module(
        "queuectl.core.a",
        "class A:\n    x: int\n    def f(self):\n        self.y = 1\n        self.z = 1\n        self.x = 2",
    ).classes()
    assert house.attributes(node) == 3


def test_a_function_with_eight_parameters_is_over_the_limit_and_self_does_not_count() -> None:
    names = ", ".join("abcdefg")
    product = [
        module(
            "queuectl.core.a",
            f"class A:\n    def fits(self, {names}): ...\n    def over(self, {names}, h): ...\n",
        )
    ]
    assert [str(one) for one in house.over_limits(product)] == ["core.a.over: 8 parameters"]


def test_a_module_counts_as_imported_by_its_name_in_a_table_of_its_package() -> None:
    product = [
        module("queuectl.cli.commands", 'COMMANDS = {"quote": "quoting"}\nfrom queuectl.core import plain\n'),
        module("queuectl.cli.quoting", ""),
        module("queuectl.core.plain", ""),
        module("queuectl.core.unused", ""),
    ]
    assert house.not_imported(product) == ["core.unused"]


@pytest.mark.acceptance
def test_a_walk_counts_only_the_product_without_the_sandbox() -> None:
    walk = walks.preemption()
    assert "core/preemption/search" in walk.modules
    assert not [name for name in walk.modules if not name.startswith("core/")]
    assert walk.line().startswith("preemption ")
    assert walk.line().endswith(" -")
    assert "  core/preemption: " in walks.by_package(walk)
    assert walks.table([walk]).splitlines()[-1].endswith(f"| {len(walk.core)} | {walk.core_functions} |  |")


def test_the_table_of_walks_replaces_what_stands_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{walks._BEGIN}\nold\n{walks._END}\nafter\n")
    walks.write(page, "new")
    assert page.read_text() == f"before\n{walks._BEGIN}\n\nnew\n\n{walks._END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md has no lines"):
        walks.write(page, "new")
