"""Numbers of pods that change while a workload runs: what its object allows, and what it holds (L15, L22)."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.model.values import value
from queuectl.core.model.workload import Assignment, Attempt, Observation, Workload


@value(frozen=True, slots=True)
class Resized:
    """What is known of edits of the numbers of pods of a workload that runs."""

    alive: int | None = None
    """At most so many of its pods were alive when they were last counted; None: they were not counted."""
    grown: str | None = None
    """Why its object allows more pods than it holds quota for; None: it does not."""
    void: bool = False
    """A count began before its object allowed more pods again: what it finds is no proof."""


NOT_RESIZED = Resized()


def allowed(workload: Workload, seen: Observation) -> dict[str, int]:
    """Return by podset how many pods its object allows at one time, without those that have ended for good.

    `workload`: without the pods that have ended. A podset that was started with fewer pods than requested has
    as many as its start wrote.
    """
    counts = {one.name: one.count for one in workload.pod_sets}
    reduced = {field.pod_set for field in seen.reduced}
    if reduced and seen.admission is not None:
        started = {one.name: one.count for one in seen.admission.assignment.pod_sets}
        counts |= {
            name: min(counts[name], started[name]) for name in reduced & started.keys() & counts.keys()
        }
    return counts


def fewer(attempt: Attempt, workload: Workload, seen: Observation) -> Assignment | None:
    """Return what `attempt` would hold for the pods that its object allows; None: no less than it holds."""
    now = allowed(workload, seen)
    pod_sets = tuple(
        replace(one, count=min(one.count, now.get(one.name, one.count)))
        for one in attempt.assignment.pod_sets
    )
    changed = pod_sets != attempt.assignment.pod_sets
    return replace(attempt.assignment, pod_sets=pod_sets) if changed else None


def edited(attempt: Attempt, workload: Workload, seen: Observation) -> bool:
    """Return whether its object allows fewer pods than `attempt` holds, or than its annotation says, those
    that have ended included."""
    held = {one.name: one.count for one in attempt.assignment.pod_sets}
    if seen.admission is not None:
        for one in seen.admission.assignment.pod_sets:
            held[one.name] = max(held.get(one.name, 0), one.count)
    now = _with_ended(workload, seen)
    return any(now.get(name, count) < count for name, count in held.items())


def larger(before: tuple[Workload, Observation], workload: Workload, seen: Observation) -> bool:
    """Return whether the object allows more pods than `before`.

    A status may show fewer ended pods than before, while a pod of them is being deleted: that is no edit.
    """
    was = _with_ended(*before)
    return any(count > was.get(name, count) for name, count in _with_ended(workload, seen).items())


def grown(attempt: Attempt, workload: Workload, seen: Observation) -> str | None:
    """Return why the object allows more pods than `attempt` holds quota for; None: it does not."""
    ended = dict(seen.reclaimable)
    held = {one.name: one.count + ended.get(one.name, 0) for one in attempt.assignment.pod_sets}
    for name, count in _with_ended(workload, seen).items():
        if count > held.get(name, count):
            return f"podset {name} has {count} pods, it holds quota for {held[name]}"
    return None


def _with_ended(workload: Workload, seen: Observation) -> dict[str, int]:
    ended = dict(seen.reclaimable)
    return {name: count + ended.get(name, 0) for name, count in allowed(workload, seen).items()}
