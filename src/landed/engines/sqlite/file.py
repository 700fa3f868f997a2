"""The file itself: whether it is ours, how it is made, and how every connection to it is set."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote
from uuid import uuid4

from landed.engines.sqlite.row import meta_of, meta_row
from landed.engines.sqlite.schema import (
    APPLICATION_ID,
    HEADS_UNTIL,
    PAGE_BYTES,
    SCHEMA_VERSION,
    TABLES,
)
from landed.errors import (
    ConfigurationError,
    StorageDamagedError,
    StorageError,
    StorageForeignError,
)
from landed.limits import Limits

BUSY_TIMEOUT_S: Final = 5.0
"""How long to wait for a foreign program that holds the file, before saying that it does."""
WAL_PAGES: Final = 2_000
"""Pages in the write-ahead log before they are copied into the file: 8 MiB. The copy stalls the commit
that finds them: 53 ms with so many, 100 with 4,000, 175 to 200 with 16,000, at the same rate of
writes, since most pages are appended and few are written twice (benchmarks/README.md)."""
_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES: Final = 100
_SQLITE_MIN: Final = (3, 24, 0)


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the real path of a log file, links followed, so that one file has one lock.

    Raises:
        ConfigurationError: no file can be there, or what is there is no file of its own.
    """
    try:
        resolved = Path(path).expanduser().resolve()
        found = resolved.stat() if resolved.exists() else None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no file can be at {os.fspath(path)!r}: {error}") from None
    if not resolved.parent.is_dir():
        raise ConfigurationError(f"there is no directory {resolved.parent}: create it first")
    if found is None:
        return resolved
    if stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{resolved} is a directory: name a file in it, such as log.db")
    if not stat.S_ISREG(found.st_mode):
        # A new log would be moved into its place, even into that of a device.
        raise ConfigurationError(f"{resolved} is no regular file: name another one")
    if found.st_nlink > 1:
        # Each name would have a lock and a write-ahead log of its own, over the same pages.
        raise ConfigurationError(
            f"{resolved} has {found.st_nlink} names (hard links), and a log must have one: "
            "remove the others, or copy it"
        )
    return resolved


def check_header(path: Path) -> bool:
    """Look at the first bytes of a file without changing anything. True: there is a log to open.

    Raises:
        ConfigurationError: this user may not read and write it.
        StorageForeignError: it is no log of ours.
        StorageDamagedError: it is cut off.
    """
    try:
        with path.open("rb+") as file:
            header = file.read(_HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigurationError(
            f"cannot open {path}: {error.strerror}; the log must be readable and writable"
        ) from None
    if not header:
        return False
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StorageForeignError(
            f"{path} is not a SQLite database, so it is no log: name another file"
        )
    application = int.from_bytes(header[68:72])
    if application != APPLICATION_ID:
        raise StorageForeignError(
            f"{path} is a SQLite database of another application "
            f"(application id {application:#010x}): name another file"
        )
    if size < 2 * PAGE_BYTES:
        raise StorageDamagedError(
            f"{path} is cut off at {size} bytes: restore it from a backup", is_outcome_known=True
        )
    return True


def create(path: Path, limits: Limits) -> None:
    """Make an empty log, all of it or nothing: it is built beside its place and moved there.

    Raises:
        StorageError: it could not be made; nothing is left behind.
    """
    if sqlite3.sqlite_version_info < _SQLITE_MIN:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} is too old: this Python needs 3.24 or newer"
        )
    leftover = path.with_name(path.name + "-wal")
    if leftover.exists() and leftover.stat().st_size:
        raise StorageDamagedError(
            f"{path} is gone but {leftover.name} is still there and holds changes: "
            "restore the file beside it, or move it away to begin anew"
        )
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    try:
        _build(draft, limits)
        draft.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except sqlite3.Error as error:
        raise translated(error, f"cannot create {path}") from error
    except OSError as error:
        raise StorageError(f"cannot create {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _build(draft: Path, limits: Limits) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _set_durable(connection)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        for table in TABLES:
            connection.execute(table)
        settings = {
            "log_id": str(uuid4()),
            "restore_epoch": "0",
            "num_shards": str(limits.num_shards),
            "routing_rule": limits.routing_rule,
            HEADS_UNTIL: "0",
        }
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?, ?)", [meta_row(*item) for item in settings.items()]
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def connect(
    path: Path, *, cache_kib: int, is_writer: bool = False, mode: Literal["ro", "rw"] = "rw"
) -> sqlite3.Connection:
    """Open a connection, set as every connection of the product is.

    Transactions are begun and ended by hand: the module's own idea of them would begin one by
    reading and then fail to write, whatever the time limit (case BC-09). A reading connection
    cannot write at all.

    Raises:
        StorageError: the file cannot be opened.
    """
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            isolation_level=None,
            timeout=BUSY_TIMEOUT_S,
            check_same_thread=False,
            cached_statements=64,
        )
    except sqlite3.Error as error:
        raise translated(error, f"cannot open {path}") from error
    try:
        _set_durable(connection)
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if is_writer:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        else:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, f"cannot open {path}") from error
    return connection


