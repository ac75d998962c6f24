"""Decisions at scale: 1,000 ClusterQueues under ten cohorts of three levels, 50,000 Jobs; and a tenth.

CPU seconds of this process, the least of several tries, because other load only adds. Events are
created before the clock starts: in a controller they result from reading the objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from benchmarks.bare import Bare
from benchmarks.engine import seconds
from benchmarks.machine import memory
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Detail, Figure, Goal, Report
from benchmarks.worlds import BATCH, Forest, Lent, World, job, seen
from queuectl.core.decisions import Evict
from queuectl.core.model.events import Event, WorkloadGone, WorkloadObserved
from queuectl.core.model.workload import Workload, WorkloadOutcome

QUEUES: Final = 1_000
JOBS: Final = 50
"""Jobs of each queue."""
ROOM: Final = 10
"""Jobs of each queue that run on its own quota in a full tree; half as many more run on the cohorts'."""
CANDIDATES: Final = 1_000
VICTIMS: Final = 8
EACH: Final = 20
"""Candidates in one queue."""
SEARCHES: Final = 4
"""Searches in one decision: one for each of three resources, then one for all of them."""
TOGETHER: Final = 50
"""Events that a busy controller decides on together."""
STEPS: Final = 200
"""Events of one kind in one try, at most."""
TRIES: Final = 3


class Found(NamedTuple):
    """CPU seconds of one step, at the full size and at a tenth of it."""

    name: str
    full: float
    tenth: float


def jobs_of(queues: int, each: int, first: int = 0) -> list[Workload]:
    """Jobs of three sizes, two GPUs on average, one queue after another."""
    return [
        job(first + n * queues + q, f"lq-{q}", (1, 2, 3)[(q + n) % 3])
        for n in range(each)
        for q in range(queues)
    ]


def first_seen(jobs: Sequence[Workload]) -> list[Event]:
    return [WorkloadObserved(one, seen()) for one in jobs]


def hand_in(world: World, events: Sequence[Event]) -> None:
    for at in range(0, len(events), BATCH):
        world.engine.handle(events[at : at + BATCH])


# --- admissions


def admissions(queues: int) -> float:
    """All are observed, queued, admitted and started: on their queue's own quota, then on borrowed quota."""

    def prepare() -> tuple[World, list[Event]]:
        return Forest(queues, gpus=JOBS), first_seen(jobs_of(queues, JOBS))

    def admit(given: tuple[World, list[Event]]) -> int:
        world, events = given
        hand_in(world, events)
        done = len(world.run())
        assert done == len(events), f"{done} of {len(events)} were let go"
        return done

    return seconds(prepare, admit, TRIES)


# --- one event among many pending jobs


