"""How long it takes to read an earlier state of the ledger, beside reading the newest one of the same size.

Of the workloads of the earlier state half run and half wait. Then, in two hours, half of those that run end,
and as many others come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from benchmarks.machine import cpu_seconds, scratch
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report, median
from benchmarks.worlds import World, job
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import Workload
from queuectl.ledger.admin import schema
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import Pool, connection_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres

OPEN: Final = 12_000
_QUEUES: Final = 200
_STEPS: Final = 24
"""In which workloads end and come, of five minutes each."""
_TIMES: Final = 5
_CLUSTER: Final = "bench"


class Cost(NamedTuple):
    """Seconds: by the clock, of CPU of this process, and of CPU of all Postgres processes."""

    wall: float
    client: float
    server: float


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(max(400, OPEN // scale)))


async def _run(count: int) -> Report:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres") as postgres:
            await schema.migrate(postgres.url)
            async with connection_pool(postgres.url) as pool:
                with bar("past", count) as done:
                    when = await fill(pool, count, done)
                then = await _cost(postgres, lambda: _past(pool).at(when), count)
                now = await _cost(postgres, lambda: _readings(pool).since(0), count)
                return _report(count, then, now)


async def fill(pool: Pool, count: int, done: Callable[[int], None] = lambda _: None) -> datetime:
    """Commit all of it. Returns the time at which `count` workloads were open, as they are at the end."""
    ledger = PostgresLedger(pool, _CLUSTER)
    epoch = await ledger.take_epoch("benchmark")
    commits: list[Any] = []
    world = World(
        _QUEUES,
        -(-count // (4 * _QUEUES)),  # of two flavors: half of all
        now=await ledger.now(),
        record=lambda *one: commits.append(one),
    )
    jobs = {one.id: one for one in _jobs(0, count)}
    world.submit(list(jobs.values()))
    running = [jobs[one.attempt.workload] for one in world.run()]
    when = world.now + timedelta(minutes=1)
    each = len(running) // 2 // _STEPS
    for first in range(0, each * _STEPS, each):
        world.now += timedelta(minutes=5)
        world.finish(running[first : first + each])
        world.submit(_jobs(count + first, each))
        world.run()
    for number, (plan, acknowledged) in enumerate(commits):
        await ledger.commit(plan, acknowledged, epoch=epoch, batch=str(number))
        done(count // len(commits))
    return when


def _jobs(first: int, count: int) -> list[Workload]:
    return [job(number, f"lq-{number % _QUEUES}", 1) for number in range(first, first + count)]


def _past(pool: Pool) -> LedgerPast:
    """With nothing known of earlier reads."""
    return LedgerPast(pool, _CLUSTER, lambda _: DEFAULT_CONFIGURATION)


def _readings(pool: Pool) -> LedgerReadings:
    return LedgerReadings(pool, _CLUSTER)


async def _cost(postgres: EmbeddedPostgres, read: Callable[[], Awaitable[Any]], count: int) -> Cost:
    """The median of some."""
    found = []
    for _ in range(_TIMES):
        client, server = time.process_time(), cpu_seconds(postgres.pid, family=True)
        started = time.perf_counter()
        state = await read()
        wall = time.perf_counter() - started
        server = cpu_seconds(postgres.pid, family=True) - server
        found.append(Cost(wall, time.process_time() - client, server))
        assert len(state.workloads) == count, f"{len(state.workloads)} of {count} workloads"
    return Cost(*(median([one[part] for one in found]) for part in range(3)))


def _report(count: int, then: Cost, now: Cost) -> Report:
    figure = Figure(
        name=f"an earlier state of {count:,} workloads",
        value=then.client + then.server,
        unit="s of CPU",
        ceiling=now.client + now.server,
        bound="the newest state, as many",
        goal=Goal("ratio", "most", 2.0),
    )
    columns = ("read", "s", "our CPU s", "Postgres CPU s")
    rows = (("earlier", *then), ("newest", *now))
    return Report("past", [figure], [Detail(f"the median of {_TIMES} reads", columns, rows)])


def profiled(scale: int = 1) -> dict[str, Samples]:
    return {"its reader": asyncio.run(_profiled(max(400, OPEN // scale)))}


async def _profiled(count: int) -> Samples:
    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres") as postgres:
            await schema.migrate(postgres.url)
            async with connection_pool(postgres.url) as pool:
                when = await fill(pool, count)
                with sampled() as found:
                    for _ in range(_TIMES):
                        await _past(pool).at(when)
    return found
