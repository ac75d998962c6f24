"""What sinks know of starts, in Postgres: which workloads are asked about, and what is stored of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import text

from queuectl.ledger.read.outbox import PostgresToldStarts
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import admit, configure, enqueue, keep, wid


@pytest.fixture
def starts(world: World) -> PostgresToldStarts:
    return PostgresToldStarts(world.pool, world.cluster)


async def names(
    starts: PostgresToldStarts,
    sink: str = "team",
    *,
    namespaces: Sequence[str] = (),
    queues: Sequence[str] = (),
    limit: int = 9,
) -> list[str]:
    return [one.ref.name for one in (await starts.waiting(sink, namespaces, queues, limit))[1]]


async def pending(world: World, *waiting: str) -> None:
    await world.write(configure("team-a", 100))
    queued = (enqueue(name, arrival=number) for number, name in enumerate(waiting))
    await world.write(*queued, *(keep(name) for name in waiting))


async def test_pending_workloads_are_asked_about_in_turn(world: World, starts: PostgresToldStarts) -> None:
    await pending(world, "a", "b", "c")
    now, (first, second, _) = await starts.waiting("team", [], [], 9)
    assert (first.workload, first.start, first.told, first.moved) == (wid("a"), None, 0, None)
    await starts.found(first, now)
    assert await names(starts) == ["b", "c", "a"]
    assert await names(starts, limit=2) == ["b", "c"]
    assert await names(starts, "other") == ["a", "b", "c"]
    await starts.found(second, None)
    assert await names(starts) == ["c", "a", "b"]


async def test_only_workloads_that_the_rules_select_are_asked_about(
    world: World, starts: PostgresToldStarts
) -> None:
    await pending(world, "a", "b")
    (one, _) = (await starts.waiting("team", [], [], 9))[1]
    assert await names(starts, namespaces=[one.ref.namespace], queues=[one.queue]) == ["a", "b"]
    assert await names(starts, namespaces=["another"]) == []
    assert await names(starts, queues=["another"]) == []


async def test_what_is_to_be_told_comes_first_until_it_is_accepted(
    world: World, starts: PostgresToldStarts
) -> None:
    await pending(world, "a", "b")
    now, (first, _) = await starts.waiting("team", [], [], 9)
    await starts.found(first, now)
    known = (await starts.waiting("team", [], [], 9))[1][1]
    assert known.start == now
    later = now + timedelta(hours=1)
    moved = await starts.moved(known, later, now)
    assert (await starts.waiting("team", [], [], 9))[1][0] == moved
    assert (moved.start, moved.moved, moved.moved_at, moved.told) == (now, later, now, 0)
    await starts.accepted(moved)
    told = (await starts.waiting("team", [], [], 9))[1][1]
    assert (told.start, told.moved, told.moved_at, told.told) == (later, None, None, 1)


async def test_a_workload_that_starts_is_forgotten(world: World, starts: PostgresToldStarts) -> None:
    await pending(world, "a", "b")
    now, (first, second) = await starts.waiting("team", [], [], 9)
    await starts.found(first, now)
    await starts.found(second, now)
    await world.write(admit("a", now=await world.ledger.now()))
    assert await names(starts) == ["b"]
    await starts.forget()
    query = text("SELECT workload FROM queuectl.told_start WHERE cluster_id = :c")
    async with world.pool.connect() as connection:
        left = (await connection.execute(query, {"c": world.cluster})).scalars().all()
    assert left == [wid("b")]
