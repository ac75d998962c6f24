"""Every write of a schedule is a point at which its process crashes: `python -m tests.world --crash-points`.

The points are counted while the schedule is played, so none is left out: each request of a controller that
writes to the API server, and each transaction that writes to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.world.schedule import Schedule, Step

BEFORE, LANDED, LOST, STOPPED = "before", "landed", "lost", "stopped"
MODES: Final = (BEFORE, LANDED, LOST, STOPPED)
"""The process is killed before the write leaves it; killed when the write was done, before its answer came;
it lives, and the answer is lost; it is asked to stop while the write is under way."""

SCHEDULE: Final = Schedule(
    0,
    (
        Step(1.0, "submit", ("guests", "w0", "Job", 2, 2, 1000, 1, "low")),
        Step(3.0, "submit", ("guests", "w1", "PyTorchJob", 2, 2, 8, 0, "low")),
        Step(5.0, "submit", ("team-a", "w0", "Job", 2, 2, 10, 0, "high")),  # preempts
        Step(7.0, "submit", ("team-b", "w0", "Job", 1, 4, 6, 1, "mid")),
        Step(12.0, "hold", ("team-a", "w0")),
        Step(14.0, "submit", ("team-b", "w1", "Job", 4, 2, 5, 0, "low")),
        Step(16.0, "quota", ("team-b", 2)),
        Step(18.0, "unhold", ("team-a", "w0")),
        Step(22.0, "delete", ("guests", "w0")),
        Step(24.0, "delete", ("team-b", "w1")),
    ),
    tuple(range(10)),
)
"""Starts, ends, a preemption, a hold, a cut of quota, deletions of what runs and of what waits."""


class CrashPoint(NamedTuple):
    number: int
    """Of the write, from 0."""
    mode: str
    again: int | None = None
    """The process that goes on is killed before this write, counted from the crash."""


class Points:
    """Counts the writes of controllers, and crashes at one of them."""

    def __init__(self, at: CrashPoint | None = None) -> None:
        self.at = at
        self.passed: list[str] = []
        self.over = False
        """Writes are no points any more."""
        self._crashed_at: int | None = None
        self.kill: Callable[[str], None] = lambda client: None
        self.stop: Callable[[str], None] = lambda client: None

    def meet(self, client: str, what: str) -> str | None:
        """A write is about to leave its process. Returns what becomes of it, None: nothing."""
        if self.over:
            return None
        number = len(self.passed)
        self.passed.append(what)
        if self.at is None:
            return None
        if self._crashed_at is not None:
            again = self.at.again
            return BEFORE if again is not None and number == self._crashed_at + 1 + again else None
        if number != self.at.number:
            return None
        self._crashed_at = number
        return self.at.mode


def crash_points(writes: int, every: int = 1) -> Iterator[CrashPoint]:
    """Each mode at each of `writes`, or at each `every`th; of those that kill, also with a second crash."""
    for number in range(0, writes, every):
        for mode in MODES:
            yield CrashPoint(number, mode)
        yield CrashPoint(number, LANDED, again=number % 5)
