"""The statements of a commit: each takes any number of rows as arrays, one per column.

Parameters with a single value are named `p_NAME`, arrays `a_COLUMN`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Table,
    Text,
    and_,
    case,
    cast,
    delete,
    exists,
    func,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import Insert, Update
from sqlalchemy.sql.elements import ColumnElement

from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLUSTER, NOW, Columns, TableRows, parameter

_TEXT, _INT, _BOOL = Text(), BigInteger(), Boolean()


def _open(table: Table, rows: Columns, *names: str) -> ColumnElement[bool]:
    """An open row of the cluster that equals a given one in these columns."""
    return and_(table.c.cluster_id == CLUSTER, table.c.open, *rows.equal(table, *names))


# --- leadership

FENCE: Final = (
    update(t.leadership)
    .where(
        t.leadership.c.cluster_id == CLUSTER,
        t.leadership.c.epoch == parameter("epoch", _INT),
        t.leadership.c.holder == parameter("holder", _TEXT),
        or_(t.leadership.c.now.is_(None), t.leadership.c.now <= NOW),
    )
    .values(
        sequence=t.leadership.c.sequence + parameter("rows", _INT),
        batches=t.leadership.c.batches + 1,
        now=NOW,
    )
    .returning(t.leadership.c.sequence, t.leadership.c.config_sequence, t.leadership.c.batches)
)
"""Locks the cluster's row for this transaction, checks epoch and holder, and numbers the decisions."""

CONFIGURED: Final = (
    update(t.leadership)
    .where(t.leadership.c.cluster_id == CLUSTER)
    .values(config_sequence=parameter("config_sequence", _INT))
)

NEW_BATCH: Final = (
    upsert(t.batch)
    .values(
        cluster_id=CLUSTER,
        id=parameter("batch", _TEXT),
        number=parameter("number", _INT),
        first_sequence=parameter("first", _INT),
        epoch=parameter("epoch", _INT),
    )
    .on_conflict_do_nothing()
    .returning(t.batch.c.id)
)
KNOWN_BATCH: Final = select(t.batch.c.first_sequence).where(
    t.batch.c.cluster_id == CLUSTER, t.batch.c.id == parameter("batch", _TEXT)
)
FORGET_BATCHES: Final = delete(t.batch).where(
    t.batch.c.cluster_id == CLUSTER, t.batch.c.number <= parameter("number", _INT)
)

# --- history

DECISION_ROWS: Final = TableRows(
    t.decision,
    *("sequence", "verdict", "config_version", "workload"),
    *("namespace", "kind", "name", "uid", "attempt", "reason", "payload"),
)
DECISIONS: Final = DECISION_ROWS.insert(
    cluster_id=CLUSTER,
    now=NOW,
    epoch=parameter("epoch", _INT),
    cycle=parameter("cycle", _INT),
    payload_version=parameter("payload_version", t.decision.c.payload_version.type),
    rules_version=parameter("rules_version", t.decision.c.rules_version.type),
)

# --- workloads

_SEEN_AGAIN: Final = (*("queue", "cluster_queue", "priority", "labels", "shape", "past", "options"),)
SEEN_ROWS: Final = TableRows(
    t.workload_open,
    *("id", "namespace", "kind", "name", "uid", "queue", "cluster_queue", "priority", "created_at"),
    *("arrival", "submitter", "labels", "shape", "past", "options", "queued_seq"),
)


def _seen() -> Insert:
    source = SEEN_ROWS.source(
        cluster_id=CLUSTER,
        phase=cast("Pending", Text),
        attempts=cast(0, BigInteger),
        updated_seq=SEEN_ROWS.column("queued_seq"),
        open=true(),
    )
    statement = upsert(t.workload_open).from_select(*source)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["cluster_id", "id"],
        set_={
            **{name: new[name] for name in _SEEN_AGAIN},
            "submitter": func.coalesce(new.submitter, t.workload_open.c.submitter),
            "updated_seq": new.queued_seq,
        },
    )


SEEN: Final = _seen()

SHAPE_ROWS: Final = TableRows(t.shape, "id", "pod_sets")
SHAPES: Final = (
    upsert(t.shape)
    .from_select(*SHAPE_ROWS.source(cluster_id=CLUSTER, queued_at=NOW))
    .on_conflict_do_update(
        index_elements=[t.shape.c.cluster_id, t.shape.c.id],
        set_={"queued_at": NOW},
        where=t.shape.c.queued_at < func.date_trunc("month", NOW, "UTC"),
    )
)
"""A row is written at most once a month."""

