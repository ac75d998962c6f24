"""Tests read the state of an engine through one module, so that a change of it changes that module alone."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ALLOWED = {"doubles/engine_state.py"}


def openers(folder: Path) -> set[str]:
    """Return the modules that read an attribute `_state` of an engine, by path."""
    return {
        f"{path.relative_to(folder)}"
        for path in folder.rglob("*.py")
        if b"._state" in (text := path.read_bytes())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "_state"
    }


def test_one_module_opens_the_state_of_an_engine() -> None:
    assert openers(TESTS) == ALLOWED


def test_a_module_that_opens_it_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("entries = world.engine._state.entries\n")
    (tmp_path / "test_b.py").write_text("_state = 1\n")
    assert openers(tmp_path) == {"test_a.py"}
