"""Seconds without a decision when the leader or Postgres is killed, while 50,000 Jobs wait.

Two controllers on a real API server elect a leader. A Job that fits is created every 0.2 s, so that there is
always something to decide. Measured in the ledger, by its clock: from the last effect that the old leader
acknowledged to the first decision of the next one; and from the moment when Postgres accepts connections
again to the next commit. Raises AssertionError if a workload was admitted twice.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

import aiohttp

from benchmarks.machine import cpu_seconds, memory, scratch
from benchmarks.objects import gang_job, separate_queues
from benchmarks.progress import Advance, bar
from benchmarks.report import Detail, Figure, Goal, Report, median
from benchmarks.site import Site, says, site, until
from queuectl.kube.errors import Conflict, Unavailable
from queuectl.sandbox.processes import ChildProcess

WAITING, TIMES = 50_000, 20
"""Jobs that wait, and kills of each way."""
_OPEN: Final = "open"
_FULL: Final = [f"full-{number:03}" for number in range(200)]
"""Namespaces, each with a queue: with room for all, and with quota for one Job."""
_EVERY: Final = 0.2
_AT_ONCE: Final = 12
_WATCHED: Final = 60.0
"""Seconds in which the standby's CPU is measured."""
_LEASE: Final = "queuectl-system/queuectl-controller"
_LEADS: Final = "leading with epoch"
_PROBES: Final = re.compile(r"metrics and probes at (\S+)")
_WAITING: Final = """
    SELECT count(*) FROM queuectl.workload_open WHERE phase = 'Pending' AND reason IS NOT NULL
"""
_EPOCH: Final = "SELECT epoch FROM queuectl.leadership"
_DECIDED: Final = "SELECT count(*) FROM queuectl.decision WHERE epoch > {0}"
_BETWEEN: Final = """
    SELECT extract(epoch FROM min(now) - (
      SELECT max(acknowledged_at) FROM queuectl.effect
      WHERE acknowledged_at < (SELECT taken_at FROM queuectl.leadership)
    ))::float FROM queuectl.decision WHERE epoch > {0}
"""
_EFFECTS: Final = "SELECT count(*) FROM queuectl.effect WHERE acknowledged_at IS NOT NULL"
_LAST: Final = "SELECT max(sequence) FROM queuectl.decision"
_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float"
_NEXT: Final = "SELECT extract(epoch FROM min(now))::float FROM queuectl.decision WHERE sequence > {0}"
_TWICE: Final = "SELECT count(*) FROM queuectl.attempt WHERE number > 1"


