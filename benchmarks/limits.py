"""UsageLimits: admissions with a limit for each of 1,000 users at each cohort, beside those without limits.

The limits have room for all, so that both admit the same workloads. In the core alone: CPU seconds of this
process. As a controller does it: seconds in which they are decided and their rows committed to a Postgres
with fsync. Each is the least of several tries, with and without in turn.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from benchmarks.machine import scratch
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import Advance, bar
from benchmarks.report import Figure, Goal, Report
from benchmarks.worlds import GPU, World, job, observed
from queuectl.core.decisions import Plan
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import EffectKey, Workload
from queuectl.ledger.admin import schema
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.sandbox.postgres import EmbeddedPostgres

USERS: Final = 1_000
QUEUES: Final = 200
JOBS: Final = 50
"""Jobs of each queue."""
COHORTS: Final = 10
"""Of the queues of `World`."""
TRIES: Final = 5


def limit(cohort: int) -> UsageLimit:
    """Workloads and GPUs of each user in one cohort."""
    return UsageLimit(
        name=f"each-user-{cohort}",
        target=LimitTarget("Cohort", f"cohort-{cohort}"),
        subject=LimitSubject(SubjectKind.EACH_USER),
        most=((Dimension(None, WORKLOADS), 1_000), (Dimension(None, GPU), 2_000)),
    )


def jobs_of(queues: int, users: int) -> list[Workload]:
    return [
        replace(job(q * JOBS + n, f"lq-{q}", 2), submitter=f"user-{(q * JOBS + n) % users}")
        for q in range(queues)
        for n in range(JOBS)
    ]


def limit_all(world: World) -> None:
    world.engine.handle([observed(limit(cohort)) for cohort in range(COHORTS)])
    world.run()


def admissions(queues: int, users: int, *, limited: bool) -> float:
    """CPU seconds of an admission with its events, once."""
    world, jobs = World(queues, gpus=2 * JOBS), jobs_of(queues, users)
    if limited:
        limit_all(world)
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        world.submit(jobs)
        done = len(world.run())
        used = time.process_time() - started
    finally:
        gc.enable()
    assert done == len(jobs), f"{done} of {len(jobs)} were admitted"
    return used / done


async def recorded(ledger: PostgresLedger, queues: int, users: int, *, limited: bool) -> float:
    """Seconds of an admission with its events and its rows, once. `ledger`: empty."""
    transactions: list[tuple[Plan, tuple[EffectKey, ...]]] = []
    epoch, now = await ledger.take_epoch("benchmark"), await ledger.now()
    world = World(queues, gpus=2 * JOBS, now=now, record=lambda *taken: transactions.append(taken))
    jobs = jobs_of(queues, users)
    if limited:
        limit_all(world)
    before = len(transactions)
    gc.collect()
    started = time.perf_counter()
    world.submit(jobs)
    done = len(world.run())
    used = time.perf_counter() - started
    for number, (plan, acknowledged) in enumerate(transactions):
        started = time.perf_counter()
        await ledger.commit(plan, acknowledged, epoch=epoch, batch=f"{number}")
        if number >= before:
            used += time.perf_counter() - started
    assert done == len(jobs), f"{done} of {len(jobs)} were admitted"
    return used / done


def run(scale: int = 1) -> Report:
    """`scale` divides the sizes."""
    return asyncio.run(_run(max(COHORTS, QUEUES // scale), max(10, USERS // scale)))


async def _run(queues: int, users: int) -> Report:
    async def core(limited: bool, _: int) -> float:
        return admissions(queues, users, limited=limited)

    with scratch() as folder:
        async with EmbeddedPostgres(folder / "postgres") as postgres:
            await schema.migrate(postgres.url)
            async with connection_pool(postgres.url) as pool:

                async def committed(limited: bool, number: int) -> float:
                    ledger = PostgresLedger(pool, f"limits-{limited}-{number}")
                    return await recorded(ledger, queues, users, limited=limited)

                with bar("limits", 2 * TRIES) as done:
                    alone = await _in_turns(core, done)
                    whole = await _in_turns(committed, lambda number: done(TRIES + number))
    name = f"with limits for each of {users:,} users: {queues} queues x {JOBS} jobs"
    figures = [
        _figure(f"decided {name}", "admissions per CPU second", alone),
        _figure(f"decided and committed {name}", "admissions/s", whole),
    ]
    return Report("limits", figures)


async def _in_turns(cost: Callable[[bool, int], Awaitable[float]], done: Advance) -> dict[bool, float]:
    """The least of several tries, with and without limits."""
    least = {True: float("inf"), False: float("inf")}
    for number in range(TRIES):
        for limited in least:
            least[limited] = min(least[limited], await cost(limited, number))
        done(number + 1)
    return least


def _figure(name: str, unit: str, costs: dict[bool, float]) -> Figure:
    return Figure(
        name=name,
        value=1 / costs[True],
        unit=unit,
        ceiling=1 / costs[False],
        bound="the same without limits",
        goal=Goal("ratio", "least", 0.9),
    )


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Runs admissions with limits."""
    with sampled() as found:
        admissions(max(COHORTS, QUEUES // scale), USERS, limited=True)
    return {"the core with limits": found}
