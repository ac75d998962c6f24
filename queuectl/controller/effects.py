"""Kubernetes writes of committed decisions: one lane per workload, in order, repeated until settled.

Workers share the lanes, so ten thousand admissions are ten thousand small entries, not tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from queuectl.core.decisions import PodsToCount
from queuectl.core.events import EffectSettled, Event, PodsCounted, Result
from queuectl.core.model import Effect, EffectKey, Verb, WorkloadId
from queuectl.ports import Cluster, ClusterUnavailable, Notice, WriteDenied

log = logging.getLogger(__name__)

WORKERS = 32
_FIRST_RETRY, _LAST_RETRY = 0.2, 30.0
_NOTICE_TRIES = 3
_DENIED_TRIES = 6
"""Some six seconds: enough for a policy or a right that is just being installed to take effect."""
_COMPLAIN_AT, _COMPLAIN_EVERY = 4, 20
"""A write that fails is logged after so many tries, and again after each further so many."""


_Job = Effect | Notice | PodsToCount


@dataclass(slots=True)
class _Lane:
    """The jobs of one workload, in order. The first is under way or waits for its retry."""

    jobs: deque[_Job]
    tries: int = 0
    denials: int = 0
    """Tries that the API server denied, one after another."""
    busy: bool = False
    """A worker is doing the first job."""


class Lanes:
    def __init__(
        self,
        cluster: Cluster,
        emit: Callable[[Iterable[Event]], None],
        settled: Callable[..., None],
        *,
        workers: int,
    ) -> None:
        self._cluster = cluster
        self._emit = emit
        self._settled = settled
        self._workers = workers
        self._lanes: dict[WorkloadId, _Lane] = {}
        self._ready: asyncio.Queue[WorkloadId | None] = asyncio.Queue()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopped = asyncio.Event()
        self._since: dict[EffectKey, float] = {}
        """Effects that are not settled, each with the time of its submission."""

    def unsettled(self) -> tuple[int, float]:
        """Number of effects that are not done, and age of the oldest in seconds."""
        # In order of submission: the first is the oldest.
        oldest = next(iter(self._since.values()), None)
        return len(self._since), 0.0 if oldest is None else asyncio.get_running_loop().time() - oldest

    # --- in

    def add_effects(self, effects: Iterable[Effect]) -> None:
        now = asyncio.get_running_loop().time()
        for effect in effects:
            lane = self._lanes.get(effect.key.workload)
            if lane is None:
                self._add(effect.key.workload, effect)
            else:
                # A later effect replaces one that is not under way.
                begun = [lane.jobs.popleft()] if lane.busy else []
                for job in lane.jobs:
                    if isinstance(job, Effect):
                        self._since.pop(job.key, None)
                kept = (job for job in lane.jobs if not isinstance(job, Effect))
                lane.jobs = deque([*begun, effect, *kept])
            self._since.setdefault(effect.key, now)

    def add_probes(self, probes: Iterable[PodsToCount]) -> None:
        for probe in probes:
            self._add(probe.workload, probe)

    def add_notices(self, notices: Iterable[tuple[WorkloadId, Notice]]) -> None:
        for workload, notice in notices:
            self._add(workload, notice)

    def _add(self, workload: WorkloadId, job: _Job) -> None:
        lane = self._lanes.get(workload)
        if lane is None:
            self._lanes[workload] = _Lane(deque([job]))
            self._ready.put_nowait(workload)
        else:
            lane.jobs.append(job)

    # --- run

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(), name=f"lane worker {number}")
        for timer in self._timers:
            timer.cancel()

    async def stop(self) -> None:
        """Let writes under way finish; start no new ones."""
        self._stopped.set()
        for _ in range(self._workers):
            self._ready.put_nowait(None)

    async def _work(self) -> None:
        while not self._stopped.is_set():
            workload = await self._ready.get()
            if workload is None:
                return
            lane = self._lanes[workload]
            job = lane.jobs[0]
            lane.busy = True
            try:
                delay = await self._do(job)
            except WriteDenied as error:
                lane.denials += 1
                delay = self._denied(job, lane, error)
            except ClusterUnavailable as error:
                lane.denials = 0  # an API server that restarts may deny a write before it has read its rules
                delay = self._retry_in(job, lane, error)
            except Exception:
                # A bug that one workload triggers must not stop the work on all others.
                log.exception("a bug in a write of %s", workload)
                delay = None if isinstance(job, Notice) else _LAST_RETRY
            lane.busy = False
            if delay is None:
                lane.jobs.popleft()
                if isinstance(job, Effect):
                    self._since.pop(job.key, None)
                lane.tries = lane.denials = 0
                if lane.jobs:
                    self._ready.put_nowait(workload)
                else:
                    del self._lanes[workload]
            else:
                lane.tries += 1
                self._later(delay, workload)

    def _later(self, delay: float, workload: WorkloadId) -> None:
        def again() -> None:
            self._timers.discard(timer)
            self._ready.put_nowait(workload)

        timer = asyncio.get_running_loop().call_later(delay, again)
        self._timers.add(timer)

    def _denied(self, job: _Job, lane: _Lane, error: WriteDenied) -> float | None:
        """A start that is denied repeatedly must not hold quota for ever: it is given up for some time."""
        start = isinstance(job, Effect) and job.key.verb is Verb.START
        if not start or lane.denials < _DENIED_TRIES:
            return self._retry_in(job, lane, error)
        assert isinstance(job, Effect)
        log.warning("start of %s given up for some time: %s", job.workload.ref, error)
        self._emit([EffectSettled(job.key, Result.DENIED, detail=str(error))])
        return None

    def _retry_in(self, job: _Job, lane: _Lane, error: ClusterUnavailable) -> float | None:
        """Seconds until the next try; None: give up, for notices only."""
        if isinstance(job, Notice) and lane.tries + 1 >= _NOTICE_TRIES:
            log.warning("event on %s not written: %s", job.ref, error)
            return None
        if lane.tries >= _COMPLAIN_AT and (lane.tries - _COMPLAIN_AT) % _COMPLAIN_EVERY == 0:
            log.warning("%s after %d tries: %s", _told(job), lane.tries + 1, error)
        delay = min(_FIRST_RETRY * 2.0 ** min(lane.tries, 10), _LAST_RETRY)
        return max(delay, error.retry_after or 0.0)

    async def _do(self, job: _Job) -> float | None:
        """Do one job. Returns None when it is done, else the seconds after which to try again."""
        if isinstance(job, Notice):
            await self._cluster.announce(job)
            return None
        if isinstance(job, PodsToCount):
            return await self._probe(job)
        write = self._cluster.start if job.key.verb is Verb.START else self._cluster.stop
        settled, seen = await write(job)
        # The object read again comes first: the engine handles the refusal with the object's current state.
        self._emit([settled] if seen is None else [seen, settled])
        now = asyncio.get_running_loop().time()
        self._settled(settled.key, settled.result, seconds=now - self._since.get(job.key, now))
        return None

    async def _probe(self, probe: PodsToCount) -> float | None:
        if await self._cluster.anything_alive(probe.ref):
            lane = self._lanes[probe.workload]
            return min(_FIRST_RETRY * 2.0 ** min(lane.tries, 10), _LAST_RETRY)
        self._emit([PodsCounted(probe.workload, probe.attempt, alive=False)])
        return None


def _told(job: _Job) -> str:
    if isinstance(job, Effect):
        return f"{job.key.verb} of {'/'.join(job.workload.ref[:3])} is not done"
    return f"what is alive of {'/'.join(job.ref[:3])} is not known"
