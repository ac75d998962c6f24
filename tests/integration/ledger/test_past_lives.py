"""Workloads of the last weeks: what is known of them is not read again, unless it is no longer true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.workload import StoredWorkload
from queuectl.ledger.codec import Parsed
from queuectl.ledger.history import past_lives
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.rows import stored_workload
from queuectl.ledger.shared_rows import Shapes
from queuectl.ports.reader import PastLives
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import configure, enqueue, retire

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
async def past(world: World) -> AsyncIterator[LedgerPast]:
    async with connection_pool(world.url, read_only=True) as pool:
        yield LedgerPast(pool, world.cluster, lambda _: SchedulingConfiguration())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the workloads whose rows were read, in order."""
    names: list[str] = []

    def noting(row: Any, shapes: Shapes, parsed: Parsed) -> StoredWorkload:
        names.append(row.name)
        return stored_workload(row, shapes, parsed)

    monkeypatch.setattr(past_lives, "stored_workload", noting)
    return names


def told(found: PastLives) -> dict[str, tuple[bool, int]]:
    return {
        life.workload.ref.name: (
            life.ended_at is not None,
            sum(run.ended_at is not None for run in life.runs),
        )
        for life in found.lives
    }


async def test_only_what_has_changed_is_read_again(world: World, past: LedgerPast, read: list[str]) -> None:
    await world.write(configure("team-a", 100))
    await world.write(
        *(enqueue(name, arrival=number) for number, name in enumerate(("old", "runs", "waits")))
    )
    await world.write(await world.admit("old"), await world.admit("runs"))
    await world.write(retire("old", 1))
    first = await past.past_lives(since=LONG_AGO)
    assert told(first) == {"old": (True, 1), "runs": (False, 0), "waits": (False, 0)}
    read.clear()
    await world.write(retire("runs", 1), enqueue("new", arrival=9))
    second = await past.past_lives(since=LONG_AGO, known=first)
    assert sorted(read) == ["new", "runs"]
    assert told(second) == {"old": (True, 1), "runs": (True, 1), "waits": (False, 0), "new": (False, 0)}
    assert second.sequence > first.sequence
    read.clear()
    assert told(await past.past_lives(since=LONG_AGO, known=second)) == told(second)
    assert read == []


async def test_after_many_changes_the_last_ones_that_are_over_are_read_and_no_more(
    world: World, past: LedgerPast, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.write(configure("team-a", 100), enqueue("first"))
    known = await past.past_lives(since=LONG_AGO)
    for number in range(5):
        name = f"job-{number}"
        await world.write(enqueue(name, arrival=number + 2), await world.admit(name))
        await world.write(retire(name, 1))
    monkeypatch.setattr(past_lives, "MOST_LIVES", 3)
    found = await past.past_lives(since=LONG_AGO, known=known)
    assert told(found) == {"first": (False, 0), **{f"job-{number}": (True, 1) for number in (2, 3, 4)}}
    assert known.since < found.since <= min(life.ended_at for life in found.lives if life.ended_at)
    assert found.lives == (await past.past_lives(since=LONG_AGO)).lives
    await world.write(enqueue("last", arrival=99), await world.admit("last"))
    await world.write(retire("last", 1))
    after = await past.past_lives(since=LONG_AGO, known=found)
    assert sorted(told(after)) == ["first", "job-3", "job-4", "last"]


async def test_what_was_known_of_a_ledger_that_was_restored_since_does_not_count(
    world: World, past: LedgerPast
) -> None:
    await world.write(configure("team-a", 100), enqueue("here"))
    found = await past.past_lives(since=LONG_AGO)
    longer = PastLives((), found.since, found.until, found.sequence + 1)
    other = PastLives((), found.since, LONG_AGO, found.sequence)
    for known in (longer, other):
        assert told(await past.past_lives(since=LONG_AGO, known=known)) == {"here": (False, 0)}
