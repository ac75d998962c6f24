"""The pictures of docs/pictures render anywhere, and contain no data of the machine that made them."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(content: str) -> str:
    """What stands in it, once it is sure to need nothing from elsewhere."""
    root = ElementTree.fromstring(content)
    assert root.tag == f"{SVG}svg"
    assert "@" not in content.partition("</style>")[0]
    assert set(re.findall(r"url\(.", content)) <= {"url(#"}
    assert not root.findall(f".//{SVG}script")
    assert not root.findall(f".//{SVG}image")
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    return "\n".join(texts).replace("\xa0", " ")


def test_lines_of_a_terminal_become_a_picture_without_fonts_or_servers(tmp_path: Path) -> None:
    draw = runpy.run_path(str(PICTURES / "make.py"))["draw"]
    draw("queuectl", ["\x1b[1;32mteam-a\x1b[0m <&> ▆▁", "x" * 50], 40, tmp_path / "x.svg")
    content = (tmp_path / "x.svg").read_text(encoding="utf-8")
    text = drawn(content)
    assert "team-a" in text
    assert "<&> ▆▁" in text
    assert "x" * 41 not in text
    assert text.count("x") == 50
    assert "#7ec671" in content


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("screen", ("Waiting", "WaitingForQuota", "ExceedsMaxQuota", "cohort research")),
        ("explain", ("queuectl explain job/ablation", "Held by", "Short by")),
        ("get", ("queuectl get workloads", "PyTorchJob".lower(), "Pending")),
    ],
)
def test_the_pictures_in_the_docs_show_it_and_nothing_of_the_machine(
    name: str, words: tuple[str, ...]
) -> None:
    text = drawn((PICTURES / f"{name}.svg").read_text(encoding="utf-8"))
    for word in words:
        assert word in text
    assert not re.findall(r"/(?:root|home|tmp|var|work|usr)\b", text)
    assert set(re.findall(r"https?://([^:/\s]+)", text)) <= {"127.0.0.1"}
    assert "Error" not in text


def test_the_picture_of_the_docs_page_is_small() -> None:
    content = (PICTURES / "docs.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 300_000
