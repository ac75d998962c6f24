"""A copy of an engine that is rebuilt from the ledger, driven forward until workloads have started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final

from queuectl.core.copies import dissolve
from queuectl.core.decisions import Admit, Decision, Plan
from queuectl.core.engine import Engine
from queuectl.core.model.events import Event, PodGone, PodObserved
from queuectl.core.model.pods import Pod
from queuectl.core.model.workload import Attempt, EffectKey, Phase, StoredWorkload, WorkloadId
from queuectl.scenarios.arrivals import Arrival, milliseconds
from queuectl.scenarios.rebuilt_engine import observed
from queuectl.simulation.history import Life
from queuectl.simulation.player import Play, PlayedJob, begun_run

DAY: Final = milliseconds(86_400)

NO_PODS: Final[Mapping[WorkloadId, Sequence[str]]] = MappingProxyType({})

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
        self._ends: dict[WorkloadId, int] = {}
        """When the pods of workloads end of which the stop is still to be written."""
        self._left: dict[WorkloadId, int | None] = {}
        """What is left of runs of which the start is still to be written."""

    def know(
        self, stored: StoredWorkload, run: int | None, left: int | None, due: frozenset[EffectKey]
    ) -> None:
        """A workload that the engine knows. `run`: milliseconds of each attempt that begins later; `left`: of
        its open one; None: it does not end. `due`: writes that are not acknowledged."""
        seen = observed(stored, due)
        job = self._jobs[stored.id] = PlayedJob(seen.workload, run, seen.observation, stored.attempts)
        holds = stored.attempt is not None
        life = self._lives[stored.id] = Life(
            stored.id, 0, stored.cluster_queue, stored.priority, present=holds
        )
        if stored.attempt is not None:
            life.runs.append(begun_run(stored.attempt, 0))
            if stored.phase is Phase.EVICTING and job.suspended:
                job.empty_at = self._eviction
            elif job.suspended:
                self._left[stored.id] = left
            else:
                job.launch += 1
                if left is not None:
                    self._at(left, partial(self._finish, job, job.launch))

    def _next_run(self, job: PlayedJob) -> int | None:
        return self._left.pop(job.workload.id, super()._next_run(job))

    def gone(self, at: int, workload: WorkloadId) -> None:
        """The pods of a workload that is being evicted at the start end then."""
        job = self._jobs[workload]
        job.empty_at = at
        if not job.suspended:
            self._ends[workload] = at

    def _stop(self, job: PlayedJob) -> Iterable[Event]:
        events = super()._stop(job)
        job.empty_at = self._ends.pop(job.workload.id, job.empty_at)
        return events

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
        pods: Mapping[WorkloadId, Sequence[str]] = NO_PODS,
    ) -> None:
        """`sequence`: of the last decision before. `most_work`: units of Plan.work, and one for each plan,
        after the time of the start. `pods`: UIDs of those on nodes."""
        super().__init__(engine, start, sequence=sequence, eviction_seconds=eviction_seconds)
        self._pods = dict(pods)
        """Those that have not ended."""
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
        for id in self._pods:
            job = self._jobs.get(id)
            if job is None or job.suspended:
                ending = 0 if job is None else job.empty_at
                self._at(ending or self._eviction, partial(self._gone, id))
        self.resume()
        self.reached = days * DAY
        self.play((), until=days * DAY / 1000)

    def close(self) -> None:
        """Free the engine, and what was to happen later."""
        dissolve(self._engine)
        self._coming.clear()

    def _dawn(self, day: Day, number: int, days: int) -> Iterable[Event]:
        for one in day(number):
            self._at(one.at, partial(self._arrive, one))
        if number + 1 < days:
            self._at((number + 1) * DAY, partial(self._dawn, day, number + 1, days))
        return ()

    def _start_running(self, job: PlayedJob, attempt: Attempt, nodes: Sequence[str] = ()) -> None:
        """Its pods are bound at once where they are expected (M7); those that find no node stay expected."""
        super()._start_running(job, attempt, nodes)
        id, ref = job.workload.id, job.workload.ref
        pods = [
            Pod(
                uid=f"{id}/{attempt.number}/{number}",
                namespace=ref.namespace,
                name=f"{ref.name}-{number}",
                node=node,
                requests=requests,
                workload=id,
            )
            for number, (node, requests) in enumerate(self._engine.features.nodes.expected(id))
        ]
        if pods:
            self._pods[id] = [*self._pods.get(id, ()), *(pod.uid for pod in pods)]
            self._engine.handle(list(map(PodObserved, pods)))

    def _stop(self, job: PlayedJob) -> Iterable[Event]:
        events = super()._stop(job)
        self._at(job.empty_at, partial(self._gone, job.workload.id))
        return events

    def _finish(self, job: PlayedJob, launch: int) -> Iterable[Event]:
        seen = super()._finish(job, launch)
        return (*self._gone(job.workload.id), *seen) if seen else ()

    def _gone(self, workload: WorkloadId) -> Iterable[Event]:
        return tuple(map(PodGone, self._pods.pop(workload, ())))

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