OBJECT_ROWS: Final = TableRows(t.workload_object, "uid", "workload", "kind")
OBJECTS: Final = (
    upsert(t.workload_object)
    .from_select(*OBJECT_ROWS.source(cluster_id=CLUSTER, role=cast("whole", Text)))
    .on_conflict_do_nothing()
)
NO_OBJECTS: Final = delete(t.workload_object).where(
    t.workload_object.c.cluster_id == CLUSTER,
    t.workload_object.c.workload == func.any(parameter("workloads", ARRAY(Text))),
)

CHANGE_ROWS: Final = Columns(
    ("id", _TEXT),
    ("seq", _INT),
    ("held", _BOOL),
    ("phase", _TEXT),
    ("cluster_queue", _TEXT),
    ("opened", _INT),
    ("reason_set", _BOOL),
    ("reason", _TEXT),
    ("priority", _INT),
    ("past_set", _BOOL),
    ("past", _TEXT),
    ("closes", _BOOL),
)


def _changes() -> Update:
    row, new = t.workload.c, CHANGE_ROWS.table.c
    return (
        update(t.workload)
        .where(
            _open(t.workload, CHANGE_ROWS, "id"),
            or_(new.held.is_(None), new.held == (row.phase != "Pending")),
            or_(new.opened.is_(None), row.attempts < new.opened),
        )
        .values(
            phase=func.coalesce(new.phase, row.phase),
            cluster_queue=func.coalesce(new.cluster_queue, row.cluster_queue),
            attempts=func.coalesce(new.opened, row.attempts),
            reason=case((new.reason_set, cast(new.reason, JSONB)), else_=row.reason),
            priority=func.coalesce(new.priority, row.priority),
            past=case((new.past_set, cast(new.past, JSONB)), else_=row.past),
            updated_seq=new.seq,
            open=~new.closes,
            closed_seq=case((new.closes, new.seq)),
            closed_at=case((new.closes, NOW)),
        )
    )


CHANGES: Final = _changes()

# --- attempts and holds

ATTEMPT_ROWS: Final = TableRows(
    t.attempt, *("workload", "number", "cluster_queue", "admitted_at", "sequence", "debt", "pod_sets")
)
ATTEMPTS: Final = ATTEMPT_ROWS.insert(cluster_id=CLUSTER, state=cast("Admitted", Text))

HOLD_ROWS: Final = TableRows(
    t.hold_line,
    *("workload", "attempt", "cluster_queue", "pod_set", "count", "flavor", "resource", "amount", "from_seq"),
    "attribution",
)
HOLDS: Final = HOLD_ROWS.insert(cluster_id=CLUSTER, from_at=NOW)

ATTRIBUTION_ROWS: Final = TableRows(
    t.attribution, *("id", "namespace", "queue", "submitter", "user_name", "priority_class", "account")
)
ATTRIBUTIONS: Final = (
    upsert(t.attribution).from_select(*ATTRIBUTION_ROWS.source(cluster_id=CLUSTER)).on_conflict_do_nothing()
)

BUDGET_ROWS: Final = TableRows(
    t.budget_entry,
    *("sequence", "number", "kind", "budget", "subject", "resource", "begins_at", "ends_at"),
    *("workload", "attempt", "at", "rate", "until", "reserved", "used", "namespace"),
)
BUDGET_ENTRIES: Final = BUDGET_ROWS.insert(cluster_id=CLUSTER)

IDLE_ROWS: Final = TableRows(t.idle_time, "workload", "attempt", "from_seq", "devices", "idle_devices")
IDLE_TIMES: Final = IDLE_ROWS.insert(cluster_id=CLUSTER, from_at=NOW)

MOVE_ROWS: Final = Columns(("workload", _TEXT), ("number", _INT), ("state", _TEXT), ("seq", _INT))


def _moves() -> Update:
    row, new = t.attempt.c, MOVE_ROWS.table.c
    closes = new.state == "Closed"
    return (
        update(t.attempt)
        .where(_open(t.attempt, MOVE_ROWS, "workload", "number"), or_(closes, row.state != "Evicting"))
        .values(
            state=new.state,
            open=~closes,
            closed_seq=case((closes, new.seq)),
            closed_at=case((closes, NOW)),
        )
    )


