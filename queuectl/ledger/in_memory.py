"""Answers from rows of history in memory: what ledger/answers.py asks Postgres for."""

from __future__ import annotations

from collections.abc import Iterable

from queuectl.core.decisions import Verdict
from queuectl.ports import MOST_STARTS, DecisionRow, StartsSpan, WorkloadStarts


def starts(rows: Iterable[DecisionRow], span: StartsSpan) -> WorkloadStarts:
    """`rows`: in the order of their sequences."""
    found = [
        row.now
        for row in rows
        if row.verdict == Verdict.ADMITTED
        and row.payload.get("clusterQueue") == span.cluster_queue
        and row.sequence > span.after
        and (span.before is None or row.sequence < span.before)
    ]
    return WorkloadStarts(min(len(found), MOST_STARTS), found[-1] if found else None)
