"""One frame: header, the four tables, the selected row's detail, the keys. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.text import Text

from queuectl.ports import SILENT_SECONDS
from queuectl.screen import explanation
from queuectl.screen.columns import TableRow, fit, header, line, shown
from queuectl.screen.facts import Document, Room, ScreenFacts, Target
from queuectl.screen.navigation import Pane, ScreenView
from queuectl.screen.panes import COLUMNS, EMPTY, Table, scarce, tables
from queuectl.screen.text import amount, duration, printable, unit

_LEAST: Final = 4
"""Lines of the smallest table that is shown: title, header, two rows."""
_PATIENT_SECONDS: Final = 3.0
"""From this age in seconds on, the age of a state is coloured."""
_SUMMED: Final = 6
"""Flavors with totals in the header."""
_RULE: Final = 120
"""Longest horizontal rule in a pipe, where lines may be longer."""
_PLAIN: Final = str.maketrans("·…↑↓▏─", "-~^v|-")
KEYS: Final = (
    ("↑↓", "move"),
    ("tab", "next table"),
    ("enter", "explain"),
    ("/", "queue"),
    ("r", "resources"),
    ("p", "pause"),
)
_LESS: Final = ("r", "↑↓", "p", "/")
"""Keys left out of a last line that is too narrow, in this order; the help page lists them all."""
HELP: Final = (
    ("↑ ↓  j k", "select a row; its full text is shown below the tables"),
    ("PgUp PgDn  g G", "ten rows, first row, last row"),
    ("enter", "why the selected workload is pending, what holds the missing quota, what would help"),
    ("tab  shift-tab", "next table, previous table"),
    ("/  f", "only queues whose name contains this; Enter keeps it, Esc clears it"),
    ("r", "bars of cpu and memory too, or of devices only"),
    ("p  space", "pause, continue"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The input of a frame."""

    server: str
    facts: ScreenFacts | None
    """None before the first answer."""
    now: datetime
    """On the server's clock, in the zone of the screen; meaningless before the first answer."""
    silent_seconds: float = 0.0
    """Seconds since the server's last answer."""
    problem: str = ""
    """Why there is no answer."""
    explained: Document | None = None
    """The document of the opened workload, once it is there."""
    unexplained: str = ""
    """Why there is no document of the opened workload."""
    place: str = ""
    """Where the data of the server are; empty: not known here."""
    notes: Sequence[str] = ()
    """Further lines of the help page."""
    leave: str = "quit"
    """The text for the key that leaves the screen."""
    plain: bool = False
    """ASCII characters only."""
    brief: bool = False
    """One row for each ClusterQueue, of the quota that it uses most: the terminal is low."""


def frame(picture: Picture, view: ScreenView, width: int, height: int | None = None) -> list[Text]:
    """Exactly `height` lines of at most `width` cells; None: all rows, without keys."""
    lines = _frame(picture, view, width, height)
    if picture.plain:
        for text in lines:
            text.plain = text.plain.translate(_PLAIN).encode("ascii", "replace").decode()
    return lines


def _frame(picture: Picture, view: ScreenView, width: int, height: int | None) -> list[Text]:
    room = width if height is not None else min(width, _RULE)
    top = [_title(picture, view, room), Text(f" {printable(picture.server)}")]
    if not view.help:
        top += _summary(picture.facts)
    if height is None:
        return [_cut(text, width) for text in (*top, *_all(picture, view, width))]
    if view.help:
        body, foot = _help(picture, width), [_keys(picture, view, width)]
    elif view.opened is not None:
        body, foot = _explained(view.opened, picture, width), [_keys(picture, view, width)]
    elif picture.facts is None:
        body, foot = [Text(), *_unanswered(picture)], [_keys(picture, view, width)]
    else:
        known = tables(picture.facts, view, picture.now, plain=picture.plain, brief=picture.brief)
        foot = [*_chosen(known[view.pane], view, width), _keys(picture, view, width)]
        body = _panes(known, view, width, max(0, height - len(top) - len(foot)), plain=picture.plain)
    room = max(0, height - len(top) - len(foot))
    body = [*body[:room], *[Text()] * (room - len(body))]
    return [_cut(text, width) for text in (*top, *body, *foot)][:height]


