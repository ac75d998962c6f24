"""Tables that fit a given width: lines of text, one per row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from rich.text import Text

from queuectl.screen.facts import Target

_GAP: Final = 2
_STEP: Final = 4
"""Widths grow in steps, so that a table does not shift with every change of its longest cell."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    most: int = 24
    """Greatest width, in cells."""
    least: int = 4
    """Least width, if the screen is too narrow for all columns."""
    justify: Literal["left", "right"] = "left"
    from_width: int = 0
    """Left out on screens narrower than this."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What is used of a quota, drawn over whatever width its column gets. Amounts in base units."""

    nominal: int
    used: int
    plain: bool = False
    """With ASCII characters only."""

    def draw(self, width: int) -> Text:
        whole = max(self.nominal, self.used)
        used, borrowed, free = ("#", "+", ".") if self.plain else ("▆", "▒", "▁")
        own = _part(min(self.used, self.nominal), whole, width)
        lent = _part(max(0, self.used - self.nominal), whole, width)
        own = min(own, width - lent)
        text = Text(used * own, style="green")
        text.append(borrowed * lent, style="magenta")
        return text.append(free * (width - own - lent), style="bright_black")


Cell = Text | Bar


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[Cell, ...]
    """One per column; a single one spans all columns."""
    detail: str = ""
    """Text below the tables while this row is selected."""
    target: Target | None = None
    """The workload of this row."""


def _part(amount: int, whole: int, width: int) -> int:
    """Full cells: none for 0, at least one above 0, all only for the whole."""
    if amount <= 0 or whole <= 0:
        return 0
    return width if amount >= whole else max(1, min(width - 1, amount * width // whole))


def header(columns: Sequence[Column], widths: Sequence[int]) -> Text:
    return _line([Text(column.title) for column in columns], columns, widths)


def line(row: Row, columns: Sequence[Column], widths: Sequence[int], width: int) -> Text:
    """`width`: of the whole line, for a row of one cell."""
    if len(row.cells) == 1 and isinstance(row.cells[0], Text):
        return _fitted(row.cells[0], width)
    return _line(row.cells, columns, widths)


def shown(columns: Sequence[Column], screen_width: int) -> list[int]:
    """Indices of the columns that a screen of this width shows."""
    return [number for number, column in enumerate(columns) if screen_width >= column.from_width]


def fit(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Width of each column: what its cells need, if all fit. Bars take the remaining width."""
    wanted = [cell_len(column.title) for column in columns]
    bars: set[int] = set()
    for row in rows:
        if len(row.cells) == 1:
            continue
        for number, cell in enumerate(row.cells):
            if isinstance(cell, Bar):
                bars.add(number)
            else:
                wanted[number] = max(wanted[number], cell.cell_len)
    room = width - _GAP * (len(columns) - 1)
    widths = [
        column.least if number in bars else min(column.most, need)
        for number, (column, need) in enumerate(zip(columns, wanted, strict=True))
    ]
    stepped = [
        have if number in bars else min(column.most, _stepped(have, cell_len(column.title)))
        for number, (column, have) in enumerate(zip(columns, widths, strict=True))
    ]
    if sum(stepped) <= room:
        widths = stepped
    for number in bars:
        spare = room - sum(widths)
        widths[number] += max(0, min(spare, columns[number].most - widths[number]))
    _shrink(widths, columns, room)
    return widths


def _stepped(need: int, title: int) -> int:
    return need if need <= title else -(-need // _STEP) * _STEP


def _shrink(widths: list[int], columns: Sequence[Column], room: int) -> None:
    """Shrink the widest columns first, down to the least width of each; then the last ones."""
    while (excess := sum(widths) - room) > 0:
        able = [n for n, column in enumerate(columns) if widths[n] > column.least]
        if not able:
            break
        widest = max(able, key=lambda n: widths[n])
        second = max((widths[n] for n in able if n != widest), default=0)
        floor = max(columns[widest].least, min(second, widths[widest] - 1))
        widths[widest] -= min(excess, widths[widest] - floor)
    for number in reversed(range(len(widths))):
        excess = sum(widths) - room
        if excess > 0:
            widths[number] -= min(excess, widths[number])


def _line(cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    text = Text(no_wrap=True)
    for number, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        if number:
            text.append(" " * _GAP)
        if isinstance(cell, Bar):
            text.append_text(cell.draw(width))
        else:
            text.append_text(_fitted(cell, width, column.justify))
    return text


def _fitted(cell: Text, width: int, justify: str = "left") -> Text:
    found = cell.copy()
    if found.cell_len > width:
        found.truncate(width, overflow="ellipsis")
    missing = width - found.cell_len
    if justify == "right":
        found.pad_left(missing)
    else:
        found.pad_right(missing)
    return found
