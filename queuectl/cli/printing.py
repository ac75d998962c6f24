"""Documents as text: tables, JSON, YAML. Text from a cluster is always escaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from queuectl.core.resources import format_amount
from queuectl.screen.text import NOTHING as NOTHING
from queuectl.screen.text import age
from queuectl.screen.text import printable as printable

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
_LONG: Final = 8
"""Exact amounts of bytes of this length or more are rounded to one decimal."""
_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False
    """Right-aligned, for numbers."""
    wide: bool = False
    """Shown with `-o wide` only."""


@dataclass(frozen=True, slots=True)
class Shares:
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


def amount(resource: str | None, value: int | None) -> str:
    """An amount in base units as a Kubernetes quantity; long amounts of bytes with one decimal."""
    if resource is None or value is None:
        return NOTHING
    sign, size = ("-", -value) if value < 0 else ("", value)
    text = format_amount(resource, size)
    if len(text) >= _LONG and format_amount(resource, 1024) == "1Ki":
        power = min((size.bit_length() - 1) // 10, len(_SUFFIXES) - 1)
        text = f"{size / (1 << 10 * power):.1f}{_SUFFIXES[power]}"
    return sign + text


def ago(stamp: str | None, now: datetime | None) -> str:
    """How long ago, as kubectl prints it: 45s, 12m, 3h, 5d."""
    if stamp is None or now is None:
        return NOTHING
    return age((now - datetime.fromisoformat(stamp)).total_seconds())


def local(stamp: str | None) -> str:
    """A time of a document (UTC) in the zone of this machine, with its offset."""
    if stamp is None:
        return NOTHING
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, wide: bool = False) -> None:
    """Columns as narrow as possible: wrapped and coloured in a terminal, complete and plain in a pipe."""
    shown = [n for n, column in enumerate(columns) if wide or not column.wide]
    columns = [columns[n] for n in shown]
    cells = [[row[n] for n in shown] for row in rows]
    if sys.stdout.isatty():
        _folded(columns, cells)
        return
    # rich takes ten seconds for 20,000 rows, and there is nothing to wrap or colour.
    lines = [[column.title for column in columns], *([printable(cell) for cell in row] for row in cells)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        click.echo("  ".join(map(_aligned, line, widths, columns)).rstrip())


def _aligned(text: str, width: int, column: Column) -> str:
    return text.rjust(width) if column.right else text.ljust(width)


def _folded(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    found = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        found.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        found.add_row(*map(_styled, row))
    Console(highlight=False).print(found)


def _styled(cell: object) -> Text:
    from rich.text import Text

    if isinstance(cell, Lines):
        return Text("\n".join(map(printable, cell.parts)))
    if not isinstance(cell, Shares):
        text = printable(cell)
        return Text(text, style=_STYLES.get(text.partition(" ")[0], ""))
    lines = Text()
    for text, used, whole in cell.parts:
        if lines:
            lines.append("\n")
        part = used / whole if whole > 0 else float(used > 0)
        style = "red" if part > _FULL else "yellow" if part >= _HIGH else "green"
        lines.append(bar(used, whole), style=style)
        lines.append(f" {printable(text)}")
    return lines


def bar(used: int, whole: int) -> str:
    """BAR characters, filled by the part `used` of `whole`; all of them if `whole` is 0 and `used` is not."""
    full, empty = ("█", "░") if (sys.stdout.encoding or "").lower().startswith("utf") else ("#", ".")
    cells = BAR if used > 0 >= whole else 0 if whole <= 0 else min(BAR, -(-used * BAR // whole))
    return full * cells + empty * (BAR - cells)


def document(value: Any, output: str) -> None:
    """As `json` or `yaml`."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))


def line(value: Any, output: str) -> None:
    """One of a stream of documents: a line of JSON, or a YAML document after its `---`."""
    if output == "yaml":
        click.echo("---")
        document(value, output)
    else:
        click.echo(json.dumps(value))
