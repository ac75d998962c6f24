"""Usage by users, queues and account keys: schemas, documents and the endpoint (docs/accounting.md)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from pydantic import Field, PlainValidator

from queuectl.answers.usage import OfBooking, UsageItem, usage_by
from queuectl.api import requests, schemas
from queuectl.api.http import bad_request
from queuectl.api.requests import FLAVORS, WORKLOADS, Parameter, Question, always, endpoint
from queuectl.api.schemas import Committed, Document
from queuectl.api.view import Routes, committed, now
from queuectl.core.model.device_use import IDLE_OF
from queuectl.ports.periods import HOUR, MONTH_PATTERN, Piece, month_bounds, zone_named
from queuectl.ports.rates import MICROSECONDS
from queuectl.ports.reader import (
    CAPACITY_AMOUNTS,
    MOST_USAGE,
    USAGE_AXES,
    CapacitySum,
    TooMuchHistory,
    UsageOfTime,
    UsageSumOf,
)

MOST_AXES: Final = 4
MOST_ITEMS: Final = 10_000
"""Items of one answer."""


def _axes(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if not 1 <= len(found) <= MOST_AXES or len(set(found)) < len(found) or not all(found):
        raise ValueError(f"1 to {MOST_AXES} different names, such as user,namespace")
    return found


def _zone(text: str) -> ZoneInfo:
    zone = zone_named(text)
    if zone is None:
        raise ValueError("the name of a time zone, such as Europe/Berlin")
    return zone


BY: Final = Parameter(
    "by",
    Annotated[tuple[str, ...], PlainValidator(_axes, json_schema_input_type=str)],
    f"What to divide by, with commas: {', '.join(USAGE_AXES)}, or account keys. `queue` is localqueue. "
    "Without it: user.",
    maxLength=200,
)
MONTH: Final = Parameter(
    "month",
    Annotated[str, Field(pattern=f"^{MONTH_PATTERN}$")],
    "Of this month, in the place of `since` and `until`.",
    "a month such as 2026-11",
)
ZONE: Final = Parameter(
    "zone",
    Annotated[ZoneInfo, PlainValidator(_zone, json_schema_input_type=str)],
    "Time zone in which the month begins. Without it: the configured one.",
    maxLength=64,
)


class NodeHours(Document):
    """What nodes had of one resource over a time: held + free + unmanaged = usable + overcommitted.

    Base units times hours, while the capacity of the nodes was known.
    """

    resource: str
    held: float = Field(description="By workloads.")
    free: float = Field(description="On usable nodes: held by nothing.")
    unmanaged: float = Field(description="By pods that belong to no workload.")
    usable: float = Field(description="On nodes that were ready.")
    unusable: float = Field(description="On other nodes.")
    overcommitted: float = Field(description="Held or used beyond what usable nodes had.")


class UsageTotal(NodeHours):
    """One flavor and resource."""

    flavor: str
    used: float = Field(description="Held by all workloads: the sum of the items.")


class UsageReport(Committed):
    """Who held what over a time."""

    since: datetime = Field(description="As asked, or from when on the ledger knows it.")
    until: datetime = Field(description="As asked, or now.")
    zone: str = Field(description="In which the month begins.")
    by: tuple[str, ...]
    items: tuple[UsageItem, ...] = Field(description="Those of a resource add up to all that was held of it.")
    totals: tuple[UsageTotal, ...] = Field(
        description="By flavor and resource, base units times hours: of flavors that the caller may get."
    )


class UsageRoutes(Routes):
    @endpoint(
        "/api/v1/usage",
        "Who held what over a time, and what the nodes had",
        UsageReport,
        (BY, MONTH, requests.FROM, requests.UNTIL, ZONE),
        heavy=always,
        notes="Namespaces in which the caller may not list workloads are one item. "
        f"At most {MOST_USAGE} different bookings and {MOST_ITEMS} items. "
        "Without a time: this month.",
    )
    async def usage(self, question: Question) -> schemas.Committed:
        sight = await self._source.sight_of(question)
        zone = question.values.get("zone") or ZoneInfo(
            await self._source.ask(self._source.readings.usage_zone())
        )
        period = _period(question, zone, now(sight))
        by = question.values.get("by", ("user",))
        try:
            found = await self._source.ask(
                self._source.readings.usage(since=period.begins, until=period.ends)
            )
        except TooMuchHistory:
            raise bad_request(
                "parameter since: history before the first hour that is kept is gone, or more than "
                f"{MOST_USAGE} different bookings: ask for a shorter time, at hours"
            ) from None
        by = await asyncio.to_thread(axes_of, by, found.rows)
        visible = await visible_namespaces(question, found.rows)
        return UsageReport(
            since=found.since,
            until=found.until,
            zone=str(zone),
            by=by,
            # In a thread: it may take a second, and others are answered meanwhile.
            items=await asyncio.to_thread(_items, found.rows, by, visible),
            totals=await _totals(question, found),
            **committed(sight),
        )


def _period(question: Question, zone: ZoneInfo, until: datetime) -> Piece:
    """The time that is asked for. Raises a 400."""
    values = question.values
    if "month" in values:
        if "since" in values or "until" in values:
            raise bad_request("parameter month: goes without since and until")
        return month_bounds(values["month"], zone)
    if "since" not in values:
        if "until" in values:
            raise bad_request("parameter until: goes with since")
        return month_bounds(f"{until.astimezone(zone):%Y-%m}", zone)
    # Without an end: up to the clock of the ledger, which is ahead of that of the last commit.
    period = Piece(values["since"], values.get("until", max(until, values["since"]) + HOUR))
    if period.begins >= period.ends:
        raise bad_request("parameter since: must be before until")
    return period


async def visible_namespaces(question: Question, rows: Iterable[OfBooking]) -> Callable[[str | None], bool]:
    """Whether the caller may read what is booked on a namespace, or on none."""

    def namespaces_of_rows() -> set[str]:
        return {row.booked.namespace for row in rows if row.booked is not None}

    namespaces = await asyncio.to_thread(namespaces_of_rows)
    allowed = await question.caller.namespaces("list", WORKLOADS, namespaces)
    return allowed.__contains__


def axes_of(
    by: Sequence[str], rows: Iterable[OfBooking], axes: Sequence[str] = USAGE_AXES
) -> tuple[str, ...]:
    """Names of axes and account keys. Raises a 400 if there is no such axis or account key."""
    keys = {key for row in rows if row.booked is not None for key in row.booked.account}
    found = tuple("localqueue" if axis == "queue" and axis not in keys else axis for axis in by)
    for axis in found:
        if axis not in axes and axis not in keys:
            known = ", ".join((*axes, *sorted(keys)))
            raise bad_request(f"parameter by: nothing was booked on {axis!r} in that time; there are {known}")
    return found


def _items(
    rows: Sequence[UsageSumOf], by: Sequence[str], visible: Callable[[str | None], bool]
) -> tuple[UsageItem, ...]:
    """Raises a 400 for more than MOST_ITEMS."""
    items = usage_by(rows, by, visible)
    check_items(by, len(items))
    return tuple(items)


def check_items(by: Sequence[str], number: int) -> None:
    """Raises a 400 for more than MOST_ITEMS."""
    if number > MOST_ITEMS:
        raise bad_request(
            f"parameter by: {','.join(by)} gives {number} items: an answer has at most {MOST_ITEMS}"
        )


def _used(rows: Iterable[UsageSumOf]) -> Mapping[tuple[str, str], int]:
    """What was held, by flavor and resource. Base units times microseconds."""
    used: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        if not row.resource.startswith(IDLE_OF):
            used[row.flavor, row.resource] += row.amount
    return used


async def _totals(question: Question, found: UsageOfTime) -> tuple[UsageTotal, ...]:
    used = await asyncio.to_thread(_used, found.rows)
    capacity = {(one.flavor, one.resource): one for one in found.capacity}
    cells = sorted({*used, *capacity})
    allowed = await question.caller.names(FLAVORS, {flavor for flavor, _ in cells})
    totals = []
    for cell in cells:
        if cell[0] not in allowed:
            continue
        amounts = node_hours(capacity.get(cell) or CapacitySum(*cell, 0, 0, 0, 0, 0, 0))
        totals.append(UsageTotal(flavor=cell[0], used=used.get(cell, 0) / MICROSECONDS, **amounts))
    return tuple(totals)


def node_hours(one: CapacitySum) -> dict[str, Any]:
    """The fields of NodeHours."""
    amounts = {name: getattr(one, name) / MICROSECONDS for name in CAPACITY_AMOUNTS}
    return {"resource": one.resource, **amounts}
