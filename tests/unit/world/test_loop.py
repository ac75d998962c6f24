"""The event loop of tests/world: virtual time, and processes that are paused and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from tests.world.loop import Stuck, VirtualLoop, virtual_loop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = virtual_loop(Random(1))
    yield made
    made.close()


def test_time_passes_only_when_nothing_else_can_happen(loop: VirtualLoop) -> None:
    async def work() -> list[float]:
        times = []
        for seconds in (3600.0, 0.0, 1.5):
            await asyncio.sleep(seconds)
            times.append(loop.time())
        return times

    assert loop.run_until_complete(work()) == [3600.0, 3600.0, 3601.5]


def test_a_timeout_is_of_virtual_time(loop: VirtualLoop) -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(75):
                await asyncio.Event().wait()
        return loop.time()

    assert loop.run_until_complete(work()) == 75


def test_a_paused_thread_goes_on_where_it_was(loop: VirtualLoop) -> None:
    ticks: list[float] = []
    thread = loop.thread("process")

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def work() -> None:
        loop.spawn(thread, tick(), "tick")
        await asyncio.sleep(2.5)
        thread.paused = True
        await asyncio.sleep(40)
        thread.paused = False
        await asyncio.sleep(1.2)

    loop.run_until_complete(work())
    assert ticks == [1.0, 2.0, 42.5, 43.5]


def test_of_a_killed_thread_nothing_runs_not_even_what_cleans_up(loop: VirtualLoop) -> None:
    ran: list[str] = []
    thread = loop.thread("process")

    async def child() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            ran.append("cleaned up")

    async def process() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
            await asyncio.sleep(1)
            ran.append("began")

    async def work() -> list[str]:
        loop.spawn(thread, process(), "process")
        await asyncio.sleep(2)
        loop.kill(thread)
        await asyncio.sleep(10)
        return list(ran)

    assert loop.run_until_complete(work()) == ["began"]


@pytest.mark.parametrize("seed", range(3))
def test_the_seed_decides_which_thread_runs_first(seed: int) -> None:
    def order() -> str:
        loop, ran = virtual_loop(Random(seed)), list[str]()

        async def write(name: str) -> None:
            for _ in range(5):
                ran.append(name)
                await asyncio.sleep(0)

        async def work() -> None:
            async with asyncio.TaskGroup():
                tasks = [loop.spawn(loop.thread(name), write(name), name) for name in "ab"]
                await asyncio.wait(tasks)

        loop.run_until_complete(work())
        loop.close()
        return "".join(ran)

    assert order() == order()


def test_what_can_never_go_on_is_an_error(loop: VirtualLoop) -> None:
    with pytest.raises(Stuck):
        loop.run_until_complete(asyncio.Event().wait())
