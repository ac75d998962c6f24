"""The check of the web page's types finds a wrong one, and says when it cannot be made."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from release import page_check


@pytest.fixture
def compiler() -> Path:
    try:
        return page_check.compiler_in(Path(sys.prefix) / "share" / f"typescript-{page_check.VERSION}")
    except page_check.NotChecked as problem:
        pytest.skip(str(problem))


def test_a_wrong_type_is_found_with_its_place(compiler: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    shutil.copytree(page_check.PAGE, page)
    with (page / "format.js").open("a") as file:
        file.write("\nexport const wrong = duration('x');\n")
    (problem,) = page_check.problems(compiler, page)
    assert problem.startswith("format.js(")
    assert "'string' is not assignable to parameter of type 'number'" in problem


def test_without_npm_a_line_says_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert page_check.main() == 0
    assert "NOT CHECKED" in capsys.readouterr().err
