"""Answers from rows of history in memory: what ledger/answers.py asks Postgres for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from queuectl.core.decisions import Verdict
from queuectl.core.model import ConfigKey
from queuectl.ledger.folded import HoldLine
from queuectl.ports import (
    MOST_HELD,
    MOST_STARTS,
    DecisionRow,
    Held,
    PastHolds,
    Revision,
    StartsSpan,
    TooMuchHistory,
    WorkloadStarts,
)


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


def past_holds(
    rows: Iterable[DecisionRow],
    holds: Iterable[tuple[Iterable[HoldLine], datetime, datetime | None]],
    since: datetime,
    until: datetime,
) -> PastHolds:
    """`rows`: all decisions; `holds`: lines with their start and end. Raises TooMuchHistory."""
    rows = list(rows)
    held = [
        Held(line.cluster_queue, line.flavor, line.resource, line.count * line.amount, start, end)
        for lines, start, end in holds
        for line in lines
        if start < until and (end is None or end > since)
    ]
    found = [
        one for one in _revisions(rows) if one.since < until and (one.until is None or one.until > since)
    ]
    if len(held) > MOST_HELD:
        raise TooMuchHistory
    return PastHolds(held, found, rows[0].now if rows else None)


def _revisions(rows: Iterable[DecisionRow]) -> Iterable[Revision]:
    in_force: dict[ConfigKey, Revision] = {}
    for row in rows:
        if row.verdict != Verdict.CONFIGURED or row.payload["kind"] not in ("ClusterQueue", "Cohort"):
            continue
        key = ConfigKey(*(str(row.payload[part]) for part in ("kind", "namespace", "name")))
        if (former := in_force.pop(key, None)) is not None:
            yield former._replace(until=row.now)
        if row.payload["spec"] is not None:
            in_force[key] = Revision(key, json.dumps(row.payload["spec"]), row.now, None)
    yield from in_force.values()
