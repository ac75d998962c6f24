"""For random plans, the ledgers in Postgres and in memory have the same results, refusals and states."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from queuectl.core.decisions import Decision
from queuectl.core.model import (
    NO_PAST_ATTEMPTS,
    EffectKey,
    LedgerSnapshot,
    Outcome,
    PastAttempts,
    Verb,
)
from queuectl.core.policy import SchedulingConfiguration
from queuectl.ledger.admin.rebuild import open_holds
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.memory import MemoryLedger
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused
from queuectl.ports.reader import DecisionRow, PastLives
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.integration.ledger.plans import (
    BACKING_OFF,
    admit,
    amend,
    configure,
    enqueue,
    evict,
    keep,
    plan,
    release,
    retire,
    shrink,
    wid,
)
from tests.unit.core import profiles

START = datetime(2026, 11, 1, tzinfo=UTC)
NAMES = st.sampled_from(["one", "two", "three"])
NUMBERS = st.integers(1, 3)
PASTS = st.sampled_from([NO_PAST_ATTEMPTS, BACKING_OFF, PastAttempts(run_ms=1)])


def _enqueue(name: str, queue: str | None, priority: int, past: PastAttempts) -> Decision:
    return enqueue(name, queue=queue, priority=priority, past=past)


def _admit(name: str, number: int, gpus: int, debt: bool) -> Decision:
    return admit(name, number, now=START, gpus=gpus, debt=debt)


def _shrink(name: str, number: int, workers: int, gpus: int) -> Decision:
    return shrink(name, number, workers=workers, gpus=gpus)


def _configure(name: str, nominal: int | None, author: str | None) -> Decision:
    return replace(configure(name, nominal), author=author)


DECISIONS: st.SearchStrategy[Decision] = st.one_of(
    st.builds(_enqueue, NAMES, st.sampled_from(["team-a", None]), st.integers(-5, 5), PASTS),
    st.builds(keep, NAMES, recorded=st.booleans()),
    st.builds(
        lambda n, i, g, d: admit(n, i, now=START, gpus=g, debt=d), NAMES, NUMBERS, NUMBERS, st.booleans()
    ),
    st.builds(amend, NAMES, NUMBERS, st.integers(-5, 5), PASTS),
    st.builds(_shrink, NAMES, NUMBERS, st.integers(0, 2), NUMBERS),
    st.builds(evict, NAMES, NUMBERS, past=st.none() | PASTS),
    st.builds(release, NAMES, NUMBERS, st.none() | PASTS),
    st.builds(retire, NAMES, st.none() | NUMBERS, st.sampled_from(list(Outcome))),
    st.builds(
        _configure,
        st.sampled_from(["team-a", "b"]),
        st.none() | st.just(1000),
        st.sampled_from([None, "ada", "a\0da"]),
    ),
)
KEYS = st.builds(lambda n, i, v: EffectKey(wid(n), i, v), NAMES, NUMBERS, st.sampled_from(list(Verb)))
STEPS = st.lists(st.tuples(st.lists(DECISIONS, max_size=5), st.lists(KEYS, max_size=2)), max_size=12)

RESTORED = (
    PastLives((), START, START - timedelta(days=1), sequence=1),
    PastLives((), START, START + timedelta(days=1), sequence=10**6),
)
"""What was known of a ledger that has other decisions since, or fewer: nothing of it counts."""

_runs = iter(range(10**9))


async def _agree(url: str, steps: list[tuple[list[Decision], list[EffectKey]]]) -> None:
    cluster = f"agreement-{next(_runs)}"
    memory = MemoryLedger(lambda: START)
    pool = create_pool(url)
    try:
        ledger, readings = PostgresLedger(pool, cluster), LedgerReadings(pool, cluster)
        past = LedgerPast(pool, cluster, lambda _: SchedulingConfiguration())
        states: list[LedgerSnapshot] = []
        lives_then: list[PastLives | None] = [None]
        epochs = (await ledger.take_epoch("t"), await memory.take_epoch("t"))
        # The quota for the admissions, so that a consistent ledger stays without findings.
        steps = [([configure("team-a", 1000)], []), *steps]
        for number, (decisions, keys) in enumerate(steps):
            batch = plan(*decisions, now=START + timedelta(seconds=number), cycle=number)
            outcomes = [
                await _outcome(one.commit(batch, keys, epoch=epoch, batch=str(number)))
                for one, epoch in ((ledger, epochs[0]), (memory, epochs[1]))
            ]
            assert outcomes[0] == outcomes[1]
            states.append(await memory.load())
            if number % 4 == 1:
                lives_then.append(await past.past_lives(since=START, known=lives_then[-1]))
        assert await ledger.load() == await memory.load()
        for number, state in list(enumerate(states))[:: max(1, len(states) // 3)]:
            when = START + timedelta(seconds=number, milliseconds=500)
            then = [await one.at(when) for one in (past, memory)]
            assert then == [replace(state, now=then[0].now)] * 2, when
        for after in (0, 1, 3, (await memory.load()).sequence):
            theirs, ours = await readings.since(after), await memory.since(after)
            assert theirs.workloads == ours.workloads or after == 0
            assert set(theirs.workloads) == set(ours.workloads)
            assert sorted(theirs.configs) == sorted(ours.configs)
            assert theirs.sequence == ours.sequence
        for second in (0, len(steps) // 2):
            for known in (*lives_then, *RESTORED):
                since = START + timedelta(seconds=second)
                lives = [await one.past_lives(since=since, known=known) for one in (past, memory)]
                assert lives[0] == lives[1]._replace(until=lives[0].until)
        ended = await readings.finished(before=None, since=None, limit=99)
        assert ended == await memory.finished(before=None, since=None, limit=99)
        assert [_row(row) for row in await readings.decisions(after=0, limit=999)] == [
            _row(row) for row in await memory.decisions(after=0, limit=999)
        ]
        for name in ("one", "two", "three"):
            assert await readings.find("ns", "Job", name) == await memory.find("ns", "Job", name)
            for end in (3, 6, 999):
                over = [await one.find("ns", "Job", name, ended_by=end) for one in (readings, memory)]
                assert over[0] == over[1], end
                queues = [await one.queues_of([wid(name)], until=end) for one in (readings, memory)]
                assert queues[0] == queues[1], end
            for until, limit in ((999, 999), (999, 2), (4, 999)):
                stored, twin = [
                    await one.story(wid(name), until=until, limit=limit) for one in (readings, memory)
                ]
                assert stored.effects == twin.effects
                assert list(map(_row, stored.decisions)) == list(map(_row, twin.decisions))
        held = sorted(
            (h.workload, h.attempt, h.pod_set, h.count, h.flavor, h.resource, h.amount)
            for lines in memory.store.holds.values()
            for h in lines
        )
        assert await open_holds(url, cluster) == held
        found = [one for one in await verify(url, cluster) if one.code != "OverQuota"]
        assert found == []
        async with pool.connect() as connection:
            objects = text("SELECT workload FROM queuectl.workload_object WHERE cluster_id = :c ORDER BY 1")
            rows = await connection.execute(objects, {"c": cluster})
            assert list(rows.scalars()) == sorted(memory.store.workloads)
            others = text(
                "SELECT count(*) FROM queuectl.config_revision r JOIN queuectl.decision d "
                "ON d.cluster_id = r.cluster_id AND d.sequence = r.from_seq "
                "WHERE r.cluster_id = :c AND r.author IS DISTINCT FROM d.payload->>'author'"
            )
            assert (await connection.execute(others, {"c": cluster})).scalar_one() == 0
    finally:
        await pool.dispose()


async def _outcome(commit: Any) -> int | str:
    try:
        return int(await commit)
    except LedgerRefused:
        return "refused"


def _row(row: DecisionRow) -> DecisionRow:
    """Without the epoch, which differs: in Postgres it does not start at 1."""
    return replace(row, epoch=0)


@pytest.mark.acceptance
@settings(
    max_examples=profiles.examples(30),
    deadline=None,
    database=None,
    # Without Hypothesis' explain phase, which runs hundreds of further examples.
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_memory_and_postgres_agree(
    server: EmbeddedPostgres, steps: list[tuple[list[Decision], list[EffectKey]]]
) -> None:
    asyncio.run(_agree(server.url, steps))
