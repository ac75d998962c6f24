"""Documents as text: tables, JSON, YAML. Nothing from a cluster reaches a terminal unescaped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

from queuectl.core.resources import format_amount

NOTHING: Final = "-"
PIPED_WIDTH: Final = 100_000
"""Columns where nobody watches: lines are neither folded nor cut."""
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
    """Columns as narrow as they can be; folded in a terminal, whole in a pipe."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    watched = sys.stdout.isatty()
    found = Table(*headers, box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for column in found.columns:
        column.overflow = "fold"
        column.no_wrap = not watched
    for row in rows:
        cells = [printable(cell) for cell in row]
        found.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console = Console(width=None if watched else PIPED_WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(found)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def document(value: Any, output: str) -> None:
    """As `json` or `yaml`."""
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(value, indent=2))
