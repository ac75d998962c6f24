"""What readers wait for, and cost: 50,000 Jobs wait in 1,000 queues of 20 cohorts, and 20 a second start.

Nothing is simulated: the Jobs are in the API server, the controller decides on them, and REST is a process
of its own. Readers, a process each, ask for pages, single workloads and explanations with counterfactuals,
of Jobs at any place of their queues. Times with them alternate with times without them, in which the
controller has its own pace.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from benchmarks.churn import Churn
from benchmarks.machine import cpu_seconds, memory, scratch
from benchmarks.objects import shared_queues, small_job
from benchmarks.progress import bar
from benchmarks.readers import PAGE, Readers
from benchmarks.report import Detail, Figure, Goal, Report, percentile
from benchmarks.rest import decided, make_jobs, reader, rest_server
from benchmarks.site import Site, site, until
from queuectl.sandbox.processes import ChildProcess

COHORTS, QUEUES, WAITING = 20, 50, 50
"""Cohorts, queues of each, and Jobs that wait in each of these."""
QUOTA: Final = 4
"""GPUs of each queue."""
READABLE: Final = 10
"""The tenant may read one namespace of so many."""
STARTS: Final = 20
"""Starts per second."""
ROUNDS, SECONDS = 3, 25
"""Times with readers, and without them, and how long each is."""
PRIORITIES: Final = {"low": 0, "high": 100, "urgent": 1000}
"""No Job has the last one: with it, a Job may preempt any that runs."""
PAUSES: Final = {"pages": 0.2, "workloads": 0.15, "explanations": 0.5}
"""A caller may send ten requests per second, two of them heavy."""
_SETTLE: Final = 120
"""Most seconds until the pace is steady: at first small Jobs take the places of large ones."""
_STEP: Final = 10
"""Seconds over which that is looked at."""
_MARGIN: Final = 30
"""Seconds for which more Jobs are made than start in the times that are measured."""
_TUNED: Final = {"GOGC": "400", "GOMAXPROCS": "1"}
"""To collect the garbage of 50,000 Jobs, the API server takes all of its cores for a second: it does so less
often, and has one core. It is on another machine elsewhere."""
_READY: Final = 60.0
"""Most seconds until a reader has started."""
_GOALS: Final = {"pages": 0.25, "workloads": 0.05, "explanations": 0.3}
_NAMES: Final = {
    "pages": f"a page of {PAGE}",
    "workloads": "one workload",
    "explanations": "an explanation with counterfactuals",
}


@dataclass(slots=True)
class Pace:
    """Of the controller, over all times of one kind."""

    started: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        return self.started / self.seconds

    @property
    def cost(self) -> float:
        """Milliseconds of CPU for each start."""
        return self.cpu * 1e3 / self.started


@dataclass(slots=True)
class Found:
    took: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _NAMES})
    first: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of the first question of a caller, about a page or about each namespace that it may read."""
    incomplete: int = 0
    told: int = 0
    alone: Pace = field(default_factory=Pace)
    read: Pace = field(default_factory=Pace)
    api: dict[str, float] = field(default_factory=lambda: {"alone": 0.0, "read": 0.0})
    """CPU seconds of REST per second, without readers and with them."""
    each: dict[str, float] = field(default_factory=dict)
    """CPU seconds of REST for one answer."""
    memory: dict[str, int] = field(default_factory=dict)


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    cohorts = max(1, COHORTS // scale)
    tiny = scale > COHORTS
    queues, waiting, rounds, seconds = (10, 40, 1, 2) if tiny else (QUEUES, WAITING, ROUNDS, SECONDS)
    spaces = {f"cohort-{c:02}": [f"team-{c:02}-{q:02}" for q in range(queues)] for c in range(cohorts)}
    names = [name for found in spaces.values() for name in found]
    # Those that start meanwhile are made too, and those that run from the start: two GPUs on average.
    settle = 0 if tiny else _SETTLE
    count = len(names) * (waiting + QUOTA // 2) + STARTS * round(settle + _MARGIN + seconds * 2 * rounds)
    found = Found()
    with scratch() as folder:
        async with site(folder, shared_queues(spaces, QUOTA, PRIORITIES), _TUNED) as place:
            with bar("answers: Jobs made", count) as done:
                await make_jobs(place, _jobs(names, count), done)
            controller = await place.controller()
            try:
                await decided(place, controller, len(names) * waiting, "answers")
                await until(lambda: _all_started(place), 300, 1.0)
                async with rest_server(place) as (server, url):
                    mine = names[::READABLE]
                    tokens = {name: await reader(place, mine, name) for name in _NAMES}
                    asked = [one for one in _names(names, count) if one[0] in set(mine)]
                    readers = Readers(url=url, tokens=tokens, pauses=PAUSES, names=asked, seconds=seconds)
                    await _measure(place, controller, server, readers, rounds, settle, found)
            finally:
                await controller.stop(20.0)
    return _report(found, len(names) * waiting, len(names), cohorts)


def _names(namespaces: list[str], count: int) -> Iterator[tuple[str, str]]:
    return ((namespaces[number % len(namespaces)], f"job-{number}") for number in range(count))


def _jobs(namespaces: list[str], count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Three sizes and two priorities in each queue, one Job of each queue after the other."""
    for number, (namespace, name) in enumerate(_names(namespaces, count)):
        turn = number // len(namespaces) + number
        yield namespace, small_job(name, (1, 2, 4)[turn % 3], "high" if turn % 5 == 0 else "low")


async def _all_started(place: Site) -> bool:
    """Events still tell of reasons after that, some each second, whether anything reads or not."""
    return not await place.ask("SELECT count(*) FROM queuectl.effect WHERE open AND acknowledged_at IS NULL")


async def _measure(
    place: Site,
    controller: ChildProcess,
    server: ChildProcess,
    readers: Readers,
    rounds: int,
    settle: int,
    found: Found,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        churn = Churn(place.api, STARTS)
        churning = tasks.create_task(churn.run())
        await _settled(churn, settle)
        # A regular caller's rights are known. The first questions wait for their reviews.
        found.first = (await _asked(readers, 0.0))["took"]
        with bar("answers: times", 2 * rounds) as done:
            for turn in range(2 * rounds):
                kind, pace = ("read", found.read) if turn % 2 else ("alone", found.alone)
                clock = asyncio.get_running_loop().time
                began, started = clock(), churn.started
                cpu, api = cpu_seconds(controller.pid), cpu_seconds(server.pid)
                if turn % 2:
                    _note(found, await _asked(readers, readers.seconds))
                else:
                    await asyncio.sleep(readers.seconds)
                pace.seconds += clock() - began
                pace.started += churn.started - started
                pace.cpu += cpu_seconds(controller.pid) - cpu
                found.api[kind] += (cpu_seconds(server.pid) - api) / (clock() - began) / rounds
                done(turn + 1)
        for name in _NAMES:
            found.each[name] = await _cost(server, readers, name, found.api["alone"])
        found.memory = {"controller": memory(controller.pid)[1], "REST": memory(server.pid)[1]}
        churning.cancel()


async def _settled(churn: Churn, most: int) -> None:
    for _ in range(most // _STEP):
        before = churn.started
        await asyncio.sleep(_STEP)
        if abs(churn.started - before - STARTS * _STEP) <= 0.05 * STARTS * _STEP:
            return


async def _cost(server: ChildProcess, readers: Readers, name: str, alone: float) -> float:
    """CPU seconds of REST for one answer, without those that it needs when nothing reads."""
    clock = asyncio.get_running_loop().time
    began, before = clock(), cpu_seconds(server.pid)
    answers = await _asked(replace(readers, tokens={name: readers.tokens[name]}), readers.seconds / 2)
    spent = cpu_seconds(server.pid) - before - alone * (clock() - began)
    return spent / max(1, len(answers["took"][name]))


async def _asked(readers: Readers, seconds: float) -> dict[str, Any]:
    """Run each reader in a process of its own, so that none waits for the answers of another one."""
    alone = [
        replace(readers, tokens={name: token}, seconds=seconds) for name, token in readers.tokens.items()
    ]
    async with AsyncExitStack() as stack:
        started = [await stack.enter_async_context(_reader()) for _ in alone]
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(_answers(*one)) for one in zip(started, alone, strict=True)]
    found = [one.result() for one in asking]
    return {
        "took": {name: took for one in found for name, took in one["took"].items()},
        "incomplete": sum(one["incomplete"] for one in found),
        "told": sum(one["told"] for one in found),
    }


@asynccontextmanager
async def _reader() -> AsyncIterator[Process]:
    """One that has loaded its modules: the others would wait for its core meanwhile."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.readers"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_READY):
            await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _answers(process: Process, readers: Readers) -> dict[str, Any]:
    out, _ = await process.communicate(readers.to_json().encode())
    if process.returncode:
        raise RuntimeError(f"the reader ended with status {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def _note(found: Found, answers: dict[str, Any]) -> None:
    for name, took in answers["took"].items():
        found.took[name] += took
    found.incomplete += answers["incomplete"]
    found.told += answers["told"]


def _report(found: Found, waiting: int, queues: int, cohorts: int) -> Report:
    figures = [
        Figure(
            name=f"{_NAMES[name]}, p{round(part * 100)}",
            value=percentile(took, part) * 1e3,
            unit="ms",
            goal=Goal("value", "most", _GOALS[name] * 1e3) if part == 0.99 else None,
        )
        for name, took in found.took.items()
        for part in (0.5, 0.99)
    ]
    figures.append(
        Figure(
            name="starts a second with readers",
            value=found.read.rate,
            unit="Jobs/s",
            ceiling=found.alone.rate,
            bound="without readers",
            goal=Goal("ratio", "least", 0.95),
        )
    )
    explained = len(found.took["explanations"])
    once = found.first["workloads"] + found.first["explanations"]
    rows: tuple[tuple[str | float, ...], ...] = (
        ("Jobs that wait", float(waiting)),
        ("queues, cohorts", f"{queues}, {cohorts}"),
        *((f"{_NAMES[name]}: answers", float(len(took))) for name, took in found.took.items()),
        ("the first page, ms", found.first["pages"][0] * 1e3),
        *(
            (f"the first question about a namespace, p{round(part * 100)}, ms", percentile(once, part) * 1e3)
            for part in (0.5, 0.99)
        ),
        ("changes that were told, for each explanation", found.told / max(1, explained)),
        ("% of explanations that were incomplete", 100 * found.incomplete / max(1, explained)),
        ("CPU of the controller, ms for each start, without readers", found.alone.cost),
        ("CPU of the controller, ms for each start, with readers", found.read.cost),
        *((f"{_NAMES[name]}: CPU of REST, ms for each", cost * 1e3) for name, cost in found.each.items()),
        ("CPU of REST, cores, without readers", found.api["alone"]),
        ("CPU of REST, cores, with readers", found.api["read"]),
        *((f"MB of {name} at its height", most / 1e6) for name, most in found.memory.items()),
    )
    return Report("answers", figures, [Detail("the run", ("what", "found"), rows)])
