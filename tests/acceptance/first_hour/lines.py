"""The commands of a document as they stand there: those of its blocks, and those in its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
DOCUMENTS: Final = ("README.md", "docs/install.md")

_FENCE: Final = re.compile(r" *```(\w*)")
_HEREDOC: Final = re.compile(r"<<-?'?(\w+)'?")
_CODE: Final = re.compile(r"`((?:[^`\n]|\n(?!\n))+)`")
_PROGRAMS: Final = "make|queuectl|kubectl|helm|pipx|docker|createuser|createdb"
_COMMAND: Final = re.compile(rf"(?:{_PROGRAMS}) [^.]\S*.*")

_Row = tuple[int, str]


class Line(NamedTuple):
    """One command; it may take several lines."""

    document: str
    number: int
    text: str
    section: str
    block: int = 0
    """Number of the block in its section, from 1; 0: in a sentence or a table."""
    prints: str = ""
    """The first line of its output, in a transcript."""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.number}"


def commands(document: str, root: Path = ROOT) -> list[Line]:
    """All commands of a document, in order."""
    return commands_of(document, (root / document).read_text(encoding="utf-8"))


def commands_of(document: str, text: str) -> list[Line]:
    found: list[Line] = []
    section, blocks, prose = "", 0, list[_Row]()
    rows = iter(enumerate(text.splitlines(), 1))
    for number, row in rows:
        if row.startswith("#"):
            found += _of_prose(document, section, prose)
            section, blocks, prose = row.lstrip("# "), 0, []
        elif fence := _FENCE.match(row):
            found += _of_prose(document, section, prose)
            prose, inside = [], _until_fence(rows)
            if not fence[1]:
                blocks += 1
                found += [
                    Line(document, at, command, section, blocks, prints)
                    for at, command, prints in _of_block(inside)
                ]
        elif not row.startswith("<!--"):
            prose.append((number, row))
    return found + _of_prose(document, section, prose)


def first_yaml(section: str) -> str:
    """The first block of YAML in a section of README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"# {section}\n")[2]
    return text.partition("```yaml\n")[2].partition("```")[0]


def _of_prose(document: str, section: str, rows: Sequence[_Row]) -> list[Line]:
    text = "\n".join(row for _, row in rows)
    return [
        Line(document, rows[text.count("\n", 0, code.start())][0], " ".join(code[1].split()), section)
        for code in _CODE.finditer(text)
        if _COMMAND.fullmatch(" ".join(code[1].split()))
    ]


def _until_fence(rows: Iterator[_Row]) -> list[_Row]:
    found: list[_Row] = []
    for number, row in rows:
        if _FENCE.match(row):
            break
        found.append((number, row))
    return found


def _of_block(rows: Sequence[_Row]) -> Iterator[tuple[int, str, str]]:
    """Commands with the number of their first line; in a transcript those after `$`."""
    numbered = [(number, row) for number, row in rows if row.strip()]
    if numbered and numbered[0][1].startswith("$ "):
        for (number, row), (_, output) in pairwise(numbered):
            if row.startswith("$ "):
                yield number, row[2:], output
        return
    command, begun = "", 0
    for number, row in rows:
        begun = begun if command else number
        command = f"{command}\n{row}" if command else row.strip()
        if command and _complete(command):
            yield begun, command, ""
            command = ""
    if command:
        yield begun, command, ""


def _complete(command: str) -> bool:
    if command.endswith(("\\", "|")):
        return False
    heredoc = _HEREDOC.search(command)
    return heredoc is None or command.rstrip().endswith(f"\n{heredoc[1]}")
