"""The file a queue lives in. Each method is one transaction."""

from __future__ import annotations

import inspect
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

from landed.clock import Clock
from landed.engines.sqlite.lock import FileLock
from landed.errors import (
    ConfigurationError,
    EventIdReusedError,
    MalformedWriteError,
    QueueError,
    QueueFullError,
    RequestTooLargeError,
    SequenceRegressedError,
    StorageError,
)
from landed.ids import AggregateKey, ClientId
from landed.offline.entry import Entry, QueueLimits, Run, Saved, Settled, Status
from landed.offline.look import COLUMNS, entry_of, fault_in, status_in
from landed.offline.mending import mend
from landed.offline.recovery import Recovered, Repair
from landed.offline.saving import Saving
from landed.offline.schema import (
    ABANDONED,
    QUEUED,
    SYNCED,
    configured,
    connect_file,
    prepare,
)

T = TypeVar("T")

_RESERVE_BYTES: Final = 128 * 1024
"""Room beyond the limit that saving may not use: marking and pruning must work in a full store."""
_ROW_BYTES: Final = 160
"""What an event takes besides its payload: its columns and its places in the indexes."""


class Store:
    """One device's queue on the disk: events with their numbers, and the identity they are under.

    Usable from several threads; transactions never overlap (case BC-10).
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        limits: QueueLimits | None = None,
        client_id: UUID | None = None,
        name: str = "the queue",
    ) -> None:
        """Take over a connection that nobody else uses. ``open`` makes one from a path."""
        self.clock = clock
        self.limits = limits or QueueLimits()
        self._sql = connection
        self._name = name
        self._turn = threading.RLock()
        self._is_closed = False
        self._lock: FileLock | None = None
        self._room = 0
        """Bytes that may be saved before the file is measured again."""
        prepare(connection, name, client_id)
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        self._page_bytes: int = page
        most = (self.limits.disk_bytes_max + _RESERVE_BYTES) // page
        connection.execute(f"PRAGMA max_page_count = {most}")
        own = connection.execute("SELECT client_id FROM device").fetchone()[0]
        self.client_id = ClientId(UUID(bytes=own))

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        clock: Clock,
        limits: QueueLimits | None = None,
        client_id: UUID | None = None,
    ) -> Store:
        """Open or make the file, and own it until ``close``.

        Raises:
            StorageInUseError: a living process has it (rule SW-101).
            StorageForeignError: the file is something else.
            ConfigurationError: it cannot be made there, or belongs to another client id.
        """
        path = Path(path)
        lock = FileLock(path, advice="one process owns a queue")
        lock.take()
        try:
            connection = connect_file(path)
            try:
                store = cls(
                    connection, clock=clock, limits=limits, client_id=client_id, name=str(path)
                )
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        store._lock = lock
        return store

    @classmethod
    def over(cls, connection: sqlite3.Connection, *, clock: Clock, **options: Any) -> Store:
        """A store over an open connection: what a crash leaves of it is rolled back."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return cls(configured(connection), clock=clock, **options)

    def close(self) -> None:
        """Let go of the file. Idempotent."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            self._sql.close()
            if self._lock is not None:
                self._lock.release()

    # --- saving -------------------------------------------------------------------------------

    def save(self, work: Callable[[Saving], T]) -> T:
        """Run one transaction of the application. Returns when it is on the disk (rule SW-98).

        Raises:
            QueueFullError: at the limit, or the disk is full. Nothing was saved.
            StorageError: the file failed. Unless ``is_outcome_known``, save again with the same
                event ids after reopening: what was saved already is recognised.
        """
        if inspect.iscoroutinefunction(work):
            raise ConfigurationError("a save is a plain function: it must not wait for anything")
        with self._transaction() as sql:
            saving = Saving(sql, self.clock, self._put)
            try:
                result = work(saving)
            finally:
                saving.end()
            if not sql.in_transaction:
                raise QueueError("a save ends by returning or raising, not by a statement")
            return result

    def _put(
        self,
        sql: sqlite3.Connection,
        key: AggregateKey,
        entry: Entry,
        may_be_known: bool,  # called by position, through Saving
    ) -> Saved:
        """Queue one event within a transaction. The same event id again changes nothing."""
        self._check(entry)
        known = self._known(sql, key, entry) if may_be_known else None
        if known is not None:
            return known
        self._make_room(sql, len(entry.value) + _ROW_BYTES)
        (seq,) = sql.execute(
            "UPDATE counter SET next_seq = next_seq + 1 RETURNING next_seq - 1"
        ).fetchone()
        (aggregate,) = sql.execute(
            "INSERT INTO aggregates (key, queued) VALUES (?, 1) "
            "ON CONFLICT (key) DO UPDATE SET queued = queued + 1 RETURNING id",
            (key.packed,),
        ).fetchone()
        sql.execute(
            "INSERT INTO events (client_seq, aggregate, event_id, event_ms, type_major, type_minor,"
            " iv, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(seq, aggregate, entry.event_id.bytes, entry.event_ms, entry.type_major),
                *(entry.type_minor, entry.iv, entry.value),
            ),
        )
        return Saved(seq, entry.event_id, key)

    def _known(self, sql: sqlite3.Connection, key: AggregateKey, entry: Entry) -> Saved | None:
        """The event as it was saved before, under the same id; None if it was not."""
        known = sql.execute(
            "SELECT e.client_seq, a.key, e.type_major, e.type_minor, e.value FROM events e "
            "JOIN aggregates a ON a.id = e.aggregate WHERE e.event_id = ?",
            (entry.event_id.bytes,),
        ).fetchone()
        if known is None:
            return None
        if known[1:] != (key.packed, entry.type_major, entry.type_minor, entry.value):
            raise EventIdReusedError(f"event id {entry.event_id} is queued with other content")
        return Saved(known[0], entry.event_id, key)

    def _check(self, entry: Entry) -> None:
        if entry.type_major < 1:
            raise MalformedWriteError("an event type is 1 and up", code=2001)
        if not entry.event_id.int:
            raise MalformedWriteError("the nil UUID is no event id", code=2004)
        if len(entry.value) > self.limits.event_bytes_max:
            raise RequestTooLargeError(
                f"an event of {len(entry.value)} bytes; this queue takes "
                f"{self.limits.event_bytes_max}"
            )

    def _make_room(self, sql: sqlite3.Connection, needed: int) -> None:
        """Refuse at the limit. The file is measured only when the last measure is used up."""
        limit = self.limits.disk_bytes_max
        if self._room < needed:
            used = self._used(sql)
            if used + needed > limit:
                self._prune(sql)
                used = self._used(sql)
                if used + needed > limit:
                    raise QueueFullError(used_bytes=used, limit_bytes=limit)
            # Half of it: pages fill unevenly, and the application has tables here too.
            self._room = max(needed, (limit - used) // 2)
        self._room -= needed

    def _used(self, sql: sqlite3.Connection) -> int:
        (pages,) = sql.execute("PRAGMA page_count").fetchone()
        (free,) = sql.execute("PRAGMA freelist_count").fetchone()
        return int((pages - free) * self._page_bytes)

    # --- sending ------------------------------------------------------------------------------

    def take(self, settled: Settled | None, *, after: int, events_max: int) -> Run | None:
        """Mark what the log is known to hold, and hand out the next run, marked as attempted.

        Both in one flush. The next run is of the next aggregate that has something to send, behind
        ``after`` in the store's own order and round again.

        Raises:
            SequenceRegressedError: the store was found to be restored or copied.
        """
        with self._transaction() as sql:
            if settled is not None:
                self._settle(sql, settled)
            self._refuse_if_regressed(sql)
            row = None
            for start in (after, 0):
                row = (
                    row
                    or sql.execute(
                        "SELECT id, key, attempted_seq FROM aggregates WHERE queued > 0 "
                        "AND blocked_seq IS NULL AND id > ? ORDER BY id LIMIT 1",
                        (start,),
                    ).fetchone()
                )
            if row is None:
                return None
            aggregate, packed, attempted_seq = row
            entries = self._first_of(sql, aggregate, events_max)
            last = entries[-1].client_seq
            # Durable before the first byte leaves: a number that may be out is never given to
            # another event, and a violation on one that never left is no lost answer (SW-108).
            if last > attempted_seq:
                sql.execute(
                    "UPDATE events SET attempted = 1 WHERE aggregate = ? AND state = 0 "
                    "AND attempted = 0 AND client_seq <= ?",
                    (aggregate, last),
                )
                self._set_attempted(sql, aggregate, last)
            return Run(aggregate, AggregateKey.from_packed(packed), entries, attempted_seq)

    def _first_of(self, sql: sqlite3.Connection, aggregate: int, most: int) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        size = 0
        rows = sql.execute(
            f"SELECT {COLUMNS} FROM events WHERE aggregate = ? AND state = 0 "  # noqa: S608
            "ORDER BY client_seq LIMIT ?",
            (aggregate, most),
        )
        for row in rows:
            entry = entry_of(row)
            size += len(entry.value)
            if entries and size > self.limits.run_bytes_max:
                break
            entries.append(entry)
        return tuple(entries)

    def settle(self, settled: Settled) -> None:
        """Mark the events of a run up to a number as synced (rules SW-104, SW-107)."""
        with self._transaction() as sql:
            self._settle(sql, settled)

    def _settle(self, sql: sqlite3.Connection, settled: Settled) -> None:
        run = settled.run
        count = sql.execute(
            "UPDATE events SET state = ? WHERE aggregate = ? AND state = 0 AND client_seq <= ?",
            (SYNCED, run.aggregate, settled.upto),
        ).rowcount
        sql.execute(
            "UPDATE aggregates SET queued = queued - ? WHERE id = ?", (count, run.aggregate)
        )
        if settled.upto < run.last:
            self._restore_attempted(sql, run)
        (kept,) = sql.execute(
            "UPDATE device SET synced = synced + ? RETURNING synced", (count,)
        ).fetchone()
        if kept > self.limits.synced_kept:
            self._prune(sql)

    def refused(self, run: Run) -> None:
        """A definite no: what this sending was the first to carry has not left after all."""
        with self._transaction() as sql:
            self._restore_attempted(sql, run)

    def _restore_attempted(self, sql: sqlite3.Connection, run: Run) -> None:
        sql.execute(
            "UPDATE events SET attempted = 0 WHERE aggregate = ? AND state = 0 AND client_seq > ?",
            (run.aggregate, run.attempted_seq),
        )
        self._set_attempted(sql, run.aggregate, run.attempted_seq)

    def _set_attempted(self, sql: sqlite3.Connection, aggregate: int, seq: int) -> None:
        sql.execute("UPDATE aggregates SET attempted_seq = ? WHERE id = ?", (seq, aggregate))

    # --- standing still -----------------------------------------------------------------------

    def block(self, run: Run, *, code: int, reason: str) -> None:
        """The log refuses the first event of a run for good: its aggregate stands still (SW-109)."""
        with self._transaction() as sql:
            self._restore_attempted(sql, run)
            self._block(sql, run.aggregate, run.first, code, reason)

    def _block(
        self, sql: sqlite3.Connection, aggregate: int, seq: int, code: int, reason: str
    ) -> None:
        sql.execute(
            "UPDATE aggregates SET blocked_seq = ?, blocked_code = ?, blocked_reason = ? "
            "WHERE id = ?",
            (seq, code, reason, aggregate),
        )

    def unblock(self, key: AggregateKey) -> bool:
        """Try an aggregate again: whatever was refused has been allowed since. False: it was free."""
        with self._transaction() as sql:
            return bool(
                sql.execute(
                    "UPDATE aggregates SET blocked_seq = NULL, blocked_code = NULL, "
                    "blocked_reason = NULL WHERE key = ? AND blocked_seq IS NOT NULL",
                    (key.packed,),
                ).rowcount
            )

    def abandon(self, client_seq: int, reason: str) -> None:
        """Give an event up, durably. It keeps its number; what comes after it goes on (SW-109).

        Raises:
            QueueError: no queued event has the number.
        """
        with self._transaction() as sql:
            row = sql.execute(
                "UPDATE events SET state = ?, note = ? WHERE client_seq = ? AND state = ? "
                "RETURNING aggregate",
                (ABANDONED, reason, client_seq, QUEUED),
            ).fetchone()
            if row is None:
                raise QueueError(f"no queued event has number {client_seq}")
            sql.execute(
                "UPDATE aggregates SET queued = queued - 1, "
                "blocked_code = CASE WHEN blocked_seq = ?1 THEN NULL ELSE blocked_code END, "
                "blocked_reason = CASE WHEN blocked_seq = ?1 THEN NULL ELSE blocked_reason END, "
                "blocked_seq = CASE WHEN blocked_seq = ?1 THEN NULL ELSE blocked_seq END "
                "WHERE id = ?2",
                (client_seq, row[0]),
            )

    def regress(self, run: Run, *, highest_seq: int, detail: str) -> None:
        """Record that the log knows more under this client id than this store ever sent."""
        with self._transaction() as sql:
            self._restore_attempted(sql, run)
            sql.execute(
                "UPDATE device SET fault_key = ?, fault_seq = ?, fault_attempted = ?, "
                "fault_detail = ?",
                (run.key.packed, highest_seq, run.attempted_seq, detail),
            )

    def _refuse_if_regressed(self, sql: sqlite3.Connection) -> None:
        error = fault_in(sql)
        if error is not None:
            raise error

    def fault(self) -> SequenceRegressedError | None:
        """Why nothing is sent at all; None if all is well."""
        with self._transaction() as sql:
            return fault_in(sql)

    def repair(self, repairs: Iterable[Repair]) -> Recovered:
        """Put right what the log was found to hold, and send again (rule SW-108).

        The counter moves above every number seen; only events that cannot have landed get new ones,
        in their old order, and each says which number it had.
        """
        with self._transaction() as sql:
            return mend(sql, list(repairs), block=self._block)

    # --- looking ------------------------------------------------------------------------------

    def pending(self, key: AggregateKey | None = None) -> tuple[tuple[AggregateKey, Entry], ...]:
        """Queued events in their order, of one aggregate or of all."""
        where, values = ("", ()) if key is None else ("AND a.key = ?", (key.packed,))
        with self._transaction() as sql:
            rows = sql.execute(
                f"SELECT a.key, {COLUMNS} FROM events e "  # noqa: S608
                f"JOIN aggregates a ON a.id = e.aggregate WHERE e.state = 0 {where} "
                "ORDER BY e.client_seq",
                values,
            ).fetchall()
        return tuple([(AggregateKey.from_packed(row[0]), entry_of(row[1:])) for row in rows])

    def aggregates(self) -> tuple[tuple[int, AggregateKey], ...]:
        """Every aggregate with queued events, in the store's own order."""
        with self._transaction() as sql:
            rows = sql.execute("SELECT id, key FROM aggregates WHERE queued > 0 ORDER BY id")
            return tuple([(row[0], AggregateKey.from_packed(row[1])) for row in rows])

    def status(self) -> Status:
        """The store at a glance."""
        with self._transaction() as sql:
            return status_in(sql, self._page_bytes, self.limits.disk_bytes_max)

    def prune(self) -> int:
        """Forget synced events; returns how many. Counter, identity and marks stay (SW-110)."""
        with self._transaction() as sql:
            return self._prune(sql)

    def _prune(self, sql: sqlite3.Connection) -> int:
        (upto,) = sql.execute(
            "SELECT max(client_seq) FROM events WHERE state = ?", (SYNCED,)
        ).fetchone()
        if upto is None:
            return 0
        count = sql.execute(
            "DELETE FROM events WHERE state = ? AND client_seq <= ?", (SYNCED, upto)
        ).rowcount
        sql.execute("UPDATE device SET synced = 0, pruned_seq = max(pruned_seq, ?)", (upto,))
        return count

    # --- transactions -------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin as a writer, so that nothing read can go stale before it is acted on (BC-09)."""
        with self._turn:
            if self._is_closed:
                raise QueueError(f"{self._name} is closed")
            sql = self._sql
            if sql.in_transaction:
                raise QueueError("already within a save: use what the save was given")
            is_committing = False
            try:
                sql.execute("BEGIN IMMEDIATE")
                yield sql
                is_committing = True
                sql.execute("COMMIT")
            except BaseException as error:
                _roll_back(sql)
                if isinstance(error, sqlite3.Error):
                    raise self._translated(error, is_committing=is_committing) from error
                raise

    def _translated(self, error: sqlite3.Error, *, is_committing: bool) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            limit = self.limits.disk_bytes_max
            return QueueFullError(used_bytes=self._used(self._sql), limit_bytes=limit)
        if isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError) or code == 1:
            return error  # a statement of the application's own
        known = not is_committing or code == sqlite3.SQLITE_BUSY
        return StorageError(f"{self._name}: {error}", is_outcome_known=known)


def _roll_back(sql: sqlite3.Connection) -> None:
    """Undo what is open, if anything is: some errors of SQLite end a transaction by themselves."""
    if sql.in_transaction:
        with suppress(sqlite3.Error):
            sql.execute("ROLLBACK")
