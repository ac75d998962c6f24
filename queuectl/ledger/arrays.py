"""Parameters of statements: single values are named `p_NAME`, rows are arrays, one per column, `a_COLUMN`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Select,
    Text,
    bindparam,
    cast,
    column,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause, TableValuedAlias
from sqlalchemy.types import TypeEngine

from queuectl.ledger import tables as t


def parameter(name: str, kind: Any) -> BindParameter[Any]:
    """A single value; the prefix distinguishes its name from those of columns."""
    return bindparam(f"p_{name}", type_=kind)


CLUSTER: Final = parameter("cluster", Text)
NOW: Final = parameter("now", t.decision.c.now.type)


class Columns:
    """Rows as a table in a statement: `("id", Text), ("count", BigInteger)` becomes unnest of two arrays."""

    def __init__(self, *columns: tuple[str, TypeEngine[Any]]) -> None:
        self._columns = columns
        arrays = [cast(bindparam(f"a_{name}", type_=ARRAY(kind)), ARRAY(kind)) for name, kind in columns]
        self.table: TableValuedAlias = (
            func.unnest(*arrays)
            .table_valued(*(column(name, kind) for name, kind in columns), name="given")
            .render_derived()
        )

    def column(self, name: str) -> ColumnElement[Any]:
        return self.table.c[name]

    def bind(self, rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
        """Parameters for these rows, each in the order of the columns."""
        by_column = list(zip(*rows, strict=True)) or [()] * len(self._columns)
        return {f"a_{name}": list(values) for (name, _), values in zip(self._columns, by_column, strict=True)}


def columns_of(table: FromClause, *names: str) -> list[tuple[str, TypeEngine[Any]]]:
    """Columns with their types in `table`; JSON is sent as text."""
    return [(name, Text() if isinstance(table.c[name].type, JSONB) else table.c[name].type) for name in names]


def rows_from(
    table: FromClause,
    given: Columns,
    names: Sequence[str],
    *,
    where: ColumnElement[bool] | None = None,
    **fixed: ColumnElement[Any],
) -> tuple[list[str], Select[Any]]:
    """What to insert into `table`: its columns, and the query for their values."""
    values = {
        name: cast(given.column(name), JSONB) if isinstance(table.c[name].type, JSONB) else given.column(name)
        for name in names
    }
    values.update(fixed)
    query = select(*values.values()).select_from(given.table)
    return list(values), query if where is None else query.where(where)


CLOCK: Final = select(
    func.greatest(
        func.clock_timestamp(),
        select(t.leadership.c.now).where(t.leadership.c.cluster_id == CLUSTER).scalar_subquery(),
    )
)
"""The database's time, never before that of the last commit."""
