"""Formatting of words and numbers for tables. Text from a cluster is always escaped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from queuectl.core.model.resources import format_amount
from queuectl.ports.rates import hour_unit

NOTHING: Final = "-"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TENTHS_BELOW: Final = 10
_AGES_BELOW: Final = {"s": 2 * _MINUTE, "m": 2 * _HOUR, "h": 2 * _DAY}
_LONG: Final = 8
"""Exact amounts of bytes of this length or more are rounded to one decimal."""
_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


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


def amount(resource: str | None, value: int | None) -> str:
    """An amount in base units as a Kubernetes quantity; long amounts of bytes with one decimal."""
    if resource is None or value is None:
        return NOTHING
    sign, size = ("-", -value) if value < 0 else ("", value)
    text = format_amount(resource, size)
    if len(text) >= _LONG and format_amount(resource, 1024) == "1Ki":
        power = min((size.bit_length() - 1) // 10, len(_SUFFIXES) - 1)
        text = f"{size / (1 << 10 * power):.1f}{_SUFFIXES[power]}"
    return sign + text


def resource_hours(resource: str, value: float, digits: int = 1) -> str:
    """Base units times hours in the unit of `hour_unit`: cores, GiB, devices."""
    unit, size = hour_unit(resource)
    return f"{value / size:.{digits}f}" + ("Gi" if unit == "GiB-hours" else "")


def resource_time(resource: str, value: float) -> str:
    """Base units times seconds in hours, below one in minutes; `gpu` for `nvidia.com/gpu`, as on the page."""
    times, unit = (60, "minutes") if value < 3600 * hour_unit(resource)[1] else (1, "hours")
    return f"{resource_hours(resource, times * value / 3600)} {resource.rpartition('/')[2]} {unit}"


def device_times(amounts: Mapping[str, float] | None) -> list[str]:
    """The same of GPUs and other devices, each such as `8.0 gpu hours`; none if it is not known."""
    return [resource_time(name, value) for name, value in sorted((amounts or {}).items()) if "/" in name]


def share_of(share: int | None) -> str:
    """A dominant share in thousandths as percent; None: infinite, as its weight is 0."""
    return "infinite" if share is None else f"{share / 10:g}%"


def ago(stamp: str | None, now: datetime | None) -> str:
    """How long ago, as kubectl prints it: 45s, 12m, 3h, 5d."""
    if stamp is None or now is None:
        return NOTHING
    return age((now - datetime.fromisoformat(stamp)).total_seconds())


def local(stamp: str | None) -> str:
    """A time of a document (UTC) in the zone of this machine, with its offset; in UTC where the zone has no
    such time: tenants choose deadlines up to the end of the year 9999."""
    if stamp is None:
        return NOTHING
    time = datetime.fromisoformat(stamp)
    with suppress(OverflowError):
        time = time.astimezone()
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
