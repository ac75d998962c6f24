"""A cluster in virtual time: workloads arrive, run, end, and are evicted. All decisions are the engine's.

The driver acts as the controller with a cluster that answers at once: each plan is committed, its Kubernetes
writes are done and acknowledged, and their changes are observed. Only a victim's pods take time to end. If
there are nodes, a workload runs while all its pods are on ready ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final

from queuectl.core.decisions import Admit, Decision, Enqueue, Evict, Keep, Plan, PodsToCount, Release, Retire
from queuectl.core.engine import Engine
from queuectl.core.model.events import EffectSettled, Event, PodsCounted, Result, TimeCame, WorkloadObserved
from queuectl.core.model.reasons import Family
from queuectl.core.model.workload import (
    Attempt,
    AttemptState,
    Effect,
    Observation,
    StoredWorkload,
    Verb,
    Workload,
    WorkloadId,
    WorkloadOutcome,
)
from queuectl.scenarios.arrivals import Arrival, milliseconds
from queuectl.scenarios.rebuilt_engine import SUSPENDED, written
from queuectl.simulation.cluster import Other, SimulatedCluster
from queuectl.simulation.history import History, Life, Run
from queuectl.simulation.room_use import RoomUse

MOST_PLANS: Final = 100_000
"""At one time. More mean an endless loop: an engine that reverts its own decisions."""
MOST_IDLE: Final = 1_000
"""Consecutive timers without any effect, when no work arrives or ends any more."""
_TICK: Final = timedelta(milliseconds=1)


class NeverEnds(Exception):
    """Decisions at one time did not end."""


# --- the cluster ------------------------------------------------------------------------------------


@dataclass(slots=True)
class PlayedJob:
    """An object in the cluster. Times are milliseconds from the start."""

    workload: Workload
    run: int | None
    """Milliseconds of one whole run; None: it does not end."""
    observation: Observation = SUSPENDED
    attempt: int = 0
    """Its current or last admission."""
    empty_at: int = 0
    """If it is suspended: the time from which none of its pods is alive."""
    since: int = 0
    """If it is ready: since when."""
    losses: int = 0
    """How many of its pods nodes took away, when its readiness was observed."""
    launch: int = 0
    """Counts the times when it began to run or stopped running: the end of an earlier run is void."""

    @property
    def suspended(self) -> bool:
        return self.observation.suspended

    @property
    def ready(self) -> bool | None:
        """Whether all its pods are on ready nodes; None: there are no nodes."""
        return self.observation.ready

    @property
    def finished(self) -> bool:
        return self.observation.finished is not None

    def end(self, outcome: WorkloadOutcome) -> None:
        self.observation = replace(self.observation, finished=outcome, quiet=True)

    def seen(self) -> WorkloadObserved:
        return WorkloadObserved(self.workload, self.observation)


class Play:
    """Drives one engine, which has read all objects that exist at the start."""

    def __init__(
        self,
        engine: Engine,
        start: datetime,
        *,
        eviction_seconds: float = 0.0,
        cluster: SimulatedCluster | None = None,
    ) -> None:
        """`eviction_seconds`: time that a victim's pods take to end. `cluster`: if None, pods run at once."""
        self._engine = engine
        self._start = start
        self._eviction = milliseconds(eviction_seconds)
        self._now = 0
        self._plans = 0
        self._sequence = 1
        self._jobs: dict[WorkloadId, PlayedJob] = {}
        self._lives: dict[WorkloadId, Life] = {}
        self._idle = 0
        self._finished = 0
        self._coming: list[tuple[int, int, Callable[[], Iterable[Event]]]] = []
        """A heap of future events: time, order among equals, and what the engine then observes."""
        self._order = count()
        self._cluster = cluster
        self._room = RoomUse() if cluster is not None else None
        self._others: dict[str, int | None] = {}
        """Run times of pods of no queue that are not all running yet, by their key."""

    def hold(
        self, workload: Workload, stored: StoredWorkload, run: int | None, nodes: Sequence[str] = ()
    ) -> None:
        """A workload that holds quota at the start, as restored in the engine; `run`: remaining run time;
        `nodes`: those of its first pods."""
        attempt = stored.attempt
        assert attempt is not None
        evicting = attempt.state is AttemptState.EVICTING
        job = self._jobs[workload.id] = PlayedJob(
            workload, run, replace(SUSPENDED, suspended=evicting), attempt.number
        )
        first = begun_run(attempt, 0)
        queue = attempt.assignment.cluster_queue
        self._lives[workload.id] = Life(workload.id, 0, queue, stored.priority, runs=[first], present=True)
        self._start_running(job, attempt, nodes)
        self._engine.handle([job.seen()])
        self._bind()
        if evicting:
            first.stopped = 0
            self._engine.handle(self._stop(job))

    def run_pods(self, at: int, pods: Other, run: int | None) -> None:
        """Pods of no queue, from `at` milliseconds on; `run`: how long, once all are bound."""
        self._at(at, partial(self._run_pods, pods, run))

    def happen(self, at: int, what: Callable[[datetime], Iterable[Event]]) -> None:
        """At `at` milliseconds something happens in the cluster; `what` gets the time, and returns what is
        observed."""
        self._at(at, lambda: what(self._clock()))

    def play(
        self,
        arrivals: Iterable[Arrival],
        *,
        until: float | None = None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> History:
        """`until`: seconds; None: to the end of all work. `progress` gets the part that is done, 0 to 1."""
        work = max(1, len(self._jobs))
        for one in arrivals:
            self._at(one.at, partial(self._arrive, one))
            work += 1
        end = None if until is None else milliseconds(until)
        self._decide()
        while (at := self._next()) is not None and (end is None or at < end):
            self._pass(at)
            self._happen()
            self._decide()
            progress(at / end if end else min(1.0, self._finished / work))
        self._pass(self._now if end is None else end)
        for job in self._jobs.values():
            self._count_run(job, lost=False)
        if self._room is not None:
            self._room.close()
        lives = tuple(self._lives.values())
        return History(end=self._now, lives=lives, plans=self._plans, room=self._room)

    # --- time

    def _at(self, time: int, what: Callable[[], Iterable[Event]]) -> None:
        heapq.heappush(self._coming, (time, next(self._order), what))

    def _next(self) -> int | None:
        """Time of the next event or timer."""
        times = [self._coming[0][0]] if self._coming else []
        due = self._engine.due_at
        if due is not None and self._idle < MOST_IDLE:
            times.append(max(self._now + 1, -((self._start - due) // _TICK)))
        return min(times, default=None)

    def _pass(self, time: int) -> None:
        if self._cluster is not None and self._room is not None:
            self._room.time_came(time, self._cluster.levels())
        self._now = time

    def _clock(self) -> datetime:
        return self._start + timedelta(milliseconds=self._now)

    def _happen(self) -> None:
        # Nodes are judged by the time at which they change (M5).
        events: list[Event] = [TimeCame(self._clock())] if self._cluster is not None else []
        seen = len(events)
        while self._coming and self._coming[0][0] <= self._now:
            events += heapq.heappop(self._coming)[2]()
        self._idle = 0 if len(events) > seen else self._idle + 1
        due = self._engine.due_at
        if due is not None and due <= self._clock():
            events.append(TimeCame(self._clock()))
        self._engine.handle(events)

    # --- decisions

    def _decide(self) -> None:
        """Until nothing is left to decide at this time."""
        for _ in range(MOST_PLANS):
            self._bind()
            plan = self._engine.decide(self._clock())
            if not plan.decisions and not plan.probes:
                return
            self._commit(plan)
        raise NeverEnds(f"{MOST_PLANS} plans after {self._now / 1000} s, and there is more to decide")

    def _commit(self, plan: Plan) -> None:
        self._plans += 1
        self._engine.commit(plan, self._sequence)
        self._sequence += len(plan.recorded)
        for decision in plan.decisions:
            self._remember(decision)
            if self._room is not None:
                self._room.decided(decision)
        events: list[Event] = []
        for effect in self._engine.take_effects():
            events += self._write(effect)
        for probe in plan.probes:
            events += self._count(probe)
        self._engine.handle(events)

    def _remember(self, decision: Decision) -> None:
        match decision:
            case Enqueue():
                life = self._lives[decision.workload.id]
                life.cluster_queue, life.priority = decision.cluster_queue, decision.priority
            case Keep():
                life = self._lives[decision.workload]
                life.reason, life.never = decision.reason.code, decision.reason.family is Family.NEVER
            case Admit():
                self._lives[decision.attempt.workload].runs.append(begun_run(decision.attempt, self._now))
            case Evict():
                run, reason = self._lives[decision.workload].runs[-1], decision.reason
                run.stopped, run.preemptor = self._now, decision.preemptor
                run.code, run.cause = reason.code, reason.cause
            case Release():
                self._lives[decision.workload].runs[-1].released = self._now
            case Retire():
                self._retire(self._lives[decision.workload], decision)

    def _retire(self, life: Life, decision: Retire) -> None:
        life.finished = self._now
        if decision.attempt is not None:
            life.runs[-1].released = self._now
            life.runs[-1].finished = True

    # --- changes in the cluster; each function returns the events that are observed

    def _arrive(self, one: Arrival) -> Iterable[Event]:
        workload = one.workload
        job = self._jobs[workload.id] = PlayedJob(workload, one.run)
        self._lives[workload.id] = Life(workload.id, self._now)
        return (job.seen(),)

    def _write(self, effect: Effect) -> Iterable[Event]:
        """Effect of the controller's write, and the answer to it."""
        job = self._jobs[effect.key.workload]
        turned = job.suspended is (effect.key.verb is Verb.START)
        job.observation = written(job.observation, effect)
        more: Iterable[Event] = ()
        if turned and job.suspended:
            more = self._stop(job)
        elif turned:
            job.attempt = effect.attempt.number
            self._start_running(job, effect.attempt)
        return (job.seen(), EffectSettled(effect.key, Result.DONE, job.observation.generation), *more)

    def _start_running(self, job: PlayedJob, attempt: Attempt, nodes: Sequence[str] = ()) -> None:
        if self._cluster is not None:
            self._lives[job.workload.id].runs[-1].ran = 0
            self._cluster.start(job.workload, attempt, nodes)
            job.observation = replace(job.observation, ready=False)
        else:
            self._launch(job)

    def _launch(self, job: PlayedJob) -> None:
        job.launch += 1
        run = self._next_run(job)
        if run is not None:
            self._at(self._now + run, partial(self._finish, job, job.launch))

    def _next_run(self, job: PlayedJob) -> int | None:
        """Milliseconds for which it runs from now on; None: it does not end."""
        return job.run

    def _stop(self, job: PlayedJob) -> Iterable[Event]:
        job.empty_at = self._now + self._eviction
        job.launch += 1
        if self._cluster is None:
            return ()
        events = self._cluster.stop(job.workload.id)
        gone = partial(self._cluster.end, job.workload.id, job.attempt)
        if self._eviction:
            self._at(job.empty_at, gone)
            return events
        return [*events, *gone()]

    def _finish(self, job: PlayedJob, launch: int) -> Iterable[Event]:
        if job.launch != launch:
            return ()  # it was stopped before
        job.end(WorkloadOutcome.SUCCEEDED)
        self._finished += 1
        pods = self._cluster.end(job.workload.id, job.attempt) if self._cluster is not None else ()
        return (*pods, job.seen())

    # --- pods on nodes

    def _run_pods(self, pods: Other, run: int | None) -> Iterable[Event]:
        assert self._cluster is not None
        self._others[self._cluster.run(pods)] = run
        return ()

    def _bind(self) -> None:
        """Bind pods, and let begin and stop what they belong to."""
        if self._cluster is None:
            return
        self._engine.handle(self._cluster.bind())
        for key in self._cluster.take_touched():
            if key in self._jobs:
                self._engine.handle(self._ready(self._jobs[WorkloadId(key)]))
            elif key in self._others and self._cluster.runs(key):
                run = self._others.pop(key)
                if run is not None:
                    self._at(self._now + run, partial(self._cluster.end, key))

    def _ready(self, job: PlayedJob) -> Iterable[Event]:
        """It runs while all its pods are on ready nodes. One that lost a pod begins again."""
        assert self._cluster is not None
        ready, losses = self._cluster.runs(job.workload.id), self._cluster.losses(job.workload.id)
        if ready is job.ready and losses == job.losses:
            return ()
        self._count_run(job, lost=not (job.finished or job.suspended))
        job.observation, job.losses = replace(job.observation, ready=ready), losses
        if ready:
            job.since = self._now
            self._launch(job)
        else:
            job.launch += 1
        return () if job.finished else (job.seen(),)

    def _count_run(self, job: PlayedJob, *, lost: bool) -> None:
        if job.ready:
            run = self._lives[job.workload.id].runs[-1]
            run.ran = (run.ran or 0) + self._now - job.since
            run.lost += (self._now - job.since) * lost

    def _count(self, probe: PodsToCount) -> Iterable[Event]:
        """A check of its pods in the cluster: the answer comes when none is alive, or no more than may be."""
        answer = (PodsCounted(probe.workload, probe.attempt, alive=False, at_most=probe.at_most),)
        job = self._jobs[probe.workload]
        if probe.at_most is not None or job.empty_at <= self._now:
            return answer
        self._at(job.empty_at, lambda: answer)
        return ()


def begun_run(attempt: Attempt, now: int) -> Run:
    return Run(attempt.assignment.cluster_queue, attempt.assignment.usage(), now)
