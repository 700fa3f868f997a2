"""The log in PostgreSQL, as one side of a copy. See ``engines/copying.py``.

A copy is made in the log's own tables. Until it is whole their one row says so, and every engine
refuses to open them (``place.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import psycopg

from landed.engines.copying import RECORDS, Entry, Frozen, HeadOf, Mark, same_log
from landed.engines.port import LogIdentity
from landed.engines.postgres.arrays import blobs, ints, uuids
from landed.engines.postgres.exchange import Call, Exchange, Statement
from landed.engines.postgres.place import UNFINISHED, settle_place
from landed.engines.postgres.row import (
    ENTRY_COLUMNS,
    HEAD_COLUMNS,
    HEAD_WIDTH,
    entry_check,
    head_of,
    heads_of,
    mark_of,
    marks_of,
)
from landed.engines.postgres.schema import HALF, PART, STEPS
from landed.errors import ConfigurationError, StorageDamagedError
from landed.limits import Limits
from landed.log import FeedKind
from landed.postgres.checks import check, look, open_connection
from landed.postgres.dsn import Dsn
from landed.postgres.faults import Phase, storage_error
from landed.postgres.migrate import migrate

_T = TypeVar("_T")

_SETTINGS: Final = {
    # The server's own bounds are for short transactions; a lock is waited for so long.
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "10s",
    "synchronous_commit": "on",
    # Each page is a walk along an index, whatever the planner knows of tables just filled.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
_COPY_KEY: Final = 0x6C64_6C6F_6763_6F70
"""Of the lock that whoever copies into a database holds."""


def _arrays(first: int, kinds: Sequence[str]) -> str:
    return ", ".join(f"unnest(${at}::{kind}[])" for at, kind in enumerate(kinds, first))


_BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
_COMMIT: Final = Statement("COMMIT")
_HOLD: Final = Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")
_LOCK: Final = Statement("LOCK TABLE landed_log_entries IN SHARE MODE")
"""Before the snapshot is taken: whoever writes has finished then, or waits. So everything that is
seen is all there is, and no entry comes later with a lower position."""
_ENTRIES: Final = Statement(
    "SELECT "
    + ", ".join(f"e.{name}" for name in ENTRY_COLUMNS[:13])
    + ", uuid_send(e.client), uuid_send(e.user_id), e.body, "
    "CASE WHEN e.kind = 1 THEN (SELECT p.position FROM landed_log_entries AS p "
    "WHERE p.kind = 1 AND p.number = e.number AND (p.incarnation, p.version) < (e.incarnation, e.version) "
    "ORDER BY p.number DESC, p.incarnation DESC, p.version DESC LIMIT 1) END "
    "FROM landed_log_entries AS e JOIN landed_log_heads AS h ON h.number = e.number "
    "WHERE e.position > $1::bigint AND (e.kind <> 1 OR (h.life = 1 "
    "AND e.incarnation = h.incarnation AND e.version >= h.floor)) "
    f"ORDER BY e.position LIMIT {RECORDS}"
)
_HEADS: Final = Statement(
    f"SELECT {', '.join(f'h.{name}' for name in HEAD_COLUMNS)}, "
    "(SELECT p.position FROM landed_log_entries AS p WHERE p.kind = 1 AND p.number = h.number "
    "ORDER BY p.number DESC, p.incarnation DESC, p.version DESC LIMIT 1) "
    "FROM landed_log_heads AS h WHERE h.number > $1::bigint "
    f"ORDER BY h.number LIMIT {RECORDS}"
)
_MARKS: Final = Statement(
    "SELECT number, client, mark, row_check FROM landed_log_marks "
    f"WHERE (number, client) > ($1::bigint, $2::uuid) ORDER BY number, client LIMIT {RECORDS}"
)
_ADD_ENTRIES: Final = Statement(
    "INSERT INTO landed_log_entries SELECT "
    + _arrays(1, (*["bigint"] * 13, "uuid", "uuid", "bytea"))
)
_ADD_HEADS: Final = Statement(
    "INSERT INTO landed_log_heads SELECT " + _arrays(1, ("bytea", *["bigint"] * 9, "uuid", "uuid"))
)
_ADD_MARKS: Final = Statement(
    "INSERT INTO landed_log_marks SELECT " + _arrays(1, ("bigint", "uuid", "bigint", "bigint"))
)
_DEAD: Final = (
    "DELETE FROM landed_log_entries AS e USING landed_log_heads AS h WHERE h.number = e.number "
    "AND e.kind = 1 AND NOT (h.life = 1 AND h.incarnation = e.incarnation AND h.floor <= e.version)"
)
_LOG: Final = "SELECT log_id, restore_epoch, num_shards, routing_rule, cluster FROM landed_log"
_COUNT: Final = (
    "SELECT (SELECT count(*) FROM landed_log_entries) + (SELECT count(*) FROM landed_log_heads)"
    " + (SELECT count(*) FROM landed_log_marks)"
)


class TablesPlace:
    """A log's tables, read in order on one connection."""

    def __init__(self, dsn: Dsn) -> None:
        self.name = dsn.place
        """For messages."""
        self._connection = open_connection(dsn.with_settings(_SETTINGS))
        self._exchange = Exchange(self._connection, prepares=False)

    def entries(self, after: int) -> Iterator[Entry]:
        """See ``Place.entries``."""
        while rows := self._ask(_ENTRIES, _int(after)):
            for row in rows:
                yield _entry_of(row)
            after = rows[-1][0]

    def heads(self) -> Iterator[HeadOf]:
        """See ``Place.heads``."""
        after = 0
        while rows := self._ask(_HEADS, _int(after)):
            for row in rows:
                found = head_of(row[:HEAD_WIDTH])
                yield HeadOf(found.number, found.key.packed, found.head, row[HEAD_WIDTH] or 0)
            after = rows[-1][1]

    def marks(self) -> Iterator[Mark]:
        """See ``Place.marks``."""
        after = (_int(0), bytes(16))
        while rows := self._ask(_MARKS, *after):
            for row in rows:
                if mark := mark_of(*row):
                    yield Mark(row[0], row[1].bytes, mark)
            after = (_int(rows[-1][0]), rows[-1][1].bytes)

    def close(self) -> None:
        """Let go of the connection, and of what it had locked. Idempotent."""
        self._connection.close()

    def _ask(self, statement: Statement, *values: bytes) -> list[tuple[Any, ...]]:
        return self._trying("reading", lambda: self._exchange.run([Call(statement, values)])[0])

    def _found(self) -> tuple[LogIdentity, Frozen, bool] | None:
        """Which log the tables hold, and whether it is whole; None if there is none."""
        row = self._connection.execute("SELECT to_regclass('landed_log') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return None
        row = self._connection.execute(_LOG).fetchone()
        if row is None:
            return None
        log_id, epoch, num_shards, routing_rule, cluster = row
        identity = LogIdentity(UUID(str(log_id)), epoch)
        return identity, Frozen(num_shards, routing_rule), cluster != UNFINISHED

    def _trying(self, doing: str, work: Callable[[], _T], phase: Phase = Phase.WORKING) -> _T:
        try:
            return work()
        except psycopg.Error as error:
            raise storage_error(error, phase, doing=f"{doing} {self.name}") from error


class TablesSource(TablesPlace):
    """A log in a database. Writers wait, and are told busy, until ``close``."""

    def __init__(self, dsn: Dsn) -> None:
        """Hold every writer off and look at the log at that moment.

        Raises:
            ConfigurationError: there is no log, or an unfinished copy of one.
            StorageError: no connection, a right is missing, or the writers cannot be held off.
        """
        super().__init__(dsn)
        try:
            self.identity, self.frozen = self._trying("reading", self._hold)
        except BaseException:
            self.close()
            raise

    def _hold(self) -> tuple[LogIdentity, Frozen]:
        if self._found() is not None:
            self._exchange.run([Call(_HOLD), Call(_LOCK)])
        found = self._found()
        if found is None or not found[2]:
            what = "no log" if found is None else "only the unfinished copy of a log"
            raise ConfigurationError(f"there is {what} in {self.name}")
        return found[:2]

    def count(self) -> int:
        """Records in all."""
        row = self._trying("reading", lambda: self._connection.execute(_COUNT).fetchone())
        return 0 if row is None else int(row[0])


class TablesTarget(TablesPlace):
    """Tables that are being filled. Another copy into the same database waits, and then fails."""

    def __init__(self, dsn: Dsn) -> None:
        """Look whether a log can be made there; nothing is made before ``begin``.

        Raises:
            ConfigurationError: there is a log already, or the server is no good for one.
            StorageError: no connection, or another copy is being made there.
        """
        super().__init__(dsn)
        try:
            check(look(self._connection))
            self._trying("waiting for another copy into", self._look)
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        self._connection.execute("SELECT pg_advisory_lock(%s)", (_COPY_KEY,))
        found = self._found()
        if found is not None and found[2]:
            raise ConfigurationError(
                f"there is a log in {self.name} already ({found[0].log_id}, restore epoch "
                f"{found[0].restore_epoch}), and nothing is copied over a log: name another "
                "database or schema"
            )

    def begin(self, identity: LogIdentity, frozen: Frozen) -> int:
        """See ``Target.begin``."""
        migrate(self._connection, PART, STEPS)
        self._frozen = frozen
        return self._trying("preparing", lambda: self._prepare(identity, frozen))

    def _prepare(self, identity: LogIdentity, frozen: Frozen) -> int:
        found = self._found()
        if found is None:
            self._connection.execute(
                "INSERT INTO landed_log (log_id, restore_epoch, num_shards, routing_rule, cluster,"
                " made_as, timeline, shift) VALUES (%s, %s, %s, %s, %s, 0, '', 0)",
                (*identity, *frozen, UNFINISHED),
            )
            return 0
        same_log(found[0], identity, self.name)
        row = self._connection.execute("SELECT max(position) FROM landed_log_entries").fetchone()
        return 0 if row is None or row[0] is None else int(row[0])

    def add_entries(self, entries: list[Entry]) -> None:
        """See ``Target.add_entries``."""
        rows = []
        for entry in entries:
            low, high = entry.min_seq - HALF, entry.max_seq - HALF
            size = 0 if entry.body is None else len(entry.body)
            fields = (*entry[:9], low, high, size)
            check_ = entry_check(fields, entry.client, entry.user, entry.body)
            rows.append((*fields, check_))
        self._add(
            _ADD_ENTRIES,
            [
                *[ints(column) for column in zip(*rows, strict=True)],
                uuids([entry.client for entry in entries]),
                uuids([entry.user for entry in entries]),
                blobs([entry.body for entry in entries]),
            ],
        )

    def forget_heads(self) -> None:
        """See ``Target.forget_heads``."""

        def forget() -> None:
            with self._connection.transaction():
                self._connection.execute("DELETE FROM landed_log_heads")
                self._connection.execute("DELETE FROM landed_log_marks")

        self._trying("writing to", forget)

    def add_heads(self, heads: list[HeadOf]) -> None:
        """See ``Target.add_heads``."""
        numbers = {one.key: one.number for one in heads}
        self._add(_ADD_HEADS, heads_of({one.key: one.head for one in heads}, numbers))

    def add_marks(self, marks: list[Mark]) -> None:
        """See ``Target.add_marks``."""
        self._add(_ADD_MARKS, marks_of({(one.number, one.client): one.mark for one in marks}))

    def tidy(self) -> None:
        """See ``Target.tidy``."""
        self._trying("writing to", lambda: self._connection.execute(_DEAD))

    def publish(self) -> LogIdentity:
        """See ``Target.publish``.

        What comes from elsewhere is noticed when it is opened, and that raises the epoch and lifts
        the positions to come above all that are there (``place.py``). So nothing is left to do here
        but to say that it is whole; the rest happens now, or at the first opening.
        """
        self._trying(
            "finishing the copy in",
            lambda: self._connection.execute("UPDATE landed_log SET cluster = ''"),
        )
        limits = Limits(num_shards=self._frozen.num_shards, routing_rule=self._frozen.routing_rule)
        return settle_place(self._connection, limits)

    def _add(self, statement: Statement, values: Sequence[bytes]) -> None:
        calls = [Call(_BEGIN), Call(statement, values), Call(_COMMIT)]
        self._trying("writing to", lambda: self._exchange.run(calls))


def _int(number: int) -> bytes:
    return number.to_bytes(8, signed=True)


def _entry_of(row: Sequence[Any]) -> Entry:
    """Check a row of ``_ENTRIES`` and take it apart.

    Raises:
        StorageDamagedError: it is not what was written.
    """
    client, user, body, previous = row[13:]
    if entry_check(row[:12], client, user, body) != row[12] or (row[2] == FeedKind.WRITTEN) == (
        body is None
    ):
        raise StorageDamagedError(
            f"the entry at position {row[0]} is not what was written; it is not copied. "
            "Restore the log from a backup"
        )
    low, high = row[9] + HALF, row[10] + HALF
    return Entry._make((*row[:9], low, high, client, user, body, previous or 0))
