"""The ledger in memory as it was: the same as ledger/as_of reads from Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from queuectl.core.decisions import Verdict
from queuectl.core.model import ConfigKey, EffectKey, LedgerSnapshot, PodSet, StoredWorkload, WorkloadId
from queuectl.core.reasons import Code
from queuectl.ledger.history.past_states import Said, as_of
from queuectl.ledger.history.past_usage import PREEMPTIONS_KEPT
from queuectl.ports.reader import DecisionRow, EffectRow


class Rows(Protocol):
    """What is read of a MemoryStore."""

    workloads: dict[WorkloadId, StoredWorkload]
    ended: list[tuple[int, StoredWorkload]]
    decisions: list[DecisionRow]
    effects: dict[EffectKey, int]
    closed_effects: dict[int, EffectRow]
    revisions: list[tuple[int, ConfigKey, str | None]]
    shapes: dict[str, tuple[PodSet, ...]]


def snapshot_at(
    store: Rows, decided: Sequence[DecisionRow], when: datetime, counts_for: timedelta
) -> LedgerSnapshot:
    """The state after the decisions `decided`, without past usage. They are all up to `when`, at least one.

    `counts_for`: how long a preemption counts (P11).
    """
    last, now = decided[-1].sequence, decided[-1].now
    workloads = [
        as_of(row, map(_said, rows), lambda shape: store.shapes[shape], _preempted(rows, now - counts_for))
        for row, rows in _open(store, decided)
    ]
    return LedgerSnapshot(
        sequence=last,
        now=now,
        workloads=tuple(sorted(workloads, key=lambda one: (one.arrival, one.id))),
        configs=tuple(sorted(_in_force(store, last).items())),
        effects=tuple(key for _, key in sorted(_effects(store, last, when))),
    )


def _said(row: DecisionRow) -> Said:
    return Said(row.sequence, row.now, row.verdict, row.attempt, row.reason, row.payload)


def _open(store: Rows, decided: Sequence[DecisionRow]) -> Iterator[tuple[StoredWorkload, list[DecisionRow]]]:
    """Rows of the workloads that were open, with their decisions up to then."""
    lives: dict[WorkloadId, list[DecisionRow]] = {}
    for row in decided:
        if row.workload is not None:
            lives.setdefault(row.workload, []).append(row)
            if row.verdict == Verdict.RETIRED:
                del lives[row.workload]
    # A workload that lost its label and got it again has several lives: the first that ended later counts.
    ended: dict[WorkloadId, StoredWorkload] = {}
    for sequence, one in reversed(store.ended):
        if sequence > decided[-1].sequence:
            ended[one.id] = one
    for workload, rows in lives.items():
        yield ended.get(workload) or store.workloads[workload], rows


def _preempted(rows: Sequence[DecisionRow], since: datetime) -> tuple[datetime, ...]:
    found = (
        row.now
        for row in rows
        if row.verdict == Verdict.EVICTED and row.now >= since
        if row.reason is not None and row.reason.code is Code.PREEMPTED
    )
    return tuple(found)[-PREEMPTIONS_KEPT:]


def _in_force(store: Rows, last: int) -> Mapping[ConfigKey, str]:
    specs = {key: spec for sequence, key, spec in store.revisions if sequence <= last}
    return {key: spec for key, spec in specs.items() if spec is not None}


def _effects(store: Rows, last: int, when: datetime) -> Iterator[tuple[int, EffectKey]]:
    """Writes that were due then, each with the sequence of its decision."""
    subjects = {row.sequence: row.workload for row in store.decisions}
    for key, sequence in store.effects.items():
        if sequence <= last:
            yield sequence, key
    for row in store.closed_effects.values():
        ended, workload = row.acknowledged_at or row.withdrawn_at, subjects[row.sequence]
        if row.sequence <= last and workload is not None and ended is not None and ended > when:
            yield row.sequence, EffectKey(workload, row.attempt, row.verb)
