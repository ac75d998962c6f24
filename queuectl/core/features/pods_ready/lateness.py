"""Whether the pods of an admitted workload are ready in time (L14, L16, L24 to L26)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.entries import Entry
from queuectl.core.features.pods_ready.rules import ReadinessRules
from queuectl.core.model.workload import Attempt, Observation, PastAttempts


def runs(entry: Entry) -> bool:
    """Return whether the observation shows the object as its start left it, or later."""
    seen = entry.observation
    return seen is not None and not seen.suspended and entry.current and entry.unacknowledged is None


class ClockName(StrEnum):
    """What the pods of a running attempt must reach next."""

    PODS_READY = "PodsReady"
    """All are ready, counted from its start (L14)."""
    SCHEDULING = "Scheduling"
    """All are bound to nodes (L24)."""
    STARTUP = "Startup"
    """All are ready, counted from when all were bound (L25)."""
    RECOVERY = "Recovery"
    """All are ready again (L26)."""


_LATE: Final = {
    ClockName.PODS_READY: "its pods were not all ready {} s after its start",
    ClockName.SCHEDULING: (
        "its pods were not all bound to nodes {} s after its start: schedulingTimeoutSeconds"
    ),
    ClockName.STARTUP: (
        "its pods were not all ready {} s after they were bound to nodes: startupTimeoutSeconds"
    ),
    ClockName.RECOVERY: "its pods were ready, and not all of them are for {} s: recoveryTimeoutSeconds",
}


class ReadyClock(NamedTuple):
    """The clock that runs while not all pods of an attempt are ready."""

    name: ClockName
    since: datetime
    seconds: int

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.seconds)


def running_clock(
    rules: ReadinessRules, attempt: Attempt, past: PastAttempts, started_at: datetime | None
) -> ReadyClock | None:
    """Return the clock that runs if not all pods of `attempt` are ready; None: there is no limit.

    `started_at`: the start time in the status of its object; None: it counts from the admission.
    """
    if attempt.debt:
        return None
    started = past.part_at or max(attempt.admitted_at, started_at or attempt.admitted_at)
    if past.ready == attempt.number:
        name, since, seconds = ClockName.RECOVERY, past.unready_at, rules.recovery
    elif rules.whole is not None:
        name, since, seconds = ClockName.PODS_READY, started, rules.whole
    elif past.bound_at is None:
        name, since, seconds = ClockName.SCHEDULING, started, rules.scheduling
    else:
        name, since, seconds = ClockName.STARTUP, past.bound_at, rules.startup
    return None if since is None or seconds is None else ReadyClock(name, since, seconds)


class Deadline(NamedTuple):
    """When it is evicted, and why then."""

    at: datetime
    detail: str


def late_at(entry: Entry, now: datetime) -> Deadline | None:
    """Return when its pods must be ready; None also where its status does not say that they are not."""
    attempt, seen = entry.attempt, entry.observation
    if not entry.readiness.any or attempt is None:
        return None
    if not runs(entry) or seen is None or seen.ready is not False:
        return None
    past = readied(entry, attempt, seen, now)  # what has just changed starts a clock, and ends none
    clock = running_clock(entry.readiness, attempt, past, seen.started_at)
    return None if clock is None else Deadline(clock.until, _LATE[clock.name].format(clock.seconds))


def readied(entry: Entry, attempt: Attempt, seen: Observation, now: datetime) -> PastAttempts:
    """Return its record with what its pods have come to in this attempt (L16, L24, L26)."""
    past, rules = entry.past, entry.readiness
    if not runs(entry):
        return past
    if rules.any and seen.held_back != past.held_back:  # L32
        released = seen.held_back < past.held_back
        past = replace(past, held_back=seen.held_back)
        past = replace(past, part_at=now, bound_at=None) if released else past
    if (
        seen.ready
        and not seen.held_back
        and past.ready != attempt.number
        and (rules.any or past.failures > 0)
    ):
        past = replace(past, ready=attempt.number, failures=0)
    if past.ready == attempt.number:
        waits = seen.ready is False and rules.recovery is not None
        return replace(past, unready_at=(past.unready_at or now) if waits else None)
    if (
        rules.counts_bound
        and past.bound_at is None
        and entry.bound >= attempt.assignment.pods - seen.not_bound
    ):
        past = replace(past, bound_at=now)
    return past


def missed(entry: Entry, past: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` of a workload whose pods are not ready in time, with the flavors whose nodes did not come
    (M20). Pods with a node selector or affinity of their own may wait for other reasons.
    """
    attempt, workload = entry.attempt, entry.workload
    absent = entry.observation.not_bound if entry.observation is not None else 0
    if attempt is None or workload is None or entry.bound >= attempt.assignment.pods - absent:
        return past
    if any(one.node_selector or one.affinity for one in workload.pod_sets):
        return past
    flavors = {name for one in attempt.assignment.pod_sets for _, name in one.flavors}
    return replace(past, missed=tuple(sorted(flavors)), missed_at=now)


def timed(past: PastAttempts, before: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` with the time of the plan where something has just begun."""
    bound = past.bound_at if past.bound_at is None or before.bound_at is not None else now
    unready = past.unready_at if past.unready_at is None or before.unready_at is not None else now
    part = now if past.part_at != before.part_at and past.part_at is not None else past.part_at
    return replace(past, bound_at=bound, unready_at=unready, part_at=part)
