"""Planted bugs: unified diffs against the package, each with the rule that it breaks and a sentence.

A hunk applies where its text occurs exactly once, regardless of line numbers: first with all its context,
then with less, never with none. So a patch still applies after edits nearby. If the code that it changes has
changed, the patch is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "planted"
CHECKOUT: Final = Path(__file__).resolve().parents[3]
_CONTEXT: Final = 3
_HEAD: Final = re.compile(
    r"Rule: (?P<rule>[A-Z][0-9]+)\n(?P<sentence>[^\n]+)\n(?:Tests: (?P<tests>[^\n]+)\n)?"
)
_FILE: Final = re.compile(r"^--- a/(?P<old>\S+)[^\n]*\n\+\+\+ b/(?P<new>\S+)[^\n]*\n", re.MULTILINE)
_HUNK: Final = re.compile(r"^@@ [^\n]*\n", re.MULTILINE)


class DoesNotApply(Exception):
    """The code that a patch changes has changed, or occurs in several places."""


@dataclass(frozen=True, slots=True)
class Patch:
    name: str
    rule: str
    """Rule number in docs/scheduling.md or docs/answers.md."""
    sentence: str
    path: str
    """Path of the file that it changes, relative to the checkout."""
    hunks: tuple[tuple[str, ...], ...]
    """Lines without line ends, each with its mark: a space, `-` or `+`."""
    tests: tuple[str, ...] = ()
    """Test files that must catch it, of a bug outside the core."""

    def applied(self, text: str) -> str:
        """Return `text`, the content of its file, with the bug. Raises DoesNotApply."""
        lines = text.splitlines()
        for hunk in self.hunks:
            lines = self._put(lines, hunk)
        return "\n".join(lines) + "\n"

    def _put(self, lines: list[str], hunk: tuple[str, ...]) -> list[str]:
        for context in range(_CONTEXT, 0, -1):
            part = _with_context(hunk, context)
            old = [line[1:] for line in part if line[0] != "+"]
            new = [line[1:] for line in part if line[0] != "-"]
            places = [at for at in range(len(lines)) if lines[at : at + len(old)] == old]
            if len(places) > 1:
                raise DoesNotApply(f"{self.name}: the changed code occurs in {self.path} {len(places)} times")
            if places:
                return [*lines[: places[0]], *new, *lines[places[0] + len(old) :]]
        raise DoesNotApply(f"{self.name}: the changed code is not in {self.path}")

    def renewed(self, text: str) -> str:
        """Return the patch as a new diff of `text`, the current content of its file. Raises DoesNotApply."""
        diff = difflib.unified_diff(
            text.splitlines(keepends=True),
            self.applied(text).splitlines(keepends=True),
            f"a/{self.path}",
            f"b/{self.path}",
        )
        tests = f"Tests: {' '.join(self.tests)}\n" if self.tests else ""
        return f"Rule: {self.rule}\n{self.sentence}\n{tests}\n{''.join(diff)}"


def read(path: Path) -> Patch:
    """Read a patch. Raises ValueError with the name of the file."""
    text = path.read_text()
    head, file = _HEAD.match(text), _FILE.search(text)
    if head is None:
        raise ValueError(f"{path}: must begin with `Rule: NUMBER` and a line with its effect")
    if file is None or file["old"] != file["new"] or len(_FILE.findall(text)) > 1:
        raise ValueError(f"{path}: must change exactly one file, without a rename")
    hunks = tuple(tuple(hunk.splitlines()) for hunk in _HUNK.split(text[file.end() :])[1:])
    tests = tuple((head["tests"] or "").split())
    return Patch(path.stem, head["rule"], head["sentence"], file["old"], hunks, tests)


def all_patches() -> Iterator[Patch]:
    """Yield all patches by name."""
    for path in sorted(FOLDER.glob("*.patch")):
        yield read(path)


def _with_context(hunk: tuple[str, ...], most: int) -> tuple[str, ...]:
    """Return `hunk` with at most `most` lines of context before and after its changes."""
    changed = [number for number, line in enumerate(hunk) if line[0] != " "]
    return hunk[max(0, changed[0] - most) : changed[-1] + most + 1]
