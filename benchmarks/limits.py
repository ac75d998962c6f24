"""UsageLimits: admissions with a limit for each of 1,000 users at each cohort, beside those without limits.

The limits have room for all, so that both admit the same workloads. CPU seconds of this process; the least of
several tries, with and without in turn.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Final

from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Figure, Goal, Report
from benchmarks.worlds import GPU, World, job, observed
from queuectl.core.model.usage_limits import (
    WORKLOADS,
    Dimension,
    LimitSubject,
    LimitTarget,
    SubjectKind,
    UsageLimit,
)
from queuectl.core.model.workload import Workload

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


def admissions(queues: int, users: int, *, limited: bool) -> float:
    """CPU seconds of an admission with its events, once."""
    world, jobs = World(queues, gpus=2 * JOBS), jobs_of(queues, users)
    if limited:
        world.engine.handle([observed(limit(cohort)) for cohort in range(COHORTS)])
        world.run()
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


def run(scale: int = 1) -> Report:
    """`scale` divides the sizes."""
    queues, users = max(COHORTS, QUEUES // scale), max(10, USERS // scale)
    costs: dict[bool, list[float]] = {True: [], False: []}
    with bar("limits", TRIES) as done:
        for number in range(TRIES):
            for limited, found in costs.items():
                found.append(admissions(queues, users, limited=limited))
            done(number + 1)
    figure = Figure(
        name=f"admissions with limits for each of {users:,} users: {queues} queues x {JOBS} jobs",
        value=1 / min(costs[True]),
        unit="admissions per CPU second",
        ceiling=1 / min(costs[False]),
        bound="the same without limits",
        goal=Goal("ratio", "least", 0.9),
    )
    return Report("limits", [figure])


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Runs admissions with limits."""
    with sampled() as found:
        admissions(max(COHORTS, QUEUES // scale), USERS, limited=True)
    return {"the core with limits": found}
