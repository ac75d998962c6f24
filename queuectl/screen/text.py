"""Words and numbers as people read them in a table. Nothing from a cluster reaches a terminal unescaped."""

from __future__ import annotations

from typing import Final

from queuectl.core.resources import format_amount

NOTHING: Final = "-"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR


def printable(value: object) -> str:
    """One line of text, with control and other unprintable characters as escapes."""
    text = NOTHING if value is None or value == "" else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def amount(resource: str, value: int) -> str:
    """Base units as people write them; negative ones too."""
    return f"-{format_amount(resource, -value)}" if value < 0 else format_amount(resource, value)


def unit(resource: str) -> str:
    """`nvidia.com/gpu` as `gpu`, where there is no room for whose it is."""
    return resource.rpartition("/")[2] or resource


def duration(seconds: float) -> str:
    """Two figures at most: `7s`, `3m20s`, `2h05m`, `4d12h`. Clocks that disagree give `0s`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"
