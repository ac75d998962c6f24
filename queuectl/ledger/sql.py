"""Statements as SQL text, compiled once, to be run by the driver itself.

A commit is some fifteen statements, and what SQLAlchemy does around each costs more than Postgres' own work
where a transaction is about a few workloads only.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy.dialects.postgresql.asyncpg import dialect
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql.elements import ClauseElement


class Sql(NamedTuple):
    text: str
    names: tuple[str, ...]
    """Of its parameters, in the order of their numbers."""
    constants: Mapping[str, Any]
    """Parameters that the statement brings along."""

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Raises KeyError where one is missing."""
        return [given[name] if name in given else self.constants[name] for name in self.names]


@functools.cache
def compiled(statement: ClauseElement) -> Sql:
    """For statements that live as long as the program. Values go to the driver as they are."""
    found = statement.compile(dialect=dialect())  # type: ignore[no-untyped-call]
    names = tuple(found.positiontup or ())  # type: ignore[attr-defined]
    binds = found.binds  # type: ignore[attr-defined]
    constants = {name: bind.value for name, bind in binds.items() if not bind.required}
    return Sql(str(found), names, constants)


async def value(engine: AsyncEngine, statement: ClauseElement, given: Mapping[str, Any]) -> Any:
    """One value, by a statement on its own: one round trip, no transaction around it."""
    sql = compiled(statement)
    async with engine.connect() as connection:
        try:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            return await driver.fetchval(sql.text, *sql.arguments(given))
        except Exception:
            # The pool has not seen what happened, and would hand a dead connection out again.
            await connection.invalidate()
            raise