def reach(picture: Picture, view: ScreenView) -> tuple[dict[Pane, int], Target | None]:
    """The number of rows of each table, and the workload of the selected row."""
    if picture.facts is None:
        return {}, None
    known = tables(picture.facts, view, picture.now, brief=picture.brief)
    here = known[view.pane]
    target = here.row(here.chosen(view)).target if len(here) else None
    return {pane: len(table) for pane, table in known.items()}, target


def _unanswered(picture: Picture) -> list[Text]:
    return [Text(printable(picture.problem or "asking…"), style="yellow")]


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="crop")
    text.no_wrap = True
    return text


# --- header -----------------------------------------------------------------------------------------


def _title(picture: Picture, view: ScreenView, width: int) -> Text:
    left = Text().append(" queuectl ", style="bold white on blue")
    if picture.place:
        left.append(f"  {printable(picture.place)}")
    if view.paused:
        left.append("  PAUSED", style="bold yellow")
    if view.filter or view.typing:
        left.append(f"  queue: {view.filter}{'▏' if view.typing else ''}", style="bold cyan")
    right = _age(picture)
    gap = width - left.cell_len - right.cell_len
    if gap < 1:
        left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis")
        gap = width - left.cell_len - right.cell_len
    return left.append(" " * gap).append_text(right)


def _age(picture: Picture) -> Text:
    """The age of the state, and whether it is stale."""
    facts = picture.facts
    if facts is None:
        return Text()
    old = facts.age_seconds + picture.silent_seconds
    if picture.problem:
        return Text(f" NO ANSWER · state of {duration(old)} ago ", style="bold white on red")
    if facts.stale:
        return Text(
            f" STALE: ledger not reachable · state of {duration(old)} ago ", style="bold white on red"
        )
    silence = facts.silent_seconds + picture.silent_seconds
    if silence > SILENT_SECONDS:
        text = f" NO CONTROLLER: none has committed for {duration(silence)}, nothing is decided "
        return Text(text, style="bold white on red")
    style = "yellow" if old > _PATIENT_SECONDS else "bright_black"
    return Text(f"decision {facts.sequence} · {old:.0f} s old · {picture.now:%H:%M:%S}", style=style)


def _summary(facts: ScreenFacts | None) -> list[Text]:
    if facts is None:
        return []
    totals: dict[tuple[str, str], list[int]] = {}
    for queue in facts.queues:
        for quota in scarce(queue.quotas):
            cell = totals.setdefault((quota.flavor, quota.resource), [0, 0])
            cell[0] += quota.used
            cell[1] += quota.nominal
    text = Text(" ")
    for (flavor, resource), (used, nominal) in list(totals.items())[:_SUMMED]:
        text.append(f"{printable(flavor)} ", style="bold")
        text.append(f"{amount(resource, used)}/{amount(resource, nominal)} {printable(unit(resource))}   ")
    admitted = sum(queue.admitted for queue in facts.queues)
    pending = max(sum(queue.pending for queue in facts.queues), len(facts.waiting))
    text.append(f"{len(facts.queues):,} queues   ")
    text.append(f"{admitted:,} running   ", style="green")
    text.append(f"{pending:,} waiting", style="yellow" if pending else "")
    return [text, *_nodes(facts.rooms)]


def _nodes(rooms: Sequence[Room]) -> list[Text]:
    """A line about the devices of nodes, if any are known."""
    if not rooms:
        return []
    text = Text(" on nodes: ", style="bright_black")
    for one in rooms[:_SUMMED]:
        text.append(f"{printable(one.flavor)} ", style="bold")
        free, there = amount(one.resource, one.free), amount(one.resource, one.there)
        text.append(f"{free} of {there} {printable(unit(one.resource))} free")
        if one.unmanaged:
            text.append(f", {amount(one.resource, one.unmanaged)} unmanaged", style="yellow")
        text.append("   ")
    return [text]


