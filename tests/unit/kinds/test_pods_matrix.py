"""The matrix of pods names tests that exist, and each cell once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.acceptance.e2e.pods_matrix import CELLS, ROWS, Cells, named_tests, table

ROOT = Path(__file__).parents[3]


def test_each_cell_stands_once_and_names_a_test_that_exists() -> None:
    named = named_tests(ROOT)
    assert named.keys() == {cell.test for cell in CELLS if isinstance(cell, Cells)}
    stated = Counter((cell.column, row) for cell in CELLS for row in cell.rows)
    assert set(stated.values()) == {1}
    assert {row for _, row in stated} == ROWS.keys()


def test_the_table_says_what_failed_and_what_was_not_run() -> None:
    names = sorted(named_tests(ROOT).values())
    assert table({}) == []
    first = next(name for name in names if name.startswith("tests/acceptance/e2e/"))
    text = "\n".join(table({name: "failed" if name == first else "passed" for name in names}))
    assert "FAIL" in text
    assert "real" in text
    assert "(" not in text.partition("real: on real controllers")[0].replace("(unit)", "")
    assert "(real)" in "\n".join(table({first: "passed"}))
