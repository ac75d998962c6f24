"""The story of a workload, from its last decisions and the writes that they requested. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from queuectl.answers.explanation import Visibility
from queuectl.core.entries import WorkloadEvent
from queuectl.ports.reader import DecisionRow, EffectRow, StoryRows

STORY_LIMIT: Final = 20
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


def remarks(rows: StoryRows, caller: Visibility) -> list[WorkloadEvent]:
    """The last STORY_LIMIT remarks, oldest first, with the names that the caller may see."""
    decided_at = {row.sequence: row.now for row in rows.decisions}
    placed: list[tuple[_Place, WorkloadEvent]] = [
        ((row.now, row.sequence, 0), WorkloadEvent(row.now, "decided", _decision(caller.decision(row))))
        for row in rows.decisions
    ]
    for effect in rows.effects:
        write = f"{effect.verb} of attempt {effect.attempt}"
        steps = _steps(effect, decided_at[effect.sequence])
        placed += [(place, WorkloadEvent(place[0], what, write)) for place, what in steps]
    placed.sort(key=lambda pair: pair[0])
    return [remark for _, remark in placed[-STORY_LIMIT:]]


def _steps(effect: EffectRow, requested_at: datetime) -> Iterator[tuple[_Place, str]]:
    yield (requested_at, effect.sequence, 1), "requested"
    # Before the decisions of the commit that acknowledges it: those have higher sequences.
    if effect.acknowledged_at is not None:
        yield (effect.acknowledged_at, effect.sequence, 2), "acknowledged"
    # After the decision that withdraws it, which has the same time.
    if effect.withdrawn_at is not None:
        yield (effect.withdrawn_at, float("inf"), 2), "withdrawn"


def _decision(row: DecisionRow) -> str:
    """Such as `Evicted, attempt 1: Preempted (InClusterQueue) by default/Job/urgent`."""
    text = row.verdict
    if row.attempt is not None:
        text += f", attempt {row.attempt}"
    if row.reason is not None:
        return f"{text}: {row.reason.message}"
    details = (form.format(row.payload[key]) for key, form in _DETAILS if row.payload.get(key))
    why = ", ".join(details)
    return f"{text}: {why}" if why else text
