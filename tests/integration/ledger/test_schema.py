from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from queuectl.core.decisions import Decision
from queuectl.core.model.budgets import BudgetEntry, EntryKind, Period
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.workload import PodSet
from queuectl.ledger.admin import schema
from queuectl.ledger.admin.partitions import drop_history, ensure_partitions
from queuectl.ledger.admin.schema import check, migrate
from queuectl.ledger.admin.verify import verify
from queuectl.ledger.history.state_at import LedgerPast
from queuectl.ledger.pool import connection_pool, create_pool
from queuectl.ledger.read.queries import clusters, installation
from queuectl.ledger.tables import HISTORY, SCHEMA, metadata
from queuectl.ledger.write import statements as s
from queuectl.ledger.write.postgres import PostgresLedger
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from tests.builders import GPU
from tests.integration.ledger.plans import admit, configure, enqueue, month_before, plan, retire, workload


async def run(url: str, *statements: str) -> Any:
    pool = create_pool(url)
    try:
        async with pool.begin() as connection:
            for statement in statements:
                result = await connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        await pool.dispose()


async def test_an_empty_database_is_refused_until_it_is_migrated(fresh: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"has no ledger in it: run `queuectl migrate`"):
        await check(fresh)
    with pytest.raises(SchemaMismatch):
        await verify(fresh)
    # The check changes nothing.
    assert await run(fresh, f"SELECT to_regnamespace('{SCHEMA}')") is None
    revision = await migrate(fresh)
    assert await migrate(fresh) == revision
    await check(fresh, writing=True)
    assert await verify(fresh) == []


def test_the_files_of_the_migrations_are_named_by_their_revisions() -> None:
    scripts = ScriptDirectory.from_config(schema._config())
    known = frozenset(one.revision for one in scripts.walk_revisions())
    assert schema._revisions() == (scripts.get_current_head(), known)


