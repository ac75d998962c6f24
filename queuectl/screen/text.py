"""Formatting of words and numbers for tables. Text from a cluster is always escaped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from queuectl.core.model.resources import format_amount

NOTHING: Final = "-"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TENTHS_BELOW: Final = 10
_AGES_BELOW: Final = {"s": 2 * _MINUTE, "m": 2 * _HOUR, "h": 2 * _DAY}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table in a terminal. Widths are in cells of the terminal."""

    title: str
    right: bool = False
    """Right-aligned, for numbers."""
    wide: bool = False
    """Of a command: shown with `-o wide` only."""
    drop: int = 0
    """Of a command, in a terminal that is too narrow: left out, the highest number first; 0: never."""
    most: int = 24
    """Of the screen: the greatest width."""
    least: int = 4
    """Of the screen: the least width, if it is too narrow for all columns."""
    from_width: int = 0
    """Of the screen: left out where it is narrower than this."""


def printable(value: object) -> str:
    """One line of text, with control and other unprintable characters as escapes."""
    text = NOTHING if value is None or value == "" else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def amount(resource: str, value: int) -> str:
    """An amount in base units as a Kubernetes quantity; it may be negative."""
    return f"-{format_amount(resource, -value)}" if value < 0 else format_amount(resource, value)


def unit(resource: str) -> str:
    """`gpu` for `nvidia.com/gpu`."""
    return resource.rpartition("/")[2] or resource


def duration(seconds: float) -> str:
    """How long something has lasted, two figures at most: `7s`, `3m20s`, `2h05m`, `4d12h`.

    A negative one, which comes from clocks that differ, is `0s`.
    """
    return _two_figures(max(0, int(seconds)), hours_below=_DAY)


def figure(seconds: float | None) -> str:
    """A measured duration: `0.4s`, `42s`, `3m10s`, `47h05m`, `4d03h`."""
    if seconds is None:
        return NOTHING
    if seconds < _TENTHS_BELOW:
        return f"{seconds:.1f}s"
    return _two_figures(round(seconds), hours_below=2 * _DAY)


def age(seconds: float) -> str:
    """As kubectl prints ages, one figure: `45s`, `12m`, `3h`, `5d`."""
    whole = max(0, int(seconds))
    for unit, size in (("s", 1), ("m", _MINUTE), ("h", _HOUR)):
        if whole < _AGES_BELOW[unit]:
            return f"{whole // size}{unit}"
    return f"{whole // _DAY}d"


def _two_figures(seconds: int, *, hours_below: int) -> str:
    if seconds < _MINUTE:
        return f"{seconds}s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m{seconds % _MINUTE:02d}s"
    if seconds < hours_below:
        return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE:02d}m"
    return f"{seconds // _DAY}d{seconds % _DAY // _HOUR:02d}h"
