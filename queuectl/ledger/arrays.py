"""Parameters of statements: single values are named `p_NAME`, rows are arrays, one per column, `a_COLUMN`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BindParameter,
    Insert,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    column,
    func,
    insert,
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

    def equal(self, table: FromClause, *names: str) -> list[ColumnElement[bool]]:
        """Conditions: these columns are the same in a row of `table` and in a given one."""
        return [table.c[name] == self.table.c[name] for name in names]

    def bind(self, rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
        """Parameters for these rows, each in the order of the columns."""
        by_column = list(zip(*rows, strict=True)) or [()] * len(self._columns)
        return {f"a_{name}": list(values) for (name, _), values in zip(self._columns, by_column, strict=True)}


class TableRows(Columns):
    """Rows with some columns of a table of the ledger, in its types; JSON is sent as text."""

    def __init__(self, target: Table, *names: str) -> None:
        columns = ((name, target.c[name].type) for name in names)
        super().__init__(*((name, Text() if isinstance(kind, JSONB) else kind) for name, kind in columns))
        self._target = target
        self._names = names

    def source(
        self, *, where: ColumnElement[bool] | None = None, **fixed: ColumnElement[Any]
    ) -> tuple[list[str], Select[Any]]:
        """What to insert into the table: its columns, and the query for their values."""
        values = {
            name: cast(self.column(name), JSONB)
            if isinstance(self._target.c[name].type, JSONB)
            else self.column(name)
            for name in self._names
        }
        values.update(fixed)
        query = select(*values.values()).select_from(self.table)
        return list(values), query if where is None else query.where(where)

    def insert(self, *, where: ColumnElement[bool] | None = None, **fixed: ColumnElement[Any]) -> Insert:
        """Insert the rows; `fixed`: further columns with the same value in each."""
        return insert(self._target).from_select(*self.source(where=where, **fixed))


CLOCK: Final = select(
    func.greatest(
        func.clock_timestamp(),
        select(t.leadership.c.now).where(t.leadership.c.cluster_id == CLUSTER).scalar_subquery(),
    )
)
"""The database's time, never before that of the last commit."""
