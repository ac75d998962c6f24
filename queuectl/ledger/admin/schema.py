"""Migration of a database to the schema of this version, and the check that it has it."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from queuectl.ledger.admin.partitions import add_partitions
from queuectl.ledger.pool import check_session, connection_pool, ledger_call
from queuectl.ledger.tables import SCHEMA
from queuectl.ports.ledger import LedgerUnavailable, SchemaMismatch
from queuectl.shipped import shipped

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

_VERSION_TABLE: Final = "schema_version"
_LOCK: Final = 0x71756575  # any number: one migration at a time per database


async def migrate(url: str) -> str:
    """Bring the database at `url` to the newest schema; returns its revision. May be repeated.

    Raises LedgerUnavailable, and SchemaMismatch if the schema is newer than this program.
    """
    async with connection_pool(url, statement_timeout=0) as pool:
        return await _migrate(pool)


@ledger_call
async def _migrate(pool: AsyncEngine) -> str:
    async with pool.begin() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        await connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
        revision = await _revision(connection)
        _refuse_unknown(revision)
        await connection.run_sync(_upgrade, revision)
        await add_partitions(connection)
    return _revisions()[0]


async def check(url: str, *, writing: bool = False) -> None:
    """Raises SchemaMismatch, with what to do, unless the database has the schema of this version.

    With `writing` also LedgerUnavailable if the server takes no writes.
    """
    async with connection_pool(url) as pool:
        await check_schema(pool, writing=writing)


@ledger_call
async def check_schema(pool: AsyncEngine, *, writing: bool = False) -> None:
    """As `check`, over a pool."""
    newest = _revisions()[0]
    async with pool.begin() as connection:
        await check_session(connection)
        revision = await _revision(connection)
        database = (await connection.execute(text("SELECT current_database()"))).scalar_one()
        read_only = (await connection.execute(text("SHOW transaction_read_only"))).scalar_one() == "on"
    if revision is None:
        raise SchemaMismatch(f"database {database} has no ledger in it: run `queuectl migrate`")
    _refuse_unknown(revision)
    if revision != newest:
        raise SchemaMismatch(
            f"the ledger in database {database} is of schema {revision}, this program needs "
            f"{newest}: run `queuectl migrate`"
        )
    if writing and read_only:
        raise LedgerUnavailable(f"database {database} takes no writes: is this server a standby?")


@functools.cache
def _revisions() -> tuple[str, frozenset[str]]:
    """The newest revision and all known ones, from the names of the files in migrations/."""
    files = (shipped("migrations") / "versions").glob("v[0-9]*_*.py")
    known = sorted(file.name[1:].partition("_")[0] for file in files)
    return known[-1], frozenset(known)


def _refuse_unknown(revision: str | None) -> None:
    newest, known = _revisions()
    if revision is not None and revision not in known:
        raise SchemaMismatch(
            f"the ledger's schema {revision} is newer than this program, which supports up to {newest}: "
            "run a newer queuectl"
        )


async def _revision(connection: AsyncConnection) -> str | None:
    """Revision of the database; None if it has no ledger."""
    there = text("SELECT to_regclass(:name) IS NOT NULL")
    if not (await connection.execute(there, {"name": f"{SCHEMA}.{_VERSION_TABLE}"})).scalar_one():
        return None
    stored = await connection.execute(text(f"SELECT version_num FROM {SCHEMA}.{_VERSION_TABLE}"))
    revision: str | None = stored.scalar_one_or_none()
    return revision


def _upgrade(connection: Connection, revision: str | None) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    if revision is not None:
        for number, tables in blocking(revision):
            log.warning(
                "migration %s locks %s until all migrations are done: a leader admits nothing meanwhile",
                number,
                ", ".join(tables),
            )
    command.upgrade(config, "head")


def blocking(revision: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the migrations after `revision` that lock tables which commits write, in order, and the tables.

    Each says so itself, in `BLOCKS`.
    """
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config()).iterate_revisions("head", revision)
    found = ((one.revision, getattr(one.module, "BLOCKS", ())) for one in scripts)
    return [(number, tables) for number, tables in reversed(list(found)) if tables]


def _config() -> Config:
    # Imported here: it takes a fifth of the start time of a controller, which does not migrate.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
