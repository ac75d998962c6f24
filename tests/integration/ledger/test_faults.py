"""A Postgres that ends, has no space, responds late or not at all, and rows that its constraints refuse."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.core.model.workload import EffectKey, Verb
from queuectl.ledger.admin.schema import migrate
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.past_usage import preemptions
from queuectl.ledger.pool import create_pool, storing, translated, uncancelled
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerRefused, LedgerUnavailable, LostLeadership, PlanFailed, SchemaMismatch
from queuectl.sandbox.postgres import DATABASE, USER, EmbeddedPostgres
from tests.integration.ledger.places import reachable_folder
from tests.integration.ledger.plans import admit, configure, enqueue, evict, keep, plan, wid
from tests.integration.ledger.proxies import commit_proxy

DEADLINE = 30


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as place:
        yield place


@asynccontextmanager
async def connection_pool(url: str, statement_timeout: float = 10.0) -> AsyncIterator[AsyncEngine]:
    pool = create_pool(url, statement_timeout=statement_timeout)
    try:
        yield pool
    finally:
        await pool.dispose()


# --- unknown commits


async def test_a_commit_with_a_lost_response_is_stored_once(
    server: EmbeddedPostgres, folder: Path, cluster: str
) -> None:
    sockets = server.folder / "socket"
    async with commit_proxy(folder, sockets) as proxy:
        url = f"postgresql://{USER}@/{DATABASE}?host={quote(str(folder), safe='')}"
        async with connection_pool(url) as pool, asyncio.timeout(DEADLINE):
            ledger = PostgresLedger(pool, cluster)
            epoch = await ledger.take_epoch("test")
            now = await ledger.now()
            unsure = plan(configure("team-a", 8), enqueue("one"), admit("one", now=now), now=now)
            proxy.drop_answers = 1
            with pytest.raises(LedgerUnavailable):
                await ledger.commit(unsure, [], epoch=epoch, batch="unsure")
            assert proxy.drop_answers == 0
            assert await ledger.commit(unsure, [], epoch=epoch, batch="unsure") == 1
            snapshot = await ledger.load()
            assert snapshot.sequence == 3
            assert snapshot.effects == (EffectKey(wid("one"), 1, Verb.START),)
    assert await verify(server.url, cluster) == []


async def test_a_first_try_still_committing_is_waited_for_and_not_stored_twice(
    pool: AsyncEngine, cluster: str
) -> None:
    """The client may stop waiting while the server still commits."""
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    now = await ledger.now()
    unsure = plan(enqueue("one"), now=now)
    held, let_go = asyncio.Event(), asyncio.Event()

    async def first_try() -> None:
        async with pool.begin() as connection:
            raised = "UPDATE queuectl.leadership SET sequence = 1, now = :now WHERE cluster_id = :c"
            await connection.execute(text(raised), {"now": now, "c": cluster})
            await connection.execute(
                text(
                    "INSERT INTO queuectl.batch SELECT :c, 'unsure', 1, 1, epoch "
                    "FROM queuectl.leadership WHERE cluster_id = :c"
                ),
                {"c": cluster},
            )
            held.set()
            await let_go.wait()

    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        group.create_task(first_try())
        await held.wait()
        again = group.create_task(ledger.commit(unsure, [], epoch=epoch, batch="unsure"))
        await _until_blocked(pool)
        let_go.set()
        assert await again == 1
    assert (await ledger.load()).sequence == 1


async def _until_blocked(pool: AsyncEngine) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    while True:
        async with pool.connect() as connection:
            if (await connection.execute(waiting)).scalar_one():
                return
        await asyncio.sleep(0.01)


async def test_taking_the_epoch_waits_for_a_commit_under_way(pool: AsyncEngine, cluster: str) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("first")
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        async with pool.begin() as connection:
            await connection.execute(
                text("SELECT FROM queuectl.leadership WHERE cluster_id = :c FOR UPDATE"), {"c": cluster}
            )
            taking = group.create_task(PostgresLedger(pool, cluster).take_epoch("second"))
            await _until_blocked(pool)
            assert not taking.done()
        assert await taking > epoch


async def test_a_load_may_compute_longer_between_two_statements_than_a_commit(
    pool: AsyncEngine, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 waiting workloads become values within the transaction: Postgres must not end it meanwhile."""
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")

    async def asked(connection: AsyncConnection, *arguments: Any) -> Any:
        found = await preemptions(connection, *arguments)
        query = text("SELECT current_setting('idle_in_transaction_session_timeout')")
        assert (await connection.execute(query)).scalar_one() == "2min"
        return found

    now = await ledger.now()
    await ledger.commit(plan(enqueue("one"), now=now), [], epoch=epoch, batch="a")
    monkeypatch.setattr("queuectl.ledger.write.postgres.preemptions", asked)
    assert len((await ledger.load()).workloads) == 1


