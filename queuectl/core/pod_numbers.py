"""Podsets that change while a workload runs: what its object allows, and what it holds (L15, L22)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from queuectl.core.model.resources import format_amount
from queuectl.core.model.values import value
from queuectl.core.model.workload import Assignment, Attempt, Observation, PodSet, Workload


@value(frozen=True, slots=True)
class Resized:
    """What is known of edits of the podsets of a workload that runs."""

    alive: int | None = None
    """At most so many of its pods were alive when they were last counted; None: they were not counted."""
    grown: str | None = None
    """Why its object allows more pods, or larger ones, than it holds quota for; None: it does not."""
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
    seen_sets = seen.admission.assignment.pod_sets if seen.admission is not None else ()
    ended = {one.name: one.ended for one in seen_sets if one.ended}
    pod_sets = tuple(
        replace(one, count=min(one.count, now.get(one.name, one.count)), ended=ended.get(one.name, one.ended))
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
    """Return whether the object allows more pods than `before`, or larger ones.

    A status may show fewer ended pods than before, while a pod of them is being deleted: that is no edit.
    """
    was = _with_ended(*before)
    more = any(count > was.get(name, count) for name, count in _with_ended(workload, seen).items())
    return more or larger_request(before[0].pod_sets, workload.pod_sets) is not None


def excess(
    attempt: Attempt, recorded: tuple[PodSet, ...], workload: Workload, seen: Observation, *, edited: bool
) -> str | None:
    """Return what the object allows beyond what `attempt` was admitted with (L22); None: nothing.

    `recorded`: its podsets when it was queued, and what they may have without an edit: a status may show
    fewer ended pods than before. Edited, it may have as many pods as quota is held for and as have ended.
    """
    if edited:
        ended, now, had = dict(seen.reclaimable), _with_ended(workload, seen), "it holds quota for {}"
        most = {one.name: one.count + ended.get(one.name, 0) for one in attempt.assignment.pod_sets}
    else:
        now, had = {one.name: one.count for one in workload.pod_sets}, "it had {} when it was queued"
        most = {one.name: one.count for one in recorded} or now
    for name, count in now.items():
        if name not in most and not edited:
            return f"podset {name} was not there when it was queued"
        if count > most.get(name, count):
            return f"podset {name} has {count} pods, {had.format(most[name])}"
    return larger_request(recorded, workload.pod_sets)


def larger_request(queued: Iterable[PodSet], now: Iterable[PodSet]) -> str | None:
    """Return what a pod requests beyond what it requested when it was queued; None: nothing."""
    asked = {one.name: dict(one.requests) for one in queued}
    for one in now:
        before = asked.get(one.name, dict(one.requests))
        for resource, amount in one.requests:
            if amount > before.get(resource, 0):
                more, had = (format_amount(resource, each) for each in (amount, before.get(resource, 0)))
                return f"podset {one.name} requests {more} of {resource}, {had} when it was queued"
    return None


def _with_ended(workload: Workload, seen: Observation) -> dict[str, int]:
    ended = dict(seen.reclaimable)
    return {name: count + ended.get(name, 0) for name, count in allowed(workload, seen).items()}
