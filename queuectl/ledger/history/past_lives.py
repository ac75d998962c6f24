"""Workloads of the last weeks with their attempts, for forecasts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Text, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.decisions import Verdict
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLOCK
from queuectl.ledger.codec import Parsed
from queuectl.ledger.rows import stored_workload, workloads_with_attempts
from queuectl.ledger.shared_rows import Shapes
from queuectl.ports.reader import MOST_LIVES, PastLife, PastLives, PastRun

_HELD: Final = (*("workload", "number", "sequence", "admitted_at", "closed_at"),)
_Evicted = Mapping[tuple[str, int], Sequence[tuple[int, datetime]]]
"""Sequences and times of evictions by workload and attempt: several if an id is used again."""


async def past_lives(
    connection: AsyncConnection, cluster: str, since: datetime, shapes: Shapes, known: PastLives | None = None
) -> PastLives | None:
    """None: the ledger has no decision on the cluster. `known`: only what has changed since is read."""
    first, last = await first_and_last(connection, cluster)
    if first is None or last is None:
        return None
    until: datetime = (await connection.execute(CLOCK, {"p_cluster": cluster})).scalar_one()
    since = max(since, first.now)
    rows = None
    if known is not None and await _continues(connection, cluster, known):
        since = max(since, known.since)
        rows = await _changed(connection, cluster, known.sequence)
    if rows is None:
        known, rows = None, await _all(connection, cluster, since)
    await shapes.read(connection, {one.shape for one in rows})
    ids = sorted({one.id for one in rows})
    held, evicted = await _held(connection, cluster, ids), await _evicted(connection, cluster, ids)

    def lives() -> PastLives:
        parsed = Parsed()
        found = [
            PastLife(
                stored_workload(one, shapes, parsed), one.closed_at, tuple(_runs(one, held[one.id], evicted))
            )
            for one in rows
        ]
        return _bounded([*found, *_unchanged(known, set(ids))], since, until, last.sequence)

    return await asyncio.to_thread(lives)


async def first_and_last(
    connection: AsyncConnection, cluster: str
) -> tuple[Row[Any, Any] | None, Row[Any, Any] | None]:
    """Sequence and time of the first and of the last decision; None: there is none."""
    row = t.decision.c
    query = select(row.sequence, row.now).where(row.cluster_id == cluster).limit(1)
    first, last = [
        (await connection.execute(query.order_by(order))).one_or_none()
        for order in (row.sequence, row.sequence.desc())
    ]
    return first, last


async def last_decision(
    connection: AsyncConnection, cluster: str, within: Callable[[Row[Any, Any, Any]], bool]
) -> Row[Any, Any, Any] | None:
    """Return sequence, time and epoch of the last decision that is `within`; None: none is.

    All decisions before one that is within must be too, as with times and epochs, which never decrease as
    sequence numbers increase and have no index: a search by halves.
    """
    row = t.decision.c
    query = select(row.sequence, row.now, row.epoch).where(row.cluster_id == cluster)
    first, final = await first_and_last(connection, cluster)
    if first is None or final is None:
        return None
    found, below, beyond = None, first.sequence - 1, final.sequence + 1
    while beyond - below > 1:
        middle = (below + beyond) // 2
        candidate = (await connection.execute(query.where(row.sequence == middle))).one()
        if within(candidate):
            found, below = candidate, middle
        else:
            beyond = middle
    return found


async def _continues(connection: AsyncConnection, cluster: str, known: PastLives) -> bool:
    """Whether the ledger still has the last decision that was known. Not if it was restored since."""
    row = t.decision.c
    query = select(row.now).where(row.cluster_id == cluster, row.sequence == known.sequence)
    decided: datetime | None = (await connection.execute(query)).scalar()
    return decided is not None and decided <= known.until


async def _changed(connection: AsyncConnection, cluster: str, after: int) -> list[Row[Any]] | None:
    """None: so many that all are read again."""
    row = t.workload.c
    query = workloads_with_attempts().where(row.cluster_id == cluster, row.updated_seq > after)
    rows = list((await connection.execute(query.limit(MOST_LIVES + 1))).all())
    return rows if len(rows) <= MOST_LIVES else None


async def _all(connection: AsyncConnection, cluster: str, since: datetime) -> list[Row[Any]]:
    """Of those that are over the last ones, one more than are kept."""
    row = t.workload.c
    query = workloads_with_attempts().where(row.cluster_id == cluster)
    over = query.where(~row.open, row.closed_at >= since).order_by(row.closed_seq.desc())
    rows = list((await connection.execute(over.limit(MOST_LIVES + 1))).all())
    rows += (await connection.execute(query.where(row.open))).all()
    return rows


def _unchanged(known: PastLives | None, changed: Container[str]) -> Iterator[PastLife]:
    """Those that are over do not change; of each id one at most is not over."""
    for life in known.lives if known is not None else ():
        if life.ended_at is not None or life.workload.id not in changed:
            yield life


def _bounded(lives: list[PastLife], since: datetime, until: datetime, sequence: int) -> PastLives:
    """Those from `since` on, but of more than MOST_LIVES that are over only those that ended last."""
    over = sorted(life.ended_at for life in lives if life.ended_at is not None and life.ended_at >= since)
    first = since
    if len(over) > MOST_LIVES:
        since, first = over[-MOST_LIVES - 1 :][:2]
    found = [life for life in lives if life.ended_at is None or life.ended_at >= first]
    return PastLives(tuple(sorted(found, key=_place)), since, until, sequence)


def _place(life: PastLife) -> tuple[datetime, int, str]:
    return life.workload.created_at, life.workload.arrival, life.workload.id


async def _held(connection: AsyncConnection, cluster: str, ids: list[str]) -> dict[str, list[Row[Any]]]:
    attempt = t.attempt.c
    query = (
        select(*(attempt[name] for name in _HELD))
        .where(attempt.cluster_id == cluster, attempt.workload == func.any(literal(ids, ARRAY(Text))))
        .order_by(attempt.sequence)
    )
    found: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for one in await connection.execute(query):
        found[one.workload].append(one)
    return found


async def _evicted(connection: AsyncConnection, cluster: str, ids: list[str]) -> _Evicted:
    row = t.decision.c
    query = (
        select(row.workload, row.attempt, row.sequence, row.now)
        .where(row.cluster_id == cluster, row.workload == func.any(literal(ids, ARRAY(Text))))
        .where(row.verdict == Verdict.EVICTED.value)
    )
    found: defaultdict[tuple[str, int], list[tuple[int, datetime]]] = defaultdict(list)
    for workload, attempt, sequence, now in await connection.execute(query):
        found[workload, attempt].append((sequence, now))
    return found


def _runs(row: Row[Any], attempts: Iterable[Row[Any]], evicted: _Evicted) -> Iterator[PastRun]:
    """Those of this life: an id that is used again has several."""

    def mine(sequence: int) -> bool:
        return row.queued_seq < sequence and (row.closed_seq is None or sequence < row.closed_seq)

    for one in attempts:
        if mine(one.sequence):
            stops = (now for sequence, now in evicted.get((row.id, one.number), ()) if mine(sequence))
            yield PastRun(one.admitted_at, one.closed_at, next(stops, None))
