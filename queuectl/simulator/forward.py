"""A copy of an engine that is rebuilt from the ledger, driven forward until workloads have started."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Final

from queuectl.core.decisions import Admit, Decision, Plan
from queuectl.core.engine import Engine
from queuectl.core.events import Event
from queuectl.core.model import EffectKey, StoredWorkload, WorkloadId
from queuectl.simulator.arrivals import Arrival, milliseconds
from queuectl.simulator.history import Life
from queuectl.simulator.playing import Play, _Job, _run
from queuectl.simulator.rebuilding import observed

DAY: Final = milliseconds(86_400)

Day = Callable[[int], Iterable[Arrival]]
"""The arrivals of a day, numbered from 0."""


class Resumed(Play):
    """Starts at a state with work under way."""

    def __init__(
        self,
        engine: Engine,
        start: datetime,
        *,
        sequence: int,
        eviction_seconds: float,
    ) -> None:
        """`sequence`: of the last decision before. `eviction_seconds`: as A26 tells."""
        super().__init__(engine, start, eviction_seconds=eviction_seconds)
        self._sequence = sequence + 1

    def know(
        self, stored: StoredWorkload, run: int | None, left: int | None, due: frozenset[EffectKey]
    ) -> None:
        """A workload that the engine knows. `run`: milliseconds of each attempt that begins later; `left`: of
        its open one; None: it does not end. `due`: writes that are not acknowledged."""
        seen = observed(stored, due)
        job = self._jobs[stored.id] = _Job(
            seen.workload,
            run,
            suspended=seen.observation.suspended,
            admission=seen.observation.admission,
            attempt=stored.attempts,
        )
        holds = stored.attempt is not None
        life = self._lives[stored.id] = Life(
            stored.id, 0, stored.cluster_queue, stored.priority, present=holds
        )
        if stored.attempt is not None:
            life.runs.append(_run(stored.attempt, 0))
            if job.suspended:
                job.empty_at = self._eviction
            else:
                job.launch += 1
                if left is not None:
                    self._at(left, partial(self._finish, job, job.launch))

    def resume(self) -> None:
        """Do the writes that are due."""
        for effect in self._engine.take_effects():
            self._engine.handle(self._write(effect))


class Forward(Resumed):
    """It ends when all `targets` have started, or at a bound."""

    def __init__(
        self,
        engine: Engine,
        start: datetime,
        *,
        sequence: int,
        eviction_seconds: float,
        targets: Iterable[WorkloadId],
        most_work: int,
    ) -> None:
        """`sequence`: of the last decision before. `most_work`: units of Plan.work, and one for each plan,
        after the time of the start."""
        super().__init__(engine, start, sequence=sequence, eviction_seconds=eviction_seconds)
        self._awaited = set(targets)
        self._most_work = most_work
        self.work = 0
        self.starts: dict[WorkloadId, int] = {}
        """Milliseconds from the start to the first admission of each."""
        self.reached = 0
        """All that starts before this time, in milliseconds, is in `starts`."""

    def run(self, days: int, day: Day) -> None:
        """Play at most so many days."""
        self._at(0, partial(self._dawn, day, 0, days))
        self.resume()
        self.reached = days * DAY
        self.play((), until=days * DAY / 1000)

    def _dawn(self, day: Day, number: int, days: int) -> Iterable[Event]:
        for one in day(number):
            self._at(one.at, partial(self._arrive, one))
        if number + 1 < days:
            self._at((number + 1) * DAY, partial(self._dawn, day, number + 1, days))
        return ()

    def _next(self) -> int | None:
        if self._awaited and self.work < self._most_work:
            return super()._next()
        self.reached = self._now
        return None

    def _commit(self, plan: Plan) -> None:
        if self._now:
            self.work += plan.work + 1
        super()._commit(plan)

    def _remember(self, decision: Decision) -> None:
        super()._remember(decision)
        if isinstance(decision, Admit):
            self.starts.setdefault(decision.attempt.workload, self._now)
            self._awaited.discard(decision.attempt.workload)
