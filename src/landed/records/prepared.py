"""Statements that are built once for each database, and then only run.

Building a statement costs several times what running it costs, so whatever an event or an effect
passes through on its way is built here, at its first use, and kept.

``Prepared`` is one statement with values. ``Each`` is one statement for many rows, each with guards of
its own: PostgreSQL is handed all rows at once, as one JSON document that the statement reads like a
table, because the driver takes several times as long to write the same as arrays; SQLite, which is never
further away than a function call, runs the statement once a row, and several rows are handed to the driver
by hand: SQLAlchemy takes ten times as long around such a statement as SQLite takes for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    CursorResult,
    Dialect,
    Executable,
    LargeBinary,
    Row,
    Text,
    Uuid,
    any_,
    bindparam,
    cast,
    column,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.schema import Table
from sqlalchemy.types import TypeEngine, UserDefinedType

from landed.records.session import DATABASE_CLOCK, Books, is_postgres

ID: Final = Uuid()
TEXT: Final = Text()
NUMBER: Final = BigInteger()
BYTES: Final = LargeBinary()
FLAG: Final = Boolean()


class _Ids(UserDefinedType[str]):
    """Ids as PostgreSQL's own text of an array, taken as an array when the statement is bound.

    A cast of a text would be made anew for each row that is looked at, where the table is walked through.
    """

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "UUID[]"


_IDS: Final = _Ids()
Values = Mapping[str, Any]
"""One row, or the values of one statement, by name."""
Insert = postgresql.Insert | sqlite.Insert
_AT: Final = "at_us"
_ROWS: Final = "its_rows"


class Shape:
    """What a statement is built from, on one database."""

    def __init__(
        self, types: Mapping[str, TypeEngine[Any]], *, is_postgres: bool, is_each: bool
    ) -> None:
        self.is_postgres = is_postgres
        self.at: ColumnElement[int] = (
            DATABASE_CLOCK if is_postgres else bindparam(_AT, type_=NUMBER)
        )
        """Now, by the clock that orders leases and due times (see ``Books.at``)."""
        self._columns: dict[str, ColumnElement[Any]] = {
            name: bindparam(f"its_{name}", type_=kind) for name, kind in types.items()
        }
        if is_each and is_postgres:
            rows = func.json_to_recordset(cast(bindparam(_ROWS, type_=TEXT), JSON))
            columns = (column(name, kind) for name, kind in types.items())
            table = rows.table_valued(*columns, name="each").render_derived(with_types=True)
            self._columns = {name: table.c[name] for name in types}

    def __getitem__(self, name: str) -> Any:
        """A value, or each row's value."""
        return self._columns[name]

    def among(self, element: ColumnElement[UUID], name: str) -> ColumnElement[bool]:
        """A column is one of the ids that are given as a list under this name."""
        if self.is_postgres:
            return element == any_(bindparam(f"its_{name}", type_=_IDS))
        return element.in_(bindparam(f"its_{name}", type_=ID, expanding=True))

    def insert(self, table: Table, **values: Any) -> Insert:
        """Insert the values that have the names of columns, and these; add what a conflict does."""
        own = {name: value for name, value in self._columns.items() if name in table.c}
        columns = {**own, **values}
        # SQLite takes the ON of a conflict for one of a join, unless a WHERE stands before it.
        source = select(*columns.values()).where(text("1 = 1"))
        insert: Insert = postgresql.insert(table) if self.is_postgres else sqlite.insert(table)
        return insert.from_select(list(columns), source)


Build = Callable[[Shape], Executable]


class Prepared:
    """One statement.

    Args:
        build: makes it.
        types: its values by name, apart from lists that ``among`` takes.
    """

    _is_each = False

    def __init__(self, build: Build, **types: TypeEngine[Any]) -> None:
        self._build = build
        self._types = types
        self._built: dict[bool, Executable] = {}

    def execute(
        self, conn: Connection, books: Books | None = None, **values: Any
    ) -> CursorResult[Any]:
        """Run it. ``books`` may be left out where it does not ask for the time."""
        lists_text = is_postgres(conn.dialect)
        given = {
            f"its_{name}": _ids_text(value) if lists_text and isinstance(value, list) else value
            for name, value in values.items()
        }
        return conn.execute(self._statement(conn), self._timed(conn, books, given))

    def _statement(self, conn: Connection) -> Executable:
        dialect = is_postgres(conn.dialect)
        if dialect not in self._built:
            shape = Shape(self._types, is_postgres=dialect, is_each=self._is_each)
            # Without the option, an INSERT does not say how many rows it wrote.
            self._built[dialect] = self._build(shape).execution_options(preserve_rowcount=True)
        return self._built[dialect]

    @staticmethod
    def _timed(conn: Connection, books: Books | None, given: dict[str, Any]) -> dict[str, Any]:
        if books is not None and not is_postgres(conn.dialect):
            given[_AT] = books.now_us()
        return given


def _ids_text(ids: Sequence[UUID]) -> str:
    """Ids as PostgreSQL writes an array of them: nothing in them needs quotes."""
    return f"{{{','.join(map(str, ids))}}}"