# --- plans that can't be stored


_POISON = """CREATE FUNCTION queuectl.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF NEW.name = 'poison' THEN {body}; END IF; RETURN NEW; END $$"""


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("RAISE EXCEPTION 'I do not like it'", "P0001"),
        ("PERFORM pg_sleep(60)", "57014"),
        ("RAISE EXCEPTION 'too long' USING ERRCODE = '54000'", "54000"),
        ("RAISE EXCEPTION 'no right' USING ERRCODE = '42501'", "42501"),
    ],
)
async def test_a_plan_that_the_server_fails_to_store_is_told_from_an_outage_and_not_stored(
    server: EmbeddedPostgres, pool: AsyncEngine, cluster: str, body: str, state: str
) -> None:
    async with connection_pool(server.url, statement_timeout=1.0) as hasty, asyncio.timeout(DEADLINE):
        ledger = PostgresLedger(hasty, cluster)
        epoch = await ledger.take_epoch("test")
        async with pool.begin() as connection:
            await connection.execute(text(_POISON.format(body=body)))
            await connection.execute(
                text(
                    "CREATE TRIGGER no BEFORE INSERT ON queuectl.workload_open "
                    "FOR EACH ROW EXECUTE FUNCTION queuectl.no()"
                )
            )
        try:
            now = await ledger.now()
            with pytest.raises(PlanFailed) as failed:
                await ledger.commit(plan(enqueue("poison"), now=now), [], epoch=epoch, batch="a")
            assert failed.value.state == state
            assert await ledger.commit(plan(enqueue("one"), now=now), [], epoch=epoch, batch="b") == 1
        finally:
            async with pool.begin() as connection:
                await connection.execute(text("DROP FUNCTION queuectl.no() CASCADE"))


@pytest.mark.parametrize("state", ["08006", "40001", "53100", "55P03", "57P01", "58030", "25006"])
async def test_an_outage_is_no_failure_of_a_plan(pool: AsyncEngine, state: str) -> None:
    raised = f"DO $$ BEGIN RAISE EXCEPTION 'away' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(DBAPIError) as away, storing():
        async with pool.begin() as connection:
            await connection.execute(text(raised))
    assert type(translated(away.value)) is LedgerUnavailable


# --- a database that was restored from a backup


async def _restored(pool: AsyncEngine, cluster: str, backup: dict[str, Any]) -> None:
    """Set the cluster's row back to what a backup has; its decisions are of no matter here."""
    columns = ", ".join(f"{name} = :{name}" for name in backup)
    async with pool.begin() as connection:
        await connection.execute(
            text(f"UPDATE queuectl.leadership SET {columns} WHERE cluster_id = :c"), backup | {"c": cluster}
        )


async def _backup(pool: AsyncEngine, cluster: str) -> dict[str, Any]:
    query = "SELECT epoch, holder, sequence, batches, now FROM queuectl.leadership WHERE cluster_id = :c"
    async with pool.begin() as connection:
        return dict((await connection.execute(text(query), {"c": cluster})).mappings().one())


async def test_an_epoch_taken_after_a_restore_is_above_every_epoch_that_was_ever_taken(
    pool: AsyncEngine, cluster: str
) -> None:
    await PostgresLedger(pool, cluster).take_epoch("first")
    backup = await _backup(pool, cluster)
    alive = [await PostgresLedger(pool, cluster).take_epoch(f"later {n}") for n in range(3)]
    await _restored(pool, cluster, backup)
    assert await PostgresLedger(pool, cluster).take_epoch("after the restore") > max(alive)


async def test_a_live_process_with_the_same_epoch_is_fenced_off_whatever_the_clock_says(
    pool: AsyncEngine, cluster: str
) -> None:
    """The clock of the server of the restored database may be behind: then an epoch can be taken twice."""
    deposed, leader = PostgresLedger(pool, cluster), PostgresLedger(pool, cluster)
    same = await deposed.take_epoch("deposed")
    await leader.take_epoch("leader")
    await _restored(pool, cluster, {"epoch": same})
    now = await leader.now()
    with pytest.raises(LostLeadership, match=f"epoch {same} is over: leader took epoch {same}"):
        await deposed.commit(plan(enqueue("one"), now=now), [], epoch=same, batch="a")
    assert await leader.commit(plan(enqueue("one"), now=now), [], epoch=same, batch="a") == 1


