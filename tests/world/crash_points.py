"""At every write of a schedule, and every await of the code that writes, its process crashes:
`python -m tests.world --crash-points`.

Writes are counted while the schedule is played, so none is left out: each request of a controller that writes
to the API server, and each transaction that writes to the ledger. Awaits are read from the code.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from linecache import getline
from types import CodeType
from typing import Any, Final, NamedTuple

from tests.world.schedule import Schedule, Step

BEFORE, LANDED, LOST, STOPPED = "before", "landed", "lost", "stopped"
MODES: Final = (BEFORE, LANDED, LOST, STOPPED)
"""The process is killed before the write leaves it; killed when the write was done, before its answer came;
it lives, and the answer is lost; it is asked to stop while the write is under way."""

SCHEDULE: Final = Schedule(
    1,
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
    seconds=40.0,
)
"""Starts, ends, a preemption, a hold, a cut of quota, deletions of what runs and of what waits."""


WRITE_PATH: Final = (
    *(f"queuectl.controller.{name}" for name in ("loop", "commits", "effects", "reports")),
    *("queuectl.kube.cluster", "queuectl.kube.liveness"),
)


class Await(NamedTuple):
    """A place in the code where a task waits."""

    module: str
    line: int

    @property
    def text(self) -> str:
        return getline(str(import_module(self.module).__file__), self.line).strip()

    def __str__(self) -> str:
        return f"{self.module}:{self.line} `{self.text}`"


@cache
def awaits() -> frozenset[Await]:
    """All of the write path."""
    return frozenset(
        Await(module, instruction.positions.lineno)
        for module in WRITE_PATH
        for code in _codes(compile(inspect.getsource(import_module(module)), module, "exec"))
        for instruction in dis.get_instructions(code)
        if instruction.opname == "SEND" and instruction.positions and instruction.positions.lineno
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _waits_at(task: asyncio.Task[Any]) -> Iterator[Await]:
    """Where in the write path a task waits: in a function, in the one that called it, and so on."""
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        module = frame.f_globals["__name__"]
        if module in WRITE_PATH:
            yield Await(module, frame.f_lineno)
        waiting = waiting.cr_await


class CrashPoint(NamedTuple):
    at: int | Await
    """The write with this number, from 0, or the first wait there."""
    mode: str
    again: int | None = None
    """The process that goes on is killed before this write, counted from the crash."""


class Points:
    """Counts the writes of controllers, and crashes at one of them."""

    def __init__(self, at: CrashPoint | None = None) -> None:
        self.at = at
        self.passed: list[str] = []
        self.waited: dict[Await, None] = {}
        """Where tasks have waited, if this is watched."""
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
        if number != self.at.at:
            return None
        self._crashed_at = number
        return self.at.mode

    def wait(self, client: str, task: asyncio.Task[Any]) -> None:
        """A task has begun to wait."""
        new = dict.fromkeys(place for place in _waits_at(task) if place not in self.waited)
        self.waited |= new
        if self.at is not None and self.at.at in new and not self.over:
            (self.stop if self.at.mode == STOPPED else self.kill)(client)


def crash_points(writes: int, waited: Sequence[Await], every: int = 1) -> Iterator[CrashPoint]:
    """Each mode at each of `writes`, or at each `every`th; of those that kill, also with a second crash.
    And a kill and a stop at each place where a task has waited."""
    for place in waited[::every]:
        yield CrashPoint(place, BEFORE)
        yield CrashPoint(place, STOPPED)
    for number in range(0, writes, every):
        for mode in MODES:
            yield CrashPoint(number, mode)
        yield CrashPoint(number, LANDED, again=number % 5)
