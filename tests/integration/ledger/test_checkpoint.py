"""Verification from a checkpoint: it finds what a whole one finds, except in the rows that it covers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from queuectl.core.decisions import Verdict
from queuectl.core.model.resources import FlavorResource
from queuectl.ledger import tables as t
from queuectl.ledger.admin.verify import Verifier, verify
from queuectl.ledger.history import checkpoint
from queuectl.ledger.history.checkpoint import decode, encode
from queuectl.ledger.history.replay import LedgerFinding, Replay
from queuectl.ledger.write.postgres import PostgresLedger
from tests.integration.ledger.edits import EDITS, Edit, World
from tests.integration.ledger.plans import GPU, configure, enqueue, plan, release, retire
from tests.unit.core import profiles

LAST = 22


async def states(world: World) -> dict[int, str]:
    """The state of a checkpoint after each decision."""
    replay, found = Replay(), {}
    query = select(t.decision).where(t.decision.c.cluster_id == world.cluster).order_by(t.decision.c.sequence)
    async with world.pool.connect() as connection:
        for row in await connection.execute(query):
            replay.apply(row)
            replay.forget(row)
            found[row.sequence] = encode(replay)
    return found


async def from_checkpoint(world: World) -> list[LedgerFinding]:
    return await Verifier(world.pool, world.cluster).run()


def tried(edit: Edit) -> set[int]:
    """The decisions with a checkpoint: a third in CI, all with more examples, and those beside the edit."""
    step = max(1, LAST // profiles.examples(LAST // 3))
    beside = set() if edit.at is None else {max(1, edit.at - 1), min(LAST, edit.at)}
    return beside | set(range(LAST, 0, -step))


@pytest.mark.acceptance
@pytest.mark.parametrize("edit", EDITS)
async def test_law_from_any_checkpoint_all_is_found_that_is_newer_or_open(busy: World, edit: Edit) -> None:
    stored = await states(busy)
    assert len(stored) == LAST
    await busy.tamper(edit.statement)
    whole = await verify(busy.url, busy.cluster)
    for sequence in sorted(tried(edit)):
        await checkpoint.store(busy.pool, busy.cluster, decode(stored[sequence]))
        found = await from_checkpoint(busy)
        if edit.at is None or sequence < edit.at:
            assert found == whole, sequence
        else:
            assert set(found) <= set(whole), sequence


async def test_a_change_of_covered_rows_is_found_only_by_reading_all(busy: World) -> None:
    await checkpoint.store(busy.pool, busy.cluster, decode((await states(busy))[LAST]))
    await busy.tamper("UPDATE queuectl.decision SET epoch = 1 WHERE cluster_id = :c AND sequence = 9")
    assert await verify(busy.url, busy.cluster, from_checkpoint=True) == []
    assert {one.code for one in await verify(busy.url, busy.cluster)} == {"OldEpoch"}
    verifier = Verifier(busy.pool, busy.cluster)
    assert await verifier.run() == []
    assert {one.code for one in await verifier.run(whole=True)} == {"OldEpoch"}


async def test_a_checkpoint_is_stored_after_enough_decisions_without_a_difference(busy: World) -> None:
    async def sequence() -> int | None:
        query = select(t.checkpoint.c.sequence).where(t.checkpoint.c.cluster_id == busy.cluster)
        async with busy.pool.connect() as connection:
            return (await connection.execute(query)).scalar()

    verifier = Verifier(busy.pool, busy.cluster)
    await verifier.store(1)  # nothing was read yet
    assert await verifier.run() == []
    await verifier.store(LAST + 1)
    assert await sequence() is None
    await verifier.store(LAST)
    assert await sequence() == LAST
    # Another process begins there.
    other = Verifier(busy.pool, busy.cluster)
    await busy.write(release("leaves"), retire("runs", 1))
    assert await other.run() == []
    await other.store(3)
    assert await sequence() == LAST
    await other.store(2)
    assert await sequence() == LAST + 2
    # With differences none is stored; the next run begins at the last one, and finds them again.
    await busy.write(enqueue("new", arrival=9))
    await busy.tamper("DELETE FROM queuectl.workload WHERE cluster_id = :c AND name = 'new'")
    for _ in range(2):
        assert {one.code for one in await other.run()} == {"MissingWorkload"}
        await other.store(1)
        assert await sequence() == LAST + 2


async def test_a_damaged_checkpoint_is_not_used(busy: World, caplog: pytest.LogCaptureFixture) -> None:
    await checkpoint.store(busy.pool, busy.cluster, decode((await states(busy))[9]))
    await busy.tamper(
        "UPDATE queuectl.checkpoint SET state = replace(state, 'uid-runs', 'x') WHERE cluster_id = :c"
    )
    assert await from_checkpoint(busy) == []
    assert "the checkpoint at decision 9 is damaged" in caplog.text


async def test_a_checkpoint_of_another_version_or_history_is_not_used(busy: World) -> None:
    replaced = PostgresLedger(busy.pool, f"{busy.cluster}-replaced")
    epoch = await replaced.take_epoch("test")
    others = [enqueue(f"other-{number}", arrival=number) for number in range(LAST + 3)]
    await replaced.commit(plan(*others, now=await replaced.now()), [], epoch=epoch, batch="1")
    state = decode((await states(busy))[LAST])
    await checkpoint.store(busy.pool, f"{busy.cluster}-replaced", state)
    assert await Verifier(busy.pool, f"{busy.cluster}-replaced").run() == []

    state.workloads.clear()
    await checkpoint.store(busy.pool, busy.cluster, state)
    assert await from_checkpoint(busy) != []
    await busy.tamper("UPDATE queuectl.checkpoint SET format = 0 WHERE cluster_id = :c")
    assert await from_checkpoint(busy) == []


async def test_a_checkpoint_knows_what_led_to_it_after_its_decisions_are_dropped(busy: World) -> None:
    await checkpoint.store(busy.pool, busy.cluster, decode((await states(busy))[18]))
    await busy.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence <= 16")
    assert await verify(busy.url, busy.cluster) == []
    assert await from_checkpoint(busy) == []
    await busy.tamper("UPDATE queuectl.workload SET attempts = 7 WHERE cluster_id = :c AND name = 'waits'")
    assert await verify(busy.url, busy.cluster) == [], "its first decisions are no longer there"
    assert {one.code for one in await from_checkpoint(busy)} == {"Workload"}


@pytest.mark.parametrize("dropped", [18, 20, LAST - 1])
async def test_a_checkpoint_whose_own_decision_is_dropped_is_not_used(busy: World, dropped: int) -> None:
    await checkpoint.store(busy.pool, busy.cluster, decode((await states(busy))[18]))
    await busy.tamper(f"DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence <= {dropped}")
    assert await from_checkpoint(busy) == []
    await busy.write(enqueue("new", arrival=9), await busy.admit("new"))
    assert await from_checkpoint(busy) == []


async def test_usage_is_compared_again_once_no_open_workload_is_older_than_the_history(busy: World) -> None:
    await busy.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence <= 16")
    await busy.write(release("leaves"), *(retire(name) for name in ("leaves", "waits")))
    await busy.write(retire("runs", 1), retire("adopted", 1), retire("again", 2))
    verifier = Verifier(busy.pool, busy.cluster)
    assert await verifier.run() == []
    await busy.write(enqueue("new", arrival=9), await busy.admit("new"))
    assert await verifier.run() == []
    await busy.tamper("UPDATE queuectl.hold_line SET cluster_queue = 'x' WHERE cluster_id = :c AND open")
    assert {one.code for one in await verifier.run()} == {"Usage"}


# --- law of the replay itself


@dataclass
class Row:
    """A row of `decision`."""

    sequence: int
    verdict: Verdict
    payload: dict[str, Any]
    workload: str | None = None
    attempt: int | None = None
    now: datetime = datetime(2026, 5, 5, tzinfo=UTC)
    epoch: int = 1
    namespace: str = "ns"
    kind: str = "Job"
    name: str = ""


GPUS = FlavorResource("a100", GPU)
NAMES = ("one", "two", "three")
QUEUES = ("team-a", "team-b")


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Decisions on a few workloads in two queues, now and then beyond quota or with a wrong attempt."""
    found: list[Row] = []
    attempts: dict[str, int] = {}
    held: set[str] = set()
    now, first = datetime(2026, 5, 5, tzinfo=UTC), draw(st.sampled_from([1, 7]))
    if first > 1:
        attempts = dict.fromkeys(draw(st.sets(st.sampled_from(NAMES))), 1)
    for sequence in range(first, first + draw(st.integers(2, 25))):
        now += timedelta(microseconds=draw(st.integers(0, 3)))
        name = draw(st.sampled_from(NAMES))
        row = Row(sequence, Verdict.CONFIGURED, {}, now=now, name=name)
        found.append(row)
        if draw(st.integers(0, 5)) == 0:
            row.payload = policy(draw(st.sampled_from(QUEUES)), draw(st.sampled_from([None, 4, 8])))
            continue
        row.workload = f"uid-{name}"
        row.attempt = attempts.get(name, 0) + draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
        if name not in attempts:
            row.verdict, attempts[name] = Verdict.QUEUED, 0
        elif name in held:
            ends = [Verdict.RELEASED, Verdict.RETIRED]
            row.verdict = draw(st.sampled_from([*ends, Verdict.EVICTED, Verdict.SHRUNK, Verdict.AMENDED]))
            row.payload = pod_sets(1) if row.verdict is Verdict.SHRUNK else {"past": {"runMs": sequence}}
            held -= {name} if row.verdict in ends else set()
        elif draw(st.booleans()):
            row.verdict, row.attempt = Verdict.ADMITTED, row.attempt + 1
            row.payload = pod_sets(draw(st.integers(1, 4)))
            row.payload |= {"debt": draw(st.booleans()), "clusterQueue": draw(st.sampled_from(QUEUES))}
            attempts[name] = row.attempt
            held.add(name)
        else:
            row.verdict, row.attempt = Verdict.RETIRED, None
        if row.verdict is Verdict.RETIRED:
            del attempts[name]
    return found


