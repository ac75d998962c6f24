"""Paths of kubectl and of printer columns, as a library of RFC 9535 reads them."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jsonpath import JSONPath

_NAME: Final = re.compile(r"(?:\\.|[^.\[\\])+")
_BRACKET: Final = re.compile(r"""\[(?:[^\[\]"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[[^\]]*\])*\]""")


@cache
def compiled(text: str) -> JSONPath:
    """A path without `$`: `.a.b`, `a.b`, `.a[*].b`, `..a`, `.a\\.b`. Raises ValueError."""
    import jsonpath

    try:
        query = jsonpath.compile(_standard(text))
    except jsonpath.JSONPathError as problem:
        raise ValueError(str(problem)) from None
    if not isinstance(query, jsonpath.JSONPath):
        raise ValueError("it is more than one path")
    return query


def _standard(text: str) -> str:
    """The path as RFC 9535 has it: a name with a backslash or other characters is in brackets."""
    found = ["$"]
    if text and text[0] not in ".[":
        text = f".{text}"
    at = 0
    while at < len(text):
        if bracket := _BRACKET.match(text, at):
            found.append(bracket[0])
            at = bracket.end()
            continue
        dots = ".." if text.startswith("..", at) else "." if text[at] == "." else ""
        at += len(dots)
        name = _NAME.match(text, at)
        if name is None and dots == "." and text[at : at + 1] in ("", "["):
            continue  # `.` is the whole, and `.[0]` is `[0]`
        if name is None and dots == ".." and text[at : at + 1] == "[":
            found.append("..")
            continue
        if name is None or not dots:
            raise ValueError(f"nothing is expected at {text[at:]!r}")
        plain = re.sub(r"\\(.)", r"\1", name[0])
        step = "*" if plain == "*" else json.dumps(plain)
        found.append(f"{'..' if dots == '..' else ''}[{step}]")
        at = name.end()
    return "".join(found)