async def test_a_leader_under_which_the_database_is_restored_stores_nothing_more(
    pool: AsyncEngine, cluster: str
) -> None:
    """What it has in memory is not in the ledger any more."""
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("leader")
    backup = await _backup(pool, cluster)
    await ledger.commit(plan(enqueue("one"), now=await ledger.now()), [], epoch=epoch, batch="a")
    await _restored(pool, cluster, backup)
    now = await ledger.now()
    with pytest.raises(
        LostLeadership, match=r"is at decision 0, transaction 0, .* stored decision 1, .*restored"
    ):
        await ledger.commit(plan(enqueue("two"), now=now), [], epoch=epoch, batch="b")
    assert (await _backup(pool, cluster))["sequence"] == 0


async def test_a_leader_under_which_a_replica_lacks_only_acknowledgements_stores_nothing_more(
    pool: AsyncEngine, cluster: str
) -> None:
    """No decision is lost: but what it knows to be acknowledged is not."""
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("leader")
    await ledger.commit(plan(enqueue("one"), now=await ledger.now()), [], epoch=epoch, batch="a")
    replica = await _backup(pool, cluster)
    await ledger.commit(plan(now=await ledger.now()), [], epoch=epoch, batch="b")
    await _restored(pool, cluster, replica)
    now = await ledger.now()
    lost = r"is at decision 1, transaction 1, .* stored decision 1, transaction 2: .* lacks the last"
    with pytest.raises(LostLeadership, match=lost):
        await ledger.commit(plan(enqueue("two"), now=now), [], epoch=epoch, batch="c")
    with pytest.raises(LostLeadership, match=lost):
        await ledger.load()


# --- cancellation


async def test_a_cancelled_commit_is_completed_and_returns_its_connection(
    pool: AsyncEngine, cluster: str
) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    for number in range(20):
        now = await ledger.now()
        name = f"w{number}"
        committing = asyncio.get_running_loop().create_task(
            ledger.commit(plan(enqueue(name), admit(name, now=now), now=now), [], epoch=epoch, batch=name)
        )
        for _ in range(number):
            await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
    async with pool.connect() as connection:
        idle = await connection.execute(
            text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        )
        assert idle.scalar_one() == 0
    snapshot = await ledger.load()
    assert len(snapshot.effects) * 2 == snapshot.sequence


async def test_an_error_after_a_cancellation_is_reported() -> None:
    begun = asyncio.Event()

    async def fails() -> None:
        begun.set()
        await asyncio.sleep(0.01)
        raise LedgerUnavailable("late")

    task = asyncio.get_running_loop().create_task(uncancelled(fails()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- a server that ends, or refuses


@pytest.mark.acceptance
async def test_a_dead_server_is_unavailable_whatever_the_error_and_available_again_afterwards(
    folder: Path,
) -> None:
    async with EmbeddedPostgres(folder / "pg", settings={"fsync": "off"}) as first:
        await migrate(first.url)
        async with connection_pool(first.url) as pool:
            ledger = PostgresLedger(pool, "c")
            epoch = await ledger.take_epoch("test")
            stored = 0
            async with asyncio.timeout(120):
                for round_number in range(3):
                    await _die_while_writing(ledger, epoch, first, round_number)
                    # Dead: every call raises Unavailable, whatever the error.
                    for call in (ledger.load, ledger.now, lambda: ledger.take_epoch("test")):
                        with pytest.raises(LedgerUnavailable):
                            await call()
                    await first.__aexit__(None, None, None)
                    await first.__aenter__()
                    snapshot = await _patiently(ledger)
                    assert snapshot.sequence >= stored
                    stored = snapshot.sequence
            assert await verify(first.url, "c") == []


async def _die_while_writing(
    ledger: PostgresLedger, epoch: int, server: EmbeddedPostgres, round_number: int
) -> None:
    async def write() -> None:
        for number in range(10_000):
            name = f"r{round_number}n{number}"
            now = await ledger.now()
            await ledger.commit(plan(enqueue(name), now=now), [], epoch=epoch, batch=name)

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(_outcome(write()))
        await asyncio.sleep(0.05)
        os.kill(server.pid, signal.SIGKILL if round_number % 2 else signal.SIGQUIT)
        assert isinstance(await writing, LedgerUnavailable)
        await asyncio.sleep(0)


async def _outcome(work: Any) -> BaseException | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def _patiently(ledger: PostgresLedger) -> Any:
    while True:
        try:
            return await ledger.load()
        except LedgerUnavailable:
            await asyncio.sleep(0.01)


async def test_a_broken_connection_is_unavailable_once_and_replaced(pool: AsyncEngine, cluster: str) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    async with pool.begin() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND application_name = 'queuectl'"
            )
        )
    answers = []
    for number in range(20):
        try:
            now = await ledger.now()
            await ledger.commit(plan(keep("x"), now=now), [], epoch=epoch, batch=str(number))
        except LedgerUnavailable as error:
            answers.append(error)
        except LedgerRefused:
            break
    else:
        pytest.fail(f"never recovered: {answers}")


