"""Whether the pods of an admitted workload are ready in time (L14, L16, L24 to L26, L32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple

from queuectl.core.decisions import Amend, Decision, Evict, Release
from queuectl.core.directory import AffectedObjects
from queuectl.core.entries import Entry
from queuectl.core.feature import Feature
from queuectl.core.model.events import Event, PolicyObserved
from queuectl.core.model.policy import ClusterQueue, SchedulingConfiguration
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.values import value
from queuectl.core.model.workload import Attempt, LedgerSnapshot, PastAttempts, Phase, WorkloadId


@value(frozen=True, slots=True, kw_only=True)
class ReadinessRules:
    """The clocks of one workload, in seconds; None: no limit. `source` sets those of the queue."""

    whole: int | None = None
    """From its start until all its pods are ready (L14). The configuration alone sets it."""
    scheduling: int | None = None
    startup: int | None = None
    recovery: int | None = None
    source: str = ""

    @property
    def counts_bound(self) -> bool:
        """Whether it matters when all its pods are bound to nodes."""
        return self.scheduling is not None or self.startup is not None

    @property
    def any(self) -> bool:
        """Whether it matters when all its pods are ready."""
        return self.counts_bound or self.recovery is not None or self.whole is not None


def readiness_rules(configuration: SchedulingConfiguration, queue: ClusterQueue | None) -> ReadinessRules:
    """Return the clocks of workloads of `queue`: its own in the place of the configuration's."""
    own = queue.wait_for_pods_ready if queue is not None else None
    if queue is None or own is None:
        return ReadinessRules(whole=configuration.pods_ready_timeout)
    return ReadinessRules(
        scheduling=own.scheduling,
        startup=own.startup,
        recovery=own.recovery,
        source=f"ClusterQueue/{queue.name}",
    )


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


class PodsReadyClocks(Feature):
    """Is active where any clock is set, or a failed start is remembered that ready pods reset (L16)."""

    events: ClassVar = frozenset({PolicyObserved})
    decisions: ClassVar = frozenset({Release})

    def __init__(self, configuration: SchedulingConfiguration, queues: Mapping[str, ClusterQueue]) -> None:
        """`queues`: the ClusterQueues in force."""
        self._configuration = configuration
        self._queues = queues
        self.active = configuration.pods_ready_timeout is not None

    def restored(self, snapshot: LedgerSnapshot, entries: Mapping[WorkloadId, Entry]) -> None:
        self.active |= any(entry.past.failures for entry in entries.values())

    def observe(self, event: Event, affected: AffectedObjects) -> None:
        if isinstance(event, PolicyObserved) and isinstance(event.value, ClusterQueue):
            rules = readiness_rules(self._configuration, event.value)
            self.active |= rules.any
            self.counts_bound |= rules.counts_bound

    def decided(self, decision: Decision, entry: Entry) -> None:
        self.active |= entry.past.failures > 0

    def _rules(self, attempt: Attempt) -> ReadinessRules:
        return readiness_rules(self._configuration, self._queues.get(attempt.assignment.cluster_queue))

    def step(self, entry: Entry, now: datetime) -> Evict | None:
        """Evict it if its pods are not ready in time."""
        attempt, clock = entry.attempt, self._clock(entry, now)
        if attempt is None or clock is None or clock.until > now:
            return None
        node = self._rules(attempt).source or None
        detail = _LATE[clock.name].format(clock.seconds)
        reason = Reason(code=Code.PODS_READY_TIMEOUT, node=node, detail=detail)
        return Evict(entry.id, entry.ref, attempt.number, reason)

    def next_time(self, entry: Entry, now: datetime) -> datetime | None:
        clock = self._clock(entry, now)
        return None if clock is None else clock.until

    def _clock(self, entry: Entry, now: datetime) -> ReadyClock | None:
        """Return the clock that runs; None also where its status does not say that pods are not ready."""
        attempt, seen = entry.attempt, entry.observation
        if attempt is None or entry.phase is not Phase.ADMITTED:
            return None
        if seen is None or seen.ready is not False or not entry.runs:
            return None
        rules = self._rules(attempt)
        if not rules.any:
            return None
        past = self.noted(entry.past, entry, now)  # what has just changed starts a clock, and ends none
        return running_clock(rules, attempt, past, seen.started_at)

    def noted(self, past: PastAttempts, entry: Entry, now: datetime) -> PastAttempts:
        """Return `past` with what its pods have come to in this attempt (L16, L24, L26)."""
        attempt, seen = entry.attempt, entry.observation
        if attempt is None or seen is None or not entry.runs:
            return past
        rules = self._rules(attempt)
        if rules.any and seen.held_back != past.held_back:  # L32
            released = seen.held_back < past.held_back
            past = replace(past, held_back=seen.held_back)
            past = replace(past, part_at=now, bound_at=None) if released else past
        all_ready = seen.ready and not seen.held_back and past.ready != attempt.number
        if all_ready and (rules.any or past.failures > 0):
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

    def accounted(self, past: PastAttempts, decision: Decision, entry: Entry, now: datetime) -> PastAttempts:
        if isinstance(decision, Amend):
            return _timed(past, entry.past, now)
        if isinstance(decision, Evict) and decision.reason.code is Code.PODS_READY_TIMEOUT:
            return _missed(entry, past, now)
        return past


def _missed(entry: Entry, past: PastAttempts, now: datetime) -> PastAttempts:
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


def _timed(past: PastAttempts, before: PastAttempts, now: datetime) -> PastAttempts:
    """Return `past` with the time of the plan where something has just begun."""
    bound = past.bound_at if past.bound_at is None or before.bound_at is not None else now
    unready = past.unready_at if past.unready_at is None or before.unready_at is not None else now
    part = now if past.part_at != before.part_at and past.part_at is not None else past.part_at
    return replace(past, bound_at=bound, unready_at=unready, part_at=part)
