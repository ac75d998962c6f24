"""`-o name`, `jsonpath=` and `custom-columns=` of `get`: parts of documents, as kubectl prints them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from queuectl.cli import printing
from queuectl.cli.options import SELECTIONS
from queuectl.cli.printing import Column
from queuectl.kinds.json_paths import compiled

if TYPE_CHECKING:
    from jsonpath import JSONPath

Document = dict[str, Any]

MISSING: Final = "<none>"
"""In a cell of custom columns, for a field that is not there."""
NAME, JSONPATH, COLUMNS = SELECTIONS
_PART: Final = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""")
_COMMA: Final = re.compile(r",(?![^\[]*\])")


class BadTemplate(ValueError):
    """The template is not valid. The message names the part that is not."""


class Path(NamedTuple):
    """A path such as `.reason.code`. A path that begins with `$` is evaluated from the whole document."""

    query: JSONPath
    from_root: bool

    def values(self, root: Any, current: Any) -> list[Any]:
        return list(self.query.findall(root if self.from_root else current))


@dataclass(frozen=True, slots=True)
class Range:
    """`{range PATH}…{end}`: `parts` for each value."""

    path: Path
    parts: tuple[str | Path | Range, ...]


Template = tuple[str | Path | Range, ...]
"""Texts as they are, paths, and ranges."""


def path(text: str) -> Path:
    """A path of kubectl: `.a.b`, `a.b`, `$.a`, `@.a`, `.a[*].b`, `..a`, `.a\\.b`. Raises BadTemplate."""
    text = text.strip()
    try:
        query = compiled(text.removeprefix("$").removeprefix("@"))
    except ValueError as problem:
        raise BadTemplate(f"{text!r} is not a path such as .reason.code: {problem}") from None
    return Path(query, text.startswith("$"))


def template(text: str) -> Template:
    """A template of kubectl, such as `{range .items[*]}{.name}{"\\n"}{end}`. Raises BadTemplate.

    Text without braces is one path.
    """
    if "{" not in text:
        return (path(text),)
    ranges: list[tuple[Path, list[str | Path | Range]]] = []
    parts: list[str | Path | Range] = []
    for piece in _pieces(text):
        here = ranges[-1][1] if ranges else parts
        if isinstance(piece, str):
            here.append(piece)
            continue
        inside = piece[0].strip()
        if inside == "end":
            if not ranges:
                raise BadTemplate("{end} without {range}")
            over, body = ranges.pop()
            (ranges[-1][1] if ranges else parts).append(Range(over, tuple(body)))
        elif inside.startswith("range "):
            ranges.append((path(inside.removeprefix("range ")), []))
        elif inside[:1] in ("'", '"'):
            here.append(_literal(inside))
        elif inside:
            here.append(path(inside))
    if ranges:
        raise BadTemplate("{range} without {end}")
    return tuple(parts)


def _pieces(text: str) -> Iterator[str | tuple[str]]:
    """Texts outside of braces, and what is inside of them, in tuples."""
    at = 0
    for found in _PART.finditer(text):
        if between := text[at : found.start()]:
            yield _outside(between)
        yield (found[1],)
        at = found.end()
    if text[at:]:
        yield _outside(text[at:])


def _outside(text: str) -> str:
    if "{" in text or "}" in text:
        raise BadTemplate(f"{text[:40]!r} has a brace without its counterpart")
    return text


def _literal(text: str) -> str:
    body = text[1:-1].replace('\\"', '"').replace('"', '\\"').replace("\\'", "'")
    try:
        return str(json.loads(f'"{body}"'))
    except ValueError:
        raise BadTemplate(f"{text} is not text") from None


def filled(parts: Template, root: Any, current: Any) -> str:
    """The template with the values of a document. Several values of a path have spaces between them."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Path):
            texts.append(" ".join(map(_text, part.values(root, current))))
        else:
            texts += [filled(part.parts, root, value) for value in part.path.values(root, current)]
    return "".join(texts)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"))


Show = Callable[[Document, bool], None]
"""Print a document, or the items of a list if the second argument is true."""


def shower(output: str, name: Callable[[Document], str]) -> Show | None:
    """What prints in the format `output`; None for other formats. Raises BadTemplate.

    `name`: the name of an item, for `-o name`.
    """
    if output == NAME:
        return lambda found, listed: _each(
            found, listed, lambda item: click.echo(printing.printable(name(item)))
        )
    if output.startswith(JSONPATH):
        parts = template(output.removeprefix(JSONPATH))
        return lambda found, listed: click.echo(filled(parts, found, found), nl=False)
    if output.startswith(COLUMNS):
        columns, paths = _columns(output.removeprefix(COLUMNS))
        return lambda found, listed: printing.table(
            columns, [_row(item, paths) for item in (found["items"] if listed else [found])]
        )
    return None


def _each(found: Document, listed: bool, show: Callable[[Document], None]) -> None:
    for item in found["items"] if listed else [found]:
        show(item)


def _columns(text: str) -> tuple[list[Column], list[Path]]:
    columns, paths = [], []
    for part in _COMMA.split(text):
        title, colon, of = part.partition(":")
        if not (title and colon and of):
            raise BadTemplate(f"{part!r} is not a column such as NAME:.name")
        columns.append(Column(title))
        paths.append(path(of.strip().removeprefix("{").removesuffix("}")))
    return columns, paths


def _row(item: Document, paths: Sequence[Path]) -> list[str]:
    found = (",".join(map(_text, one.values(item, item))) for one in paths)
    return [cell or MISSING for cell in found]
