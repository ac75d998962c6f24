"""From rows of the ledger to values of the core."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, Text, and_, cast, or_, select, true
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.start_conditions import NamedWorkload
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    Attribution,
    ConfigKey,
    EffectKey,
    ObjectRef,
    Phase,
    StoredWorkload,
    Verb,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLUSTER, Columns
from queuectl.ledger.codec import (
    Parsed,
    labels_from_json,
    options_from_json,
    past_from_json,
    pod_sets_from_json,
    reason_from_json,
    reason_or_none,
)
from queuectl.ledger.pool import stream
from queuectl.ledger.shared_rows import Shapes, StoredAttribution, attribution_of
from queuectl.ports.reader import DecisionRow, EffectRow

_ATTEMPT: Final = (*("number", "state", "cluster_queue", "admitted_at", "sequence", "debt", "pod_sets"),)


def workloads_with_attempts() -> Select[Any]:
    """Workloads, each with its open attempt (columns `attempt_*`) if it has one."""
    open_attempt = and_(
        t.attempt.c.cluster_id == t.workload.c.cluster_id,
        t.attempt.c.workload == t.workload.c.id,
        t.attempt.c.open,
    )
    attempt = [_as_text(t.attempt.c[name]).label(f"attempt_{name}") for name in _ATTEMPT]
    return select(*workload_columns(), *attempt).select_from(t.workload.outerjoin(t.attempt, open_attempt))


def workload_columns() -> list[ColumnElement[Any]]:
    """JSON as texts: most rows of a read have the same ones, and each text is parsed once."""
    return [_as_text(column).label(column.name) for column in t.workload.c]


def _as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return cast(column, Text) if isinstance(column.type, JSONB) else column


_row: Final = namedtuple("_Row", workloads_with_attempts().selected_columns.keys())._make  # type: ignore[attr-defined]
"""From the values of a row of `workloads_with_attempts`."""


def stored_workload(row: Any, shapes: Shapes, parsed: Parsed) -> StoredWorkload:
    """From a row of `workloads_with_attempts`, whose shape has been read. `parsed`: one for each read."""
    return StoredWorkload(
        id=WorkloadId(row.id),
        ref=ObjectRef(row.namespace, row.kind, row.name, row.uid),
        queue=row.queue,
        cluster_queue=row.cluster_queue,
        priority=row.priority,
        created_at=row.created_at,
        arrival=row.arrival,
        phase=Phase(row.phase),
        attempts=row.attempts,
        attempt=_attempt(row, parsed) if row.open and row.attempt_number is not None else None,
        reason=parsed(reason_or_none, row.reason),
        pod_sets=shapes.get(row.shape),
        submitter=row.submitter,
        labels=parsed(labels_from_json, row.labels),
        past=parsed(past_from_json, row.past),
        options=parsed(options_from_json, row.options),
    )


def _attempt(row: Any, parsed: Parsed) -> Attempt:
    return Attempt(
        workload=WorkloadId(row.id),
        number=row.attempt_number,
        state=AttemptState(row.attempt_state),
        assignment=Assignment(
            cluster_queue=row.attempt_cluster_queue, pod_sets=parsed(pod_sets_from_json, row.attempt_pod_sets)
        ),
        admitted_at=row.attempt_admitted_at,
        sequence=row.attempt_sequence,
        debt=row.attempt_debt,
    )


def decision_row(row: Row[Any]) -> DecisionRow:
    """From a row of `decision`."""
    return DecisionRow(
        sequence=row.sequence,
        cycle=row.cycle,
        now=row.now,
        epoch=row.epoch,
        verdict=row.verdict,
        workload=None if row.workload is None else WorkloadId(row.workload),
        ref=None if row.uid is None else ObjectRef(row.namespace, row.kind, row.name, row.uid),
        attempt=row.attempt,
        reason=None if row.reason is None else reason_from_json(row.reason),
        payload=row.payload,
    )


def effect_row(row: Row[Any]) -> EffectRow:
    """From a row of `effect`."""
    return EffectRow(
        sequence=row.sequence,
        verb=Verb(row.verb),
        attempt=row.attempt,
        acknowledged_at=row.acknowledged_at,
        withdrawn_at=None if row.acknowledged_at is not None else row.closed_at,
    )


Loaded = dict[str, tuple[int, StoredWorkload]]
"""Workloads by id, each with a hash of the values of its row."""


async def open_workloads(
    connection: AsyncConnection, cluster: str, loaded: Loaded
) -> tuple[Sequence[StoredWorkload], Loaded]:
    """In the order of their arrival. Those whose rows are as in `loaded` are the same objects."""
    query = (
        workloads_with_attempts()
        .where(t.workload.c.cluster_id == cluster, t.workload.c.open)
        .order_by(t.workload.c.arrival, t.workload.c.id)
    )
    hashes: dict[str, int] = {}
    new: list[Any] = []
    async for found in stream(connection, query):
        row = _row(found)
        hashes[row.id] = hash(row)
        if row.id not in loaded or loaded[row.id][0] != hashes[row.id]:
            new.append(row)
    made = {one.id: one for one in await _workloads_of(connection, new, Shapes(cluster))}
    workloads = [made.get(WorkloadId(id)) or loaded[id][1] for id in hashes]
    loaded = dict(zip(hashes, zip(hashes.values(), workloads, strict=True), strict=True))
    return await with_attributions(connection, cluster, workloads, t.hold_line.c.open), loaded


async def with_attributions(
    connection: AsyncConnection,
    cluster: str,
    workloads: Sequence[StoredWorkload],
    held: ColumnElement[bool],
) -> Sequence[StoredWorkload]:
    """Return `workloads` with what their open attempts are booked on. `held`: see `booked_on`."""
    booked = await booked_on(connection, cluster, held)
    return [replace(one, attribution=booked.get(one.id)) if one.attempt else one for one in workloads]


async def booked_on(
    connection: AsyncConnection, cluster: str, held: ColumnElement[bool]
) -> dict[WorkloadId, Attribution]:
    """Return what attempts are booked on, as far as that is known. `held`: which hold lines are theirs."""
    line, stored = t.hold_line.c, t.attribution.c
    columns = (stored[name] for name in StoredAttribution._fields)
    joined = and_(stored.cluster_id == line.cluster_id, stored.id == line.attribution)
    query = (
        select(line.workload, *columns)
        .select_from(t.hold_line.join(t.attribution, joined))
        .where(line.cluster_id == cluster, held)
    )
    rows = await connection.execute(query)
    return {WorkloadId(workload): attribution_of(StoredAttribution(*found)) for workload, *found in rows}


async def stored_workloads(
    connection: AsyncConnection, query: Select[Any], shapes: Shapes
) -> Sequence[StoredWorkload]:
    """The workloads of a query like `workloads_with_attempts`, in its order."""
    # SQLAlchemy looks up each attribute of its rows by name: 10 of the 16 µs that a workload costs here.
    rows = [_row(row) for row in await connection.execute(query)]
    return await _workloads_of(connection, rows, shapes)


async def _workloads_of(
    connection: AsyncConnection, rows: Sequence[Any], shapes: Shapes
) -> Sequence[StoredWorkload]:
    await shapes.read(connection, {row.shape for row in rows})
    parsed = Parsed()
    return [stored_workload(row, shapes, parsed) for row in rows]


async def configs_in_force(
    connection: AsyncConnection, cluster: str, last: int | None = None
) -> Sequence[tuple[ConfigKey, str]]:
    """`last`: as of that decision; None: now."""
    table = t.config_revision.c
    query = (
        select(table.kind, table.namespace, table.name, table.spec)
        .where(table.cluster_id == cluster)
        .order_by(table.kind, table.namespace, table.name)
    )
    if last is None:
        query = query.where(table.to_seq.is_(None))
    else:
        query = query.where(table.from_seq <= last, or_(table.to_seq.is_(None), table.to_seq > last))
    rows = await connection.execute(query)
    return [(ConfigKey(kind, namespace, name), spec) for kind, namespace, name, spec in rows]


async def last_outcomes(
    connection: AsyncConnection, cluster: str, names: Sequence[NamedWorkload]
) -> dict[NamedWorkload, WorkloadOutcome]:
    """Return how the workload of each name that ended last ended, of names of which one is over."""
    rows = await connection.execute(_LAST_OUTCOMES, {"p_cluster": cluster, **_NAMES.bind(names)})
    return {NamedWorkload(*name): WorkloadOutcome(outcome) for *name, outcome in rows}


def _last_outcomes() -> Select[Any]:
    row, ended, given = t.workload.c, t.decision.c, _NAMES.table
    closed = (
        select(row.closed_seq, row.closed_at)
        .where(row.cluster_id == CLUSTER, *_NAMES.equal(t.workload, "namespace", "kind", "name"), ~row.open)
        # An expression, so that the index by name is used instead of the one for this order.
        .order_by((row.closed_seq + 0).desc())
        .limit(1)
        .lateral("closed")
    )
    end = (
        select(ended.payload["outcome"].astext.label("outcome"))
        .where(ended.cluster_id == CLUSTER, ended.sequence == closed.c.closed_seq)
        .where(ended.now == closed.c.closed_at)
        .limit(1)  # else it may be joined with all decisions
        .lateral("ended")
    )
    return select(*given.c, end.c.outcome).select_from(given.join(closed, true()).join(end, true()))


_NAMES: Final = Columns(("namespace", Text()), ("kind", Text()), ("name", Text()))
_LAST_OUTCOMES: Final = _last_outcomes()


async def effects_due(
    connection: AsyncConnection, cluster: str, then: tuple[int, datetime] | None = None
) -> Sequence[EffectKey]:
    """Effects that are not acknowledged, in the order of their decisions. `then`: as of that decision and
    time; None: now."""
    table = t.effect.c
    query = (
        select(table.workload, table.attempt, table.verb)
        .where(table.cluster_id == cluster)
        .order_by(table.sequence)
    )
    if then is None:
        query = query.where(table.open)
    else:
        last, when = then
        query = query.where(table.sequence <= last, or_(table.open, table.closed_at > when))
    rows = await connection.execute(query)
    return [EffectKey(WorkloadId(workload), attempt, Verb(verb)) for workload, attempt, verb in rows]
