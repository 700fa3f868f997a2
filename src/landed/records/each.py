"""One statement for many rows: its text does not grow, and each row keeps guards of its own.

PostgreSQL is handed all rows at once, as arrays that the statement reads like a table. SQLite, which
is never further away than a function call, runs the same statement once a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Executable,
    LargeBinary,
    Row,
    Text,
    Uuid,
    any_,
    bindparam,
    column,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.schema import Table
from sqlalchemy.types import TypeEngine

from landed.records.session import is_postgres

ID = Uuid()
TEXT = Text()
NUMBER = BigInteger()
BYTES = LargeBinary()
FLAG = Boolean()

Values = Mapping[str, Any]
"""One row, by the names that the columns were given."""
Insert = postgresql.Insert | sqlite.Insert


class Each:
    """The rows of one statement, as columns to compare with and to set.

    Args:
        conn: inside a transaction.
        types: by name, what every row brings along.
    """

    def __init__(self, conn: Connection, **types: TypeEngine[Any]) -> None:
        self._conn = conn
        self._is_whole = is_postgres(conn.dialect)
        self._types = types
        if self._is_whole:
            given = func.unnest(
                *(bindparam(f"each_{name}", type_=ARRAY(kind)) for name, kind in types.items())
            )
            table = given.table_valued(
                *(column(name, kind) for name, kind in types.items()), name="each"
            ).render_derived()
            self._columns: dict[str, ColumnElement[Any]] = {name: table.c[name] for name in types}
        else:
            self._columns = {
                name: bindparam(f"each_{name}", type_=kind) for name, kind in types.items()
            }

    def __getitem__(self, name: str) -> Any:
        """A row's value, within a statement."""
        return self._columns[name]

    def insert(
        self, table: Table, *conditions: ColumnElement[bool], **values: ColumnElement[Any]
    ) -> Insert:
        """A statement that inserts one row for each; add what a conflict does.

        Args:
            table: where to.
            conditions: a row that does not meet them is left out.
            values: by column; the row's own values for all others that have its names.
        """
        insert: Insert = postgresql.insert(table) if self._is_whole else sqlite.insert(table)
        own = {name: value for name, value in self._columns.items() if name in table.c}
        columns = {**own, **values}
        # SQLite takes the ON of a conflict for one of a join, unless a WHERE stands before it.
        source = select(*columns.values()).where(*conditions or (text("1 = 1"),))
        return insert.from_select(list(columns), source)

    def run(self, statement: Executable, rows: Sequence[Values]) -> int:
        """Run it for all rows; returns how many were written."""
        if not rows:
            return 0
        return self._conn.execute(statement, self._given(rows)).rowcount

    def returned(self, statement: Executable, rows: Sequence[Values]) -> list[Row[Any]]:
        """Run it for all rows; returns what it returned of those it wrote, in no order."""
        if not rows:
            return []
        given = self._given(rows)
        if isinstance(given, dict):
            return list(self._conn.execute(statement, given))
        return [row for one in given for row in self._conn.execute(statement, one)]

    def _given(self, rows: Sequence[Values]) -> dict[str, Any] | list[dict[str, Any]]:
        if self._is_whole:
            return {f"each_{name}": [row[name] for row in rows] for name in self._types}
        return [{f"each_{name}": row[name] for name in self._types} for row in rows]


def among(
    conn: Connection, element: ColumnElement[Any], values: Collection[Any]
) -> ColumnElement[bool]:
    """A column's value is one of these; on PostgreSQL one text however many they are."""
    if is_postgres(conn.dialect):
        return element == any_(
            bindparam(None, list(values), type_=ARRAY(element.type), unique=True)
        )
    return element.in_(values)
