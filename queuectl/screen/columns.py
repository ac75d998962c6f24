"""Tables that fit a given width: lines of text, one per row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from queuectl.screen.facts import Target
from queuectl.screen.text import Column

GAP: Final = 2
"""Spaces between columns."""
_STEP: Final = 4
"""Widths grow in steps, so that a table does not shift with every change of its longest cell."""


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
class TableRow:
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


def line(row: TableRow, columns: Sequence[Column], widths: Sequence[int], width: int) -> Text:
    """`width`: of the whole line, for a row of one cell."""
    if len(row.cells) == 1:
        return _line(row.cells, [Column("")], [width])
    return _line(row.cells, columns, widths)


def shown(columns: Sequence[Column], screen_width: int) -> list[int]:
    """Indices of the columns that a screen of this width shows."""
    return [number for number, column in enumerate(columns) if screen_width >= column.from_width]


def fit(columns: Sequence[Column], rows: Sequence[TableRow], width: int) -> list[int]:
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
    room = width - GAP * (len(columns) - 1)
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
    widths = narrowed(widths, [column.least for column in columns], room)
    for number in reversed(range(len(widths))):
        widths[number] -= min(max(0, sum(widths) - room), widths[number])
    return widths


def _stepped(need: int, title: int) -> int:
    return need if need <= title else -(-need // _STEP) * _STEP


def narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths whose sum is `room`, or those in `least` if that is more: the widest are narrowed first."""
    result = list(widths)
    while (excess := sum(result) - room) > 0:
        able = [number for number, width in enumerate(result) if width > least[number]]
        if not able:
            break
        widest = max(able, key=lambda number: result[number])
        second = max((result[number] for number in able if number != widest), default=0)
        floor = max(least[widest], min(second, result[widest] - 1))
        result[widest] -= min(excess, result[widest] - floor)
    return result


def joined(cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    """One line of a table, with spaces around cells that are narrower than their column."""
    text = Text(no_wrap=True)
    for number, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        missing = max(0, width - cell.cell_len)
        text.append(" " * (GAP * (number > 0) + (missing if column.right else 0)))
        text.append_text(cell)
        text.append(" " * (0 if column.right else missing))
    return text


def _line(cells: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    drawn = [
        cell.draw(width) if isinstance(cell, Bar) else _cut(cell, width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    return joined(drawn, columns, widths)


def _cut(cell: Text, width: int) -> Text:
    text = cell.copy()
    text.truncate(width, overflow="ellipsis")
    return text
