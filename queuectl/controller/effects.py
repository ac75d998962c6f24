"""Kubernetes writes of committed decisions: one lane per workload, in order, repeated until settled.

Workers share the lanes, so ten thousand admissions are ten thousand small entries, not tasks. Lanes with a
write or a count of pods come before those with an Event only: ten thousand Events do not delay a start. Half
of the workers take neither what was tried before nor Events: requests without an answer, as from a slow
webhook of one namespace, do not delay the first try of any other write.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from itertools import count

from queuectl.core.decisions import ChildToCheck, PodOwnerToRead, PodsToCount, Release, Retire
from queuectl.core.model.events import EffectSettled, Event, PodsCounted, Result
from queuectl.core.model.workload import Effect, EffectKey, Verb, WorkloadId
from queuectl.kinds.patches import stop_after
from queuectl.ports.cluster import Cluster, ClusterUnavailable, Notice, WriteDenied

log = logging.getLogger(__name__)

WORKERS = 32
_FIRST_RETRY, _LAST_RETRY = 0.2, 30.0
_NOTICE_TRIES = 3
_DENIED_TRIES = 6
"""Some six seconds: enough for a policy or a right that is just being installed to take effect."""
_CHECK_AFTER = 5
"""Retries before the owners of a child are read, some six seconds: an owner that was deleted takes its
children with it, and events of owner and child come by two streams."""
_COMPLAIN_AT, _COMPLAIN_EVERY = 4, 20
"""A write that fails is logged after so many tries, and again after each further so many."""


_Job = Effect | Notice | PodsToCount | ChildToCheck | PodOwnerToRead


@dataclass(slots=True)
class _Lane:
    """The jobs of one workload, in order. The first is under way or waits for its retry."""

    jobs: deque[_Job]
    tries: int = 0
    denials: int = 0
    """Tries that the API server denied, one after another."""
    alive_since: float | None = None
    """When the first count of its pods began that said that it is alive, since its object changed, by the
    clock of the loop; None: there is none."""
    counted_at: float = float("-inf")
    """When the last count began."""
    pause: asyncio.TimerHandle | None = None
    """Before the next of them."""
    changed: bool = False
    """Its object has changed since the last of them began."""
    over: int = 0
    """Its last attempt that is over; 0: none is, as far as the lane was told."""
    busy: bool = False
    """A worker is doing the first job."""
    turn: int | None = None
    """Its turn among those that are ready; None: it is not ready."""


class Lanes:
    def __init__(
        self,
        cluster: Cluster,
        emit: Callable[[Iterable[Event]], None],
        settled: Callable[..., None],
        *,
        workers: int,
        unreachable: Callable[[], Set[str]],
    ) -> None:
        """`unreachable`: returns the nodes on which pods that are being deleted count as gone (M13)."""
        self._cluster = cluster
        self._emit = emit
        self._settled = settled
        self._workers = workers
        self._unreachable = unreachable
        self._lanes: dict[WorkloadId, _Lane] = {}
        self._ready: asyncio.PriorityQueue[tuple[bool, int, WorkloadId | None]] = asyncio.PriorityQueue()
        """Whether it has an Event only, its turn, and the workload of the lane; None: the end."""
        self._repeating = 0
        """Number of lanes under way that were tried before, or have an Event only."""
        self._most_repeating = max(1, workers // 2)
        self._set_back: deque[tuple[bool, int, WorkloadId]] = deque()
        """Further such lanes that are ready, as in `_ready`."""
        self._turns = count()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopped = asyncio.Event()
        self._since: dict[EffectKey, float] = {}
        """Effects that are not settled, each with the time of its submission."""
        self._stops: dict[EffectKey, int] = {}
        """How often each attempt that is not over was stopped."""

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
                # A later effect replaces one that is not under way, but not one of unknown outcome: a start
                # that is late on its way is refused only after another start.
                doubtful = isinstance(lane.jobs[0], Effect) and lane.tries > lane.denials
                begun = [lane.jobs.popleft()] if lane.busy or doubtful else []
                for job in lane.jobs:
                    if isinstance(job, Effect):
                        self._since.pop(job.key, None)
                kept = (job for job in lane.jobs if not isinstance(job, Effect))
                lane.jobs = deque([*begun, effect, *kept])
                if lane.turn is not None:
                    self._make_ready(effect.key.workload, lane)
            self._since.setdefault(effect.key, now)

    def add_probes(self, probes: Iterable[PodsToCount]) -> None:
        for probe in probes:
            self._add(probe.workload, probe)

    def end_counts(self, over: Iterable[Release | Retire]) -> None:
        """End what is kept for attempts that are over: counts of their pods release nothing any more."""
        for decision in over:
            if decision.attempt is None:
                continue
            self._stops.pop(EffectKey(decision.workload, decision.attempt, Verb.STOP), None)
            if (lane := self._lanes.get(decision.workload)) is not None:
                lane.over = decision.attempt

    def changed(self, workload: WorkloadId) -> None:
        """Its object has changed. If its pods are counted, they are counted again now: the pause becomes
        longer with each count, and their quota waits for the end of it."""
        lane = self._lanes.get(workload)
        if lane is None or lane.changed:
            return
        lane.changed, lane.alive_since = True, None
        if lane.pause is not None:
            lane.pause.cancel()
            self._timers.discard(lane.pause)
            lane.tries -= 1  # the next pause is as long as this one was to be
            past = asyncio.get_running_loop().time() - lane.counted_at
            self._later(max(0.0, _FIRST_RETRY - past), workload, lane, counts=True)

    def add_checks(self, checks: Iterable[ChildToCheck | PodOwnerToRead]) -> None:
        for check in checks:
            self._add(check.workload, check)

    def add_notices(self, notices: Iterable[tuple[WorkloadId, Notice]]) -> None:
        for workload, notice in notices:
            self._add(workload, notice)

    def _add(self, workload: WorkloadId, job: _Job) -> None:
        lane = self._lanes.get(workload)
        if lane is None:
            lane = self._lanes[workload] = _Lane(deque([job]))
            self._make_ready(workload, lane)
        else:
            lane.jobs.append(job)

    def _make_ready(self, workload: WorkloadId, lane: _Lane) -> None:
        """Give it a turn. One that it had before is not valid any more."""
        lane.turn = next(self._turns)
        self._ready.put_nowait((isinstance(lane.jobs[0], Notice), lane.turn, workload))

    # --- run

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(), name=f"lane worker {number}")
        for timer in self._timers:
            timer.cancel()

    def stop(self) -> None:
        """Let writes under way finish; start no new ones."""
        self._stopped.set()
        for _ in range(self._workers):
            self._ready.put_nowait((False, next(self._turns), None))

    async def _next(self) -> tuple[WorkloadId, _Lane] | None:
        """Return the next lane that is ready; None: there is no more to do."""
        while True:
            notice, turn, workload = await self._ready.get()
            if workload is None or self._stopped.is_set():
                return None
            lane = self._lanes.get(workload)
            if lane is not None and lane.turn == turn:
                if _repeats(lane) and self._repeating == self._most_repeating:
                    self._set_back.append((notice, turn, workload))
                    continue
                lane.busy, lane.turn = True, None
                return workload, lane

    async def _work(self) -> None:
        while (found := await self._next()) is not None:
            workload, lane = found
            job, counted, repeats = lane.jobs[0], False, _repeats(lane)
            self._repeating += repeats
            try:
                delay = await self._do(job)
                counted = isinstance(job, PodsToCount)
            except WriteDenied as error:
                lane.denials += 1
                delay = self._denied(job, lane, error)
            except ClusterUnavailable as error:
                # An API server that restarts may deny a write before it has read its rules, and nothing that
                # needs it goes on while it is away.
                lane.denials, lane.alive_since = 0, None
                delay = self._retry_in(job, lane, error)
            except Exception:
                # A bug that one workload triggers must not stop the work on all others.
                log.exception("a bug in a write of %s", workload)
                delay = None if isinstance(job, Notice) else _LAST_RETRY
            lane.busy = False
            if isinstance(job, PodsToCount) and job.attempt <= lane.over:
                delay = None
            if delay is None:
                self._end_job(workload, lane)
            else:
                if isinstance(job, PodsToCount):
                    lane.jobs.rotate(-1)  # its result may depend on a write that came meanwhile
                if counted and lane.changed:
                    delay = _FIRST_RETRY
                else:
                    lane.tries += 1
                self._later(delay, workload, lane, counts=counted)
            if repeats:
                self._end_repeat()

    def _end_repeat(self) -> None:
        """Let the next one in that was set back and has no later turn."""
        self._repeating -= 1
        while self._set_back:
            notice, turn, workload = self._set_back.popleft()
            lane = self._lanes.get(workload)
            if lane is not None and lane.turn == turn:
                self._ready.put_nowait((notice, turn, workload))
                return

    def _end_job(self, workload: WorkloadId, lane: _Lane) -> None:
        job = lane.jobs.popleft()
        if isinstance(job, Effect):
            self._since.pop(job.key, None)
        lane.tries = lane.denials = 0
        if not isinstance(job, Notice):
            lane.alive_since = None
        if lane.jobs:
            self._make_ready(workload, lane)
        else:
            del self._lanes[workload]

    def _later(self, delay: float, workload: WorkloadId, lane: _Lane, *, counts: bool) -> None:
        """`counts`: before its pods are counted again."""

        def again() -> None:
            self._timers.discard(timer)
            lane.pause = None
            self._make_ready(workload, lane)

        timer = asyncio.get_running_loop().call_later(delay, again)
        self._timers.add(timer)
        lane.pause = timer if counts else None

    def _denied(self, job: _Job, lane: _Lane, error: WriteDenied) -> float | None:
        """A denied write that an effect does not need is left out after some tries: no quota waits for it."""
        settled = error.settled
        if settled is None or lane.denials < _DENIED_TRIES:
            return self._retry_in(job, lane, error)
        assert isinstance(job, Effect)
        text = "a write of the %s of %s is given up after %d denials: %s"
        log.warning(text, job.key.verb, "/".join(job.workload.ref[:3]), lane.denials, error)
        self._emit([settled])
        return None

    def _retry_in(self, job: _Job, lane: _Lane, error: ClusterUnavailable) -> float | None:
        """Seconds until the next try; None: give up, for notices only."""
        if isinstance(job, Notice) and lane.tries + 1 >= _NOTICE_TRIES:
            log.warning("event on %s not written: %s", job.ref, error)
            return None
        if lane.tries >= _COMPLAIN_AT and (lane.tries - _COMPLAIN_AT) % _COMPLAIN_EVERY == 0:
            log.warning("%s after %d tries: %s", _told(job), lane.tries + 1, error)
        return max(_pause(lane.tries), error.retry_after or 0.0)

    async def _do(self, job: _Job) -> float | None:
        """Do one job. Returns None when it is done, else the seconds after which to try again."""
        if isinstance(job, Notice):
            await self._cluster.announce(job)
            return None
        if isinstance(job, PodsToCount):
            return await self._probe(job)
        if isinstance(job, ChildToCheck | PodOwnerToRead):
            return await self._check(job)
        now = asyncio.get_running_loop().time()
        since = self._since.get(job.key, now)
        if job.key.verb is Verb.START:
            settled, seen = await self._start(job)
        elif (times := self._stops.get(job.key, 0)) and self._lanes[job.key.workload].tries == 0:
            # It was started again (L31). A controller that does so each time causes a write now and then.
            return _pause(times - 1)
        else:
            settled, seen = await self._cluster.stop(stop_after(job, now - since))
            self._stops[job.key] = times + 1
        # The object read again comes first: the engine handles the refusal with the object's current state.
        self._emit([settled] if seen is None else [seen, settled])
        self._settled(settled.key, settled.result, seconds=asyncio.get_running_loop().time() - since)
        return None

    async def _start(self, job: Effect) -> tuple[EffectSettled, Event | None]:
        """A start that is denied repeatedly is given up for some time: it must not hold quota for ever."""
        denials = self._lanes[job.key.workload].denials
        try:
            return await self._cluster.start(job)
        except WriteDenied as error:
            if error.settled is not None or denials + 1 < _DENIED_TRIES:
                raise
            settled, seen = await self._cluster.withdraw(job)
            if settled.result is Result.DENIED:
                text = "the start of %s is given up after %d denials: %s"
                log.warning(text, "/".join(job.workload.ref[:3]), denials + 1, error)
                settled = replace(settled, detail=str(error))
            return settled, seen

    async def _probe(self, probe: PodsToCount) -> float | None:
        lane = self._lanes[probe.workload]
        if probe.attempt <= lane.over:
            return None
        lane.changed, lane.counted_at = False, asyncio.get_running_loop().time()
        still = lane.counted_at - lane.alive_since if lane.alive_since is not None else 0.0
        nodes = self._unreachable()
        events: list[Event] = [PodsCounted(probe.workload, probe.attempt, alive=False)]
        if probe.at_most is not None:
            events = await self._cluster.count_fewer(probe, nodes)
        elif await self._cluster.anything_alive(probe.ref, still=still, unreachable=nodes):
            events = []
        if not events:
            if lane.alive_since is None and not lane.changed:
                lane.alive_since = lane.counted_at
            return _pause(lane.tries)
        self._emit(events)
        return None

    async def _check(self, check: ChildToCheck | PodOwnerToRead) -> float | None:
        lane = self._lanes[check.workload]
        if isinstance(check, ChildToCheck) and lane.tries < _CHECK_AFTER:
            return _FIRST_RETRY * 2.0**lane.tries
        self._emit(await self._cluster.check(check))
        return None


def _pause(tries: int) -> float:
    """Return the seconds before the next try, after `tries` others."""
    return min(_FIRST_RETRY * 2.0 ** min(tries, 10), _LAST_RETRY)


def _repeats(lane: _Lane) -> bool:
    return lane.tries > 0 or isinstance(lane.jobs[0], Notice)


def _told(job: _Job) -> str:
    if isinstance(job, Effect):
        return f"{job.key.verb} of {'/'.join(job.workload.ref[:3])} is not done"
    if isinstance(job, ChildToCheck):
        return f"what owns {'/'.join(job.ref[:3])} is not known"
    return f"what is alive of {'/'.join(job.ref[:3])} is not known"
