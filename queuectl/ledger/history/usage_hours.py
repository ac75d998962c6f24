"""Usage and capacity by the hour, which stay when months of history are dropped (B3, B4).

An hour is closed once a later time was committed, or a day after its end: no hold can begin or end in it any
more. What is stored of it is a function of the holds and of what nodes had, so that any process may store it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import Table, TextClause, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.features.nodes.inventory import NodeState
from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.model.device_use import IDLE_OF
from queuectl.core.model.resources import FlavorResource
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLUSTER
from queuectl.ledger.history.past_usage import first_since
from queuectl.ledger.history.state_at import capacities_at
from queuectl.ledger.pool import ledger_call
from queuectl.ledger.published_facts import capacity_from_json
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.periods import Piece, border_from, pieces, whole_days, whole_months
from queuectl.ports.reader import CapacitySum

NOT_BOOKED: Final = ""
"""In place of an attribution: a hold that no version of its ledger has booked."""
MOST_PIECES: Final = 25
"""Of one transaction."""
_MICROSECOND: Final = timedelta(microseconds=1)


class Rolled(NamedTuple):
    """How far the roll-ups of a cluster go."""

    since: datetime
    until: datetime
    sequence: int
    """Of the last decision up to `until`."""
    zone: str
    """Pieces are cut where its days begin."""
    zone_since: datetime
    """From then on, and days and months are stored. Before, they are cut at hours of UTC, and perhaps where
    other days begin."""

    def zone_at(self, when: datetime) -> ZoneInfo:
        """The zone whose borders are borders of pieces at that time."""
        return ZoneInfo(self.zone if when >= self.zone_since else "UTC")


_LINES: Final = (
    f"SELECT * FROM {SCHEMA}.hold_line WHERE cluster_id = :cluster AND open AND from_at < :until "
    f"UNION ALL SELECT * FROM {SCHEMA}.hold_line WHERE cluster_id = :cluster AND NOT open "
    "AND to_seq > :after AND closed_at > :since AND from_at < :until"
)


def _in_pieces(lines: str, resource: str, share: str = "") -> str:
    """What `lines` held in each piece, as amounts of `resource`. `share`: what a line is multiplied by."""
    return (
        "SELECT piece.begins, piece.ends, line.cluster_queue, coalesce(line.attribution, ''), line.flavor, "
        f"{resource}, round(sum(CAST(line.count AS numeric) * line.amount * CAST(1000000 * extract(epoch "
        "FROM least(coalesce(line.closed_at, piece.ends), piece.ends) - greatest(line.from_at, piece.begins"
        f")) AS bigint){share})) AS amount FROM ({lines}) line "
        "CROSS JOIN LATERAL (SELECT (CAST(:begins AS timestamptz[]))[n] AS begins, "
        "(CAST(:ends AS timestamptz[]))[n] AS ends FROM generate_series("
        "greatest(1, width_bucket(line.from_at, CAST(:begins AS timestamptz[]))), "
        "width_bucket(coalesce(line.closed_at, :until) - interval '1 microsecond', "
        "CAST(:begins AS timestamptz[]))) n) piece "
        "WHERE line.count > 0 AND line.amount > 0 AND coalesce(line.closed_at, :until) > line.from_at "
        "GROUP BY 1, 2, 3, 4, 5, 6"
    )


_IDLE_LINES: Final = (
    "SELECT line.cluster_queue, line.attribution, line.flavor, line.resource, line.count, line.amount, "
    "span.devices, span.idle_devices, greatest(line.from_at, span.from_at) AS from_at, "
    f"least(line.closed_at, span.to_at, :until) AS closed_at FROM ({_LINES}) line CROSS JOIN LATERAL ("
    "SELECT devices, idle_devices, from_at, lead(from_at) OVER (ORDER BY from_seq) AS to_at "
    f"FROM {SCHEMA}.idle_time WHERE cluster_id = :cluster AND workload = line.workload "
    "AND attempt = line.attempt) span WHERE span.idle_devices > 0 AND EXISTS (SELECT "
    f"FROM {SCHEMA}.idle_check, unnest(resources) name WHERE cluster_id = :cluster AND (name = line.resource "
    "OR right(name, 1) = '*' AND starts_with(line.resource, left(name, -1))))"
)
"""Hold lines of devices while some of these were idle, as far as that is known."""
_IDLE: Final = _in_pieces(
    f"SELECT * FROM ({_IDLE_LINES}) idle WHERE closed_at > :since AND from_at < :until "
    f"AND EXISTS (SELECT FROM {SCHEMA}.idle_check WHERE cluster_id = :cluster)",  # else nothing is searched
    f"'{IDLE_OF}' || line.resource",
    " * line.idle_devices / line.devices",
)
_HELD: Final = _in_pieces(_LINES, "line.resource") + f" UNION ALL {_IDLE}"
HELD: Final = text(_HELD)
"""What was held in each piece, and what of that was idle, in base units times microseconds: exact, the latter
where all devices of an attempt have one flavor."""
_CLOSED: Final = select(
    func.greatest(
        func.clock_timestamp() - timedelta(days=1),
        select(t.leadership.c.now).where(t.leadership.c.cluster_id == CLUSTER).scalar_subquery(),
    )
)
"""Up to when no hold can begin or end any more."""
_STORE_HELD: Final = text(
    f"INSERT INTO {SCHEMA}.usage_hour (cluster_id, begins_at, ends_at, cluster_queue, attribution, flavor, "
    f"resource, amount) SELECT :cluster, found.* FROM ({_HELD}) found"
)
_CHANGES: Final = text(
    "SELECT flavor, resource, greatest(from_at, :since), CASE WHEN closed_at < :until THEN closed_at END, "
    f"sum(CAST(count AS numeric) * amount) FROM ({_LINES}) line GROUP BY 1, 2, 3, 4"
)


class UsageSums(NamedTuple):
    """Usage of longer times, each stored once it is over: sums of shorter ones."""

    table: Table
    parts: Table
    whole: Callable[[datetime, datetime, ZoneInfo], list[Piece]]
    """Those that lie between two times."""
    longest: timedelta

    @property
    def store(self) -> TextClause:
        whose = "cluster_queue, attribution, flavor, resource"
        return text(
            f"INSERT INTO {self.table.fullname} (cluster_id, begins_at, ends_at, {whose}, amount) "
            f"SELECT cluster_id, :begins, :ends, {whose}, sum(amount) FROM {self.parts.fullname} "
            f"WHERE cluster_id = :cluster AND begins_at >= :begins AND begins_at < :ends "
            f"GROUP BY cluster_id, {whose}"
        )


SUMS: Final = (
    UsageSums(t.usage_day, t.usage_hour, whole_days, timedelta(days=2)),
    UsageSums(t.usage_month, t.usage_day, whole_months, timedelta(days=33)),
)
"""The shortest first."""


def parameters(cluster: str, found: Sequence[Piece], after: int) -> dict[str, Any]:
    """Of HELD. `after`: sequence of a decision that was made before the pieces, or at their beginning."""
    return {
        "cluster": cluster,
        "after": after,
        "since": found[0].begins,
        "until": found[-1].ends,
        "begins": [piece.begins for piece in found],
        "ends": [piece.ends for piece in found],
    }


@ledger_call
async def roll_up(pool: AsyncEngine, cluster: str, zone: str) -> int:
    """Store usage and capacity of all hours that are closed; returns how many pieces are new.

    `zone`: pieces are cut where its days begin, from now on.
    """
    stored = 0
    while True:
        async with pool.begin() as connection:
            count = await roll_up_some(connection, cluster, zone)
        stored += count
        if count < MOST_PIECES:
            return stored


async def roll_up_some(connection: AsyncConnection, cluster: str, zone: str) -> int:
    """As `roll_up`, MOST_PIECES at most."""
    state = await _locked(connection, cluster, zone)
    if state is None:
        return 0
    now: datetime = (await connection.execute(_CLOSED, {"p_cluster": cluster})).scalar_one()
    found = pieces(state.until, min(now, state.until + timedelta(days=2)), ZoneInfo(zone))[:MOST_PIECES]
    if not found:
        return 0
    given = parameters(cluster, found, state.sequence)
    await connection.execute(_STORE_HELD, given)
    capacity = [
        {"cluster_id": cluster, "begins_at": piece.begins, "ends_at": piece.ends, **one._asdict()}
        for piece, one in await capacity_in(connection, cluster, found, state.sequence)
    ]
    if capacity:
        await connection.execute(t.capacity_hour.insert(), capacity)
    until = found[-1].ends
    zone_since = state.zone_since if zone == state.zone else state.until
    for sums in SUMS:
        for one in sums.whole(max(zone_since, state.until - sums.longest), until, ZoneInfo(zone)):
            if one.ends > state.until:
                await connection.execute(sums.store, {"cluster": cluster, **one._asdict()})
    sequence = await last_until(connection, cluster, until, state.sequence)
    await connection.execute(
        update(t.rolled)
        .where(t.rolled.c.cluster_id == cluster)
        .values(
            until=until,
            sequence=sequence,
            zone=zone,
            zone_since=zone_since,
        )
    )
    return len(found)


_ROLLED: Final = tuple(t.rolled.c[name] for name in Rolled._fields)


async def rolled(connection: AsyncConnection, cluster: str) -> Rolled | None:
    """How far the roll-ups go; None: there are none yet."""
    row = t.rolled.c
    query = select(*_ROLLED).where(row.cluster_id == cluster)
    found = (await connection.execute(query)).one_or_none()
    return None if found is None else Rolled(*found)


async def _locked(connection: AsyncConnection, cluster: str, zone: str) -> Rolled | None:
    """How far the roll-ups go, locked until the end of the transaction; None: there is no decision yet."""
    row = t.rolled.c
    query = select(*_ROLLED).where(row.cluster_id == cluster)
    if (found := (await connection.execute(query.with_for_update())).one_or_none()) is not None:
        return Rolled(*found)
    begins = await kept_from(connection, cluster, ZoneInfo(zone))
    if begins is None:
        return None
    sequence = await last_until(connection, cluster, begins, 0)
    fresh = upsert(t.rolled).values(
        cluster_id=cluster, since=begins, until=begins, sequence=sequence, zone=zone, zone_since=begins
    )
    await connection.execute(fresh.on_conflict_do_nothing())
    return Rolled(*(await connection.execute(query.with_for_update())).one())


async def kept_from(connection: AsyncConnection, cluster: str, zone: ZoneInfo) -> datetime | None:
    """From which border on all holds are kept; None: there is no decision."""
    row = t.decision.c
    query = select(row.sequence, row.now).where(row.cluster_id == cluster).order_by(row.sequence).limit(1)
    first = (await connection.execute(query)).one_or_none()
    if first is None:
        return None
    if first.sequence > 1:
        return border_from(first.now, zone)
    whole: datetime = first.now.replace(minute=0, second=0, microsecond=0)
    return whole


async def decided_before(connection: AsyncConnection, cluster: str, when: datetime) -> int:
    """Sequence of a decision that was made before `when`, or 0; no earlier one than need be searched."""
    return await first_since(connection, cluster, await _newest(connection, cluster), when) - 1


async def _newest(connection: AsyncConnection, cluster: str) -> int:
    """Sequence of the last decision."""
    last = select(t.leadership.c.sequence).where(t.leadership.c.cluster_id == cluster)
    newest: int = (await connection.execute(last)).scalar_one()
    return newest


async def last_until(connection: AsyncConnection, cluster: str, when: datetime, after: int) -> int:
    """Sequence of the last decision at `when` or before, or `after` if there is none since."""
    row = t.decision.c
    start = await first_since(connection, cluster, await _newest(connection, cluster), when)
    query = select(func.max(row.sequence)).where(row.cluster_id == cluster, row.now <= when)
    found: int | None = (await connection.execute(query.where(row.sequence >= start))).scalar_one()
    return max(after, start - 1 if found is None else found)


# --- capacity


class _Step(NamedTuple):
    """From a time on, what nodes have of a cell; None: it is not known."""

    at: datetime
    amounts: tuple[int, int, int] | None
    """Usable, unusable, unmanaged."""


async def capacity_in(
    connection: AsyncConnection, cluster: str, found: Sequence[Piece], after: int
) -> list[tuple[Piece, CapacitySum]]:
    """What nodes had in each piece, and what was held of it, as far as it is known. `after`: as of HELD."""
    since, until = found[0].begins, found[-1].ends
    steps = await _steps(connection, cluster, since, until)
    if not steps:
        return []
    changes: defaultdict[FlavorResource, list[tuple[datetime, int]]] = defaultdict(list)
    given = {key: value for key, value in parameters(cluster, found, after).items() if key not in _ARRAYS}
    for flavor, resource, start, end, amount in await connection.execute(_CHANGES, given):
        cell = FlavorResource(flavor, resource)
        changes[cell].append((start, int(amount)))
        if end is not None:
            changes[cell].append((end, -int(amount)))
    return [
        one
        for cell, known in sorted(steps.items())
        for one in _walk(cell, found, known, sorted(changes.get(cell, ())))
    ]


_ARRAYS: Final = ("begins", "ends")


def _walk(
    cell: FlavorResource,
    found: Sequence[Piece],
    steps: Sequence[_Step],
    changes: Sequence[tuple[datetime, int]],
) -> Iterator[tuple[Piece, CapacitySum]]:
    """`steps` and `changes` of the amount held, each in the order of time."""
    borders = {piece.begins: piece for piece in found}
    times = sorted({*borders, found[-1].ends, *(s.at for s in steps), *(at for at, _ in changes)})
    by_time = {step.at: step for step in steps}
    deltas = {at: sum(d for _, d in ones) for at, ones in groupby(changes, key=itemgetter(0))}
    amounts: tuple[int, int, int] | None = None
    held, piece, sums, known = 0, found[0], [0] * 6, False
    for begin, end in pairwise(times):
        if begin in by_time:
            amounts = by_time[begin].amounts
        held += deltas.get(begin, 0)
        if begin in borders:
            if known:
                yield piece, CapacitySum(*cell, *sums)
            piece, sums, known = borders[begin], [0] * 6, False
        if amounts is None or begin < found[0].begins or end > found[-1].ends:
            continue
        known = True
        usable, unusable, unmanaged = amounts
        taken, length = held + unmanaged, (end - begin) // _MICROSECOND
        now = (usable, unusable, unmanaged, held, max(0, usable - taken), max(0, taken - usable))
        sums = [one + length * more for one, more in zip(sums, now, strict=True)]
    if known:
        yield piece, CapacitySum(*cell, *sums)


async def _steps(
    connection: AsyncConnection, cluster: str, since: datetime, until: datetime
) -> dict[FlavorResource, list[_Step]]:
    """By cell, in the order of time, from `since` on."""
    in_force = list(await _in_force(connection, cluster, since, until))
    names = sorted({name for name, _, _ in in_force})
    stored: defaultdict[str, list[tuple[datetime, FlavorCapacity]]] = defaultdict(list)
    for one in await capacities_at(connection, cluster, since, names):
        stored[one.flavor].append((since, one))
    row = t.past_capacity.c
    later = (
        select(row.flavor, row.at, row.capacity)
        .where(row.cluster_id == cluster, row.at > since, row.at < until, row.flavor != NO_FLAVOR)
        .order_by(row.at)
    )
    for flavor, at, capacity in await connection.execute(later):
        stored[flavor].append((at, capacity_from_json(flavor, capacity)))
    steps: defaultdict[FlavorResource, list[_Step]] = defaultdict(list)
    for flavor, begin, end in in_force:
        own = stored.get(flavor, [])
        before = [(max(at, begin), capacity) for at, capacity in own if at <= begin][-1:]
        for at, capacity in [*before, *(one for one in own if begin < one[0] < end)]:
            now = dict(_amounts(capacity))
            for resource in {*now, *(cell.resource for cell in steps if cell.flavor == flavor)}:
                steps[FlavorResource(flavor, resource)].append(_Step(at, now.get(resource)))
        for cell, known in steps.items():
            if cell.flavor == flavor and end < until:
                known.append(_Step(end, None))
    return steps


async def _in_force(
    connection: AsyncConnection, cluster: str, since: datetime, until: datetime
) -> Iterable[tuple[str, datetime, datetime]]:
    """From when until when each flavor was there in that time, in the order of time."""
    row = t.config_revision.c
    query = (
        select(row.name, row.from_at, row.to_at)
        .where(row.cluster_id == cluster, row.kind == "ResourceFlavor", row.from_at < until)
        .where(or_(row.to_at.is_(None), row.to_at > since))
        .order_by(row.name, row.from_seq)
    )
    found: list[tuple[str, datetime, datetime]] = []
    for name, begin, end in await connection.execute(query):
        begin, end = max(begin, since), until if end is None else min(end, until)
        if found and found[-1][0] == name and found[-1][2] == begin:
            found[-1] = (name, found[-1][1], end)
        elif begin < end:
            found.append((name, begin, end))
    return found


def _amounts(capacity: FlavorCapacity) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """By resource."""
    for one in capacity.resources:
        by_state = dict(one.allocatable)
        usable = by_state.pop(NodeState.READY, 0)
        yield one.resource, (usable, sum(by_state.values()), sum(amount for _, amount in one.unmanaged))
