"""Facts for readers, which decide nothing (docs/decisions/0026-facts-for-readers.md): stored, and read."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model import ForReaders, PendingLine, PodsReady
from queuectl.ledger import tables as t
from queuectl.ledger.statements import CLUSTER, Columns, columns_of, rows_from

NUMBER: Final = bindparam("p_number", type_=BigInteger)
"""Of the batch."""

PODS_READY_ROWS: Final = Columns(*columns_of(t.pods_ready, "workload", "attempt", "ready"))
_FRESH_PODS: Final = upsert(t.pods_ready)
PODS_READY: Final = _FRESH_PODS.from_select(
    *rows_from(
        t.pods_ready,
        PODS_READY_ROWS,
        ("workload", "attempt", "ready"),
        where=exists().where(
            t.workload_open.c.cluster_id == CLUSTER,
            t.workload_open.c.id == PODS_READY_ROWS.table.c.workload,
        ),
        cluster_id=CLUSTER,
        batch=NUMBER,
    )
).on_conflict_do_update(
    index_elements=[t.pods_ready.c.cluster_id, t.pods_ready.c.workload],
    set_={name: _FRESH_PODS.excluded[name] for name in ("attempt", "ready", "batch")},
)
LINE_ROWS: Final = Columns(*columns_of(t.pending_line, "cluster_queue", "workloads"))
_FRESH_LINES: Final = upsert(t.pending_line)
LINES: Final = _FRESH_LINES.from_select(
    *rows_from(
        t.pending_line,
        LINE_ROWS,
        ("cluster_queue", "workloads"),
        cluster_id=CLUSTER,
        batch=NUMBER,
    )
).on_conflict_do_update(
    index_elements=[t.pending_line.c.cluster_id, t.pending_line.c.cluster_queue],
    set_={name: _FRESH_LINES.excluded[name] for name in ("workloads", "batch")},
)
NO_PODS_READY: Final = delete(t.pods_ready).where(
    t.pods_ready.c.cluster_id == CLUSTER,
    t.pods_ready.c.workload == func.any(bindparam("p_workloads", type_=ARRAY(Text))),
)


async def facts_after(connection: AsyncConnection, cluster: str, batch: int) -> ForReaders:
    """Those that batches after number `batch` have stored."""
    pods, line = t.pods_ready.c, t.pending_line.c
    ready = select(pods.workload, pods.attempt, pods.ready)
    ready = ready.where(pods.cluster_id == cluster, pods.batch > batch)
    lines = select(line.cluster_queue, line.workloads)
    lines = lines.where(line.cluster_id == cluster, line.batch > batch)
    return ForReaders(
        tuple(PodsReady(*row) for row in await connection.execute(ready)),
        tuple(PendingLine(name, tuple(found)) for name, found in await connection.execute(lines)),
    )
