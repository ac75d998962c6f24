"""IdlePolicies: what is done about workloads whose devices do nothing (I)."""

from __future__ import annotations

from queuectl.core.model.usage_limits import LimitTarget
from queuectl.core.model.values import value


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
