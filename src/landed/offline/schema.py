"""The tables of a store, and how its file is opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from landed.errors import ConfigurationError, StorageDamagedError, StorageError, StorageForeignError

APPLICATION_ID: Final = 0x4C51_5545  # "LQUE"
FORMAT: Final = 1
QUEUED: Final = 0
SYNCED: Final = 1
ABANDONED: Final = 2
_BUSY_S: Final = 5.0
"""How long to wait for somebody who only looks at the file."""

_TABLES: Final = (
    # The device's identity is made in the first transaction and never again (rule SW-100).
    """CREATE TABLE device (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        client_id BLOB NOT NULL,
        pruned_seq INTEGER NOT NULL DEFAULT 0,
        synced INTEGER NOT NULL DEFAULT 0,
        fault_key BLOB,
        fault_seq INTEGER,
        fault_attempted INTEGER,
        fault_detail TEXT
    )""",
    # The counter is a row of its own that only grows (rule SW-99): not a row id, not MAX + 1.
    """CREATE TABLE counter (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        next_seq INTEGER NOT NULL
    )""",
    """CREATE TRIGGER counter_only_grows BEFORE UPDATE ON counter WHEN NEW.next_seq < OLD.next_seq
        BEGIN SELECT RAISE(ABORT, 'the counter only grows'); END""",
    """CREATE TRIGGER counter_stays BEFORE DELETE ON counter
        BEGIN SELECT RAISE(ABORT, 'the counter stays'); END""",
    """CREATE TABLE aggregates (
        id INTEGER PRIMARY KEY,
        key BLOB NOT NULL UNIQUE,
        queued INTEGER NOT NULL DEFAULT 0,
        attempted_seq INTEGER NOT NULL DEFAULT 0,
        blocked_seq INTEGER,
        blocked_code INTEGER,
        blocked_reason TEXT
    )""",
    """CREATE INDEX sendable ON aggregates (id) WHERE queued > 0 AND blocked_seq IS NULL""",
    """CREATE TABLE events (
        client_seq INTEGER PRIMARY KEY,
        aggregate INTEGER NOT NULL,
        event_id BLOB NOT NULL UNIQUE,
        event_ms INTEGER NOT NULL,
        type_major INTEGER NOT NULL,
        type_minor INTEGER NOT NULL,
        state INTEGER NOT NULL DEFAULT 0,
        attempted INTEGER NOT NULL DEFAULT 0,
        iv BLOB,
        note TEXT,
        value BLOB NOT NULL
    )""",
    """CREATE INDEX waiting ON events (aggregate, client_seq) WHERE state = 0""",
)


def connect_file(path: Path) -> sqlite3.Connection:
    """Open a file for its owner, with every commit flushed (rule SW-111).

    Raises:
        ConfigurationError: no file can be made there.
        StorageForeignError: the file is something else.
    """
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
        # Before the first pragma: somebody else's file keeps even its journal mode.
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            check_format(connection, str(path))
        return configured(connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise ConfigurationError(f"cannot open the queue {path}: {error}") from None
        if isinstance(error, sqlite3.DatabaseError):
            raise StorageForeignError(f"{path} is no queue: {error}") from None
        raise


def configured(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Prepare a connection: transactions are begun and ended by us, commits are flushed."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    return connection


def look_at(path: Path) -> sqlite3.Connection:
    """Open a file only to look, beside its owner.

    Raises:
        ConfigurationError: there is no such file.
        StorageForeignError: it is no queue.
    """
    if not path.is_file():
        raise ConfigurationError(f"there is no queue at {path}")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S)
    try:
        check_format(connection, str(path))
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, name: str, client_id: UUID | None) -> None:
    """Make the tables and the identity in one transaction, or check those that are there.

    Raises:
        StorageForeignError: the file is something else, or of a newer version.
        ConfigurationError: ``client_id`` is not the store's own, or nil.
    """
    if client_id is not None and not client_id.int:
        raise ConfigurationError("the nil UUID is nobody's client id")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            for statement in _TABLES:
                connection.execute(statement)
            own = client_id or uuid4()
            connection.execute(
                "INSERT INTO device (only_row, client_id) VALUES (1, ?)", (own.bytes,)
            )
            connection.execute("INSERT INTO counter VALUES (1, 1)")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        check_format(connection, name)
        _check_identity(connection, name, client_id)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check_identity(connection: sqlite3.Connection, name: str, client_id: UUID | None) -> None:
    row = connection.execute("SELECT client_id FROM device").fetchone()
    counter = connection.execute("SELECT next_seq FROM counter").fetchone()
    if row is None or counter is None:
        raise StorageDamagedError(f"{name} has lost its identity or its counter")
    if client_id is not None and client_id.bytes != row[0]:
        raise ConfigurationError(
            f"{name} belongs to client id {UUID(bytes=row[0])}, not {client_id}; an identity is "
            "never changed while its queue exists"
        )


def check_format(connection: sqlite3.Connection, name: str) -> None:
    """Insist that a file is a queue of this version.

    Raises:
        StorageForeignError: it is not.
        StorageError: it cannot be read.
    """
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        found = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.OperationalError as error:
        raise StorageError(f"cannot read {name}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise StorageForeignError(f"{name} is no queue: {error}") from None
    if application != APPLICATION_ID:
        raise StorageForeignError(f"{name} is no queue of ours")
    if found != FORMAT:
        raise StorageForeignError(f"{name} has format {found}; this version knows {FORMAT}")
