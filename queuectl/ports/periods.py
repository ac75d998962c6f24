"""Times of accounting: hours of UTC, and days and months of a time zone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
MONTH_PATTERN: Final = "[12][0-9]{3}-(0[1-9]|1[0-2])"


class Piece(NamedTuple):
    """A time that a roll-up does not divide, in UTC: an hour, or a part of one up to a border of a day."""

    begins: datetime
    ends: datetime


def zone_named(name: str) -> ZoneInfo | None:
    """The time zone with a name such as Europe/Berlin; None: there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def day_begins(day: date, zone: ZoneInfo) -> datetime:
    """When a day begins in a zone, in UTC."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def month_bounds(month: str, zone: ZoneInfo) -> Piece:
    """The bounds of a month such as `2026-11`, in UTC. Raises ValueError."""
    if not re.fullmatch(MONTH_PATTERN, month):
        raise ValueError(f"{month!r} is not a month such as 2026-11")
    first = date.fromisoformat(f"{month}-01")
    return Piece(day_begins(first, zone), day_begins(_next_month(first), zone))


def month_after(month: str) -> str:
    """The month that follows one such as `2026-11`."""
    return f"{_next_month(date.fromisoformat(f'{month}-01')):%Y-%m}"


def _next_month(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)


def pieces(since: datetime, until: datetime, zone: ZoneInfo) -> list[Piece]:
    """From `since` on, cut at hours of UTC and where days of `zone` begin, to the last border by `until`."""
    return [Piece(*pair) for pair in pairwise(sorted({since, *_borders(since, until, zone)}))]


def whole_days(since: datetime, until: datetime, zone: ZoneInfo) -> list[Piece]:
    """The days of a zone that lie whole between two times."""
    return [Piece(*pair) for pair in pairwise(_days(since, until, zone))]


def hours_of(since: datetime, until: datetime) -> list[Piece]:
    """The hours of UTC that lie, whole or in part, between two times."""
    return _overlapping(pieces(since - _DAY, until + _DAY, ZoneInfo("UTC")), since, until)


def days_of(since: datetime, until: datetime, zone: ZoneInfo) -> list[Piece]:
    """The days of a zone that lie, whole or in part, between two times."""
    return _overlapping(whole_days(since - 2 * _DAY, until + 2 * _DAY, zone), since, until)


def _overlapping(found: list[Piece], since: datetime, until: datetime) -> list[Piece]:
    return [one for one in found if one.begins < until and one.ends > since]


def whole_months(since: datetime, until: datetime, zone: ZoneInfo) -> list[Piece]:
    """The months of a zone that lie whole between two times."""
    first, last = since.astimezone(zone).date().replace(day=1), until.astimezone(zone).date()
    found = []
    while (following := _next_month(first)) <= last:
        if (begins := day_begins(first, zone)) >= since:
            found.append(Piece(begins, day_begins(following, zone)))
        first = following
    return found


def border_from(when: datetime, zone: ZoneInfo) -> datetime:
    """The first border at `when` or later."""
    return _borders(when, when + HOUR, zone)[0]


def border_to(when: datetime, zone: ZoneInfo) -> datetime:
    """The last border at `when` or before."""
    return _borders(when - HOUR, when, zone)[-1]


def _borders(since: datetime, until: datetime, zone: ZoneInfo) -> list[datetime]:
    return sorted({*_hours(since, until), *_days(since, until, zone)})


def _hours(since: datetime, until: datetime) -> Iterator[datetime]:
    at = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    at += HOUR if at < since else timedelta(0)
    while at <= until:
        yield at
        at += HOUR


def _days(since: datetime, until: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    day = since.astimezone(zone).date()
    while (at := day_begins(day, zone)) <= until:
        if at >= since:
            yield at
        day += _DAY
