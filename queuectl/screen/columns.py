"""Tables whose columns fit the width they get: lines of text, one per row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from rich.text import Text

from queuectl.screen.facts import Target

_GAP: Final = 2
_STEP: Final = 4
"""Widths grow in steps, so that a table does not shift with every name that comes and goes."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    most: int = 24
    """Widest it gets, in cells."""
    least: int = 4
    """Narrowest it may be made when there is no room for all."""
    justify: Literal["left", "right"] = "left"
    from_width: int = 0
    """Left out on screens narrower than this."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What is used of a quota, drawn over whatever width its column gets. Amounts in base units."""

    nominal: int
    used: int
    plain: bool = False
    """With characters that every terminal has."""

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
    """One per column; a single one goes over all of them."""
    detail: str = ""
    """What is said of it when it is chosen."""
    target: Target | None = None
    """The workload it is about."""


def _part(amount: int, whole: int, width: int) -> int:
    """Cells: none for nothing, at least one for anything, all of them only for all."""
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
    """Indices of the columns that a screen of this width has."""
    return [number for number, column in enumerate(columns) if screen_width >= column.from_width]


def fit(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Cells for each column: what its cells need, as long as the whole fits. Bars take what is left."""
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
    """Take from the widest first, down to what each needs at least; then from the last ones."""
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
