"""Jobs faster than they can end: 30 queues in five cohorts that lend, reclaim and preempt.

Jobs of three sizes and priorities arrive at a fixed pace in each queue, more than the quota has room for,
and run for a time that grows with their size. A separate process plays users and kubelets. Beside the same
Jobs started by bare watchers at once: their number is what the API server can do, not what has room.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from benchmarks import trial_report as tell
from benchmarks.load import Stream
from benchmarks.machine import scratch
from benchmarks.objects import Object, shared_queues, small_job
from benchmarks.profiles import Samples
from benchmarks.progress import bar
from benchmarks.report import Detail, Report, percentile
from benchmarks.site import site
from benchmarks.trial import Run, Scenario, Starter, Trial, profiles

QUOTA: Final = 20
"""GPUs of each queue."""


class Size(NamedTuple):
    """Jobs of one size in each queue."""

    name: str
    jobs: int
    every: float
    """Seconds between two creates."""
    runs: float
    """Seconds that a Job runs."""
    gpus: int
    priority: int


SIZES: Final = (
    Size("small", 105, 0.1, 0.2, 1, 50),
    Size("medium", 30, 0.5, 0.5, 5, 100),
    Size("large", 15, 1.2, 1.0, 20, 200),
)
COHORTS: Final = {f"cohort-{c}": [f"queue-{c}-{q}" for q in range(6)] for c in range(5)}


def _policy() -> list[Object]:
    return list(shared_queues(COHORTS, QUOTA, {size.name: size.priority for size in SIZES}))


def scenario(label: str, scale: int) -> Scenario:
    streams = [
        Stream(
            name=f"{size.name}-{label}",
            namespace=namespace,
            body=small_job("", size.gpus, size.name),
            jobs=max(1, size.jobs // scale),
            every=size.every,
            runs=size.runs,
            group=size.name,
            tree=cohort,
            gpus=size.gpus,
        )
        for cohort, namespaces in COHORTS.items()
        for namespace in namespaces
        for size in SIZES
    ]
    return Scenario(streams=streams, most=sum(stream.jobs for stream in streams))


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    found: list[Run] = []
    with scratch() as folder:
        async with site(folder, _policy()) as place:
            for starter in (Starter.OURS, Starter.GATED, Starter.BARE):
                what = scenario(starter.name.lower(), scale)
                with bar(f"contended: Jobs, {starter}", what.jobs) as done:
                    found.append(await Trial(place, starter, what, done).run())
    figures = [
        *tell.speed(found, least=0.45),
        *tell.costs(found),
        *tell.records(found, events=2.0, decisions=5.0),
    ]
    return Report(
        "contended", figures, [tell.each_run(found), _quota(found), _waits(found), tell.verbs(found)]
    )


def profiled(scale: int = 1) -> dict[str, Samples]:
    """CPU profiles of the controller and the API server, and of the API server without queuectl."""
    return asyncio.run(_profiled(scale))


async def _profiled(scale: int) -> dict[str, Samples]:
    with scratch() as folder:
        async with site(folder, _policy()) as place:
            return await profiles(place, lambda starter: scenario(starter.name.lower(), scale))


def _quota(runs: list[Run]) -> Detail:
    each = QUOTA * len(next(iter(COHORTS.values())))
    columns = ("run", "evictions", f"most GPUs of a cohort, of {each}", "share of the quota in use")
    rows = tuple(
        (
            run.starter,
            float(run.result.evictions),
            float(max(run.result.peak.values())),
            run.result.busy / (run.result.seconds * each * len(COHORTS)),
        )
        for run in runs
    )
    return Detail("quota; the bare watchers know none", columns, rows)


def _waits(runs: list[Run]) -> Detail:
    rows = tuple(
        (run.starter, size.name, percentile(waits, 0.5), percentile(waits, 0.99))
        for run in runs
        for size in SIZES
        if (waits := run.result.waits[size.name])
    )
    return Detail("seconds until a Job was let go", ("run", "size", "p50", "p99"), rows)
