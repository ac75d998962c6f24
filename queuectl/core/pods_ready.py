"""Whether the pods of an admitted workload are ready in time (L14, L16, L24 to L26)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.model import Attempt, Observation, PastAttempts


def runs(entry: Entry) -> bool:
    """Return whether the observation shows the object as its start left it, or later."""
    seen = entry.observation
    return seen is not None and not seen.suspended and entry.current and entry.unacknowledged is None


class Deadline(NamedTuple):
    """When it is evicted, and why then."""

    at: datetime
    detail: str


def late_at(entry: Entry) -> Deadline | None:
    """Return when its pods must be ready; None also where its status does not say that they are not."""
    attempt, seen, rules, past = entry.attempt, entry.observation, entry.readiness, entry.past
    if not rules.any or attempt is None or attempt.debt:
        return None
    if not runs(entry) or seen is None or seen.ready is not False:
        return None
    if past.ready == attempt.number:
        words = "its pods were ready, and not all of them are for {} s: recoveryTimeoutSeconds"
        return _deadline(past.unready_at, rules.recovery, words)  # L26
    started = max(attempt.admitted_at, seen.started_at or attempt.admitted_at)
    if rules.whole is not None:
        return _deadline(started, rules.whole, "its pods were not all ready {} s after its start")  # L14
    if past.bound_at is None:
        words = "its pods were not all bound to nodes {} s after its start: schedulingTimeoutSeconds"
        return _deadline(started, rules.scheduling, words)  # L24
    words = "its pods were not all ready {} s after they were bound to nodes: startupTimeoutSeconds"
    return _deadline(past.bound_at, rules.startup, words)  # L25


def _deadline(since: datetime | None, seconds: int | None, words: str) -> Deadline | None:
    if since is None or seconds is None:
        return None
    return Deadline(since + timedelta(seconds=seconds), words.format(seconds))


def readied(entry: Entry, attempt: Attempt, seen: Observation, now: datetime) -> PastAttempts:
    """Return its record with what its pods have come to in this attempt (L16, L24, L26)."""
    past, rules = entry.past, entry.readiness
    if not runs(entry):
        return past
    if seen.ready and past.ready != attempt.number and (rules.any or past.failures > 0):
        past = replace(past, ready=attempt.number, failures=0)
    if past.ready == attempt.number:
        waits = seen.ready is False and rules.recovery is not None
        return replace(past, unready_at=(past.unready_at or now) if waits else None)
    if rules.counts_bound and past.bound_at is None and entry.bound >= attempt.assignment.pods:
        past = replace(past, bound_at=now)
    return past


def missed(entry: Entry, past: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` of a workload whose pods are not ready in time, with the flavors whose nodes did not come
    (M20). Pods with a node selector or affinity of their own may wait for other reasons.
    """
    attempt, workload = entry.attempt, entry.workload
    if attempt is None or workload is None or entry.bound >= attempt.assignment.pods:
        return past
    if any(one.node_selector or one.affinity for one in workload.pod_sets):
        return past
    flavors = {name for one in attempt.assignment.pod_sets for _, name in one.flavors}
    return replace(past, missed=tuple(sorted(flavors)), missed_at=now)


def timed(past: PastAttempts, before: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` with the time of the plan where something has just begun."""
    bound = past.bound_at if past.bound_at is None or before.bound_at is not None else now
    unready = past.unready_at if past.unready_at is None or before.unready_at is not None else now
    return replace(past, bound_at=bound, unready_at=unready)
