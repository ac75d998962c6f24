"""Statements that make an open attempt hold less: larger hold lines end, smaller ones replace them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, cast, exists, func, insert, select, true, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.elements import ColumnElement

from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLUSTER, NOW, Columns, columns_of, rows_from
from queuectl.ledger.write.statements import HOLD_NAMES, HOLD_ROWS

RESIZE_ROWS: Final = Columns(*columns_of(t.attempt, "workload", "number", "pod_sets"))
RESIZE: Final = (
    update(t.attempt)
    .where(
        t.attempt.c.cluster_id == CLUSTER,
        t.attempt.c.open,
        t.attempt.c.state != "Evicting",
        t.attempt.c.workload == RESIZE_ROWS.table.c.workload,
        t.attempt.c.number == RESIZE_ROWS.table.c.number,
    )
    .values(pod_sets=cast(RESIZE_ROWS.table.c.pod_sets, JSONB))
)


def _same_line() -> ColumnElement[bool]:
    """An open hold line of the same podset and resource as a given one."""
    row, new = t.hold_line.c, HOLD_ROWS.table.c
    return and_(
        row.cluster_id == CLUSTER,
        row.open,
        *(row[name] == new[name] for name in ("workload", "attempt", "pod_set", "resource")),
    )


NO_SMALLER: Final = (
    select(func.count())
    .select_from(HOLD_ROWS.table)
    .where(
        ~exists().where(
            _same_line(),
            t.hold_line.c.count >= HOLD_ROWS.table.c.count,
            t.hold_line.c.flavor == HOLD_ROWS.table.c.flavor,
            t.hold_line.c.amount == HOLD_ROWS.table.c.amount,
        )
    )
)
"""How many of the given lines would not replace an equal or larger one."""

END_LARGER: Final = (
    update(t.hold_line)
    .where(_same_line(), t.hold_line.c.count > HOLD_ROWS.table.c.count)
    .values(open=~true(), to_seq=HOLD_ROWS.table.c.from_seq, closed_at=NOW)
)
SMALLER_HOLDS: Final = insert(t.hold_line).from_select(
    *rows_from(
        t.hold_line,
        HOLD_ROWS,
        HOLD_NAMES,
        where=~exists().where(_same_line()),
        cluster_id=CLUSTER,
        from_at=NOW,
    )
)
