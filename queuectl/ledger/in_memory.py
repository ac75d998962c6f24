"""Answers from rows of history in memory: what ledger/read/answers.py asks Postgres for."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from queuectl.core.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.decisions import Verdict
from queuectl.core.model import Assignment, ConfigKey, ForReaders, WorkloadId
from queuectl.core.node_facts import NodeFacts
from queuectl.core.reasons import Code
from queuectl.ledger.codec import pod_sets_from_json
from queuectl.ledger.write.row_types import HoldLine
from queuectl.ports.reader import (
    GONE_KEPT,
    MOST_HELD,
    MOST_STARTS,
    DecisionRow,
    Held,
    PastHolds,
    PreemptionRow,
    Revision,
    StartsSpan,
    TooMuchHistory,
    WorkloadStarts,
)


def nodes_after(
    known: Mapping[str, tuple[int, NodeFacts]], told: ForReaders, batch: int
) -> dict[str, tuple[int, NodeFacts]]:
    """The rows of nodes, each with the batch that stored it, after a batch that tells readers of some."""
    found = dict(known)
    for one in told.nodes:
        if found.get(one.name, (0, None))[1] != one:
            found[one.name] = (batch, one)
    if told.all_nodes is not None:
        others = {name: one for name, (_, one) in found.items() if name not in told.all_nodes}
        found |= {n: (batch, NodeFacts(name=n, node=None)) for n, one in others.items() if not one.gone}
    if any(one.gone for one in told.nodes):
        kept = batch - GONE_KEPT
        found = {name: (at, one) for name, (at, one) in found.items() if not one.gone or at > kept}
    return found


def capacities_at(
    rows: Iterable[tuple[datetime, FlavorCapacity]], when: datetime, flavors: Collection[str]
) -> tuple[FlavorCapacity, ...]:
    """The last of each of `flavors` that was stored at `when` or before, by name. `rows`: in order."""
    last = {one.flavor: one for at, one in rows if at <= when and one.flavor in flavors}
    return tuple(last[flavor] for flavor in sorted(last))


def first_capacity(rows: Iterable[tuple[datetime, FlavorCapacity]]) -> datetime | None:
    """As ledger/past_capacity."""
    return next((at for at, one in rows if one.flavor == NO_FLAVOR), None)


def starts(rows: Iterable[DecisionRow], span: StartsSpan) -> WorkloadStarts:
    """`rows`: in the order of their sequences."""
    found = [
        row.now
        for row in rows
        if row.verdict == Verdict.ADMITTED
        and row.payload.get("clusterQueue") == span.cluster_queue
        and span.after < row.sequence < span.before
    ]
    return WorkloadStarts(min(len(found), MOST_STARTS), found[-1] if found else None)


def preemptions(
    rows: Iterable[DecisionRow],
    before: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[PreemptionRow]:
    """Newest first. `rows`: all decisions."""
    held: dict[tuple[WorkloadId | None, int | None], tuple[datetime, Assignment]] = {}
    found = []
    for row in rows:
        key = (row.workload, row.attempt)
        if row.verdict == Verdict.ADMITTED:
            admitted_at = datetime.fromisoformat(str(row.payload.get("admittedAt", row.now)))
            held[key] = (admitted_at, _assignment(row, str(row.payload["clusterQueue"])))
        elif row.verdict == Verdict.SHRUNK and key in held:
            admitted_at, larger = held[key]
            held[key] = (admitted_at, _assignment(row, larger.cluster_queue))
        elif row.verdict == Verdict.EVICTED and row.reason and row.reason.code is Code.PREEMPTED:
            found.append(PreemptionRow(row, *held.get(key, (None, None))))
    passing = [
        one
        for one in reversed(found)
        if (before is None or one.decision.sequence < before)
        and (since is None or one.decision.now >= since)
        and (until is None or one.decision.now < until)
    ]
    return passing[:limit]


def _assignment(row: DecisionRow, cluster_queue: str) -> Assignment:
    pod_sets: Any = row.payload.get("podSets", ())
    return Assignment(cluster_queue=cluster_queue, pod_sets=pod_sets_from_json(pod_sets))


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