def _rows_text(rows: Sequence[Values], types: Mapping[str, TypeEngine[Any]]) -> str:
    """Rows as a JSON document that ``json_to_recordset`` reads; bytes as PostgreSQL writes them."""
    are_bytes = [name for name, kind in types.items() if kind is BYTES]
    if are_bytes:
        rows = [{**row, **_bytes_text(row, are_bytes)} for row in rows]
    return _ENCODER.encode(rows).decode()


def _bytes_text(row: Values, names: Sequence[str]) -> dict[str, str]:
    return {name: f"\\x{row[name].hex()}" for name in names if row[name] is not None}


def _plain(value: object) -> object:
    """A user's own kind of text or number, as the database sees it."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be given to the database")


class _Driven:
    """A statement for SQLite, run for many rows by its driver alone."""

    def __init__(self, statement: Any, dialect: Dialect, example: Mapping[str, Any]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(example))
        kinds = {name: bind.type.dialect_impl(dialect) for name, bind in compiled.binds.items()}
        writers = [
            (place, kinds[name].bind_processor(dialect))
            for place, name in enumerate(compiled.positiontup)
        ]
        self._text = compiled.string
        self._fixed = {
            name: compiled.params[name] for name in compiled.positiontup if name not in example
        }
        self._get = itemgetter(*compiled.positiontup)
        self._writers = [(place, writer) for place, writer in writers if writer is not None]
        columns = statement.exported_columns
        self._row: Any = NamedTuple("Row", [(column.name, Any) for column in columns])  # type: ignore[misc]  # as many as it returns
        readers = [
            (place, column.type.dialect_impl(dialect).result_processor(dialect, None))
            for place, column in enumerate(columns)
        ]
        self._readers = [(place, reader) for place, reader in readers if reader is not None]

    def run(self, conn: Connection, given: Sequence[Mapping[str, Any]]) -> int:
        """Run it for every row; returns how many were written.

        Raises:
            DBAPIError: as SQLAlchemy does; values are not shown.
        """
        with self._cursor(conn) as cursor:
            cursor.executemany(self._text, map(self._values, given))
            return int(cursor.rowcount)

    def returned(self, conn: Connection, given: Sequence[Mapping[str, Any]]) -> list[Row[Any]]:
        """Run it for every row; returns what it returned, in their order.

        Raises:
            DBAPIError: as SQLAlchemy does; values are not shown.
        """
        found: list[Any] = []
        with self._cursor(conn) as cursor:
            for one in given:
                cursor.execute(self._text, self._values(one))
                found += cursor.fetchall()
        return [self._read(row) for row in found]

    @contextmanager
    def _cursor(self, conn: Connection) -> Iterator[Any]:
        error = conn.dialect.loaded_dbapi.Error
        cursor = conn.connection.cursor()
        try:
            yield cursor
        except error as e:
            raise DBAPIError.instance(
                self._text, None, e, error, hide_parameters=True, dialect=conn.dialect
            ) from e
        finally:
            cursor.close()

    def _values(self, one: Mapping[str, Any]) -> list[Any]:
        values = list(self._get({**self._fixed, **one}))
        for place, writer in self._writers:
            values[place] = writer(values[place])
        return values

    def _read(self, row: Sequence[Any]) -> Row[Any]:
        values = list(row)
        for place, reader in self._readers:
            values[place] = reader(values[place])
        read: Row[Any] = self._row._make(values)
        return read


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


class Each(Prepared):
    """One statement for many rows.

    Args:
        build: makes it.
        types: what every row brings along, by name.
    """

    _is_each = True
    _by_driver: _Driven | None = None

    def run(self, conn: Connection, books: Books, rows: Sequence[Values]) -> int:
        """Run it for all rows; returns how many were written."""
        if not rows:
            return 0
        given = self._given(conn, books, rows)
        written = conn.execute(self._statement(conn), given[0]).rowcount
        if len(given) > 1:
            written += self._driven(conn, given[0]).run(conn, given[1:])
        return written

    def returned(self, conn: Connection, books: Books, rows: Sequence[Values]) -> list[Row[Any]]:
        """Run it for all rows; returns what it returned of those it wrote, in no order."""
        if not rows:
            return []
        given = self._given(conn, books, rows)
        found = list(conn.execute(self._statement(conn), given[0]).all())
        if len(given) > 1:
            found += self._driven(conn, given[0]).returned(conn, given[1:])
        return found

    def _driven(self, conn: Connection, example: Mapping[str, Any]) -> _Driven:
        """For the second row and later ones; the first shows the statement to whoever listens."""
        if self._by_driver is None:
            self._by_driver = _Driven(self._statement(conn), conn.dialect, example)
        return self._by_driver

    def _given(
        self, conn: Connection, books: Books, rows: Sequence[Values]
    ) -> list[dict[str, Any]]:
        """What it is run with: all rows at once, or one after the other."""
        if is_postgres(conn.dialect):
            return [{_ROWS: _rows_text(rows, self._types)}]
        return [
            self._timed(conn, books, {f"its_{name}": row[name] for name in self._types})
            for row in rows
        ]
