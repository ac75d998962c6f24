"""The contents of the ledger, read from its tables without REST."""

from __future__ import annotations

import re
from typing import Any

import asyncpg

from tests.acceptance.e2e.site import Site

Row = dict[str, Any]
_CONTROL = re.compile(r"\\u00[01][0-9a-f]|\\u007f|[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""jsonb escapes the first of them; the others are as they are."""


async def _rows(site: Site, query: str, *values: object) -> list[Row]:
    connection = await asyncpg.connect(site.endpoints["postgres"], timeout=10, command_timeout=30)
    try:
        return [dict(row) for row in await connection.fetch(query, *values)]
    finally:
        await connection.close()


async def decisions_of(site: Site, uid: str) -> list[Row]:
    """All decisions on one object, in order."""
    query = "SELECT sequence, verdict, attempt FROM queuectl.decision WHERE uid = $1 ORDER BY sequence"
    return await _rows(site, query, uid)


async def mentions(site: Site, text: str) -> list[str]:
    """Tables with a row that contains `text` in any column."""
    return [table for table, row in await _everything(site) if text in row]


async def controls_in_ledger(site: Site) -> list[str]:
    """Rows that contain a control character in any column."""
    return [row for _, row in await _everything(site) if _CONTROL.search(row)]


async def _everything(site: Site) -> list[tuple[str, str]]:
    """Every row of every table, as JSON."""
    tables = await _rows(
        site,
        "SELECT oid::regclass::text AS name FROM pg_class "
        "WHERE relnamespace = 'queuectl'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition",
    )
    found = []
    for table in tables:
        rows = await _rows(site, f"SELECT to_jsonb(t)::text AS row FROM {table['name']} t")
        found += [(table["name"], row["row"]) for row in rows]
    return found
