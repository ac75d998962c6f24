"""Documents as text: tables, JSON, YAML. Text from a cluster is always escaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from queuectl.screen.text import NOTHING as NOTHING
from queuectl.screen.text import Column as Column
from queuectl.screen.text import ago as ago
from queuectl.screen.text import amount as amount
from queuectl.screen.text import device_times as device_times
from queuectl.screen.text import local as local
from queuectl.screen.text import printable as printable
from queuectl.screen.text import resource_hours as resource_hours
from queuectl.screen.text import resource_time as resource_time
from queuectl.screen.text import share_of as share_of

if TYPE_CHECKING:
    from rich.text import Text

BAR: Final = 10
"""Characters of a bar."""
_STYLES: Final = {
    **dict.fromkeys(("Pending", "Queued", "Hold"), "yellow"),
    **dict.fromkeys(("Admitted", "Finished"), "green"),
    **dict.fromkeys(("Evicting", "Evicted", "HoldAndDrain", "False"), "red"),
}
_FULL: Final = 1.0
_HIGH: Final = 0.8


@dataclass(frozen=True, slots=True)
class UsageBars:
    """Used and nominal amounts, a line each; in a terminal with bars."""

    parts: tuple[tuple[str, int, int], ...]
    """Text, used, whole."""

    def __str__(self) -> str:
        return ", ".join(text for text, _, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Lines:
    """Texts, a line each in a terminal."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.parts)


@dataclass(frozen=True, slots=True)
class Sentence:
    """In a terminal that is too narrow for all columns, its brief form."""

    text: str
    brief: str

    def __str__(self) -> str:
        return self.text


class TableField(NamedTuple):
    """A column of a table of documents, and what a row has in it."""

    column: Column
    cell: Callable[[Any], object]


def field(title: str, of: str | Callable[[Any], object], *, drop: int = 0, wide: bool = False) -> TableField:
    """`title`: with `>` at its end right-aligned, for numbers. `of`: a path in a document such as
    `reason.message`, or a function of the document. `drop`, `wide`: see Column."""
    column = Column(title.removesuffix(">"), right=title.endswith(">"), drop=drop, wide=wide)
    return TableField(column, (lambda document: part(document, of)) if isinstance(of, str) else of)


def part(document: Any, path: str) -> Any:
    """What is at a path in a document; None: a part of the path is null or absent."""
    for name in path.split("."):
        document = None if document is None else document.get(name)
    return document


def shown(form: Callable[[Any], object], path: str) -> Callable[[Any], object]:
    """A cell: what `form` makes of the part at `path`."""
    return lambda document: form(part(document, path))


def quantity(path: str, resource: str = "resource") -> Callable[[Any], str]:
    """A cell: the amount at `path`, of the resource that the document names in field `resource`."""
    return lambda document: amount(document[resource], part(document, path))


def columns_of(*titles: str) -> tuple[Column, ...]:
    """Return columns that are always shown. A title with `>` at its end is right-aligned, for numbers."""
    return tuple(Column(title.removesuffix(">"), right=title.endswith(">")) for title in titles)


def table_of(
    fields: Sequence[TableField], documents: Iterable[Any], *, wide: bool = False, none: str = ""
) -> None:
    """As `table`, a row for each document. `none`: on stderr in its place if there are no documents."""
    rows = [[one.cell(document) for one in fields] for document in documents]
    if none and not rows:
        click.echo(none, err=True)
    else:
        table([one.column for one in fields], rows, wide=wide)


def section(title: str, fields: Sequence[TableField], documents: Iterable[Any]) -> None:
    """A table below a line with its title."""
    click.echo(f"\n{title}")
    table_of(fields, documents)


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, wide: bool = False) -> None:
    """Columns as narrow as possible: fitted to a terminal and coloured there, complete and plain in a pipe.

    `wide`: with the wide columns, and with all columns however narrow the terminal is.
    """
    shown = [n for n, column in enumerate(columns) if wide or not column.wide]
    columns = [columns[n] for n in shown]
    cells = [[row[n] for n in shown] for row in rows]
    if sys.stdout.isatty():
        _in_terminal(columns, cells, wide=wide)
        return
    # rich takes ten seconds for 20,000 rows, and there is nothing to wrap or colour.
    lines = [[column.title for column in columns], *([printable(cell) for cell in row] for row in cells)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        click.echo("  ".join(map(_aligned, line, widths, columns)).rstrip())


def _aligned(text: str, width: int, column: Column) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def _in_terminal(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, wide: bool) -> None:
    from rich.console import Console

    from queuectl.cli import layout

    left_out = layout.show(
        columns,
        lambda brief: [[_styled(cell, brief=brief) for cell in row] for row in rows],
        Console(highlight=False),
        wide=wide,
    )
    if left_out:
        click.echo(f"left out in this width: {', '.join(left_out)}; -o wide shows them", err=True)


def _styled(cell: object, *, brief: bool) -> list[Text]:
    from rich.text import Text

    if isinstance(cell, Lines):
        return [Text(printable(part), no_wrap=True) for part in cell.parts]
    if not isinstance(cell, UsageBars):
        text = printable(cell.brief if brief and isinstance(cell, Sentence) else cell)
        return [Text(text, style=_STYLES.get(text.partition(" ")[0], ""))]
    lines = []
    for text, used, whole in cell.parts:
        part = used / whole if whole > 0 else float(used > 0)
        style = "red" if part > _FULL else "yellow" if part >= _HIGH else "green"
        drawn = Text() if brief else Text(bar(used, whole), style=style)
        lines.append(Text.assemble(drawn, "" if brief else " ", printable(text), no_wrap=True))
    return lines


def bar(used: int, whole: int) -> str:
    """BAR characters, filled by the part `used` of `whole`; all of them if `whole` is 0 and `used` is not."""
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    cells = BAR if used > 0 >= whole else 0 if whole <= 0 else min(BAR, -(-used * BAR // whole))
    return full * cells + empty * (BAR - cells)


def document(value: Any, output: str) -> None:
    """As `json` or `yaml`."""
    if output == "yaml":
        from queuectl.kubernetes_yaml import dump

        click.echo(dump(value), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))


def as_document(value: Any, output: str) -> bool:
    """Print it as `json` or `yaml` if that is asked for. Return whether it is: else a table is."""
    if output != "table":
        document(value, output)
    return output != "table"


def line(value: Any, output: str) -> None:
    """One of a stream of documents: a line of JSON, or a YAML document after its `---`."""
    if output == "yaml":
        click.echo("---")
        document(value, output)
    else:
        click.echo(json.dumps(value))
