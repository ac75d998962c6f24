"""A migration that locks tables which commits write says so: a leader may run meanwhile."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from queuectl.ledger.admin import schema
from queuectl.ledger.admin.schema import blocking, migrate
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.tables import HISTORY, SCHEMA, metadata

WRITES_WAIT = (*("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"),)
"""Modes in which other transactions cannot write the table."""
LOCKED = text(
    "SELECT DISTINCT relname FROM pg_locks JOIN pg_class ON pg_class.oid = relation "
    "WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p') AND mode = ANY(:modes) "
    "AND relnamespace = CAST(:schema AS regnamespace)"
)
TABLES = text(
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') "
    "AND relnamespace = CAST(:schema AS regnamespace)"
)


def scripts() -> list[Any]:
    """All migrations, the first one first."""
    return list(ScriptDirectory.from_config(schema._config()).walk_revisions())[::-1]


def written(name: str) -> str | None:
    """The table of the ledger that a table or a partition is part of; None: it is none that commits write."""
    known = {table.name for table in metadata.tables.values()} - {"installation", "checkpoint"}
    parts = {part: table for table, part in HISTORY.items()} | {f"{table}_open": table for table in HISTORY}
    for part in sorted(parts, key=len, reverse=True):
        if name == part or name.startswith(f"{part}_"):
            return parts[part]
    return name if name in known else None


async def test_a_migration_names_each_table_that_it_locks_against_commits(fresh: str) -> None:
    async with connection_pool(fresh) as pool:
        async with pool.begin() as connection:
            await connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        for script in scripts():

            def up(connection: Connection, number: str = script.revision) -> None:
                config = schema._config()
                config.attributes["connection"] = connection
                command.upgrade(config, number)

            async with pool.begin() as connection:
                there = set((await connection.execute(TABLES, {"schema": SCHEMA})).scalars())
                await connection.run_sync(up)
                modes = {"modes": list(WRITES_WAIT), "schema": SCHEMA}
                locked = set((await connection.execute(LOCKED, modes)).scalars())
            found = {table for name in locked & there if (table := written(name)) is not None}
            assert found == set(getattr(script.module, "BLOCKS", ())), script.revision


async def test_migrate_says_which_tables_it_locks_before_it_does(
    fresh: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "queuectl.ledger.admin.schema"):
        await migrate(fresh)
    assert caplog.messages == []

    def down(connection: Connection) -> None:
        config = schema._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "0007")

    async with connection_pool(fresh) as pool, pool.begin() as connection:
        await connection.run_sync(down)
    assert dict(blocking("0007"))["0008"] == ("decision",)
    with caplog.at_level(logging.WARNING, "queuectl.ledger.admin.schema"):
        await migrate(fresh)
    told = [message for message in caplog.messages if "0008" in message]
    assert told == [
        "migration 0008 locks decision until all migrations are done: a leader admits nothing meanwhile"
    ]