def _set_durable(connection: sqlite3.Connection) -> None:
    """Flush at every commit. The level belongs to the connection, not to the file (case BC-08)."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")


def read_meta(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """Check the schema's version and return the settings of a log.

    Raises:
        StorageError: the file system cannot share a write-ahead log.
        StorageForeignError: a newer version wrote it.
        StorageDamagedError: the settings are not what was written.
    """
    try:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise StorageForeignError(
                f"{path} has schema version {version}, this Landed knows {SCHEMA_VERSION}: "
                "upgrade Landed"
            )
        if mode != "wal":
            raise StorageError(
                f"{path} cannot use a write-ahead log here (journal mode {mode!r}): "
                "keep it on a local file system"
            )
        rows = connection.execute("SELECT name, value, row_check FROM meta").fetchall()
    except sqlite3.Error as error:
        raise translated(error, f"cannot read {path}") from error
    settings = dict(meta_of(row) for row in rows)
    if missing := {"log_id", "restore_epoch", "num_shards", "routing_rule"} - settings.keys():
        raise StorageDamagedError(
            f"{path} lacks its settings {', '.join(sorted(missing))}: restore it from a backup"
        )
    return settings


def heads_until(connection: sqlite3.Connection, settings: dict[str, str], path: Path) -> int:
    """Up to which position the heads are complete.

    Raises:
        StorageForeignError: an earlier version wrote the file, and it is not opened for writing.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < SCHEMA_VERSION:
        raise StorageForeignError(
            f"{path} has schema version {version}, of an earlier Landed: start `landed serve` on "
            f"it once, which rewrites it to version {SCHEMA_VERSION}"
        )
    return int(settings[HEADS_UNTIL])


def keep_recovered(connection: sqlite3.Connection, path: Path) -> None:
    """Make durable what was found in the write-ahead log: it is about to be seen (log rule C10).

    A killed process may have written it whole and not flushed it. Copying it into the file as well
    needs room, which a full disk lacks; that can wait, reading must not.

    Raises:
        StorageError: it cannot be flushed.
        sqlite3.Error: it cannot be copied, and not for lack of room.
    """
    try:
        descriptor = os.open(path.with_name(path.name + "-wal"), os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise StorageError(f"cannot flush {path.name}-wal: {error.strerror}") from error
    finally:
        os.close(descriptor)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
            raise


def check_frozen(settings: dict[str, str], limits: Limits, path: Path) -> None:
    """Refuse settings that the keys of a log were not placed by (log rule G3).

    Raises:
        StorageForeignError: another shard count or routing rule.
    """
    for name, wanted in (
        ("num_shards", str(limits.num_shards)),
        ("routing_rule", limits.routing_rule),
    ):
        if settings[name] != wanted:
            raise StorageForeignError(
                f"{path} was made with {name}={settings[name]}, not {wanted}; that is frozen: "
                f"start with --set {name}={settings[name]}"
            )


def translated(error: sqlite3.Error, doing: str, *, is_outcome_known: bool = True) -> StorageError:
    """Say in the house's words what a driver's error means and what to do next."""
    code = getattr(error, "sqlite_errorcode", 0)
    match code & 0xFF:
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StorageDamagedError(
                f"{doing}: the file is damaged ({error}); stop the log and run "
                "`landed log verify PATH`",
                is_outcome_known=is_outcome_known,
            )
        case sqlite3.SQLITE_FULL:
            text = "the disk is full; nothing was written, make room and send it again"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            text = f"another program holds the file ({error}); nothing was written"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            text = f"the file cannot be opened or written ({error}); check who may write it"
        case _:
            text = str(error)
    return StorageError(f"{doing}: {text}", is_outcome_known=is_outcome_known)