def policy(queue: str, nominal: int | None) -> dict[str, Any]:
    change = configure(queue, nominal, cohort="all")
    spec = None if change.spec is None else json.loads(change.spec)
    return {**change.key._asdict(), "spec": spec}


def pod_sets(count: int) -> dict[str, Any]:
    requests: dict[str, Any] = {"requests": {GPU: 2}, "flavors": {GPU: "a100"}}
    return {"podSets": [{"name": "main", "count": count, **requests}]}


def play(replay: Replay, row: Row) -> None:
    replay.apply(row)
    replay.forget(row)


@pytest.mark.acceptance
@given(histories(), st.sets(st.integers(0, 24)))
def test_law_a_replay_continues_from_its_stored_state_as_if_it_had_not_stopped(
    history: list[Row], stored_after: set[int]
) -> None:
    whole, resumed = Replay(), Replay()
    for number, row in enumerate(history):
        play(whole, row)
        play(resumed, row)
        assert resumed.findings == whole.findings
        if number in stored_after and not whole.findings:
            resumed = decode(encode(resumed))
        same(resumed, whole)


def same(resumed: Replay, whole: Replay) -> None:
    assert encode(resumed) == encode(whole)
    assert resumed.unreadable == whole.unreadable
    for queue in QUEUES:
        for replay in (resumed, whole):
            replay.usage.setdefault(queue, {}).setdefault(GPUS, 0)
        assert resumed.usage[queue] == whole.usage[queue]
        left, right = (
            one.tree.available(one.tree.queue(queue), one.tree.cell(GPUS)) for one in (resumed, whole)
        )
        assert left == right
