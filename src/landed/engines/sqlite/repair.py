"""What an operator may change in a closed log by hand. Each change is recorded, with its reason."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from landed.clock import WallMs
from landed.engines.sqlite.append import (
    UPDATE_HEAD,
    UPDATE_META,
    UPSERT_MARK,
    Appender,
    Transaction,
)
from landed.engines.sqlite.file import (
    check_header,
    connect,
    heads_until,
    read_meta,
    resolve,
    translated,
)
from landed.engines.sqlite.lock import FileLock
from landed.engines.sqlite.lookup import find_head, find_mark
from landed.engines.sqlite.owed import Owed
from landed.engines.sqlite.page import walk_life
from landed.engines.sqlite.recovered import check_recovered
from landed.engines.sqlite.row import HeadRow, head_row, mark_row, meta_row, pair_of
from landed.engines.sqlite.tail import check_tail, replay
from landed.engines.sqlite.upgrade import upgrade
from landed.errors import ConfigurationError
from landed.ids import AggregateKey, ClientId
from landed.log import Life

_CACHE_KIB = 2_048
_RECORD = (
    "INSERT INTO repairs (at_ms, action, subject, before, after, reason) VALUES (?, ?, ?, ?, ?, ?)"
)


class Change(NamedTuple):
    """A number before and after a repair."""

    before: int
    after: int


class Repair(NamedTuple):
    """One repair on record."""

    at_ms: int
    action: str
    subject: str
    before: str
    after: str
    reason: str


def lower_mark(
    path: str | PathLike[str],
    *,
    key: AggregateKey,
    client_id: ClientId,
    to: int,
    reason: str,
    at_ms: WallMs,
) -> Change:
    """Lower the mark of a pair that an absurd sequence has closed (design decision 17).

    Sequences above ``to`` become free again, also those of batches that were trimmed or deleted:
    nothing is left that could tell whether they were used. Never below one that is still readable.

    Transaction: the mark and the record of the repair.

    Args:
        path: the log, closed.
        key: the aggregate.
        client_id: the writer whose mark is wrong.
        to: the new mark; 0 as if the pair had never written.
        reason: why, for the record; not empty.
        at_ms: when, for the record.

    Raises:
        ConfigurationError: no such log or pair, not lower than the mark, below a readable sequence,
            or no reason. Nothing was changed.
        StorageError: as for opening and committing.
    """
    if not reason.strip():
        raise ConfigurationError("say why, with --reason: it is kept with the log")
    with _closed_log(path) as connection:
        row = find_head(connection, key.packed)
        if row is None:
            raise ConfigurationError(f"{key} was never written")
        client = client_id.bytes
        is_last = client == row.mark_client
        mark = row.mark if is_last else find_mark(connection, row.number, client)
        if not 0 <= to < mark:
            raise ConfigurationError(
                f"the mark of client {client_id} on {key} is {mark}: it can only be lowered, "
                f"to 0 or more, not to {to}"
            )
        if to < (stored := _highest_readable(connection, row, client)):
            raise ConfigurationError(
                f"sequence {stored} of client {client_id} is still readable on {key}; a mark below "
                "it would let that write be repeated. Trim or delete the batch first"
            )
        with Transaction(connection):
            if is_last:
                changed = row._replace(mark_client=client if to else None, mark=to)
                connection.execute(UPDATE_HEAD, head_row(changed))
            # In the table too where the head names the pair: an older mark of it may stand there.
            if not is_last or find_mark(connection, row.number, client) > to:
                connection.execute(UPSERT_MARK, mark_row(pair_of(row.number, client), to))
            subject = f"{key} {client_id}"
            connection.execute(_RECORD, (at_ms, "lower-mark", subject, str(mark), str(to), reason))
        return Change(mark, to)


def raise_restore_epoch(path: str | PathLike[str], *, reason: str, at_ms: WallMs) -> Change:
    """Say that a log was restored from a backup, so that every projection of it notices.

    Transaction: the epoch and the record of the repair.

    Raises:
        ConfigurationError: no such log, or no reason. Nothing was changed.
        StorageError: as for opening and committing.
    """
    if not reason.strip():
        raise ConfigurationError("say why, with --reason: it is kept with the log")
    with _closed_log(path) as connection:
        settings = read_meta(connection, Path(path))
        before = int(settings["restore_epoch"])
        name, value, row_check = meta_row("restore_epoch", str(before + 1))
        with Transaction(connection):
            connection.execute(UPDATE_META, (value, row_check, name))
            connection.execute(
                _RECORD,
                (at_ms, "restored", settings["log_id"], str(before), value, reason),
            )
        return Change(before, before + 1)


def repairs(path: str | PathLike[str]) -> list[Repair]:
    """Return every repair on record, the oldest first.

    Raises:
        ConfigurationError, StorageError: as for opening.
    """
    with _closed_log(path) as connection:
        rows = connection.execute(
            "SELECT at_ms, action, subject, before, after, reason FROM repairs ORDER BY number"
        )
        return [Repair(*row) for row in rows]


@contextmanager
def _closed_log(path: str | PathLike[str]) -> Iterator[sqlite3.Connection]:
    """A writing connection to a log that nobody has open, and the lock with it."""
    real = resolve(path)
    if not real.exists():
        raise ConfigurationError(f"there is no log at {real}")
    lock = FileLock(real)
    lock.take()
    try:
        if not check_header(real):
            raise ConfigurationError(f"{real} is empty")  # the lock must go
        check_recovered(real)
        connection = connect(real, cache_kib=_CACHE_KIB, is_writer=True)
        try:
            _settle(connection, real)
            yield connection
        except sqlite3.Error as error:
            raise translated(error, f"cannot repair {real}") from error
        finally:
            connection.close()
    finally:
        lock.release()


def _settle(connection: sqlite3.Connection, path: Path) -> None:
    """Write the heads that a killed process owed, or they would be told anew over a repair."""
    settings = read_meta(connection, path)
    upgrade(connection, settings)
    until = heads_until(connection, settings, path)
    rows = replay(connection, until)
    position, _ = check_tail(connection, rows)
    owed = Owed(rows, until=until, changes_max=0)
    Appender(connection, owed, position=position).settle()


def _highest_readable(connection: sqlite3.Connection, row: HeadRow, client: bytes) -> int:
    if row.head.life is not Life.LIVE:
        return 0
    batches = walk_life(connection, row, row.head, low=row.head.floor)
    return max((entry.max_seq for entry, _ in batches if entry.client == client), default=0)
