"""Garbage collection of processes that serve."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from queuectl.app.process import YOUNG, collect_all, collect_young


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Knot:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_old_objects_are_not_looked_at_while_requests_are_answered() -> None:
    collect_young()
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        kept: list[list[int]] = [[] for _ in range(50 * YOUNG)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 50 * YOUNG
    assert set(generations) == {0}


async def test_all_objects_are_collected_now_and_then() -> None:
    freed, loop = asyncio.Event(), asyncio.get_running_loop()
    collect_young()
    knot: Knot | None = Knot()
    weakref.finalize(knot, loop.call_soon, freed.set)
    gc.collect()  # it is old from here on
    there = weakref.ref(knot)
    knot = None
    gc.collect(0)
    assert there() is not None
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        collecting = tasks.create_task(collect_all(every=0.001))
        await freed.wait()
        collecting.cancel()