async def test_an_older_schema_is_refused_with_the_command_to_run(
    fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await migrate(fresh)
    monkeypatch.setattr(schema, "_revisions", lambda: ("0999", frozenset({now, "0999"})))
    with pytest.raises(SchemaMismatch, match=rf"schema {now}, .* needs 0999: run `queuectl migrate`"):
        await check(fresh)


async def test_a_newer_schema_is_refused_and_left_alone(migrated: str) -> None:
    await run(migrated, f"UPDATE {SCHEMA}.schema_version SET version_num = '9999'")
    for refused in (check(migrated), migrate(migrated)):
        with pytest.raises(SchemaMismatch, match="9999 is newer than this program"):
            await refused


async def test_a_controller_refuses_a_read_only_server(migrated: str) -> None:
    standby = f"{migrated}&options=-cdefault_transaction_read_only%3Don"
    await check(standby)
    with pytest.raises(LedgerUnavailable, match="takes no writes"):
        await check(standby, writing=True)


async def test_a_database_has_an_identity_that_a_second_migration_leaves_alone(migrated: str) -> None:
    async with connection_pool(migrated) as pool:
        first = await installation(pool)
        await migrate(migrated)
        assert await installation(pool) == first
    with pytest.raises(IntegrityError):
        await run(migrated, f"INSERT INTO {SCHEMA}.installation DEFAULT VALUES")


async def test_the_migrated_tables_are_those_of_the_program(migrated: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        def ours(name: str | None, kind: str, parents: Any) -> bool:
            return kind != "schema" or name == SCHEMA

        options = {"include_schemas": True, "include_name": ours, "compare_type": True}
        found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        # Indexes and partitions are defined by the migrations alone.
        return [one for one in found if one[0] not in ("remove_index", "remove_table")]

    # By default the schema named like the user comes first, and would be reflected as no schema.
    pool = create_pool(f"{migrated}&options=-csearch_path%3Dpublic")
    try:
        async with pool.connect() as connection:
            assert await connection.run_sync(differences) == []
    finally:
        await pool.dispose()


@pytest.mark.acceptance
async def test_a_migration_can_be_reverted(fresh: str) -> None:
    await migrate(fresh)

    def down(connection: Connection) -> None:
        config = schema._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    pool = create_pool(fresh)
    try:
        async with pool.begin() as connection:
            await connection.run_sync(down)
            left = text(
                "SELECT count(*) FROM pg_class WHERE relnamespace = CAST(:s AS regnamespace) "
                "AND relname NOT LIKE 'schema_version%'"
            )
            assert (await connection.execute(left, {"s": SCHEMA})).scalar_one() == 0
    finally:
        await pool.dispose()
    await migrate(fresh)
    await check(fresh)


@pytest.mark.acceptance
def test_the_alembic_command_migrates_too(fresh: str) -> None:
    environment = {
        **os.environ,
        "QUEUECTL_DATABASE_URL": fresh,
        "PYTHONPATH": os.pathsep.join((str(Path.cwd()), *sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def test_partitions_exist_for_this_month_and_three_more(migrated: str) -> None:
    pool = create_pool(migrated)
    try:
        assert await ensure_partitions(pool) == []
        made = await ensure_partitions(pool, months_ahead=5)
        assert len(made) == 2 * len(HISTORY)
        now = await PostgresLedger(pool, "c").now()
        assert await run(migrated, f"SELECT to_regclass('{SCHEMA}.decision_{now:%Y_%m}') IS NOT NULL")
    finally:
        await pool.dispose()


async def test_rows_without_a_partition_are_kept_and_reported(migrated: str) -> None:
    pool = create_pool(migrated)
    try:
        ledger = PostgresLedger(pool, "c")
        epoch = await ledger.take_epoch("test")
        far = datetime(2999, 1, 1, tzinfo=UTC)
        await ledger.commit(plan(enqueue("one"), now=far), [], epoch=epoch, batch="b")
        assert (await ledger.load()).sequence == 1
    finally:
        await pool.dispose()
    [finding] = await verify(migrated)
    assert (finding.code, finding.subject) == ("DefaultPartition", "decision_default")


async def months_of_history(migrated: str, *counts: int) -> list[datetime]:
    """Add the partitions of months that many before this one; return a day in each.

    Usage is added up for each hour since then before they are dropped: few months are fast.
    """
    today = await run(migrated, "SELECT now()")
    months = [month_before(today, count) for count in counts]
    for month, count in zip(months, counts, strict=True):
        end = month_before(today, count - 1)
        await run(
            migrated,
            *(
                f"CREATE TABLE {SCHEMA}.{parent}_{month:%Y_%m} PARTITION OF {SCHEMA}.{parent} "
                f"FOR VALUES FROM ('{month:%Y-%m-%d}Z') TO ('{end:%Y-%m-%d}Z')"
                for parent in HISTORY.values()
            ),
        )
    return [month + timedelta(days=14) for month in months]


async def test_old_months_are_dropped_and_open_rows_stay(migrated: str) -> None:
    _, past = await months_of_history(migrated, 3, 2)
    pool = create_pool(migrated)
    try:
        ledger = PostgresLedger(pool, "c")
        epoch = await ledger.take_epoch("test")
        before = plan(
            configure("team-a", 100),
            enqueue("one"),
            enqueue("two", arrival=2),
            *(admit(name, now=past) for name in ("one", "two")),
            now=past,
        )
        await ledger.commit(before, [], epoch=epoch, batch="1")
        await ledger.commit(plan(retire("two", 1), now=past), [], epoch=epoch, batch="2")
        assert await verify(migrated) == []
        dropped = await drop_history(pool, keep_months=1)
        assert len(dropped) == 2 * len(HISTORY)
        snapshot = await ledger.load()
        assert [one.attempt is not None for one in snapshot.workloads] == [True]
        assert await verify(migrated) == []
        now = await ledger.now()
        await ledger.commit(
            plan(retire("one", 1), enqueue("three", arrival=3), admit("three", now=now), now=now),
            [],
            epoch=epoch,
            batch="3",
        )
        assert await verify(migrated) == []
        with pytest.raises(ValueError, match="at least 1 month"):
            await drop_history(pool, keep_months=0)
    finally:
        await pool.dispose()


@pytest.mark.acceptance
async def test_rows_of_ended_attempts_are_dropped_with_the_months_in_which_their_periods_ended(
    migrated: str,
) -> None:
    """By name: `month` ran in a month that is dropped, `year` in a period that lasts, `runs` still runs."""
    (past,) = await months_of_history(migrated, 2)
    pool = create_pool(migrated)
    try:
        ledger = PostgresLedger(pool, "c")
        epoch, now = await ledger.take_epoch("test"), await ledger.now()
        ended = Period(past, month_before(now, 1))
        periods = {"month": ended, "year": Period(past, now + timedelta(days=300)), "runs": ended}

        def row(kind: EntryKind, name: str, at: datetime, reserved: int, used: int) -> BudgetEntry:
            return BudgetEntry(
                kind=kind,
                budget="x",
                subject="",
                resource=GPU,
                period=periods[name],
                workload=f"uid-{name}",
                attempt=1,
                at=at,
                rate=1,
                until=past + timedelta(hours=4),
                reserved=reserved,
                used=used,
            )

        hour = 3_600_000_000
        starts = [enqueue(name, arrival=number) for number, name in enumerate(periods)]
        admits = [
            replace(admit(name, now=past), budget=(row(EntryKind.RESERVE, name, past, 4 * hour, 0),))
            for name in periods
        ]
        at = past + timedelta(hours=3)
        ends = [
            replace(retire(name, 1), budget=(row(EntryKind.SETTLE, name, at, -4 * hour, 3 * hour),))
            for name in ("month", "year")
        ]
        batches: list[tuple[tuple[Decision, ...], datetime]] = [
            ((configure("team-a", 100), *starts, *admits), past),
            (tuple(ends), at),
            ((enqueue("new"),), now),
        ]
        for number, (decisions, time) in enumerate(batches):
            await ledger.commit(plan(*decisions, now=time), [], epoch=epoch, batch=str(number))
        before = await ledger.load()
        assert [(one.period, one.used) for one in before.budget_sums] == [(periods["year"], 3 * hour)]

        async def stored() -> dict[str, int]:
            counted = text("SELECT workload, count(*) FROM queuectl.budget_entry GROUP BY workload")
            async with pool.connect() as connection:
                return dict(tuple(row) for row in await connection.execute(counted))

        assert await stored() == {"uid-month": 2, "uid-year": 2, "uid-runs": 1}
        await drop_history(pool, 1)
        assert await stored() == {"uid-year": 2, "uid-runs": 1}
        after = await ledger.load()
        assert (after.budget_sums, after.budget_entries) == (before.budget_sums, before.budget_entries)
        assert not [one for one in await verify(migrated, "c") if one.code.startswith("Budget")]
    finally:
        await pool.dispose()


@pytest.mark.acceptance
async def test_revisions_and_podsets_are_dropped_with_the_history_that_refers_to_them(migrated: str) -> None:
    (past,) = await months_of_history(migrated, 2)
    late = past + timedelta(days=1)
    async with connection_pool(migrated) as pool:
        ledger = PostgresLedger(pool, "c")
        epoch = await ledger.take_epoch("test")

        async def write(*decisions: Decision, now: datetime) -> None:
            await ledger.commit(plan(*decisions, now=now), [], epoch=epoch, batch=f"{now} {decisions}")

        def queued(name: str, gpus: int, arrival: int) -> Decision:
            pods = PodSet(name="main", count=1, requests=((GPU, gpus),))
            return replace(enqueue(name, arrival=arrival), workload=workload(name, pod_sets=(pods,)))

        await write(configure("team-a", 100), configure("old", 1), configure("late", 1), now=past)
        await write(queued("stays", 1, 1), queued("ends", 2, 2), queued("comes-back", 3, 3), now=past)
        await write(configure("team-a", 50), configure("old", None), now=late)
        await write(retire("ends", None), retire("comes-back", None), now=late)
        now = await ledger.now()
        await write(configure("late", 2), queued("again", 3, 4), now=now)
        assert await verify(migrated) == []
        assert f"decision_{past:%Y_%m}" in await drop_history(pool, keep_months=1)
        revisions = text(f"SELECT name || ' ' || (to_seq IS NULL) FROM {SCHEMA}.config_revision")
        shapes = text(f"SELECT pod_sets #>> '{{0,requests,0,1}}' FROM {SCHEMA}.shape")
        async with pool.connect() as connection:
            names = sorted((await connection.execute(revisions)).scalars())
            assert names == ["late false", "late true", "team-a true"]
            assert sorted((await connection.execute(shapes)).scalars()) == ["1", "3"]
        # What refers to a dropped shape later stores it again, also from a process that knew it.
        await write(queued("like-ends", 2, 5), now=now)
        async with pool.connect() as connection:
            assert sorted((await connection.execute(shapes)).scalars()) == ["1", "2", "3"]
        assert await verify(migrated) == []
        loaded = await ledger.load()
        assert all(one.pod_sets for one in loaded.workloads)
        past_state = await LedgerPast(pool, "c", lambda _: DEFAULT_CONFIGURATION).at(now)
        assert all(one.pod_sets for one in past_state.workloads)
        assert {key.name for key, _ in past_state.configs} == {"team-a", "late"}


async def test_a_database_lists_its_clusters(migrated: str) -> None:
    pool = create_pool(migrated)
    try:
        for name in ("b", "a"):
            await PostgresLedger(pool, name).take_epoch("test")
        assert await clusters(pool) == ["a", "b"]
    finally:
        await pool.dispose()


@pytest.mark.parametrize("name", ["CHANGES", "MOVES", "END_HOLDS", "ACKNOWLEDGE", "WITHDRAW"])
async def test_the_hot_statements_touch_only_open_rows(pool: AsyncEngine, name: str) -> None:
    """The plans include no partition of history, however many there are."""
    rows = {
        "CHANGES": s.CHANGE_ROWS,
        "MOVES": s.MOVE_ROWS,
        "END_HOLDS": s.END_ROWS,
        "ACKNOWLEDGE": s.ACKNOWLEDGED_ROWS,
        "WITHDRAW": s.END_ROWS,
    }[name]
    statement = getattr(s, name)
    plan_lines = await _explained(pool, statement, {"p_cluster": "c", "p_now": None, **rows.bind([])})
    assert "_open" in plan_lines
    assert "_closed" not in plan_lines


async def _explained(pool: AsyncEngine, statement: Any, parameters: dict[str, Any]) -> str:
    compiled = statement.compile(dialect=pool.dialect)
    values = compiled.construct_params(parameters)
    positional = tuple(values[key] for key in compiled.positiontup)
    async with pool.connect() as connection:
        result = await connection.exec_driver_sql(f"EXPLAIN {compiled}", positional)
        return "\n".join(result.scalars())
