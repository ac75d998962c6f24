"""Room on nodes: 5,000 nodes with 50,000 pods: one check, one event, memory, and what admissions cost more.

CPU seconds of this process, the least of several tries, because other load only adds.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from benchmarks.decisions import first_seen, hand_in, jobs_of
from benchmarks.engine import seconds
from benchmarks.machine import memory
from benchmarks.profiles import Samples, sampled
from benchmarks.progress import bar
from benchmarks.report import Figure, Goal, Report
from benchmarks.worlds import BATCH, GPU, NOW, Forest, World, job
from queuectl.core.decisions import Admit
from queuectl.core.engine import Engine
from queuectl.core.features.nodes.room import NodeRoom
from queuectl.core.model.events import ContextObserved, Event, PodGone, PodObserved
from queuectl.core.model.pods import Pod, PodGroup, PodShape
from queuectl.core.model.policy import Node, NodeRules, ResourceFlavor
from queuectl.core.model.workload import Workload, WorkloadId

NODES: Final = 5_000
PODS: Final = 50_000
GANG: Final = 512
QUEUES: Final = 100
JOBS: Final = 50
TRIES: Final = 3
STEPS: Final = 1_000
RUNNING: Final = 200
"""Jobs whose pods are expected, while others of them end."""
TOGETHER: Final = 8
"""Ends that are decided on together."""


def node(number: int, gpus: int = 16) -> Node:
    name = f"node-{number:05}"
    labels = (("kubernetes.io/hostname", name), ("topology.kubernetes.io/zone", f"zone-{number % 3}"))
    return Node(name, labels, (("cpu", 128_000), ("memory", 1 << 40), (GPU, gpus), ("pods", 110)))


def pod(number: int, nodes: int) -> Pod:
    """One of a gang of eight."""
    return Pod(
        uid=f"{number:08x}-5eed-4000-8000-{number:012x}",
        namespace="bench",
        name=f"job-{number // 8}-{number % 8}",
        node=f"node-{number % nodes:05}",
        requests=(("cpu", 4_000), ("memory", 1 << 30), (GPU, 1)),
        workload=WorkloadId(f"{number // 8:08x}-5eed-4000-8000-{number // 8:012x}"),
    )


def filled(nodes: int, pods: int) -> NodeRoom:
    room = NodeRoom({"default": ResourceFlavor(name="default")}, NodeRules())
    for number in range(nodes):
        room.observe(node(number), NOW)
    for number in range(pods):
        room.observe_pod(pod(number, nodes), NOW)
    room.settle()
    return room


def shape(gpus: int) -> PodShape:
    requests = (("cpu", 4_000), ("memory", 1 << 30), (GPU, gpus))
    return PodShape(requests, tuple((name, "default") for name, _ in requests))


def checks(room: NodeRoom, *gangs: tuple[int, int]) -> float:
    """CPU seconds of one check of pods (GPUs of each, number) together."""
    pods = tuple(PodGroup(shape(gpus), count) for gpus, count in gangs)
    assert room.fits(pods)

    def step(room: NodeRoom) -> int:
        return sum(room.fits(pods) for _ in range(50))

    return seconds(lambda: room, step, TRIES)


def pod_events(nodes: int, pods: int) -> float:
    """CPU seconds of one pod that ends or is bound, with the decision whether that helps any workload."""
    engine = Engine(frozenset())
    found: list[Event] = [ContextObserved(node(number)) for number in range(nodes)]
    found += [PodObserved(pod(number, nodes)) for number in range(pods)]
    for at in range(0, len(found), BATCH):
        engine.handle(found[at : at + BATCH])
    steps = min(STEPS, pods)

    def step(engine: Engine) -> int:
        for number in range(steps):
            one = pod(number, nodes)
            engine.handle([PodGone(one.uid)])
            engine.handle([PodObserved(one)])
        return 2 * steps

    return seconds(lambda: engine, step, TRIES)


class Bound:
    """Binds one pod for each admission, node after node."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._taken = 0

    def events(self, admitted: Iterable[Admit]) -> list[Event]:
        found: list[Event] = []
        for one in admitted:
            workload, (held,) = one.attempt.workload, one.attempt.assignment.pod_sets
            gpus = dict(held.requests)[GPU]
            if self._taken % self._each + gpus > self._each:
                self._taken += self._each - self._taken % self._each
            where = f"node-{self._taken // self._each:05}"
            self._taken += gpus
            requests = tuple((name, amount) for name, amount in held.requests if name != "pods")
            made = Pod(
                uid=f"pod-{workload}",
                namespace="bench",
                name="pod",
                node=where,
                requests=requests,
                workload=workload,
            )
            found.append(PodObserved(made))
        return found


