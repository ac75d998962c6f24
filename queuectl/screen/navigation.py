"""The user's view, and how keys change it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from queuectl.screen.facts import Target

MAX_FILTER: Final = 63
_PAGE: Final = 10


class Pane(StrEnum):
    QUEUES = "Queues"
    RUNNING = "Running"
    WAITING = "Waiting"
    DECISIONS = "Decisions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenView:
    """Immutable: a key makes another one."""

    pane: Pane = Pane.WAITING
    chosen: Mapping[Pane, int] = field(default_factory=dict)
    """Number of the selected row of each pane."""
    filter: str = ""
    """Only queues whose name contains this are shown."""
    typing: bool = False
    """The user is typing the filter."""
    paused: bool = False
    help: bool = False
    all_resources: bool = False
    """Bars of cpu and memory too for queues with GPUs."""
    opened: Target | None = None
    """The workload whose page is open."""
    leaving: bool = False

    def row(self, pane: Pane) -> int:
        return self.chosen.get(pane, 0)


def press(view: ScreenView, key: str, rows: Mapping[Pane, int], chosen: Target | None = None) -> ScreenView:
    """The view after this key. `rows`: of each pane. `chosen`: the workload of the selected row."""
    if view.typing:
        return _type(view, key)
    if view.help or view.opened:
        return replace(view, help=False, opened=None)
    if key == "q":
        return replace(view, leaving=True)
    if key == "enter":
        return replace(view, opened=chosen)
    change = _CHANGES.get(key)
    return change(view) if change else _move(view, key, rows.get(view.pane, 0))


_CHANGES: Final[dict[str, Callable[[ScreenView], ScreenView]]] = {
    **dict.fromkeys(("?", "h"), lambda view: replace(view, help=True)),
    **dict.fromkeys(("p", " "), lambda view: replace(view, paused=not view.paused)),
    **dict.fromkeys(("/", "f"), lambda view: replace(view, typing=True)),
    "r": lambda view: replace(view, all_resources=not view.all_resources),
    "escape": lambda view: replace(view, filter="", chosen={}),
    **dict.fromkeys(("tab", "right", "l"), lambda view: replace(view, pane=_next(view.pane, 1))),
    **dict.fromkeys(("backtab", "left"), lambda view: replace(view, pane=_next(view.pane, -1))),
}


def _next(pane: Pane, step: int) -> Pane:
    panes = list(Pane)
    return panes[(panes.index(pane) + step) % len(panes)]


_STEPS: Final = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": _PAGE, "pageup": -_PAGE}
_ENDS: Final = {"home": False, "g": False, "end": True, "G": True}


def _move(view: ScreenView, key: str, rows: int) -> ScreenView:
    last = max(0, rows - 1)
    if key in _ENDS:
        row = last if _ENDS[key] else 0
    elif key in _STEPS:
        row = min(max(view.row(view.pane), 0), last) + _STEPS[key]
    else:
        return view
    return replace(view, chosen={**view.chosen, view.pane: min(max(row, 0), last)})


def _type(view: ScreenView, key: str) -> ScreenView:
    match key:
        case "enter":
            return replace(view, typing=False)
        case "escape":
            return replace(view, typing=False, filter="", chosen={})
        case "backspace":
            return replace(view, filter=view.filter[:-1], chosen={})
        case _ if len(key) == 1 and key.isprintable() and len(view.filter) < MAX_FILTER:
            return replace(view, filter=view.filter + key, chosen={})
        case _:
            return view