async def test_no_server_at_all_is_unavailable(folder: Path) -> None:
    missing = f"postgresql://{USER}@/{DATABASE}?host={folder}"
    for url in (missing, "postgresql://127.0.0.1:1/x", "postgresql+asyncpg://127.0.0.1:1/x"):
        async with connection_pool(url) as pool:
            with pytest.raises(LedgerUnavailable):
                await PostgresLedger(pool, "c").load()


async def test_a_missing_database_is_a_mismatch_that_says_what_to_do(server: EmbeddedPostgres) -> None:
    async with connection_pool(server.database_url("nowhere")) as pool:
        with pytest.raises(SchemaMismatch, match=r'"nowhere" does not exist.*queuectl migrate'):
            await PostgresLedger(pool, "c").load()
    async with connection_pool(server.database_url("postgres")) as pool:
        with pytest.raises(SchemaMismatch, match="start this program again, it says what to do"):
            await PostgresLedger(pool, "c").take_epoch("test")


async def test_a_read_only_server_is_unavailable_and_still_readable(
    server: EmbeddedPostgres, pool: AsyncEngine, cluster: str
) -> None:
    await PostgresLedger(pool, cluster).take_epoch("test")
    async with connection_pool(f"{server.url}&options=-cdefault_transaction_read_only%3Don") as read_only:
        ledger = PostgresLedger(read_only, cluster)
        with pytest.raises(LedgerUnavailable, match="read-only transaction"):
            await ledger.take_epoch("test")
        assert (await ledger.load()).sequence == 0


@pytest.mark.acceptance
async def test_too_many_connections_is_unavailable(folder: Path) -> None:
    few = {"max_connections": "5", "superuser_reserved_connections": "1", "fsync": "off"}
    async with EmbeddedPostgres(folder / "pg", settings=few) as small:
        await migrate(small.url)
        taken = [await asyncpg.connect(small.url) for _ in range(5)]
        try:
            async with connection_pool(small.url) as pool:
                ledger = PostgresLedger(pool, "c")
                with pytest.raises(LedgerUnavailable, match="too many clients"):
                    await ledger.take_epoch("test")
                await taken.pop().close()
                async with asyncio.timeout(DEADLINE):
                    while True:
                        try:
                            await ledger.take_epoch("test")
                            break
                        except LedgerUnavailable:
                            await asyncio.sleep(0.02)
        finally:
            for connection in taken:
                await connection.close()


@asynccontextmanager
async def _failing(pool: AsyncEngine, table: str, state: str) -> AsyncIterator[None]:
    """Inserts into `table` fail with an error of the server with a chosen SQLSTATE."""
    body = f"BEGIN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{state}'; END"
    function = f"CREATE FUNCTION queuectl.fail() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
    trigger = f"CREATE TRIGGER fail BEFORE INSERT ON queuectl.{table} FOR EACH ROW EXECUTE FUNCTION"
    async with pool.begin() as connection:
        await connection.execute(text(function))
        await connection.execute(text(f"{trigger} queuectl.fail()"))
    try:
        yield
    finally:
        async with pool.begin() as connection:
            await connection.execute(text("DROP FUNCTION queuectl.fail CASCADE"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("53100", LedgerUnavailable),  # disk full
        ("53200", LedgerUnavailable),  # out of memory
        ("55P03", LedgerUnavailable),  # lock timeout
        ("57014", LedgerUnavailable),  # statement timeout
        ("57P01", LedgerUnavailable),  # shut down by the administrator
        ("40001", LedgerUnavailable),  # serialization
        ("40P01", LedgerUnavailable),  # deadlock
        ("58030", LedgerUnavailable),  # I/O error
        ("XX001", LedgerUnavailable),  # corrupted
        ("23514", LedgerRefused),
        ("22003", PlanFailed),  # a value that no row can hold
        ("42P01", SchemaMismatch),
    ],
)
async def test_a_failure_in_the_middle_stores_nothing_and_is_named(
    pool: AsyncEngine, cluster: str, state: str, expected: type[Exception]
) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    now = await ledger.now()
    batch = plan(enqueue("one"), admit("one", now=now), now=now)
    async with _failing(pool, "hold_line", state):
        with pytest.raises(expected):
            await ledger.commit(batch, [], epoch=epoch, batch="b")
    assert (await ledger.load()).sequence == 0
    assert await ledger.commit(batch, [], epoch=epoch, batch="b") == 1


