"""What the nodes of flavors had at a past time, from the rows of history (rule A31)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ARRAY, Text, func, literal, select, true
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity
from queuectl.core.model.workload import ConfigKey
from queuectl.ledger import tables as t
from queuectl.ledger.capacity import capacity_from_json


def flavors_of(configs: Iterable[tuple[ConfigKey, str]]) -> list[str]:
    """Return the names under which capacity is stored: of all flavors in force, and that of no flavor."""
    return sorted({NO_FLAVOR, *(key.name for key, _ in configs if key.kind == "ResourceFlavor")})


async def capacities_at(
    connection: AsyncConnection, cluster: str, when: datetime, flavors: list[str]
) -> tuple[FlavorCapacity, ...]:
    """Return what was stored last of each of `flavors` at `when` or before, by name. Reads a row of each."""
    row = t.past_capacity.c
    given = func.unnest(literal(flavors, ARRAY(Text))).table_valued("name", name="given").render_derived()
    last = (
        select(row.capacity)
        .where(row.cluster_id == cluster, row.flavor == given.c.name, row.at <= when)
        .order_by(row.at.desc())
        .limit(1)
        .lateral("last")
    )
    query = select(given.c.name, last.c.capacity).select_from(given.join(last, true()))
    found = await connection.execute(query)
    return tuple(sorted((capacity_from_json(*one) for one in found), key=lambda one: one.flavor))


async def first_capacity(connection: AsyncConnection, cluster: str) -> datetime | None:
    """Return the time of the first row. Nodes without a flavor have one from the start, and each day."""
    row = t.past_capacity.c
    query = select(func.min(row.at)).where(row.cluster_id == cluster, row.flavor == NO_FLAVOR)
    found: datetime | None = (await connection.execute(query)).scalar_one()
    return found
