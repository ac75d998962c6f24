"""What happened in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuectl.core.model.reasons import Code, PreemptionCause
from queuectl.core.model.resources import Usage
from queuectl.core.model.workload import WorkloadId
from queuectl.simulation.room_use import RoomUse


@dataclass(slots=True)
class Run:
    """One attempt: from its admission to the return of its quota. Milliseconds from the start."""

    cluster_queue: str
    usage: Usage
    admitted: int
    stopped: int | None = None
    """Time of its stop, if it was stopped."""
    released: int | None = None
    """Time of the return of its quota; None: it still holds it."""
    finished: bool = False
    code: Code | None = None
    """Reason of its stop."""
    cause: PreemptionCause | None = None
    preemptor: WorkloadId | None = None
    ran: int | None = None
    """How long all its pods were on ready nodes; None: there are no nodes, so always."""
    lost: int = 0
    """Of that, before a node failed under it: it began again."""

    def stalled(self, end: int) -> int:
        """How long it was admitted, not stopped, and had pods that were on no ready node."""
        if self.ran is None:
            return 0
        over = next((time for time in (self.stopped, self.released) if time is not None), end)
        return over - self.admitted - self.ran


@dataclass(slots=True)
class Life:
    """One workload since its arrival."""

    id: WorkloadId
    arrived: int
    cluster_queue: str | None = None
    """Its ClusterQueue; None: it never got into a queue."""
    priority: int = 0
    runs: list[Run] = field(default_factory=list)
    finished: int | None = None
    reason: Code | None = None
    """Why it is pending, as reported last."""
    present: bool = False
    """It held quota at the start."""
    never: bool = False
    """It can never run with these policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All events up to `end`."""

    end: int
    """Milliseconds from the start."""
    lives: tuple[Life, ...]
    plans: int
    room: RoomUse | None = None
    """None: there are no nodes."""