def admissions(queues: int, nodes: int) -> float:
    """CPU seconds of an admission with its events. Their pods are bound meanwhile, which is not counted."""
    best = float("inf")
    for _ in range(TRIES):
        world, events, bound = Forest(queues, gpus=JOBS), first_seen(jobs_of(queues, JOBS)), Bound(16)
        world.engine.handle([ContextObserved(node(number)) for number in range(nodes)])
        gc.collect()
        gc.disable()
        used, done = 0.0, 0
        for at in range(0, len(events), BATCH):
            started = time.process_time()
            hand_in(world, events[at : at + BATCH])
            admitted = world.run()
            used += time.process_time() - started
            done += len(admitted)
            world.engine.handle(bound.events(admitted))
        gc.enable()
        assert done == len(events), f"{done} of {len(events)} were admitted"
        best = min(best, used / done)
    return best


def ends(nodes: int, jobs: int) -> float:
    """CPU seconds of a Job that ends and the next one that starts, beside as many whose pods are expected."""

    def prepare() -> tuple[World, list[Workload]]:
        world = World(10, gpus=RUNNING)
        world.engine.handle([ContextObserved(node(number)) for number in range(nodes)])
        made = [job(number, f"lq-{number % 10}", 1) for number in range(RUNNING + jobs)]
        world.submit(made[:RUNNING])
        assert len(world.run()) == RUNNING
        return world, made

    def step(given: tuple[World, list[Workload]]) -> int:
        world, made = given
        for at in range(0, jobs, TOGETHER):
            world.finish(made[at : at + TOGETHER])
            world.submit(made[RUNNING + at : RUNNING + at + TOGETHER])
            assert len(world.run()) == TOGETHER
        return jobs

    return seconds(prepare, step, TRIES)


# --- memory


def _peak(nodes: int, pods: int) -> tuple[int, int]:
    """Bytes of memory: at the start, and at the peak."""
    before = memory(os.getpid())[0]
    filled(nodes, pods)
    return before, memory(os.getpid())[1]


def memory_of(nodes: int, pods: int) -> int:
    """Measured in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        before, most = pool.submit(_peak, nodes, pods).result()
    return most - before


# --- the benchmark


def run(scale: int = 1) -> Report:
    """`scale` divides the sizes."""
    nodes, pods, queues = max(50, NODES // scale), max(500, PODS // scale), max(10, QUEUES // scale)
    gang = min(GANG, nodes)
    with bar("room", 5) as done:
        room = filled(nodes, pods)
        equal, mixed = checks(room, (1, gang)), checks(room, (1, gang // 2), (2, gang // 2))
        done(1)
        event = pod_events(nodes, pods)
        done(2)
        used = memory_of(nodes, pods)
        done(3)
        enforced, without = admissions(queues, 10 * queues), admissions(queues, 0)
        done(4)
        jobs = max(5 * TOGETHER, STEPS // scale // TOGETHER * TOGETHER)
        churn, free = ends(250, jobs), ends(0, jobs)
    names = f"{nodes:,} nodes, {pods:,} pods"
    figures = [
        _most(f"check of {gang} equal pods: {names}", equal * 1e3, "ms of CPU", 5),
        _most(f"check of {gang} pods of two kinds: {names}", mixed * 1e3, "ms of CPU", 5),
        _most(f"a pod ends or is bound: {names}", event * 1e6, "µs of CPU", 100),
        _most(f"memory of {names}", used / 1e6, "MB more", 150),
        Figure(
            name=f"admissions with room: {queues:,} queues x {JOBS} jobs on {10 * queues:,} nodes",
            value=1 / enforced,
            unit="admissions per CPU second",
            ceiling=1 / without,
            bound="the same without nodes",
            goal=Goal("ratio", "least", 0.9),
        ),
        Figure(
            name=f"Jobs end, others start, {TOGETHER} at a time; pods of {RUNNING} are expected",
            value=1 / churn,
            unit="Jobs per CPU second",
            ceiling=1 / free,
            bound="the same without nodes",
        ),
    ]
    return Report("room", figures)


def _most(name: str, value: float, unit: str, most: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, goal=Goal("value", "most", most))


def profiled(scale: int = 1) -> dict[str, Samples]:
    """Runs admissions on nodes, and pod events."""
    queues = max(10, QUEUES // scale)
    with sampled() as found:
        admissions(queues, 10 * queues)
        pod_events(max(50, NODES // scale), max(500, PODS // scale))
    return {"room on nodes": found}
