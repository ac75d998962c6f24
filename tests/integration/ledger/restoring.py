"""A backup of the rows of one cluster, and its restore."""

from __future__ import annotations

from sqlalchemy import text

from queuectl.ledger.tables import SCHEMA, metadata
from queuectl.ledger.write.postgres import PostgresLedger
from tests.integration.ledger.edits import World

_TABLES = sorted(
    {table.name for table in metadata.tables.values() if "cluster_id" in table.c} - {"workload_open"}
)


class Backup:
    """Tables beside those of the ledger: one backup of a cluster at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schema = f"backup_{world.cluster.replace('-', '_')}"

    async def take(self) -> None:
        async with self._world.pool.begin() as connection:
            await connection.execute(text(f"CREATE SCHEMA {self._schema}"))
            for name in _TABLES:
                statement = f"CREATE TABLE {self._schema}.{name} AS SELECT * FROM {SCHEMA}.{name}"
                await connection.execute(text(f"{statement} WHERE cluster_id = '{self._world.cluster}'"))

    async def restore(self) -> None:
        """Set all rows back, and take the leadership anew."""
        world = self._world
        async with world.pool.begin() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for name in _TABLES:
                where = {"c": world.cluster}
                await connection.execute(text(f"DELETE FROM {SCHEMA}.{name} WHERE cluster_id = :c"), where)
                rows = text(f"INSERT INTO {SCHEMA}.{name} SELECT * FROM {self._schema}.{name}")
                await connection.execute(rows)
        world.ledger = PostgresLedger(world.pool, world.cluster)
        world.epoch = await world.ledger.take_epoch("after the restore")
