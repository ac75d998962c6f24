"""Notifications over Postgres: what rules see of the history, cursors, the lock, and the whole process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.app import notifier as notifying
from queuectl.core.decisions import Decision
from queuectl.core.model.device_use import DeviceUse, IdleNotice, UseFinding, UseVerdict
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import PastAttempts, WorkloadOutcome
from queuectl.ledger.pool import create_pool
from queuectl.ledger.read import outbox as outbox_module
from queuectl.ledger.read.outbox import PostgresOutbox, candidates, earlier
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable
from queuectl.ports.outbox import Occurrence
from queuectl.sandbox.postgres import EmbeddedPostgres
from queuectl.settings import ConfigurationError, Settings, load
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import (
    CREATED,
    PREEMPTED,
    admit,
    amend,
    configure,
    enqueue,
    evict,
    keep,
    release,
    retire,
)
from tests.integration.ledger.test_answers import plan_of
from tests.integration.ledger.test_random_plans import DECISIONS
from tests.unit.core import profiles
from tests.unit.notifications.books import may_be_told, occurrence
from tests.unit.notifications.receivers import hook

NEVER = Reason(code=Code.EXCEEDS_MAX_QUOTA, detail="more than there is")


@pytest.fixture
def outbox(world: World) -> PostgresOutbox:
    return PostgresOutbox(world.pool, world.cluster)


async def lived(world: World) -> None:
    """Decisions 1 to 7: it waits, starts, is preempted, and waits for what it never gets."""
    await world.write(configure("team-a", 100), enqueue("a"))
    await world.write(admit("a", now=await world.ledger.now()))
    await world.write(evict("a", reason=PREEMPTED))
    await world.write(release("a"))
    await world.write(keep("a"), keep("a", NEVER))


async def test_what_rules_may_select_is_read_with_the_queue_and_the_wait(
    world: World, outbox: PostgresOutbox
) -> None:
    await lived(world)
    await world.write(admit("a", 2, now=await world.ledger.now()))
    found = await outbox.occurrences(0, 100)
    assert (found.until, found.head, found.deleted) == (8, 8, None)
    assert [(one.decision.sequence, one.decision.verdict, one.queue) for one in found.found] == [
        (3, "Admitted", "lq"),
        (4, "Evicted", "lq"),
        (7, "Pending", "lq"),
        (8, "Admitted", "lq"),
    ]
    released = (await LedgerReadings(world.pool, world.cluster).decisions(after=4, limit=1))[0]
    waiting = [one.waiting_since for one in found.found]
    assert waiting == [CREATED, CREATED, released.now, released.now]


async def test_a_notice_of_idle_devices_is_an_occurrence(world: World, outbox: PostgresOutbox) -> None:
    now = await world.ledger.now()
    use = DeviceUse(attempt=1, since=now, finding=UseFinding(UseVerdict.IDLE, 8, 8))
    told = replace(use, notice=IdleNotice(policy="p", at=now))
    await world.write(
        enqueue("a"),
        admit("a", now=now),
        amend("a", past=PastAttempts(use=use)),
        amend("a", past=PastAttempts(use=told)),
        amend("a"),
    )
    found = await outbox.occurrences(0, 100)
    assert [(one.decision.sequence, one.decision.verdict) for one in found.found] == [
        (2, "Admitted"),
        (4, "Amended"),
    ]


async def test_an_end_is_an_occurrence_with_submitter_and_labels(
    world: World, outbox: PostgresOutbox
) -> None:
    one = enqueue("a")
    workload = replace(one.workload, submitter="ada", labels=(("notify", "team-a"),))
    await world.write(replace(one, workload=workload))
    await world.write(retire("a", outcome=WorkloadOutcome.FAILED))
    (found,) = (await outbox.occurrences(0, 100)).found
    assert (found.decision.verdict, found.decision.payload["outcome"]) == ("Retired", "Failed")
    assert (found.submitter, found.labels) == ("ada", {"notify": "team-a"})


async def test_the_history_is_read_in_parts(world: World, outbox: PostgresOutbox) -> None:
    await lived(world)
    first = await outbox.occurrences(0, 3)
    assert (first.until, first.head, len(first.found)) == (3, 7, 1)
    second = await outbox.occurrences(first.until, 100)
    assert [one.decision.sequence for one in second.found] == [4, 7]
    last = await outbox.occurrences(7, 100)
    assert (last.found, last.until, last.head) == ([], 7, 7)


async def test_history_that_was_deleted_is_told_as_a_gap(world: World, outbox: PostgresOutbox) -> None:
    await lived(world)
    await world.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence < 4")
    found = await outbox.occurrences(1, 2)
    assert (found.deleted, found.until) == ((world.epoch, 2, 3), 5)
    assert [(one.decision.sequence, one.queue) for one in found.found] == [(4, None)]
    assert found.found[0].waiting_since is None
    await world.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c")
    nothing = await outbox.occurrences(1, 100)
    assert (nothing.deleted, nothing.until, nothing.found) == ((world.epoch, 2, 7), 7, [])


async def test_a_new_cursor_is_at_the_last_decision_and_moves_from_where_it_is_only(
    world: World, outbox: PostgresOutbox
) -> None:
    await lived(world)
    cursor = await outbox.cursor("team")
    assert (cursor.sequence, cursor.sent, cursor.sent_at) == (7, 0, None)
    await world.write(enqueue("b"))
    assert await outbox.cursor("team") == cursor
    await outbox.failed(cursor, 3, "answers 503\0" * 100, 60.0)
    head, now, (stored,) = await outbox.state()
    assert (head, stored.failures, len(stored.error or "")) == (8, 3, 500)
    assert stored.next_try is not None
    assert timedelta(seconds=50) < stored.next_try - now < timedelta(seconds=70)
    assert await outbox.advance(cursor, 8, 1)
    assert not await outbox.advance(cursor, 8, 1)
    after = await outbox.cursor("team")
    assert (after.sequence, after.sent, after.failures, after.error) == (8, 1, 0, None)
    assert after.sent_at is not None


async def test_a_cluster_that_nothing_has_led_has_no_cursor(pool: AsyncEngine) -> None:
    for call in (
        PostgresOutbox(pool, "unknown").cursor("x"),
        PostgresOutbox(pool, "unknown").occurrences(0, 1),
    ):
        with pytest.raises(LedgerUnavailable, match="no controller has led"):
            await call


async def test_history_is_read_by_its_indexes(pool: AsyncEngine) -> None:
    for query in (candidates("c", 3, 9), earlier("c", [5, 7])):
        shown = await plan_of(pool, query)
        assert "Seq Scan" not in shown, shown
        assert "sequence" in next(line for line in shown.splitlines() if "Index Cond" in line)


async def test_one_process_sends_and_another_one_takes_over_when_it_is_gone(
    world: World, outbox: PostgresOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_LOCK_SECONDS", 0.05)
    second = PostgresOutbox(world.pool, world.cluster)

    async def got_it(seconds: float) -> None:
        async with asyncio.timeout(seconds), second.alone():
            pass

    async with outbox.alone() as lock:
        with pytest.raises(TimeoutError):
            await got_it(0.5)
        number = (await lock.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        async with world.pool.connect() as other:
            await other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": number})
        with pytest.raises(LedgerUnavailable):
            await outbox.hold(lock)
        await got_it(30)


@given(plans=st.lists(st.lists(DECISIONS, min_size=1, max_size=3), max_size=12), data=st.data())
@settings(
    max_examples=profiles.examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_the_outbox_has_what_the_rows_say(
    server: EmbeddedPostgres, cluster: str, plans: list[list[Decision]], data: st.DataObject
) -> None:
    pool = create_pool(server.url)
    try:
        ledger = PostgresLedger(pool, cluster)
        world = World(pool, server.url, cluster, ledger, await ledger.take_epoch("test"))
        for number, decisions in enumerate(plans):
            world.batches = number + 1000 * world.epoch
            try:
                await world.write(*decisions)
            except LedgerRefused:
                continue
        rows = await LedgerReadings(pool, cluster).decisions(after=0, limit=1000)
        outbox, after, found = PostgresOutbox(pool, cluster), 0, list[Occurrence]()
        while after < len(rows):
            part = await outbox.occurrences(after, data.draw(st.integers(1, 9)))
            found += part.found
            after = part.until
        assert found == [occurrence(rows, one) for one in rows if may_be_told(one)]
    finally:
        await pool.dispose()


# --- the process --------------------------------------------------------------------------------------


def configured(world: World, folder: Path, url: str) -> Settings:
    file = folder / "config.yaml"
    file.write_text(
        f"api: {{cluster: {world.cluster}}}\n"
        "notifier: {listen: '127.0.0.1:0'}\n"
        "notifications:\n"
        f"- name: team\n  webhook: {{url: '{url}'}}\n"
        "  rules: [{event: Evicted}, {event: StartMoved, movedMoreThanSeconds: 600}]\n"
        "- {name: down, webhook: {url: 'http://127.0.0.1:9/x'}, rules: [{event: Evicted}]}\n"
    )
    return load(file, database_url=world.url, environ={})


async def _asked(world: World) -> int:
    """How many workloads forecasts were asked for."""
    query = text("SELECT count(*) FROM queuectl.told_start WHERE cluster_id = :c")
    async with world.pool.connect() as connection:
        return int((await connection.execute(query, {"c": world.cluster})).scalar_one())


async def test_the_process_tells_and_its_state_can_be_read(
    world: World, outbox: PostgresOutbox, tmp_path: Path
) -> None:
    await world.write(configure("team-a", 100), enqueue("a"))
    async with hook() as receiver, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        found = configured(world, tmp_path, receiver.url)
        running = tasks.create_task(notifying.run_notifier(found))
        while len((await outbox.state())[2]) < 2:
            await asyncio.sleep(0.05)
        while await _asked(world) == 0:
            await asyncio.sleep(0.05)
        await world.write(admit("a", now=await world.ledger.now()))
        await world.write(evict("a", reason=PREEMPTED))
        await receiver.until(1)
        while (team := (await notifying.status(found))["items"][0])["sent"] == 0:
            await asyncio.sleep(0.05)
        while (down := (await notifying.status(found))["items"][1])["failures"] == 0:
            await asyncio.sleep(0.05)
        await notifying.test(found, "team")
        running.cancel()
    assert (team["name"], team["kind"], team["sequence"], team["behind"]) == ("team", "webhook", 4, 0)
    assert (down["sent"], down["behind"]) == (0, 2)
    assert "no connection" in down["error"]
    ids = [headers["Idempotency-Key"] for headers, _ in receiver.requests]
    assert ids[0] == f"{world.cluster}/{world.epoch}/4"
    assert ids[1].startswith(f"{world.cluster}/test/")


async def test_a_sink_that_is_not_configured_is_named_with_those_that_are(
    world: World, tmp_path: Path
) -> None:
    found = configured(world, tmp_path, "https://example.com/x")
    with pytest.raises(notifying.NoSuchSink) as missing:
        await notifying.test(found, "taem")
    assert missing.value.known == ["team", "down"]


async def test_an_observed_cluster_is_not_told_of(world: World, tmp_path: Path) -> None:
    found = configured(world, tmp_path, "https://example.com/x")
    api = found.api.model_copy(update={"cluster": f"{world.cluster}/observe"})
    with pytest.raises(ConfigurationError, match="only observed"):
        await notifying.status(found.model_copy(update={"api": api}))
