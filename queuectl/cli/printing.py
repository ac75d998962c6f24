"""Documents as text: tables, JSON, YAML. Nothing from a cluster reaches a terminal unescaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from queuectl.core.resources import format_amount

NOTHING: Final = "-"
_STYLES: Final = {"Pending": "yellow", "Admitted": "green", "Evicting": "red", "False": "red"}


def printable(value: object) -> str:
    """One line of text, with control and other unprintable characters as escapes."""
    if value is None or value == "":
        return NOTHING
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def amount(resource: str | None, value: int | None) -> str:
    """Base units as people write them."""
    if resource is None or value is None:
        return NOTHING
    return f"-{format_amount(resource, -value)}" if value < 0 else format_amount(resource, value)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as narrow as they can be: folded and coloured in a terminal, whole and plain in a pipe."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _folded(headers, cells)
        return
    # A queue of 20,000 takes rich ten seconds, and there is nothing to fold or colour.
    lines = [list(headers), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _folded(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for column in found.columns:
        column.overflow = "fold"
    for row in rows:
        found.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(highlight=False).print(found)


def document(value: Any, output: str) -> None:
    """As `json` or `yaml`."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))
