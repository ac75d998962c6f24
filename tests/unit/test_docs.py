"""Links and paths in the docs lead somewhere, the index has every page, each reason is explained."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from queuectl.core.model.reasons import Code
from tests.acceptance.mutants.patches import CHECKOUT

DOCS = CHECKOUT / "docs"
PAGES = sorted([*CHECKOUT.glob("*.md"), *DOCS.rglob("*.md")])
PARENTS = (CHECKOUT, CHECKOUT / "queuectl", CHECKOUT / "tests")
"""Where a path in a page may begin."""
FOLDERS = "queuectl|tests|manifests|migrations|docs|benchmarks|deploy|release"

_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_FUNCTION = re.compile(r"`(\w+(?:\.\w+)?)` in `((?:queuectl|tests)/[\w/]+\.py)`")
_PATH = re.compile(rf"`((?:(?:{FOLDERS})(?:/[\w.-]+)+)|(?:[\w-]+/)+[\w-]+\.(?:py|md|sh))/?(?:::\w+)?`")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page: its headings as GitHub names them, and those that it names itself."""
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", text), re.MULTILINE)
    slugs = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return frozenset([*slugs, *re.findall(r'<a id="([^"]+)"', text)])


def resolves(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))


def links(text: str) -> list[str]:
    """Relative links in the sentences and tables of a page."""
    prose = _CODE.sub("", _FENCE.sub("", text))
    return [link for link in _LINK.findall(prose) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [link for link in links(page.read_text("utf-8")) if not resolves(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_path_in_the_repository_exists(page: Path) -> None:
    named = _PATH.findall(_FENCE.sub("", page.read_text("utf-8")))
    assert [path for path in named if not any((parent / path).exists() for parent in PARENTS)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_function_that_is_named_with_its_file_exists(page: Path) -> None:
    named = _FUNCTION.findall(" ".join(page.read_text("utf-8").split()))
    assert [(name, path) for name, path in named if not defines(CHECKOUT / path, name.split(".")[-1])] == []


def defines(module: Path, name: str) -> bool:
    """Whether a function, a class or a constant of this name is in the module."""
    return (
        re.search(rf"^ *(?:async )?(?:def|class) {name}\b|^{name}\b.* = ", module.read_text("utf-8"), re.M)
        is not None
    )


def test_functions_that_do_not_exist_are_noticed() -> None:
    assert _FUNCTION.findall("`step` in `queuectl/core/lifecycle.py`") == [
        ("step", "queuectl/core/lifecycle.py")
    ]
    assert not defines(CHECKOUT / "queuectl/core/lifecycle.py", "stepping")


def test_links_and_paths_that_lead_nowhere_are_noticed() -> None:
    page = DOCS / "README.md"
    assert links("[a](b.md#c) `[d](e.md)` [f](https://example.com)") == ["b.md#c"]
    assert not resolves(page, "nothing.md")
    assert not resolves(page, "concepts.md#nothing")
    assert resolves(page, "concepts.md#quota")
    assert _PATH.findall("`queuectl/core` `core/limits.py` `a/b` `tests/x.py::test_y`") == [
        "queuectl/core",
        "core/limits.py",
        "tests/x.py",
    ]


def test_the_index_has_every_page() -> None:
    index = links((DOCS / "README.md").read_text("utf-8"))
    assert [page.name for page in sorted(DOCS.glob("*.md")) if page.name not in {*index, "README.md"}] == []


def test_troubleshooting_explains_every_reason() -> None:
    text = (DOCS / "troubleshooting.md").read_text("utf-8")
    assert [code for code in Code if f"`{code}`" not in text] == []


def test_each_rule_that_the_core_cites_is_stated() -> None:
    pages = (DOCS / name for name in ("scheduling.md", "answers.md", "accounting.md"))
    stated = {
        rule for page in pages for rule in re.findall(r"^\*\*([A-Z]\d+)\.\*\*", page.read_text("utf-8"), re.M)
    }
    sources = sorted((CHECKOUT / "queuectl" / "core").rglob("*.py"))
    cited = {rule for path in sources for rule in re.findall(r"\b([A-Z]\d{1,2})\b", path.read_text("utf-8"))}
    assert len(cited) > 100
    assert sorted(cited - stated) == []
