"""Workloads of the last weeks with their attempts, for forecasts: from Postgres, and from rows in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
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
from queuectl.ports import MOST_LIVES, DecisionRow, PastLife, PastLives, PastRun

_HELD: Final = (*("workload", "sequence", "admitted_at", "closed_at"),)


async def past_lives(
    connection: AsyncConnection, cluster: str, since: datetime, shapes: Shapes
) -> PastLives | None:
    """None: the ledger has no decision on the cluster."""
    row, decided = t.workload.c, t.decision.c
    oldest = select(decided.now).where(decided.cluster_id == cluster).order_by(decided.sequence).limit(1)
    first: datetime | None = (await connection.execute(oldest)).scalar()
    if first is None:
        return None
    query = workloads_with_attempts().where(row.cluster_id == cluster)
    over = query.where(~row.open, row.closed_at >= since).order_by(row.closed_seq.desc())
    rows = list((await connection.execute(over.limit(MOST_LIVES + 1))).all())
    since = max(since, first, rows.pop().closed_at if len(rows) > MOST_LIVES else since)
    rows += (await connection.execute(query.where(row.open))).all()
    await shapes.read(connection, {one.shape for one in rows})
    held = await _held(connection, cluster, sorted({one.id for one in rows}))
    rows.sort(key=lambda one: (one.created_at, one.queued_seq))
    parsed = Parsed()
    lives = (
        PastLife(stored_workload(one, shapes, parsed), one.closed_at, tuple(_runs(one, held.get(one.id, ()))))
        for one in rows
    )
    return PastLives(tuple(lives), since)


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


def _runs(row: Row[Any], attempts: Iterable[Row[Any]]) -> Iterator[PastRun]:
    """Those of this life: an id that is used again has several."""
    for one in attempts:
        if row.queued_seq < one.sequence and (row.closed_seq is None or one.sequence < row.closed_seq):
            yield PastRun(one.admitted_at, one.closed_at)


def lives_in_memory(
    decisions: Iterable[DecisionRow],
    ended: Iterable[tuple[int, StoredWorkload]],
    open_: Iterable[StoredWorkload],
    since: datetime,
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
    return PastLives(tuple(sorted(found, key=lambda one: one.workload.created_at)), since)


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
        elif row.verdict in (Verdict.RELEASED, Verdict.RETIRED):
            if runs and runs[-1].ended_at is None:
                runs[-1] = runs[-1]._replace(ended_at=row.now)
            if row.verdict == Verdict.RETIRED:
                found[(row.workload, row.sequence)] = found.pop((row.workload, 0))
    return found