@dataclass
class _Pair:
    """The leader, and another controller that is ready to lead."""

    place: Site
    leader: ChildProcess
    standby: ChildProcess

    @classmethod
    async def of(cls, place: Site) -> _Pair:
        leader = await place.controller(name="first", lease=_LEASE)
        await says(leader, _LEADS)
        return cls(place, leader, leader)

    async def add(self, name: str) -> None:
        self.standby = await self.place.controller(name=name, lease=_LEASE)
        await _ready(self.standby)

    async def costs(self, seconds: float) -> tuple[Figure, ...]:
        """Of the standby beside the leader, while nothing ends: CPU for so long, and memory at its height."""
        both = self.standby.pid, self.leader.pid
        before = [cpu_seconds(pid) for pid in both]
        await asyncio.sleep(seconds)
        cpu = [(cpu_seconds(pid) - was) / seconds * 1000 for pid, was in zip(both, before, strict=True)]
        most = [memory(pid)[1] / 1e6 for pid in both]
        return (
            Figure(name="CPU of a standby", value=cpu[0], unit="ms/s", ceiling=cpu[1], bound="the leader"),
            Figure(name="memory of a standby", value=most[0], unit="MB", ceiling=most[1], bound="the leader"),
        )

    async def end_leader(self, how: signal.Signals, name: str) -> float:
        """Seconds from the last effect of the leader to the first decision of the other one."""
        epoch, before = await self.place.ask(_EPOCH), await self.place.ask(_EFFECTS)

        async def works() -> bool:
            return bool(await self.place.ask(_EFFECTS) > before)

        await until(works)
        self.leader.send(how)
        self.leader = self.standby

        async def decided() -> bool:
            return bool(await self.place.ask(_DECIDED.format(epoch)))

        await until(decided)
        found = float(await self.place.ask(_BETWEEN.format(epoch)))
        await self.add(name)
        return found

    async def end_postgres(self) -> float:
        """Seconds from the moment when it accepts connections again to the next commit."""
        postgres, last = self.place.postgres, await self.place.ask(_LAST)
        os.kill(postgres.pid, signal.SIGKILL)
        await postgres.wait()
        await postgres.__aexit__(None, None, None)
        await postgres.__aenter__()
        back = float(await self.place.ask(_NOW))

        async def decided() -> bool:
            return await self.place.ask(_NEXT.format(last)) is not None

        await until(decided)
        return max(0.0, float(await self.place.ask(_NEXT.format(last))) - back)


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(len(_FULL), WAITING // scale), max(2, TIMES // scale), scale))


async def _run(waiting: int, times: int, scale: int) -> Report:
    ways: dict[str, list[float]] = {"SIGKILL": [], "SIGTERM": [], "Postgres": []}
    with scratch() as folder:
        async with site(folder, separate_queues({_OPEN: 1_000_000, **dict.fromkeys(_FULL, 1)})) as place:
            pair = await _Pair.of(place)
            with bar("failover: Jobs", waiting + len(_FULL)) as done:
                await _fill(place, waiting + len(_FULL), done)
            await until(lambda: _all_wait(place, waiting), seconds=900)
            await pair.add("second")
            async with _stream(place):
                costs = await pair.costs(max(2.0, _WATCHED / scale))
            with bar("failover: kills", len(ways) * times) as done:
                async with _stream(place):
                    for number in range(times):
                        ways["SIGKILL"].append(await pair.end_leader(signal.SIGKILL, f"k{number}"))
                        ways["SIGTERM"].append(await pair.end_leader(signal.SIGTERM, f"t{number}"))
                        ways["Postgres"].append(await pair.end_postgres())
                        done(len(ways) * (number + 1))
            assert await place.ask(_TWICE) == 0, "a workload was admitted twice"
    return _report(ways, costs)


async def _ready(standby: ChildProcess) -> None:
    """Wait until its probe says that it could lead."""
    await says(standby, "metrics and probes at")
    url = _PROBES.findall(standby.tail(100))[0]

    async def look() -> bool:
        async with session.get(f"{url}/readyz") as answer:
            return answer.status == 200

    async with aiohttp.ClientSession(trust_env=False) as session:
        await until(look)


async def _fill(place: Site, jobs: int, done: Advance) -> None:
    numbers = iter(range(jobs))

    async def create() -> None:
        for number in numbers:
            await _create(place, _FULL[number % len(_FULL)], f"waits-{number:05}")
            done(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(create())


async def _create(place: Site, namespace: str, name: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    async def done() -> bool:
        try:
            await place.tenant.request("POST", path, gang_job(name, 1, 1))
        except Unavailable:
            return False
        except Conflict:  # an answer was lost
            pass
        return True

    await until(done)


async def _all_wait(place: Site, waiting: int) -> bool:
    return bool(await place.ask(_WAITING) == waiting)


@asynccontextmanager
async def _stream(place: Site) -> AsyncIterator[None]:
    """Jobs that are admitted, one after another."""

    async def create() -> None:
        for number in count():
            await _create(place, _OPEN, f"fits-{number:05}")
            await asyncio.sleep(_EVERY)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(create())
        yield
        task.cancel()


def _report(ways: dict[str, list[float]], costs: tuple[Figure, ...]) -> Report:
    names = {
        "SIGKILL": "from the last effect of a leader that is killed to the first decision of the next one",
        "SIGTERM": "the same, of a leader that is asked to stop",
        "Postgres": "from the return of Postgres, which was killed, to the next commit",
    }
    goals = {"SIGKILL": 25.0, "SIGTERM": 3.0, "Postgres": 5.0}
    figures = list(costs)
    for way, found in ways.items():
        text = f"{names[way]}; the longest of {len(found)}"
        figures.append(Figure(name=text, value=max(found), unit="s", goal=Goal("value", "most", goals[way])))
    rows = tuple((way, min(found), median(found), max(found)) for way, found in ways.items())
    return Report("failover", figures, [Detail("seconds", ("", "least", "median", "most"), rows)])
