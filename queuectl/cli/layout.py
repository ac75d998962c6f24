"""Tables in a terminal: no line is wider than it, and no word is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from queuectl.screen.columns import GAP, joined, narrowed
from queuectl.screen.text import Column

Cell = Sequence[Text]
"""Lines of text."""
Row = Sequence[Cell]

_PROSE: Final = 40
"""Cells wider than this are sentences: their column stays readable, at _LEAST or more, as long as it can."""
_LEAST: Final = 24


def show(
    columns: Sequence[Column], rows: Callable[[bool], Sequence[Row]], console: Console, *, wide: bool
) -> list[str]:
    """Print a table. Returns the titles of the columns that were left out because the terminal is too narrow.

    `rows`: the rows, whole or brief, for a terminal that is too narrow for all columns. `wide`: no
    column is left out. Cells are wrapped between words. A row whose words do not fit is wider than the
    terminal.
    """
    shown, left_out = list(range(len(columns))), []
    found = rows(False)
    limits = _limits(columns, found)
    if _least(limits) > console.width and not wide:
        found = rows(True)
        limits = _limits(columns, found)
    while _least(limits) > console.width and not wide:
        at = max(range(len(shown)), key=lambda one: columns[shown[one]].drop)
        if not columns[shown[at]].drop:
            break
        left_out.append(columns[shown.pop(at)].title)
        limits.pop(at)
    least, full = zip(*limits, strict=True)
    widths = narrowed(full, least, console.width - GAP * (len(shown) - 1))
    lines = [[[Text(column.title, style="bold")] for column in columns], *found]
    chosen = [columns[number] for number in shown]
    with console:  # writes once
        for row in lines:
            cells = [_wrapped(row[number], width) for number, width in zip(shown, widths, strict=True)]
            for at in range(max(map(len, cells), default=0)):
                line = joined([cell[at] if at < len(cell) else Text() for cell in cells], chosen, widths)
                line.rstrip()
                console.print(line, soft_wrap=True)
    return left_out


def _limits(columns: Sequence[Column], rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The least and the full width of each column."""
    found = []
    for number, column in enumerate(columns):
        texts = {column.title, *(line.plain for row in rows for line in row[number])}
        full = max(map(cell_len, texts))
        word = max((cell_len(word) for text in texts for word in text.split()), default=0)
        solid = max((cell_len(line.plain) for row in rows for line in row[number] if line.no_wrap), default=0)
        found.append((max(word, solid, min(full, _LEAST) if full > _PROSE else 0), full))
    return found


def _least(limits: Sequence[tuple[int, int]]) -> int:
    return sum(least for least, _ in limits) + GAP * (len(limits) - 1)


def _wrapped(cell: Cell, width: int) -> list[Text]:
    found: list[Text] = []
    for line in cell:
        if line.no_wrap or line.cell_len <= width:
            found.append(line)
            continue
        parts = textwrap.wrap(line.plain, width, break_long_words=False, break_on_hyphens=False)
        found += (Text(part, style=line.style) for part in parts)
    return found