async def test_a_dead_connection_of_the_clock_is_not_used_again(
    server: EmbeddedPostgres, cluster: str
) -> None:
    async with connection_pool(server.url) as pool:
        ledger = PostgresLedger(pool, cluster)
        before = await ledger.now()
        async with pool.connect() as idle:  # the only one of the pool
            mine = (await idle.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        other = await asyncpg.connect(server.url)
        try:
            assert await other.fetchval("SELECT pg_terminate_backend($1, 5000)", mine)
        finally:
            await other.close()
        with pytest.raises(LedgerUnavailable):
            await ledger.now()
        assert await ledger.now() >= before


def test_errors_that_are_not_of_the_database_are_not_changed() -> None:
    assert translated(KeyError("x")) is None
    assert translated(AssertionError("x")) is None


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no"),
        TimeoutError(),
        asyncpg.InternalClientError("unexpected"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError("closed in the middle"),
        asyncpg.CannotConnectNowError("starting up"),
        InterfaceError("select", {}, Exception("gone")),
        DBAPIError("select", {}, Exception("gone"), connection_invalidated=True),
    ],
)
def test_every_error_of_a_dead_server_is_unavailable(error: Exception) -> None:
    assert isinstance(translated(error), LedgerUnavailable)


# --- constraints of the database


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "INSERT INTO queuectl.attempt SELECT * FROM queuectl.attempt WHERE cluster_id = :c",
            "attempt_one_open",
        ),
        ("UPDATE queuectl.hold_line SET amount = -1 WHERE cluster_id = :c", "hold_line_amount_check"),
        ("UPDATE queuectl.hold_line SET count = -1 WHERE cluster_id = :c", "hold_line_count_check"),
        ("UPDATE queuectl.hold_line SET amount = 9223372036854775807 + 1::numeric", "out of range"),
        ("UPDATE queuectl.workload SET phase = 'Gone' WHERE cluster_id = :c", "workload_check"),
        ("UPDATE queuectl.workload SET open = false WHERE cluster_id = :c", "workload_check"),
        ("UPDATE queuectl.attempt SET state = 'Closed' WHERE cluster_id = :c", "attempt_check"),
        ("UPDATE queuectl.effect SET verb = 'Kill' WHERE cluster_id = :c", "effect_verb_check"),
        ("UPDATE queuectl.leadership SET epoch = 0 WHERE cluster_id = :c", "leadership_epoch_check"),
        ("UPDATE queuectl.decision SET cycle = 9 WHERE cluster_id = :c", "never changed"),
        ("DELETE FROM queuectl.decision WHERE cluster_id = :c", "never changed"),
        (
            "INSERT INTO queuectl.decision SELECT cluster_id, sequence + 2, now, epoch, cycle, verdict,"
            " workload, namespace, kind, name, uid, attempt, reason, payload, 1, 1, 0 FROM queuectl.decision"
            " WHERE cluster_id = :c AND sequence = 4",
            "do not follow 4",
        ),
        (
            "INSERT INTO queuectl.decision SELECT cluster_id, sequence, now + interval '1 s', epoch, cycle,"
            " verdict, workload, namespace, kind, name, uid, attempt, reason, payload, 1, 1, 0"
            " FROM queuectl.decision WHERE cluster_id = :c AND sequence = 2",
            "do not follow 1",
        ),
        (
            "INSERT INTO queuectl.config_revision SELECT :c, 'ClusterQueue', '', 'q', n, NULL, now(), NULL,"
            " '{}' FROM generate_series(1, 2) AS n",
            "config_in_force",
        ),
    ],
)
async def test_the_constraints_of_the_database_refuse_an_invalid_row(
    pool: AsyncEngine, server: EmbeddedPostgres, cluster: str, statement: str, message: str
) -> None:
    ledger = PostgresLedger(pool, cluster)
    epoch = await ledger.take_epoch("test")
    now = await ledger.now()
    written = plan(configure("team-a", 8), enqueue("one"), admit("one", now=now), evict("one"), now=now)
    await ledger.commit(written, [], epoch=epoch, batch="b")
    with pytest.raises(DBAPIError, match=message) as caught:
        async with pool.begin() as connection:
            await connection.execute(text(statement), {"c": cluster} if ":c" in statement else {})
    assert isinstance(translated(caught.value), LedgerRefused)
    assert await verify(server.url, cluster) == []
