"""Usage of a time: closed hours from the roll-ups, what is before and after them from the holds."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import ARRAY, ColumnElement, DateTime, Double, Table, Text, cast, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.device_use import IDLE_OF
from queuectl.core.model.resources import FlavorResource
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLOCK
from queuectl.ledger.history.state_at import first_capacity
from queuectl.ledger.history.usage_hours import (
    HELD,
    NOT_BOOKED,
    SUMS,
    Rolled,
    UsageSums,
    capacity_in,
    decided_before,
    kept_from,
    parameters,
    rolled,
)
from queuectl.ledger.pool import FEW_ROWS, stream
from queuectl.ledger.shared_rows import StoredAttribution
from queuectl.ports.periods import HOUR, Piece, border_from, border_to
from queuectl.ports.reader import (
    CAPACITY_AMOUNTS,
    MOST_USAGE,
    BookedOn,
    CapacitySum,
    TooMuchHistory,
    UsageOfTime,
    UsageSumOf,
)

_UTC: Final = ZoneInfo("UTC")
_LONGEST: Final = timedelta(days=36_500)
_HALF_LIVES: Final = 10
"""What is older counts less than 0.1 %."""
_DAYS_COUNT: Final = 30 * 86_400
"""Half-life in seconds from which the sums of days are exact enough: they differ by 1.2 % at most."""
Key = tuple[str, str, str, str]
"""ClusterQueue, attribution, flavor, resource."""


async def usage_zone(connection: AsyncConnection, cluster: str) -> str:
    """The zone in which days of usage begin: UTC before the first roll-up."""
    state = await rolled(connection, cluster)
    return "UTC" if state is None else state.zone


async def usage(connection: AsyncConnection, cluster: str, since: datetime, until: datetime) -> UsageOfTime:
    """What was held and what nodes had from `since` to `until`, or to now. Raises TooMuchHistory."""
    now: datetime = (await connection.execute(CLOCK, {"p_cluster": cluster})).scalar_one() or until
    state = await rolled(connection, cluster)
    kept = await kept_from(connection, cluster, _UTC)
    earliest = state.since if state is not None else kept
    since, until = max(since, earliest or until), min(until, now)
    if earliest is None or since >= until:
        return UsageOfTime(since, max(since, until), [], [])
    closed, edges = _parts(state, since, until)
    if any(edge.begins < max(kept or now, earliest) and edge.begins != closed.ends for edge in edges):
        raise TooMuchHistory
    sums = defaultdict[Key, int](int)
    for table, part in _by_table(state, closed):
        async for *key, amount in stream(connection, _stored(table, cluster, part), at_once=FEW_ROWS):
            sums[key[0], key[1], key[2], key[3]] += int(amount)
    after = {edge: await decided_before(connection, cluster, edge.begins) for edge in edges}
    for edge in edges:
        held = stream(connection, HELD, parameters(cluster, [edge], after[edge]), FEW_ROWS)
        async for _, _, queue, attribution, flavor, resource, amount in held:
            sums[queue, attribution, flavor, resource] += int(amount)
    capacity = [one for _, one in await _capacity(connection, cluster, [since], closed, after)]
    if len(sums) > MOST_USAGE:
        raise TooMuchHistory
    booked = await bookings(connection, cluster, {key[1] for key in sums})
    return await asyncio.to_thread(_of_time, Piece(since, until), sums, capacity, booked)


async def capacity_trend(
    connection: AsyncConnection, cluster: str, flavor: str, steps: Sequence[Piece]
) -> list[tuple[Piece, CapacitySum]]:
    """What the nodes of a flavor had in each step up to now, as far as the ledger knows it.

    `steps` follow each other. What is rolled up as one piece counts in the step in which it begins. A step
    in which the nodes were observed first begins then.
    """
    now: datetime | None = (await connection.execute(CLOCK, {"p_cluster": cluster})).scalar_one()
    state = await rolled(connection, cluster)
    earliest = state.since if state is not None else await kept_from(connection, cluster, _UTC)
    if now is None or earliest is None:
        return []
    steps = [Piece(begins, min(ends, now)) for begins, ends in steps if begins < now and ends > earliest]
    if not steps:
        return []
    since, until = max(steps[0].begins, earliest), steps[-1].ends
    border = min(max(since, state.until), until) if state is not None else since
    edges = {}
    if border < until:
        edges[Piece(border, until)] = await decided_before(connection, cluster, border)
    found = await _capacity(
        connection, cluster, [one.begins for one in steps], Piece(since, border), edges, flavor
    )
    if found and (first := await _observed_first(connection, cluster)) is not None:
        number = found[0][0]
        steps[number] = Piece(max(steps[number].begins, first), steps[number].ends)
    return [(steps[number], one) for number, one in found]


async def _observed_first(connection: AsyncConnection, cluster: str) -> datetime | None:
    """When the nodes were observed first; None: not known, as only sums of hours are kept of it."""
    first = await first_capacity(connection, cluster)
    row = t.capacity_hour.c
    if first is None:
        return None
    earlier = select(row.begins_at).where(row.cluster_id == cluster, row.begins_at <= first - HOUR).limit(1)
    return None if (await connection.execute(earlier)).one_or_none() is not None else first


async def decayed(connection: AsyncConnection, cluster: str, until: datetime, half_life: int) -> UsageOfTime:
    """What was held up to `until`, or to now: each hour or day counts by the age of its middle.

    Of the last _HALF_LIVES. What was idle is not told apart. Raises TooMuchHistory.
    """
    now: datetime = (await connection.execute(CLOCK, {"p_cluster": cluster})).scalar_one() or until
    state = await rolled(connection, cluster)
    until = min(until, now)
    since = until - min(timedelta(seconds=_HALF_LIVES * half_life), _LONGEST)
    earliest = state.since if state is not None else await kept_from(connection, cluster, _UTC)
    since = max(since, earliest or until)
    if since >= until:
        return UsageOfTime(until, until, [], [])
    closed, edges = _parts(state, since, until)
    sums = defaultdict[Key, int](int)
    for table, part in _by_table(state, closed, SUMS[: half_life >= _DAYS_COUNT]):
        query = _stored(table, cluster, part, _weight(table, until, half_life)).where(
            ~table.c.resource.startswith(IDLE_OF)
        )
        async for *key, amount in stream(connection, query, at_once=FEW_ROWS):
            sums[key[0], key[1], key[2], key[3]] += int(amount)
    for edge in edges:
        if closed.begins < closed.ends and edge.ends <= closed.begins:
            continue  # less than an hour, as old as counts
        after = await decided_before(connection, cluster, edge.begins)
        held = stream(connection, HELD, parameters(cluster, _by_hour(edge), after), FEW_ROWS)
        async for begins, ends, queue, attribution, flavor, resource, amount in held:
            if resource.startswith(IDLE_OF):
                continue
            age = (until - begins) - (ends - begins) / 2
            sums[queue, attribution, flavor, resource] += int(
                int(amount) * 2.0 ** (-age.total_seconds() / half_life)
            )
    if len(sums) > MOST_USAGE:
        raise TooMuchHistory
    booked = await bookings(connection, cluster, {key[1] for key in sums})
    return await asyncio.to_thread(_of_time, Piece(since, until), sums, [], booked)


def _by_hour(edge: Piece) -> list[Piece]:
    hours = -(-(edge.ends - edge.begins) // HOUR)
    return [Piece(edge.begins + n * HOUR, min(edge.ends, edge.begins + (n + 1) * HOUR)) for n in range(hours)]


def _weight(table: Table, until: datetime, half_life: int) -> ColumnElement[float]:
    """How much what was held in a row counts."""
    ages = (func.extract("epoch", literal(until) - when) for when in (table.c.begins_at, table.c.ends_at))
    return func.power(cast(2.0, Double), cast(-sum(ages) / (2 * half_life), Double))


def _of_time(
    time: Piece,
    sums: Mapping[Key, int],
    capacity: list[CapacitySum],
    booked: Mapping[str, BookedOn],
) -> UsageOfTime:
    rows = [
        UsageSumOf(booked.get(attribution), queue, flavor, resource, amount)
        for (queue, attribution, flavor, resource), amount in sorted(sums.items())
    ]
    return UsageOfTime(*time, rows, capacity)


def _parts(state: Rolled | None, since: datetime, until: datetime) -> tuple[Piece, list[Piece]]:
    """What of a time is rolled up, and what is before and after that."""
    if state is None:
        return Piece(until, until), [Piece(since, until)]
    begin = border_from(since, state.zone_at(since))
    end = border_to(min(until, state.until), state.zone_at(until))
    if begin >= end:
        return Piece(until, until), [Piece(since, until)]
    return Piece(begin, end), [Piece(*edge) for edge in ((since, begin), (end, until)) if edge[0] < edge[1]]


async def _capacity(
    connection: AsyncConnection,
    cluster: str,
    begins: Sequence[datetime],
    closed: Piece,
    edges: Mapping[Piece, int],
    flavor: str | None = None,
) -> list[tuple[int, CapacitySum]]:
    """Sums of the steps that begin then, each with its number from 0; of all flavors or of one.

    `closed`: what is rolled up. `edges`: what is not, with the sequence of a decision before it.
    """
    sums = defaultdict[tuple[int, FlavorResource], list[int]](lambda: [0] * len(CAPACITY_AMOUNTS))
    stored = await _stored_capacity(connection, cluster, begins, closed, flavor)
    for number, of, resource, amounts in stored:
        sums[number - 1, FlavorResource(of, resource)] = amounts
    for edge, after in edges.items():
        borders = [edge.begins, *(at for at in begins if edge.begins < at < edge.ends), edge.ends]
        pieces = [Piece(*pair) for pair in pairwise(borders)]
        for piece, (of, resource, *amounts) in await capacity_in(connection, cluster, pieces, after):
            if flavor is None or of == flavor:
                key = bisect_right(begins, piece.begins) - 1, FlavorResource(of, resource)
                sums[key] = [a + b for a, b in zip(sums[key], amounts, strict=True)]
    return [(number, CapacitySum(*cell, *amounts)) for (number, cell), amounts in sorted(sums.items())]


def _by_table(
    state: Rolled | None, closed: Piece, of_longer: Sequence[UsageSums] = SUMS
) -> Iterator[tuple[Table, Piece]]:
    """Whole months from one table, whole days before and after them from another, the rest from hours."""
    left = [closed]
    if state is None:
        return
    for sums in reversed(of_longer):
        parts, left = left, []
        for part in parts:
            since = max(part.begins, state.zone_since)
            if not (found := sums.whole(since, part.ends, ZoneInfo(state.zone))):
                left.append(part)
                continue
            yield sums.table, (middle := Piece(found[0].begins, found[-1].ends))
            left += [Piece(part.begins, middle.begins), Piece(middle.ends, part.ends)]
    for part in left:
        yield t.usage_hour, part


def _stored(table: Table, cluster: str, closed: Piece, weight: ColumnElement[float] | None = None) -> Any:
    row = table.c
    amount = row.amount if weight is None else cast(row.amount, Double) * weight
    whose = (row.cluster_queue, row.attribution, row.flavor, row.resource)
    return (
        select(*whose, func.sum(amount))
        .where(row.cluster_id == cluster, row.begins_at >= closed.begins, row.begins_at < closed.ends)
        .group_by(*whose)
        .limit(MOST_USAGE + 1)
    )


async def _stored_capacity(
    connection: AsyncConnection,
    cluster: str,
    begins: Sequence[datetime],
    closed: Piece,
    flavor: str | None,
) -> list[tuple[int, str, str, list[int]]]:
    """Numbers of steps are from 1."""
    row = t.capacity_hour.c
    number = func.width_bucket(row.begins_at, literal([*begins], ARRAY(DateTime(timezone=True))))
    query = (
        select(
            number.label("number"),
            row.flavor,
            row.resource,
            *(func.sum(row[name]) for name in CAPACITY_AMOUNTS),
        )
        .where(row.cluster_id == cluster, row.begins_at >= closed.begins, row.begins_at < closed.ends)
        .group_by("number", row.flavor, row.resource)
    )
    if flavor is not None:
        query = query.where(row.flavor == flavor)
    return [
        (step, of, resource, [int(amount) for amount in amounts])
        for step, of, resource, *amounts in await connection.execute(query)
    ]


async def bookings(connection: AsyncConnection, cluster: str, ids: Iterable[str]) -> dict[str, BookedOn]:
    """Attributions by id."""
    row = t.attribution.c
    wanted = [*(set(ids) - {NOT_BOOKED})]
    query = select(*(row[name] for name in StoredAttribution._fields)).where(
        row.cluster_id == cluster, row.id == func.any(literal(wanted, ARRAY(Text)))
    )
    found = {}
    async for fields in stream(connection, query, at_once=FEW_ROWS):
        one = StoredAttribution._make(fields)
        found[one.id] = BookedOn(*one[1:-1], {key: value["value"] for key, value in one.account.items()})
    return found