class Full:
    """A full tree: some Jobs run, `queues` x `JOBS` are pending. Each step leaves about as many."""

    def __init__(self, queues: int) -> None:
        self.queues = queues
        self.world = Forest(queues, gpus=ROOM)
        jobs = jobs_of(queues, JOBS + ROOM + ROOM // 2)
        hand_in(self.world, first_seen(jobs))
        running = {admit.attempt.workload for admit in self.world.run()}
        self.running = [one for one in jobs if one.id in running]
        self.waiting = [one for one in jobs if one.id not in running]
        self.steps = min(STEPS, 2 * queues)
        self.ends_in_one_try = max(1, min(STEPS // 4, len(self.running) // 8))
        self.next = len(jobs)

    def arrivals(self) -> list[Event]:
        jobs = [job(self.next + n, f"lq-{n * 7 % self.queues}", 1 + n % 3) for n in range(self.steps)]
        self.next += self.steps
        self.waiting += jobs
        return first_seen(jobs)

    def repeats(self) -> list[Event]:
        """Observe a pending Job without a change, as after a relist."""
        return first_seen(self.waiting[: self.steps])

    def deletions(self) -> list[Event]:
        gone, self.waiting = self.waiting[-self.steps :], self.waiting[: -self.steps]
        return [WorkloadGone(one.id) for one in gone]

    def ends(self) -> list[Event]:
        """End a running Job; pending Jobs that fit then are admitted, which is part of the cost."""
        over = self.running[: self.ends_in_one_try]
        del self.running[: self.ends_in_one_try]
        done = seen(generation=2, suspended=False, finished=WorkloadOutcome.SUCCEEDED)
        return [WorkloadObserved(one, done) for one in over]


EVENTS: Final[tuple[tuple[str, Callable[[Full], list[Event]]], ...]] = (
    ("a job is made, and waits", Full.arrivals),
    ("one that waits is seen again as it was", Full.repeats),
    ("one that waits is deleted", Full.deletions),
    ("one that runs ends, and others go", Full.ends),
)

WAITING_KINDS: Final = 3
"""Number of the kinds above that are about a pending job."""


def events(full: Full, made: Callable[[Full], list[Event]], batch: int) -> float:
    """CPU seconds per event; `batch` events are folded before each decision."""

    def step(given: list[Event]) -> int:
        for at in range(0, len(given), batch):
            full.world.engine.handle(given[at : at + batch])
            full.world.run()
        return len(given)

    return seconds(lambda: made(full), step, TRIES)


# --- preemption


def searches(candidates: int) -> float:
    """A head reclaims quota from `VICTIMS` of many candidates; decided repeatedly, never committed."""
    world = Lent(candidates // EACH + 1, gpus=EACH // 2)
    jobs = [job(n, f"lq-{1 + n % (world.queues - 1)}", 1) for n in range(candidates)]
    hand_in(world, first_seen(jobs))
    assert len(world.run()) == candidates
    hand_in(world, first_seen([job(candidates, "lq-0", VICTIMS)]))

    def step(world: World) -> int:
        for _ in range(20):
            plan = world.engine.decide(world.now)
        victims = sum(isinstance(decision, Evict) for decision in plan.decisions)
        assert victims == VICTIMS, f"{victims} victims"
        return 20

    return seconds(lambda: world, step, TRIES)


# --- memory


def _full_memory(queues: int) -> tuple[int, int]:
    """Bytes of memory: at the start, and at the peak."""
    before = memory(os.getpid())[0]
    Full(queues)
    return before, memory(os.getpid())[1]


def memory_of(queues: int) -> tuple[int, int]:
    """Measured in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_full_memory, queues).result()


# --- the benchmark


def run(scale: int = 1) -> Report:
    """`scale` divides the sizes."""
    sizes = max(10, QUEUES // scale), max(1, QUEUES // 10 // scale)
    candidates = max(10 * EACH, CANDIDATES // scale), max(EACH, CANDIDATES // 10 // scale)
    with bar("decisions", 8) as done:
        bare = seconds(lambda: Bare(sizes[0], JOBS), Bare.run, 5)
        admitted = Found("a job is seen, queued, let go and started", *map(admissions, sizes))
        done(3)
        searched = Found("a head is given its victims", *map(searches, candidates))
        done(4)
        used = [memory_of(size) for size in sizes]
        done(5)
        worlds = Full(sizes[0]), Full(sizes[1])
        waiting = [len(world.waiting) for world in worlds]
        one_by_one = [_event(what, worlds, 1) for what in EVENTS]
        done(7)
        together = [_event(what, worlds, TOGETHER) for what in EVENTS]
    of_waiting = [found.full for found in one_by_one[:WAITING_KINDS]]
    figures = [
        _admissions(sizes[0], admitted.full, bare),
        _searches(candidates[0], searched.full),
        _bounded(
            f"an event, while {waiting[0]:,} wait", sum(of_waiting) / WAITING_KINDS * 1e6, "µs of CPU", 50
        ),
        _bounded(f"memory, while {waiting[0]:,} wait", used[0][1] / 1e6, "MB at its height", 300),
    ]
    growth = _growth([admitted, searched, *one_by_one, *together], sizes, waiting)
    return Report("decisions", figures, [growth, _memory(used, waiting)])


def _admissions(queues: int, cost: float, bare: float) -> Figure:
    return Figure(
        name=f"events in, reasons out: {queues:,} queues x {JOBS} jobs",
        value=1 / cost,
        unit="admissions per CPU second",
        ceiling=1 / bare,
        bound="bare heaps and lists of ints in Python",
        goal=Goal("value", "least", 40_000),
    )


def _searches(candidates: int, cost: float) -> Figure:
    return Figure(
        name=f"searches for {VICTIMS} victims of {candidates:,}",
        value=SEARCHES / cost,
        unit="searches per CPU second",
        goal=Goal("value", "least", 500),
    )


def _bounded(name: str, value: float, unit: str, most: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, goal=Goal("value", "most", most))


def _event(what: tuple[str, Callable[[Full], list[Event]]], worlds: tuple[Full, Full], batch: int) -> Found:
    name, made = what
    text = f"{name}: {f'{batch} at a time' if batch > 1 else 'one at a time'}"
    return Found(text, events(worlds[0], made, batch), events(worlds[1], made, batch))


def _growth(found: Sequence[Found], sizes: tuple[int, int], waiting: Sequence[int]) -> Detail:
    title = (
        f"µs of CPU at {sizes[0]:,} and at {sizes[1]:,} queues, {waiting[0]:,} and {waiting[1]:,} waiting: "
        "full / tenth of 1 is flat"
    )
    rows = [(one.name, one.full * 1e6, one.tenth * 1e6, one.full / one.tenth) for one in found]
    return Detail(title, ("step", "µs full", "µs tenth", "full / tenth"), tuple(rows))


def _memory(used: Sequence[tuple[int, int]], waiting: Sequence[int]) -> Detail:
    rows = tuple(
        (count, before / 1e6, most / 1e6, (most - before) / count / 1e3)
        for (before, most), count in zip(used, waiting, strict=True)
    )
    columns = ("jobs that wait", "MB before", "MB at its height", "KB a job")
    return Detail("memory of a process that holds such an engine alone", columns, rows)


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Runs admissions, ends of jobs with the admissions that follow, and searches."""
    queues = max(10, QUEUES // 10 // scale)
    full = Full(queues)
    with sampled() as found:
        admissions(queues)
        events(full, Full.ends, 1)
        searches(max(10 * EACH, CANDIDATES // scale))
    return {"the core": found}
