"""Runs migrations on the connection it is handed, or on QUEUECTL_DATABASE_URL for the alembic command."""

from __future__ import annotations

import asyncio
import os

from alembic import context
from sqlalchemy.engine import Connection

from queuectl.ledger.pool import create_pool
from queuectl.ledger.tables import SCHEMA, metadata

VERSION_TABLE = "schema_version"


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        version_table_schema=SCHEMA,
        include_schemas=True,
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_by_url(url: str) -> None:
    pool = create_pool(url)
    try:
        async with pool.begin() as connection:
            await connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.run_sync(run)
    finally:
        await pool.dispose()


if (given := context.config.attributes.get("connection")) is not None:
    run(given)
else:
    asyncio.run(run_by_url(os.environ["QUEUECTL_DATABASE_URL"]))
