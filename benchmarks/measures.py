"""What is measured, each at two sizes: what one step costs must not depend on how many others wait.

CPU seconds of this process; the least of several tries, because what else runs only ever adds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.worlds import World, distinct, job, observed
from queuectl.core.model import Workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measure:
    """Cost of one step in CPU seconds, at a large and at a small size of the same world."""

    name: str
    unit: str
    large_size: str
    small_size: str
    large: float
    small: float

    @property
    def ratio(self) -> float:
        """1 where size does not matter, large size / small size where every step looks at everything."""
        return self.large / self.small

    @property
    def per_second(self) -> float:
        return 1 / self.large


def seconds(prepare: Callable[[], T], step: Callable[[T], int], tries: int) -> float:
    """CPU seconds per unit of `step`, which says how many units it did."""
    best = float("inf")
    for _ in range(tries):
        given = prepare()
        gc.collect()
        gc.disable()
        try:
            started = time.process_time()
            done = step(given)
            best = min(best, (time.process_time() - started) / done)
        finally:
            gc.enable()
    return best


# --- admissions: events in, reasons out


def admissions(queues: int, jobs: int) -> tuple[float, float]:
    """Per admission, and per end of a job that lets the next one go."""

    def made(gpus: int) -> tuple[World, list[Workload]]:
        ones = [job(q * jobs + n, f"lq-{q}", gpus) for q in range(queues) for n in range(jobs)]
        return World(queues, gpus=jobs // 10 if gpus == 1 else gpus * jobs), ones

    def admit(given: tuple[World, list[Workload]]) -> int:
        world, ones = given
        world.submit(ones)
        return len(world.run())

    def full() -> tuple[World, list[Workload]]:
        """One in five runs, in both flavors; the others wait."""
        world, ones = made(1)
        world.submit(ones)
        running = {admit.attempt.workload for admit in world.run()}
        return world, [one for one in ones if one.id in running]

    def churn(given: tuple[World, list[Workload]]) -> int:
        world, running = given
        world.finish(running)
        return len(world.run())

    return seconds(lambda: made(2), admit, 3), seconds(full, churn, 3)


# --- one event among many who wait


def parked(count: int, *, alike: bool, steps: int = 50) -> float:
    """One more job in a full queue in which `count` wait: its event, a decision, the reason it gets."""

    def prepare() -> World:
        world = World(1, gpus=0)
        ones = [job(number, "lq-0", 1) for number in range(count)]
        world.submit(ones if alike else [distinct(one, number) for number, one in enumerate(ones)])
        world.run()
        return world

    def step(world: World) -> int:
        for number in range(count, count + steps):
            world.submit([job(number, "lq-0", 1)])
            world.run()
        return steps

    return seconds(prepare, step, 3)


def policies(queues: int) -> float:
    """One ClusterQueue edited among `queues`, whose cohorts share them out."""
    steps = 20

    def prepare() -> World:
        world = World(queues, gpus=1)
        world.submit([job(number, f"lq-{number}", 3) for number in range(queues)])
        world.run()
        return world

    def step(world: World) -> int:
        for number in range(steps):
            world.engine.handle([observed(world.queue(number, gpus=2))])
            world.run()
        return steps

    return seconds(prepare, step, 3)


def measure(scale: int = 1) -> list[Measure]:
    """All measures; `scale` divides the sizes, for a quick look."""
    queues, jobs, waiting = 200 // scale, 50, 10_000 // scale
    admit, churn = admissions(queues, jobs)
    small_admit, small_churn = admissions(max(1, queues // 10), jobs)
    sizes = (f"{queues} queues x {jobs} jobs", f"{max(1, queues // 10)} queues x {jobs} jobs")
    few = max(10, waiting // 100)
    who = (f"{waiting} wait", f"{few} wait")
    many = (f"{queues} queues", f"{max(1, queues // 10)} queues")
    return [
        Measure("a job is seen, queued and let go", "admission", *sizes, admit, small_admit),
        Measure("a job ends and the next is let go", "admission", *sizes, churn, small_churn),
        Measure(
            "one more of equal jobs that wait",
            "event",
            *who,
            parked(waiting, alike=True),
            parked(few, alike=True),
        ),
        Measure(
            "one more of jobs that wait, each of its own shape",
            "event",
            *who,
            parked(waiting, alike=False),
            parked(few, alike=False),
        ),
        Measure(
            "the quota of one queue is edited",
            "edit",
            *many,
            policies(queues),
            policies(max(1, queues // 10)),
        ),
    ]
