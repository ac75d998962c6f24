"""What admitted workloads do with their devices, as metrics say (B16 to B18), and IdlePolicies (I)."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.values import value

_MILLISECOND: Final = timedelta(milliseconds=1)
IDLE_OF: Final = "idle:"
"""Before the name of a resource in usage and rates: what of it was held, and idle or hung (B19)."""


class UseVerdict(StrEnum):
    """What a window of samples says of a device, or of all devices of an attempt."""

    BUSY = "Busy"
    SPARSE = "Sparse"
    """It works now and then, as a notebook or a service with few requests does."""
    IDLE = "Idle"
    HANG = "Hang"
    """Its engine is active and its multiprocessors are not, as in a collective that waits for a lost peer."""
    UNKNOWN = "Unknown"
    """Samples are missing. It is never a reason for anything."""
    EXEMPT = "Exempt"
    """Its WorkloadPriorityClass is not judged, or it says so itself."""


WASTEFUL: Final = frozenset({UseVerdict.IDLE, UseVerdict.HANG})


class UseFinding(NamedTuple):
    """Of one attempt."""

    verdict: UseVerdict
    devices: int
    """It holds quota for so many."""
    idle_devices: int = 0
    """Of these, how many are idle or hang."""
    coverage: float = 0.0
    """The least share of the expected samples that a device has, 0 to 1; 0 if a device has none."""
    engine: float | None = None
    """Mean activity of the engines over the window and the devices, 0 to 1; None: unknown."""
    multiprocessors: float | None = None
    """The same of the streaming multiprocessors, over the shorter window of a hang."""

    def says_as(self, other: UseFinding) -> bool:
        """Return whether it says the same as `other`, whatever the figures that it was found by."""
        return self[:3] == other[:3]


@value(frozen=True, slots=True, kw_only=True)
class IdleNotice:
    """An IdlePolicy has told the user that a workload is idle; times are UTC."""

    policy: str
    at: datetime
    hold_at: datetime | None = None
    """When it is stopped, and held or cancelled, at the earliest; None: it is not."""
    cancels: bool = False
    """What is stopped is over; it is not held."""
    lower_at: datetime | None = None
    """When it has the priority of a lower class at the earliest; None: it keeps its own."""
    dry_run: bool = False
    """The user was not told, and nothing will be done."""
    held_at: datetime | None = None
    """Of a dry run: when it would have been stopped; None: not yet."""


@value(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The verdict in force about an attempt. What it was found by is as it was when it was found first."""

    attempt: int
    since: datetime
    """UTC."""
    finding: UseFinding
    wasted_ms: int = 0
    """Milliseconds of its devices that were idle or hung before `since`."""
    idle_ms: int = 0
    """Milliseconds before `since` for which it was Idle or hung. Unknown counts nothing and ends nothing."""
    idle_since: datetime | None = None
    """When that began, UTC; None: the last verdict that was known is another one."""
    notice: IdleNotice | None = None
    """The last notice since then."""

    @property
    def is_told(self) -> bool:
        """Whether its user was told that it is Idle or hangs, and it is still."""
        notice = self.notice
        return notice is not None and not notice.dry_run and self.finding.verdict in WASTEFUL

    def wasted_at(self, now: datetime) -> int:
        """Return the milliseconds of its devices that were idle or hung until `now`."""
        return self.wasted_ms + self.finding.idle_devices * _lasted(self.since, now)

    def idle_at(self, now: datetime) -> int:
        """Return the milliseconds until `now` for which it was Idle or hung without another known verdict."""
        return self.idle_ms + (_lasted(self.since, now) if self.finding.verdict in WASTEFUL else 0)


def use_after(before: DeviceUse | None, attempt: int, finding: UseFinding, at: datetime) -> DeviceUse:
    """Return the verdict in force about an attempt from `at` on.

    `before`: the one until then, of this or another attempt.
    """
    if before is None or before.attempt != attempt:
        idle_since = at if finding.verdict in WASTEFUL else None
        return DeviceUse(attempt=attempt, since=at, finding=finding, idle_since=idle_since)
    idle_ms, idle_since, notice = before.idle_at(at), before.idle_since, before.notice
    if finding.verdict in WASTEFUL:
        idle_since = idle_since or at
    elif finding.verdict is not UseVerdict.UNKNOWN:
        idle_ms, idle_since, notice = 0, None, None
    return DeviceUse(
        attempt=attempt,
        since=at,
        finding=finding,
        wasted_ms=before.wasted_at(at),
        idle_ms=idle_ms,
        idle_since=idle_since,
        notice=notice,
    )


def _lasted(since: datetime, now: datetime) -> int:
    return max(now - since, timedelta()) // _MILLISECOND


@value(frozen=True, slots=True, kw_only=True)
class IdlePolicy:
    name: str
    target: LimitTarget
    notify_after: int
    """Seconds of idleness after which the user is told."""
    hold_after: int | None = None
    """Seconds of idleness after which the workload is stopped, and held or cancelled; None: it is not."""
    cancels: bool = False
    """What is stopped is over; it is not held."""
    lower_after: int | None = None
    """Seconds of idleness after which it has the priority of a lower class; None: it keeps its own."""
    lower_class: str | None = None
    """Name of that WorkloadPriorityClass."""
    dry_run: bool = True
    """What would be done is recorded, and nothing is done."""
