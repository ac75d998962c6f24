"""Jobs per second with quota for all, end to end on a real API server, and the cost of each.

Beside two bare watchers, which start the same suspended Jobs of the same tenant, as the same user and with
the same HTTP client: under the same policies, and without any. And beside queuectl itself where nodes limit
what starts (mode `Enforce`): no pods are created, so that those of all running Jobs are expected. There is no
controller manager. A separate process creates the Jobs, and ends each as soon as it is started. Runs of the
four alternate, so that noise affects all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from benchmarks import trial_report as tell
from benchmarks.load import Stream
from benchmarks.machine import scratch
from benchmarks.objects import separate_queues, training_job
from benchmarks.profiles import Samples
from benchmarks.progress import bar
from benchmarks.report import Report
from benchmarks.site import site
from benchmarks.trial import Scenario, Starter, Trial, profiles

ROUNDS, JOBS, WARM, MOST = 3, 400, 60, 200
"""Runs of each; Jobs measured in a run; Jobs before that; Jobs that exist at the same time."""
_NAMESPACES = [f"room-{number}" for number in range(10)]
_STREAMS = 24
"""Concurrent creates."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    jobs: int
    warm: int
    most: int

    @classmethod
    def of(cls, scale: int) -> _Sizes:
        return cls(max(20, JOBS // scale), WARM // scale, max(20, MOST // scale))

    def scenario(self, label: str) -> Scenario:
        return Scenario(
            streams=_streams(f"jobs-{label}", self.jobs),
            warm=_streams(f"warm-{label}", self.warm),
            most=self.most,
        )


def _streams(name: str, jobs: int) -> list[Stream]:
    """`jobs` Jobs as evenly as possible from all streams."""
    body = training_job("")
    counts = [jobs // _STREAMS + (number < jobs % _STREAMS) for number in range(_STREAMS)]
    return [
        Stream(
            name=f"{name}-{number}",
            namespace=_NAMESPACES[number % len(_NAMESPACES)],
            body=body,
            jobs=count,
        )
        for number, count in enumerate(counts)
        if count
    ]


def run(scale: int = 1) -> Report:
    return asyncio.run(_run(scale))


async def _run(scale: int) -> Report:
    sizes, rounds, found = _Sizes.of(scale), ROUNDS if scale < 10 else 1, []
    with scratch() as folder:
        async with site(folder, separate_queues(dict.fromkeys(_NAMESPACES, sizes.most))) as place:
            with bar("jobs: runs", rounds * len(Starter)) as done:
                for number in range(rounds):
                    for starter in _order(number):
                        label = f"{number}-{starter.name.lower()}"
                        found.append(await Trial(place, starter, sizes.scenario(label)).run())
                        done(len(found))
    figures = [
        *tell.speed(found, least=0.55),
        *tell.costs(found),
        *tell.on_nodes(found),
        tell.gate(found),
        *tell.records(found, events=1.0, decisions=5.0),
    ]
    return Report("jobs", figures, [tell.each_run(found), tell.verbs(found)])


def profiled(scale: int = 1) -> dict[str, Samples]:
    """CPU profiles of the controller and the API server, and of the API server without queuectl."""
    return asyncio.run(_profiled(_Sizes.of(scale)))


def _order(number: int) -> tuple[Starter, ...]:
    """Return the runs of a round. Those with and without nodes come first in turns: the load of other
    processes rises and falls, and policies that a run removed are new to the next one."""
    first = (Starter.OURS, Starter.NODES)
    rest = tuple(one for one in Starter if one not in first)
    return (*(reversed(first) if number % 2 else first), *rest)


async def _profiled(sizes: _Sizes) -> dict[str, Samples]:
    with scratch() as folder:
        async with site(folder, separate_queues(dict.fromkeys(_NAMESPACES, sizes.most))) as place:
            return await profiles(place, lambda starter: sizes.scenario(starter.name.lower()))