MOVES: Final = _moves()

END_ROWS: Final = Columns(("workload", _TEXT), ("attempt", _INT), ("seq", _INT))
END_HOLDS: Final = (
    update(t.hold_line)
    .where(_open(t.hold_line, END_ROWS, "workload", "attempt"))
    .values(open=~true(), to_seq=END_ROWS.table.c.seq, closed_at=NOW)
)
WITHDRAW: Final = (
    update(t.effect)
    .where(_open(t.effect, END_ROWS, "workload", "attempt"))
    .values(open=~true(), closed_at=NOW)
)
"""Withdraws the open effects of attempts that ended or are to be stopped."""

# --- effects

EFFECT_ROWS: Final = TableRows(t.effect, "sequence", "workload", "attempt", "verb")
EFFECTS: Final = EFFECT_ROWS.insert(cluster_id=CLUSTER)

ACKNOWLEDGED_ROWS: Final = TableRows(t.effect, "workload", "attempt", "verb")
ACKNOWLEDGE: Final = (
    update(t.effect)
    .where(_open(t.effect, ACKNOWLEDGED_ROWS, "workload", "attempt", "verb"))
    .values(open=~true(), acknowledged_at=NOW, closed_at=NOW)
)

# --- policy

CONFIG_ROWS: Final = TableRows(t.config_revision, "kind", "namespace", "name", "from_seq", "spec", "author")
CONFIGS: Final = CONFIG_ROWS.insert(cluster_id=CLUSTER, from_at=NOW)

CONFIG_END_ROWS: Final = TableRows(t.config_revision, "kind", "namespace", "name", "to_seq")
END_CONFIGS: Final = (
    update(t.config_revision)
    .where(
        t.config_revision.c.cluster_id == CLUSTER,
        t.config_revision.c.to_seq.is_(None),
        *CONFIG_END_ROWS.equal(t.config_revision, "kind", "namespace", "name"),
    )
    .values(to_seq=CONFIG_END_ROWS.table.c.to_seq, to_at=NOW)
)

# --- attempts that hold less: larger hold lines end, smaller ones replace them

RESIZE_ROWS: Final = TableRows(t.attempt, "workload", "number", "pod_sets")
RESIZE: Final = (
    update(t.attempt)
    .where(_open(t.attempt, RESIZE_ROWS, "workload", "number"), t.attempt.c.state != "Evicting")
    .values(pod_sets=cast(RESIZE_ROWS.table.c.pod_sets, JSONB))
)
_SAME_LINE: Final = _open(t.hold_line, HOLD_ROWS, "workload", "attempt", "pod_set", "resource")
"""An open hold line of the same podset and resource as a given one."""

NO_SMALLER: Final = (
    select(func.count())
    .select_from(HOLD_ROWS.table)
    .where(
        ~exists().where(
            _SAME_LINE,
            t.hold_line.c.count >= HOLD_ROWS.table.c.count,
            t.hold_line.c.flavor == HOLD_ROWS.table.c.flavor,
            t.hold_line.c.amount == HOLD_ROWS.table.c.amount,
        )
    )
)
"""How many of the given lines would not replace an equal or larger one."""

END_LARGER: Final = (
    update(t.hold_line)
    .where(_SAME_LINE, t.hold_line.c.count > HOLD_ROWS.table.c.count)
    .values(open=~true(), to_seq=HOLD_ROWS.table.c.from_seq, closed_at=NOW)
)
_LARGER: Final = t.hold_line.alias("larger")
SMALLER_HOLDS: Final = HOLD_ROWS.insert(
    where=~exists().where(_SAME_LINE),
    cluster_id=CLUSTER,
    from_at=NOW,
    attribution=select(func.max(_LARGER.c.attribution))
    .where(
        _LARGER.c.cluster_id == CLUSTER,
        ~_LARGER.c.open,
        _LARGER.c.to_seq == HOLD_ROWS.table.c.from_seq,
        *HOLD_ROWS.equal(_LARGER, "workload", "attempt"),
    )
    .scalar_subquery(),
)
"""After END_LARGER: each is booked as the line that it replaces, as all lines of its attempt are."""
