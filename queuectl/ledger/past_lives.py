"""Workloads of the last weeks with their attempts, for forecasts: from Postgres, and from rows in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Text, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.decisions import Verdict
from queuectl.core.model import StoredWorkload, WorkloadId
from queuectl.ledger import tables as t
from queuectl.ledger.codec import Parsed
from queuectl.ledger.rows import stored_workload, workloads_with_attempts
from queuectl.ledger.shapes import Shapes
from queuectl.ledger.statements import CLOCK
from queuectl.readings import MOST_LIVES, DecisionRow, PastLife, PastLives, PastRun

_HELD: Final = (*("workload", "number", "sequence", "admitted_at", "closed_at"),)
_Evicted = Mapping[tuple[str, int], Sequence[tuple[int, datetime]]]
"""Sequences and times of evictions by workload and attempt: several if an id is used again."""


async def past_lives(
    connection: AsyncConnection, cluster: str, since: datetime, shapes: Shapes
) -> PastLives | None:
    """None: the ledger has no decision on the cluster."""
    row, decided = t.workload.c, t.decision.c
    oldest = select(decided.now).where(decided.cluster_id == cluster).order_by(decided.sequence).limit(1)
    first: datetime | None = (await connection.execute(oldest)).scalar()
    if first is None:
        return None
    until: datetime = (await connection.execute(CLOCK, {"p_cluster": cluster})).scalar_one()
    query = workloads_with_attempts().where(row.cluster_id == cluster)
    over = query.where(~row.open, row.closed_at >= since).order_by(row.closed_seq.desc())
    rows = list((await connection.execute(over.limit(MOST_LIVES + 1))).all())
    since = max(since, first, rows.pop().closed_at if len(rows) > MOST_LIVES else since)
    rows += (await connection.execute(query.where(row.open))).all()
    await shapes.read(connection, {one.shape for one in rows})
    ids = sorted({one.id for one in rows})
    held, evicted = await _held(connection, cluster, ids), await _evicted(connection, cluster, ids)
    rows.sort(key=lambda one: (one.created_at, one.queued_seq))
    parsed = Parsed()
    lives = (
        PastLife(
            stored_workload(one, shapes, parsed), one.closed_at, tuple(_runs(one, held[one.id], evicted))
        )
        for one in rows
    )
    return PastLives(tuple(lives), since, until)


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


def lives_in_memory(
    decisions: Iterable[DecisionRow],
    ended: Iterable[tuple[int, StoredWorkload]],
    open_: Iterable[StoredWorkload],
    since: datetime,
    until: datetime,
) -> PastLives:
    """The same. `decisions`: all, in order, at least one; `ended`: with the sequence of its end."""
    rows = list(decisions)
    runs = _runs_in_memory(rows)
    times = {row.sequence: row.now for row in rows}
    over = sorted((one for one in ended if times[one[0]] >= since), key=lambda one: -one[0])
    since = max(since, rows[0].now)
    if len(over) > MOST_LIVES:
        since = max(since, times[over[MOST_LIVES][0]])
    lives = [(end, times[end], one) for end, one in over[:MOST_LIVES]]
    found = [
        PastLife(one, at, tuple(runs[(one.id, end)]))
        for end, at, one in [*lives, *((0, None, one) for one in open_)]
    ]
    return PastLives(tuple(sorted(found, key=lambda one: one.workload.created_at)), since, until)


def _runs_in_memory(rows: Iterable[DecisionRow]) -> defaultdict[tuple[WorkloadId, int], list[PastRun]]:
    """By workload and sequence of its end, 0 if it is open."""
    found: defaultdict[tuple[WorkloadId, int], list[PastRun]] = defaultdict(list)
    for row in rows:
        if row.workload is None:
            continue
        runs = found[(row.workload, 0)]
        if row.verdict == Verdict.ADMITTED:
            admitted_at = datetime.fromisoformat(str(row.payload.get("admittedAt", row.now)))
            runs.append(PastRun(admitted_at, None))
        elif row.verdict == Verdict.EVICTED and runs:
            runs[-1] = runs[-1]._replace(evicted_at=row.now)
        elif row.verdict in (Verdict.RELEASED, Verdict.RETIRED):
            if runs and runs[-1].ended_at is None:
                runs[-1] = runs[-1]._replace(ended_at=row.now)
            if row.verdict == Verdict.RETIRED:
                found[(row.workload, row.sequence)] = found.pop((row.workload, 0))
    return found
