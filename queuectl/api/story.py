"""The story of a workload, from its last decisions in the ledger and the writes that they requested. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from queuectl.api import documents
from queuectl.core.entries import Remark
from queuectl.core.redaction import Readable
from queuectl.ports.reader import DecisionRow, EffectRow, StoryRows

LIMIT: Final = 20
"""Remarks of one story, and decisions that are read for it."""
_DETAILS: Final = (
    ("queue", "LocalQueue {}"),
    ("clusterQueue", "ClusterQueue {}"),
    ("outcome", "{}"),
    ("detail", "{}"),
)
"""What a decision without a reason says instead."""

_Place = tuple[datetime, float, int]
"""Sort key: time; then the sequence of the decision, because commits may have equal times; then the step."""


def remarks(rows: StoryRows, readable: Readable) -> list[Remark]:
    """The last LIMIT remarks, oldest first, without names of workloads that the caller may not read."""
    decided_at = {row.sequence: row.now for row in rows.decisions}
    found: list[tuple[_Place, Remark]] = [
        ((row.now, row.sequence, 0), Remark(row.now, "decided", _decision(row, readable)))
        for row in rows.decisions
    ]
    for effect in rows.effects:
        write = f"{effect.verb} of attempt {effect.attempt}"
        steps = _steps(effect, decided_at[effect.sequence])
        found += [(place, Remark(place[0], what, write)) for place, what in steps]
    found.sort(key=lambda placed: placed[0])
    return [remark for _, remark in found[-LIMIT:]]


def _steps(effect: EffectRow, requested_at: datetime) -> Iterator[tuple[_Place, str]]:
    yield (requested_at, effect.sequence, 1), "requested"
    # Before the decisions of the commit that acknowledges it: those have higher sequences.
    if effect.acknowledged_at is not None:
        yield (effect.acknowledged_at, effect.sequence, 2), "acknowledged"
    # After the decision that withdraws it, which has the same time.
    if effect.withdrawn_at is not None:
        yield (effect.withdrawn_at, float("inf"), 2), "withdrawn"


def _decision(row: DecisionRow, readable: Readable) -> str:
    """Such as `Evicted, attempt 1: Preempted (InClusterQueue) by default/Job/urgent`."""
    found = documents.decision(row, readable)
    text = str(found.verdict)
    if found.attempt is not None:
        text += f", attempt {found.attempt}"
    if found.reason is not None:
        return f"{text}: {found.reason.message}"
    details = (form.format(found.details[key]) for key, form in _DETAILS if found.details.get(key))
    why = ", ".join(details)
    return f"{text}: {why}" if why else text
