"""The decisions at size: 1,000 ClusterQueues under ten cohorts three deep, 50,000 Jobs, beside a tenth of it.

CPU seconds of this process, the least of several tries, because what else runs only ever adds. Events are
made before the clock starts: in a controller they come out of reading the objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from benchmarks.engine import seconds
from benchmarks.machine import memory
from benchmarks.worlds import BATCH, Forest, Lent, World, job, seen
from queuectl.core.decisions import Evict
from queuectl.core.events import Event, WorkloadGone, WorkloadObserved
from queuectl.core.model import Outcome, Workload

QUEUES: Final = 1_000
JOBS: Final = 50
"""Of each queue."""
ROOM: Final = 10
"""Jobs of each queue that run where all is full."""
CANDIDATES: Final = 1_000
VICTIMS: Final = 8
STEPS: Final = 200
"""Events of one kind in one try."""
TRIES: Final = 3


class Found(NamedTuple):
    """CPU seconds of one step, at the full size and at a tenth of it."""

    name: str
    full: float
    tenth: float


def jobs_of(queues: int, each: int, first: int = 0) -> list[Workload]:
    """Of three sizes, two GPUs on average; the queues take turns."""
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
    """All are seen, queued, let go and started: on what is their queue's own, then on what they borrow."""

    def prepare() -> tuple[World, list[Event]]:
        return Forest(queues, gpus=JOBS), first_seen(jobs_of(queues, JOBS))

    def admit(given: tuple[World, list[Event]]) -> int:
        world, events = given
        hand_in(world, events)
        done = len(world.run())
        assert done == len(events), f"{done} of {len(events)} were let go"
        return done

    return seconds(prepare, admit, TRIES)


# --- one event among many who wait


class Full:
    """A full tree: some run, `queues` x `JOBS` wait. Each step leaves about as many."""

    def __init__(self, queues: int) -> None:
        self.queues = queues
        self.world = Forest(queues, gpus=ROOM)
        jobs = jobs_of(queues, JOBS + ROOM)
        hand_in(self.world, first_seen(jobs))
        running = {admit.attempt.workload for admit in self.world.run()}
        self.running = [one for one in jobs if one.id in running]
        self.waiting = [one for one in jobs if one.id not in running]
        self.next = len(jobs)

    def arrivals(self) -> list[Event]:
        jobs = [job(self.next + n, f"lq-{n * 7 % self.queues}", 1 + n % 3) for n in range(STEPS)]
        self.next += STEPS
        self.waiting += jobs
        return first_seen(jobs)

    def repeats(self) -> list[Event]:
        """Nothing about it has changed, as after a relist."""
        return first_seen(self.waiting[:STEPS])

    def deletions(self) -> list[Event]:
        gone, self.waiting = self.waiting[-STEPS:], self.waiting[:-STEPS]
        return [WorkloadGone(one.id) for one in gone]

    def ends(self) -> list[Event]:
        """Of those that run; whoever fits then is let go, which is part of the cost."""
        over, self.running = self.running[:STEPS], self.running[STEPS:]
        done = seen(generation=2, suspended=False, finished=Outcome.SUCCEEDED)
        return [WorkloadObserved(one, done) for one in over]


EVENTS: Final[tuple[tuple[str, Callable[[Full], list[Event]]], ...]] = (
    ("a job is made, and waits", Full.arrivals),
    ("one that waits is seen again as it was", Full.repeats),
    ("one that waits is deleted", Full.deletions),
    ("one that runs ends, and others go", Full.ends),
)


def events(full: Full, made: Callable[[Full], list[Event]], batch: int) -> float:
    """Per event; `batch` of them come before each decision."""

    def step(given: list[Event]) -> int:
        for at in range(0, len(given), batch):
            full.world.engine.handle(given[at : at + batch])
            full.world.run()
        return len(given)

    return seconds(lambda: made(full), step, TRIES)


# --- preemption


def searches(candidates: int) -> float:
    """A head takes back what it needs from `VICTIMS` of so many; decided again and again, never committed."""
    each = 20
    world = Lent(candidates // each + 1, gpus=each // 2)
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
    """In bytes: before there is anything, and at its height."""
    before = memory(os.getpid())[0]
    Full(queues)
    return before, memory(os.getpid())[1]


def memory_of(queues: int) -> tuple[int, int]:
    """In a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_full_memory, queues).result()