# --- tables -----------------------------------------------------------------------------------------


def _panes(
    known: Mapping[Pane, Table], view: ScreenView, width: int, room: int, *, plain: bool
) -> list[Text]:
    if room < _LEAST * len(Pane):
        return _pane(known[view.pane], view, width, room, plain=plain)
    wanted = [2 + max(1, len(table)) for table in known.values()]
    return [
        text
        for table, lines in zip(known.values(), share(room, wanted, _LEAST), strict=True)
        for text in _pane(table, view, width, lines, plain=plain)
    ]


def share(room: int, wanted: Sequence[int], least: int) -> list[int]:
    """Lines for each table: what it needs if all fit, otherwise equal parts.

    Unused lines go to the last table.
    """
    found = [min(least, want) for want in wanted]
    while (left := room - sum(found)) > 0:
        hungry = [number for number, want in enumerate(wanted) if found[number] < want]
        if not hungry:
            found[-1] += left
            break
        each = max(1, left // len(hungry))
        for number in hungry:
            more = min(each, wanted[number] - found[number], room - sum(found))
            found[number] += more
    return found


def _pane(table: Table, view: ScreenView, width: int, lines: int, *, plain: bool) -> list[Text]:
    """Exactly this number of lines."""
    visible = max(0, lines - 2)
    chosen = table.chosen(view)
    top = max(0, min(chosen - visible // 2, len(table) - visible))
    rows = table.rows(top, top + visible)
    focused = table.pane is view.pane
    where = f"{top + 1:,}-{top + len(rows):,} of {len(table):,}" if len(rows) < len(table) else ""
    heading = _heading(table, where, width, focused=focused, plain=plain)
    found = [heading, *_rows(table, rows, width, chosen - top if focused else None)]
    return [*found[:lines], *[Text()] * (lines - len(found))]


def _all(picture: Picture, view: ScreenView, width: int) -> list[Text]:
    """Every row, for a pipe."""
    if picture.facts is None:
        return _unanswered(picture)
    known = tables(picture.facts, view, picture.now, plain=picture.plain, brief=picture.brief)
    return [
        text
        for table in known.values()
        for text in (
            _heading(table, "", min(width, _RULE), focused=False, plain=picture.plain),
            *_rows(table, table.rows(), width, None),
        )
    ]


def _rows(table: Table, rows: Sequence[TableRow], width: int, chosen: int | None) -> list[Text]:
    if not len(table):
        return [Text(f"  {table.note or EMPTY[table.pane]}", style="bright_black")]
    numbers = shown(COLUMNS[table.pane], width)
    columns = [COLUMNS[table.pane][number] for number in numbers]
    picked = [
        row if len(row.cells) == 1 else TableRow(tuple(row.cells[number] for number in numbers))
        for row in rows
    ]
    widths = fit(columns, picked, width)
    head = header(columns, widths)
    head.stylize("bright_black")
    found = [head]
    for number, row in enumerate(picked):
        text = line(row, columns, widths, width)
        if number == chosen:
            text.pad_right(width - text.cell_len)
            text = Text(text.plain, style="reverse")
        found.append(text)
    return found


def _heading(table: Table, where: str, width: int, *, focused: bool, plain: bool) -> Text:
    rule = "-" if plain else "─"
    text = Text(f"{rule}{rule} ", style="cyan" if focused else "bright_black")
    text.append(table.pane.value, style="bold cyan" if focused else "bold")
    if table.title:
        text.append(f" {table.title}", style="bold cyan" if focused else "")
    told = " · ".join(part for part in (table.note, where) if part)
    if told:
        text.append(f"  {told}", style="bright_black")
    return text.append(" " + rule * max(0, width - text.cell_len - 1))


# --- footer -----------------------------------------------------------------------------------------


def _chosen(table: Table, view: ScreenView, width: int) -> list[Text]:
    """Always two lines, so that the tables above do not move."""
    detail = ""
    if len(table):
        detail = table.row(table.chosen(view)).detail
    first, rest = _broken(detail, width)
    if len(rest) > width:
        rest = rest[: width - 1] + "…"
    return [Text(first, style="bold"), Text(rest, style="bold")]


def _broken(text: str, width: int) -> tuple[str, str]:
    """Breaks at a space, if there is one."""
    if len(text) <= width:
        return text, ""
    at = text.rfind(" ", width // 2, width + 1)
    return (text[:at], text[at + 1 :]) if at > 0 else (text[:width], text[width:])


def _keys(picture: Picture, view: ScreenView, width: int) -> Text:
    if view.typing:
        return Text(" type a part of a queue's name · Enter keeps it · Esc clears it", style="cyan")
    if view.opened is not None:
        return _legend([("any key", "back")])
    told = "help, examples" if picture.notes else "help"
    keys = [*KEYS, ("?", told), ("q", picture.leave)]
    for least in _LESS:
        if _legend(keys).cell_len > width:
            keys = [key for key in keys if key[0] != least]
    return _legend(keys)


def _legend(keys: Sequence[tuple[str, str]]) -> Text:
    text = Text()
    for key, what in keys:
        text.append(f" {key} ", style="reverse").append(f" {what} ")
    return text


def _help(picture: Picture, width: int) -> list[Text]:
    """Commands first: of a low terminal, keys are left out."""
    lines = []
    for note in picture.notes:
        if note.startswith(" "):
            lines += [Text(part) for part in _in_lines(printable(note), width)]
        else:
            lines.append(Text(printable(note), style="bold cyan"))
    keys = [Text(f"  {key:<16}{what}") for key, what in (*HELP, ("q  Ctrl-C", picture.leave))]
    return [*lines, Text(), Text("Keys", style="bold cyan"), *keys]


def _in_lines(command: str, width: int) -> Iterator[str]:
    """Lines that a shell reads as this command: all but the last end with a backslash."""
    line, most = " ", max(width, _LEAST_OF_TEXT) - 2
    for word in _WORD.findall(command):
        if line.strip() and len(line) + len(word) + 1 > most:
            yield f"{line} \\"
            line = "   "
        line += f" {word}"
        while len(line) > most and '"' not in word:
            cut = most - 1
            cut -= _quoted(line[:cut])
            quote = "'" * _quoted(line[:cut])
            yield f"{line[:cut]}{quote}\\"
            line = f"{quote}{line[cut:]}"
    yield line


def _quoted(text: str) -> int:
    """Return 1 if `text` ends within single quotes, else 0."""
    return text.count("'") % 2


_WORD: Final = re.compile(r"(?:'[^']*'|[^\s'])+")
_LABEL: Final = 14
_LEAST_OF_TEXT: Final = 20


def _explained(target: Target, picture: Picture, width: int) -> list[Text]:
    """The page of the opened workload."""
    namespace, kind, name = target
    title = Text(printable(f"{kind} {namespace}/{name}"), style="bold cyan")
    if picture.explained is None:
        return [title, Text(), Text(printable(picture.unexplained or "asking…"), style="yellow")]
    try:
        title = Text(explanation.headline(picture.explained), style="bold cyan")
        return [title, Text(), *_lines(picture.explained, picture.now, width)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"this is not an answer of queuectl's REST server ({type(error).__name__}: {error})"
        return [title, Text(), Text(printable(problem), style="red")]


def _lines(document: Document, now: datetime, width: int) -> Iterator[Text]:
    for label, text in explanation.lines(document, now):
        parts = textwrap.wrap(printable(text), max(_LEAST_OF_TEXT, width - _LABEL)) or [""]
        for number, part in enumerate(parts):
            line = Text(f"{label if number == 0 else '':<{_LABEL}}", style="bright_black")
            yield line.append(part, style=_STYLES.get(label, "default"))


_STYLES: Final = {"Reason": "bold", "Would help": "green"}
"""By label."""
