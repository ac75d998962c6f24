"""Forecasts of starts beside the real starts of Jobs on a real API server, in fast time.

A first session tells for how long Jobs hold quota here. The ledger of a second control plane gets five
earlier days with a session each, of Jobs that hold it as long (benchmarks/sessions.py), and a controller
leads from then on. Nine cohort trees have sessions of their own: forecasts of one tree depend on each other.
In the session of now a player creates the Jobs and ends each after its run time. REST is asked for forecasts
meanwhile; a start is the moment at which a watch shows the Job as started.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

import aiohttp

from benchmarks import sessions
from benchmarks.eta import Case, case, errors_of
from benchmarks.following import follow
from benchmarks.load import over, suspended, tell
from benchmarks.machine import scratch
from benchmarks.months import DAY
from benchmarks.progress import bar
from benchmarks.progress import console as aside
from benchmarks.report import Detail, Figure, Report
from benchmarks.rest import SAYS_URL
from benchmarks.site import Site, says, site, until
from queuectl.answers.forecast.forecast import WINDOW, Interval
from queuectl.answers.forecast.samples import known_at
from queuectl.app.api import scheduling
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import connection_pool
from queuectl.sandbox.players.api import Client
from queuectl.sandbox.processes import spawn

Object = dict[str, Any]

DAYS: Final = 5
PREPARED: Final = 84.0
"""Seconds in which a day of the past must be written: sessions begin at the same time of the day."""
TRIED: Final = 180.0
"""Seconds of the first session."""
PAUSE: Final = 4.0
"""Seconds between two rounds of questions. The trees take turns: REST uses a state of one for 10 s."""
EACH: Final = 4
"""Forecasts of a round, at most."""
OLD: Final = timedelta(seconds=1)
"""A forecast from an older state does not count: only Jobs that have waited since then are asked about."""
BUSY: Final = (
    "import time\nwhile True:\n end = time.time() + %g\n while time.time() < end: pass\n time.sleep(%g)"
)
"""Takes a core for a part of the first session, as forecasts do in the second one."""
FORECAST: Final = 0.8
"""Seconds of CPU."""
FIRST, LAST = 20.0, 440.0
"""Seconds of the session between which REST is asked."""
_SETTLED: Final = timedelta(seconds=1)
"""A Job that is not started after that waits."""
_DRAINED: Final = 900.0


class _Clock:
    """The time of the ledger."""

    def __init__(self, now: datetime) -> None:
        self._then, self._since = now, time.monotonic()

    @property
    def now(self) -> datetime:
        return self._then + timedelta(seconds=time.monotonic() - self._since)


@dataclass(slots=True)
class _Job:
    task: sessions.Task
    created: datetime
    started: datetime | None = None
    """Its first start."""
    runs: bool = False
    launch: int = 0
    """Counts starts and stops."""


class _Player:
    """Plays users, kubelets and the Job controller for the Jobs of a session."""

    def __init__(self, clock: _Clock, admin: Client, tenant: Client) -> None:
        self._clock = clock
        self._admin = admin
        self._tenant = tenant
        self.jobs: dict[tuple[str, str], _Job] = {}
        self.evictions = 0
        self._dice = Random("endings now")
        self._tasks = asyncio.TaskGroup()

    async def run(self, tasks: list[sessions.Task]) -> None:
        """Runs until cancelled."""
        began = time.monotonic()
        async with self._tasks as group:
            group.create_task(follow(self._admin, self._look, lambda: None))
            for one in tasks:
                await asyncio.sleep(max(0.0, began + one.at - time.monotonic()))
                self.jobs[one.namespace, one.name] = _Job(one, self._clock.now)
                path = f"/apis/batch/v1/namespaces/{one.namespace}/jobs"
                group.create_task(self._tenant.request("POST", path, one.body))

    def waiting(self, tree: str) -> list[_Job]:
        settled = self._clock.now - _SETTLED
        return [
            one
            for one in self.jobs.values()
            if one.started is None and one.created < settled and sessions.tree_of(one.task.namespace) == tree
        ]

    def _look(self, found: Object) -> None:
        job = self.jobs[found["metadata"]["namespace"], found["metadata"]["name"]]
        runs = not found["spec"].get("suspend") and not found["status"].get("completionTime")
        if runs is job.runs:
            return
        job.runs, job.launch = runs, job.launch + 1
        at = found["metadata"]["creationTimestamp"]
        if runs:
            job.started = job.started or self._clock.now
            self._later(found, job, job.task.run, over(at))
            if found["status"].get("conditions"):
                self._later(found, job, 0.0, suspended(at, "False"))
        elif found["spec"].get("suspend"):
            self.evictions += 1
            self._later(found, job, sessions.ending(self._dice), suspended(at, "True"))

    def _later(self, found: Object, job: _Job, seconds: float, status: Object) -> None:
        """Write this status after so many seconds, unless the Job is started or stopped before."""

        async def write(launch: int) -> None:
            await asyncio.sleep(seconds)
            if job.launch == launch:
                await tell(self._admin, found, status)

        self._tasks.create_task(write(job.launch))


class _Asked(NamedTuple):
    """A forecast, as REST told it."""

    job: _Job
    uid: str
    at: datetime
    interval: Interval

    @property
    def seconds(self) -> float:
        """From then to the start of the Job. Raises RuntimeError if it has not started."""
        if self.job.started is None:
            raise RuntimeError(f"{self.job.task.name} has not started")
        return (self.job.started - self.at).total_seconds()


def run(scale: int = 1) -> Report:
    tried = max(60.0, TRIED / scale)
    return asyncio.run(_run(tried, max(2, DAYS // scale), max(5, int((LAST - FIRST) / PAUSE) // scale)))


async def _delays(seconds: float) -> sessions.Delays:
    """For how long Jobs of a session hold quota on this machine."""
    with scratch() as folder:
        async with site(folder, sessions.policy()) as place:
            clock = await _clock(place)
            began, controller = clock.now, await place.controller()
            beside = await spawn(
                [sys.executable, "-c", BUSY % (FORECAST, PAUSE - FORECAST)],
                name="busy",
                log=folder / "busy.log",
            )
            try:
                await says(controller, "leading with epoch")
                player = _Player(clock, place.api, place.tenant)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await player.run(sessions.session("tried"))
            finally:
                await beside.stop()
                await controller.stop(20.0)
            async with connection_pool(place.postgres.url, read_only=True) as pool:
                past = LedgerPast(pool, await place.cluster(), scheduling)
                lives = (await past.past_lives(since=began)).lives
    names = {one.workload.id: (one.workload.ref.namespace, one.workload.ref.name) for one in lives}
    return sessions.delays_in(lives, {id: player.jobs[name].task for id, name in names.items()})


async def _clock(place: Site) -> _Clock:
    return _Clock(await place.ask("SELECT clock_timestamp()"))


async def _run(tried: float, days: int, rounds: int) -> Report:
    aside.print(f"eta-live: a session of {tried:g} s …", style="dim")
    delays = await _delays(tried)
    with scratch() as folder:
        async with site(folder, sessions.policy()) as place:
            clock = await _clock(place)
            begins = clock.now + timedelta(seconds=PREPARED * days)
            past = sessions.Past(
                begins - timedelta(days=days), sessions.policy(), sessions.sessions(days, delays), delays
            )
            past.run(days * DAY)
            aside.print(f"eta-live: {len(past.plans)} commits of {days} earlier days …", style="dim")
            cluster = await place.cluster()
            await sessions.write(past, place.postgres.url, cluster)
            controller = await place.controller()
            try:
                async with rest(place) as url:
                    await says(controller, "leading with epoch")
                    left = (begins - clock.now).total_seconds()
                    if left < 0:
                        raise TimeoutError(f"the past was not written within {PREPARED * days:g} s")
                    await asyncio.sleep(left)
                    player, asked = await _session(place, clock, url, rounds)
            finally:
                await controller.stop(20.0)
            cases = await _cases(place, cluster, asked, begins)
            return _report(cases, asked, player, days, delays)


@asynccontextmanager
async def rest(place: Site) -> AsyncIterator[str]:
    """REST for every client, without identity: its URL."""
    config = place.folder / "api.yaml"
    config.write_text("api: {listen: '127.0.0.1:0', identity: local}\n")
    flags = ("--config", config, "--kubeconfig", place.kubeconfig, "--context", "admin")
    server = await place.process("api", "queuectl", "api", *flags)
    try:
        await says(server, "REST at")
        address = SAYS_URL.search(server.tail(100))
        assert address is not None
        yield address[1]
    finally:
        await server.stop(10.0)


async def _session(place: Site, clock: _Clock, url: str, rounds: int) -> tuple[_Player, list[_Asked]]:
    """Play it until every Job that REST was asked about has started."""
    player = _Player(clock, place.api, place.tenant)
    found: list[_Asked] = []
    async with aiohttp.ClientSession(trust_env=False) as client, asyncio.TaskGroup() as tasks:
        playing = tasks.create_task(player.run(sessions.session("now")))
        await asyncio.sleep(FIRST)
        dice, began = Random("asked"), time.monotonic()
        with bar("eta-live: rounds of questions", rounds) as done:
            for number in range(rounds):
                await asyncio.sleep(max(0.0, began + number * PAUSE - time.monotonic()))
                waiting = player.waiting(sessions.TREES[number % len(sessions.TREES)])
                chosen, now = dice.sample(waiting, min(EACH, len(waiting))), clock.now
                # At once: of those asked later some would have started meanwhile, and not count.
                asked = await asyncio.gather(*(_ask(client, url, job) for job in chosen))
                found += (one for one in asked if one is not None and one.at > now - OLD)
                done(number + 1)

        async def all_started() -> bool:
            return all(one.job.started is not None for one in found)

        await until(all_started, _DRAINED, 0.5)
        playing.cancel()
    return player, found


async def _ask(client: aiohttp.ClientSession, url: str, job: _Job) -> _Asked | None:
    """None: it has started meanwhile, or REST is too busy. Raises RuntimeError if there is no forecast."""
    path = f"{url}/api/v1/workloads/{job.task.namespace}/job/{job.task.name}/eta"
    async with client.get(path) as answer:
        found = await answer.json()
        if answer.status == 503:
            aside.print(f"no forecast for {job.task.name}: {found['detail']}", style="dim")
            return None
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status} {found}")
    if found["startedAt"] is not None or found["endedAt"] is not None:
        return None
    if found["unknown"] is not None:
        raise RuntimeError(f"GET {path}: {found['unknown']}")
    low, middle, high, after = [found[f"{key}Seconds"] for key in ("low", "median", "high", "after")]
    interval = Interval(low, middle, high, after, found["draws"])
    return _Asked(job, found["uid"], datetime.fromisoformat(found["at"]), interval)


async def _cases(place: Site, cluster: str, asked: list[_Asked], begins: datetime) -> list[Case]:
    """Each forecast with the start of its Job, and the naive estimates of that time from the ledger."""
    cases = []
    async with connection_pool(place.postgres.url, read_only=True) as pool:
        past = LedgerPast(pool, cluster, scheduling)
        lives = await past.past_lives(since=begins - WINDOW)
        snapshots = {at: await past.at(at) for at in {one.at for one in asked}}
        for one in asked:
            snapshot = snapshots[one.at]
            stored = next((stored for stored in snapshot.workloads if stored.id == one.uid), None)
            if stored is None:
                raise RuntimeError(f"{one.job.task.name} was not in the ledger at {one.at}")
            known = known_at(lives, one.at, WINDOW)
            cases.append(case(stored, one.interval, one.seconds, snapshot.workloads, known, one.at))
    return cases


def _report(
    cases: list[Case], asked: list[_Asked], player: _Player, days: int, delays: sessions.Delays
) -> Report:
    """`cases`: of `asked`, in the same order."""
    if not cases:
        raise ValueError("no Job waited when REST was asked")
    share = sum(one.held for one in cases) / len(cases)
    figure = Figure(name="80 % intervals that held: real API server", value=share * 100, unit="%")
    errors, trees = errors_of(cases), [sessions.tree_of(one.job.task.namespace) for one in asked]
    row: dict[str, str | float] = {
        "Jobs": float(len(player.jobs)),
        "evictions": float(player.evictions),
        "earlier days": float(days),
        "quota held after a run, s": median(delays.held),
        "after an eviction, s": median(delays.evicted),
        "forecasts": float(len(cases)),
        "held": f"{share:.0%}",
        "started before": f"{sum(one.early for one in cases) / len(cases):.0%}",
        "standard error": f"{_error(cases, trees, share):.0%}",
        "median time to start, s": median(one.actual for one in cases),
        "median error, s": errors[0],
        "by position, s": errors[1],
        "by last week, s": errors[2],
    }
    return Report("eta-live", [figure], [Detail("forecasts", tuple(row), (tuple(row.values()),))])


def _error(cases: list[Case], trees: list[str], share: float) -> float:
    """The standard error of a share of cases that depend on each other within a tree: of a ratio estimate
    from clusters (Cochran, Sampling Techniques, 1977, 6.3)."""
    left: defaultdict[str, float] = defaultdict(float)
    for one, tree in zip(cases, trees, strict=True):
        left[tree] += one.held - share
    number = len(left)
    if number < 2:
        return math.nan
    return math.sqrt(number / (number - 1) * sum(value**2 for value in left.values())) / len(cases)
