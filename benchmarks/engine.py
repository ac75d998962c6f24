"""The decision core: admissions per second with events and reasons, and the cost of one event among many.

CPU seconds of this process; the least of several tries, because other load only adds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from benchmarks.bare import Bare
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report
from benchmarks.worlds import Forest, World, distinct, job, observed
from queuectl.core.model.workload import Workload

T = TypeVar("T")


class Measure(NamedTuple):
    """Cost of one step in CPU seconds, with a large and with a small number of objects."""

    name: str
    large_size: str
    small_size: str
    large: float
    small: float


def seconds(prepare: Callable[[], T], step: Callable[[T], int], tries: int) -> float:
    """CPU seconds per unit of `step`, which returns how many units it did."""
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


# --- admissions, with events and reasons


def admissions(queues: int, jobs: int) -> tuple[float, float]:
    """CPU seconds per admission, and per end of a job with the admission that follows."""

    def made(gpus: int) -> tuple[World, list[Workload]]:
        ones = [job(q * jobs + n, f"lq-{q}", gpus) for q in range(queues) for n in range(jobs)]
        return World(queues, gpus=jobs // 10 if gpus == 1 else gpus * jobs), ones

    def admit(given: tuple[World, list[Workload]]) -> int:
        world, ones = given
        world.submit(ones)
        return len(world.run())

    def full() -> tuple[World, list[Workload]]:
        """One in five jobs runs, in both flavors; the others are pending."""
        world, ones = made(1)
        world.submit(ones)
        running = {admit.attempt.workload for admit in world.run()}
        return world, [one for one in ones if one.id in running]

    def churn(given: tuple[World, list[Workload]]) -> int:
        world, running = given
        world.finish(running)
        return len(world.run())

    return seconds(lambda: made(2), admit, 3), seconds(full, churn, 3)


# --- one event among many pending jobs


def parked(count: int, *, alike: bool, steps: int = 50) -> float:
    """One more job in a full queue with `count` pending: its event, a decision, and its reason."""

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
    """One ClusterQueue edited among `queues` in several cohorts."""
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


def forks(queues: int, count: int) -> float:
    """A fork of an engine with `count` pending jobs of 50 shapes, for each of them."""

    def prepare() -> World:
        world = Forest(queues, gpus=0)
        world.submit(
            [distinct(job(number, f"lq-{number % queues}", 1), number % 50) for number in range(count)]
        )
        world.run()
        return world

    def step(world: World) -> int:
        world.engine.fork()
        return count

    return seconds(prepare, step, 3)


def run(scale: int = 1) -> Report:
    """`scale` divides the sizes."""
    queues, jobs, waiting = max(2, 200 // scale), 50, max(20, 10_000 // scale)
    few_queues, few = max(1, queues // 10), max(10, waiting // 100)
    sizes = (f"{queues} queues x {jobs} jobs", f"{few_queues} queues x {jobs} jobs")
    pending, many = (f"{waiting} wait", f"{few} wait"), (f"{queues} queues", f"{few_queues} queues")
    trees, few_trees = max(6, 1_000 // scale), max(6, 10 // scale)
    with bar("engine", 7) as done:
        bare = seconds(lambda: Bare(queues, jobs), Bare.run, 5)
        done(1)
        admit, churn = admissions(queues, jobs)
        done(2)
        small_admit, small_churn = admissions(few_queues, jobs)
        done(3)
        alike = parked(waiting, alike=True), parked(few, alike=True)
        done(4)
        unlike = parked(waiting, alike=False), parked(few, alike=False)
        done(5)
        edits = policies(queues), policies(few_queues)
        done(6)
        copies = forks(trees, waiting), forks(few_trees, few)
    measures = [
        Measure("a job is seen, queued and let go", *sizes, admit, small_admit),
        Measure("a job ends and the next is let go", *sizes, churn, small_churn),
        Measure("one more of equal jobs that wait", *pending, *alike),
        Measure("one more of jobs that wait, each of its own shape", *pending, *unlike),
        Measure("the quota of one queue is edited", *many, *edits),
        Measure(
            "a fork of the engine, for each job that waits",
            *(f"{waiting} wait in {trees} queues", f"{few} wait in {few_trees} queues", *copies),
        ),
    ]
    bound = "bare heaps and lists of ints in Python"
    goal = Goal("value", "least", 40_000)
    return Report(
        "engine",
        [
            _figure("events in, reasons out", admit, bare, bound, goal),
            _figure("a job ends, the next goes", churn, bare, bound, None),
        ],
        [_steps(measures)],
    )


def _figure(name: str, cost: float, bare: float, bound: str, goal: Goal | None) -> Figure:
    unit = "admissions per CPU second"
    return Figure(name=name, value=1 / cost, unit=unit, ceiling=1 / bare, bound=bound, goal=goal)


def _steps(measures: list[Measure]) -> Detail:
    columns = ("step", "large", "small", "per second", "µs large", "µs small", "large / small")
    rows = [
        (
            *(one.name, one.large_size, one.small_size, 1 / one.large),
            *(one.large * 1e6, one.small * 1e6, one.large / one.small),
        )
        for one in measures
    ]
    return Detail("large / small of 1: the cost of a step does not depend on the size", columns, tuple(rows))


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Runs admissions, and ends of jobs with the admissions that follow."""
    with sampled() as found:
        admissions(max(2, 200 // scale), 50)
    return {"the core": found}
