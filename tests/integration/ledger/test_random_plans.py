"""After random plans: what `verify` finds, what is known of past times, and the double of the ledger."""

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
from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding, UseVerdict
from queuectl.core.model.policy import SchedulingConfiguration
from queuectl.core.model.priorities import LoweredPriority
from queuectl.core.model.workload import (
    NO_PAST_ATTEMPTS,
    EffectKey,
    LedgerSnapshot,
    PastAttempts,
    Verb,
    WorkloadOutcome,
)
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused
from queuectl.ports.reader import PastLives
from queuectl.sandbox.postgres import EmbeddedPostgres
from tests.doubles.open_holds import open_holds
from tests.doubles.readers import ReadableLedger
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
JUDGED = DeviceUse(
    attempt=1,
    since=START,
    finding=UseFinding(UseVerdict.IDLE, 8, 8, 0.95, 0.0001, None),
    wasted_ms=9,
    idle_ms=7,
    idle_since=START - timedelta(seconds=1),
    notice=IdleNotice(policy="x", at=START, hold_at=START + timedelta(hours=1), cancels=True, lower_at=START),
)
LOWERED = (
    LoweredPriority("Budget/x", "scavenge", -10),
    LoweredPriority("IdlePolicy/x", "scavenge", -10, attempt=1),
)
PASTS = st.sampled_from(
    [
        NO_PAST_ATTEMPTS,
        BACKING_OFF,
        PastAttempts(run_ms=1),
        PastAttempts(run_ms=1, use=JUDGED, lowered=LOWERED),
    ]
)


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
    st.builds(retire, NAMES, st.none() | NUMBERS, st.sampled_from(list(WorkloadOutcome))),
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


async def _check(url: str, steps: list[tuple[list[Decision], list[EffectKey]]]) -> None:
    cluster = f"random-{next(_runs)}"
    memory = ReadableLedger(lambda: START)
    pool = create_pool(url)
    try:
        ledger = PostgresLedger(pool, cluster)
        standby = PostgresLedger(pool, cluster)
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
            assert number % 2 or await standby.load() == states[-1]
            if number % 4 == 1:
                lives_then.append(await past.past_lives(since=START, known=lives_then[-1]))
        assert await ledger.load() == states[-1]
        for number, state in list(enumerate(states))[:: max(1, len(states) // 3)]:
            when = START + timedelta(seconds=number, milliseconds=500)
            then = [await one.at(when) for one in (past, memory)]
            assert then == [replace(state, now=then[0].now)] * 2, when
        for second in (0, len(steps) // 2):
            since = START + timedelta(seconds=second)
            past_lives = await memory.past_lives(since=since)
            for known in (*lives_then, *RESTORED):
                lives = await past.past_lives(since=since, known=known)
                assert lives == past_lives._replace(until=lives.until)
        for until in (len(memory.store.decisions) // 2, len(memory.store.decisions)):
            asked = {row.workload for row in memory.store.decisions if row.workload is not None}
            readers = (LedgerReadings(pool, cluster), memory)
            amounts, expected = [await one.held_by_attempts(asked, until=until) for one in readers]
            assert amounts == expected
        readers = (LedgerReadings(pool, cluster), memory)
        of_both = [await one.preemptions(before=None, since=None, until=None, limit=10**6) for one in readers]
        assert of_both[0] == of_both[1]
        held = sorted(
            (h.workload, h.attempt, h.pod_set, h.pods, h.flavor, h.resource, h.amount)
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
def test_a_ledger_is_sound_after_any_plans_and_the_double_stores_and_refuses_the_same(
    server: EmbeddedPostgres, steps: list[tuple[list[Decision], list[EffectKey]]]
) -> None:
    asyncio.run(_check(server.url, steps))
