"""One group, one transaction: lock, load and judge in one round trip, write and commit in a second.

Many processes write one log, so nothing is trusted from memory. The locks of all aggregates of a
group come first, in one order for everybody, so that nobody waits in a circle; then a statement of
its own loads what is stored, which therefore includes all that was committed before the locks were
had. Only now the transaction gets its id, so transaction ids agree with the versions of every
aggregate, and the feed's order with both.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg

from landed.clock import Clock, ServerTime, WallMs
from landed.engines.arrivals import Arrival
from landed.engines.flush import FlushGate
from landed.engines.port import LogIdentity, Stored
from landed.engines.postgres.arrays import Blobs, Ints, Uuids
from landed.engines.postgres.judging import Fate, Judged, Pairs, Verdict, judge, keys_of, pairs_of
from landed.engines.postgres.page import NEWEST
from landed.engines.postgres.place import TIMELINE, settle_place
from landed.engines.postgres.row import (
    HEAD_COLUMNS,
    HEAD_WIDTH,
    entries_of,
    head_of,
    heads_of,
    mark_of,
    marks_of,
)
from landed.engines.postgres.schema import ORDINAL_BITS, TURNS_MAX
from landed.engines.postgres.session import Sessions
from landed.errors import StorageDamagedError, StorageError
from landed.facts import Note
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import Busy, FeedKind, Head
from landed.postgres.faults import Kind, Phase, explain, storage_error

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_HOLD_S: Final = 10
"""How long a process that stands still may keep its locks before the server ends its session."""
SETTINGS: Final = (
    "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', '0', true),"
    f" set_config('idle_in_transaction_session_timeout', '{_HOLD_S}s', true),"
    " set_config('synchronous_commit', %s, true), set_config('enable_seqscan', 'off', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('plan_cache_mode', 'force_generic_plan', true)"
)
"""For this transaction alone, so that it holds behind a pooler too. A timeout that cancelled the
wait for a standby would turn "not yet" into an acknowledgement. The plans are index lookups whatever
the planner believes to know of a table that was empty a minute ago."""
LOCK: Final = "SELECT pg_advisory_xact_lock(k) FROM unnest(%s) AS k"
TRY_LOCK: Final = "SELECT pg_try_advisory_xact_lock(k) FROM unnest(%s) AS k"
LOAD: Final = (
    f"SELECT s.xid, s.shift, s.is_here, {', '.join(f'h.{name}' for name in HEAD_COLUMNS)}, "
    "m.mark, m.row_check FROM "
    "(SELECT pg_current_xact_id()::text::bigint AS xid, shift,"
    f" timeline = {TIMELINE} AS is_here FROM landed_log) AS s "
    "CROSS JOIN unnest(%s, %s) WITH ORDINALITY AS p (key, client, nth) "
    "LEFT JOIN landed_log_heads AS h ON h.key = p.key "
    "LEFT JOIN landed_log_marks AS m ON m.number = h.number AND m.client = p.client "
    "ORDER BY p.nth"
)
WRITE: Final = (
    "WITH entries AS (INSERT INTO landed_log_entries SELECT * FROM unnest("
    + ", ".join(["%s"] * 16)
    + ")), heads AS (INSERT INTO landed_log_heads SELECT * FROM unnest("
    + ", ".join(["%s"] * HEAD_WIDTH)
    + ") ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in HEAD_COLUMNS[2:])
    + ") INSERT INTO landed_log_marks SELECT * FROM unnest(%s, %s, %s, %s) "
    "ON CONFLICT (number, client) DO UPDATE "
    "SET mark = excluded.mark, row_check = excluded.row_check"
)
DEAD: Final = "INSERT INTO landed_log_dead SELECT * FROM unnest(%s, %s, %s, %s)"
COMMIT: Final = "COMMIT"

_ATTEMPTS: Final = 3
"""For one group: a dead connection, a place that moved, a lock that was not had, in some order."""


class Settled(NamedTuple):
    """How a group ended."""

    error: StorageError | None
    """Why its admitted changes did not land, or may not have."""
    position: int
    """The newest of the group, if it landed."""


class _ElsewhereError(Exception):
    """The log lies elsewhere than its row says: a standby was promoted under this connection."""


class _LockTimeoutError(Exception):
    """Somebody kept a lock for too long."""


class Committer:
    """The committing side: one connection, used by one thread."""

    def __init__(
        self, sessions: Sessions, *, limits: Limits, clock: Clock, gate: FlushGate, note: Note
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._clock = clock
        self._gate = gate
        self._note = note
        self._connection: psycopg.Connection[Any] | None = None
        self._commits = "on"
        self._numbers: dict[bytes, int] = {}
        self._marks: dict[tuple[AggregateKey, ClientId], int] = {}
        self._stuck: set[int] = set()
        """Locks that were not had in time: they are tried, not waited for, until one is had."""
        self._warnings: list[str] = []
        self.identity: LogIdentity | None = None
        """Of the log that the newest connection leads to."""

    def judge(self, arrivals: Sequence[Arrival]) -> Judged:
        """Begin the transaction of a group and judge it: first round trip.

        Changes on an aggregate whose lock is not to be had in time are busy; the others go on. The
        transaction stays open if anything was admitted, for ``commit``.

        Raises:
            StorageError: it failed, and nothing was sent that could be committed.
        """
        tries_all = False
        for attempt in range(_ATTEMPTS):
            try:
                return self._judge(arrivals, tries_all=tries_all)
            except _LockTimeoutError:
                self._roll_back()
                tries_all = True
            except _ElsewhereError:
                self._roll_back()
                self._settle_place()
            except psycopg.Error as error:
                kind = explain(error, Phase.WORKING).kind
                self._roll_back()
                if kind is not Kind.NOT_SENT or attempt + 1 == _ATTEMPTS:
                    raise storage_error(error, Phase.WORKING, doing="beginning a commit") from error
            except BaseException:
                self._roll_back()
                raise
        raise StorageError("beginning a commit: the database moved under every attempt")

    def commit(self, judged: Judged) -> Settled:
        """Write what was admitted and commit it: second round trip. Never raises StorageError.

        Transaction: every entry, head, mark and dead range of the group, or none.
        """
        try:
            self._gate.raise_if_failing()
        except StorageError as error:
            self._roll_back()
            return Settled(StorageError(str(error), is_outcome_known=False), 0)
        phase = Phase.WORKING
        try:
            parameters, dead = self._drafted(judged)
            phase = Phase.COMMITTING
            self._write(parameters, dead)
        except psycopg.Error as error:
            self._roll_back()
            return Settled(storage_error(error, phase, doing="the commit failed"), 0)
        except (TypeError, ValueError, OverflowError) as error:
            # A value that no row can hold got past the doors; nothing was sent.
            self._roll_back()
            return Settled(StorageError(f"cannot prepare a commit: {error}"), 0)
        if self._warnings:
            # Somebody cancelled the wait for a standby: it is committed here and nowhere else.
            text = f"the commit came with a warning: {self._warnings[0]}"
            return Settled(StorageError(text, is_outcome_known=False), 0)
        return Settled(None, judged.group.staged[-1].position)

    def open(self) -> int:
        """Connect, and take up where the log ends; returns its newest position, 0 if empty.

        Raises:
            ConfigurationError, StorageError: see ``Sessions.open_writer``.
        """
        connection = self.connect()
        try:
            row = connection.execute(NEWEST).fetchone()
        except psycopg.Error as error:
            self.close()
            raise storage_error(error, Phase.WORKING, doing="opening the log") from error
        position, last_ms = (0, 0) if row is None else row
        # No stamp is below the newest one stored (design decision 10).
        self._time = ServerTime(self._clock, not_below=WallMs(last_ms))
        return int(position)

    def hang_up(self) -> None:
        """Shut the connection's socket under the thread that waits for it; from any thread.

        The server is not asked to cancel anything: what it was told to commit, it commits.
        """
        connection = self._connection
        with suppress(OSError, psycopg.Error):
            if connection is not None:
                with socket.socket(fileno=os.dup(connection.fileno())) as copy:
                    copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def connect(self) -> psycopg.Connection[Any]:
        """Open the connection, if there is none.

        Raises:
            ConfigurationError, StorageError: see ``Sessions.open_writer``.
        """
        if self._connection is None or self._connection.closed:
            connection, self.identity, self._commits = self._sessions.open_writer()
            connection.add_notice_handler(self._noticed)
            self._connection = connection
        return self._connection

    # --- the first round trip

    def _judge(self, arrivals: Sequence[Arrival], *, tries_all: bool) -> Judged:
        keys = list({key: None for arrival in arrivals for key in keys_of(arrival.change)})
        pairs = pairs_of([arrival.change for arrival in arrivals])
        locks = {key: self._lock_of(key) for key in keys}
        every = sorted(set(locks.values()))
        tried = every if tries_all else [lock for lock in every if lock in self._stuck]
        waited = [] if tries_all else [lock for lock in every if lock not in self._stuck]
        found, had = self._begin(keys, pairs, waited, tried)
        missed = {lock for lock, is_had in zip(tried, had, strict=True) if not is_had}
        self._stuck = (self._stuck - set(tried)) | missed
        position, stored = self._taken(found, pairs)
        left = [
            arrival
            for arrival in arrivals
            if not missed or not any(locks[key] in missed for key in keys_of(arrival.change))
        ]
        judged = judge(
            left, keys, pairs, stored, time=self._time, limits=self._limits, position=position
        )
        if len(left) != len(arrivals):
            self._note("engine.locks_missed", {"changes": len(arrivals) - len(left)})
            judged = judged._replace(verdicts=_with_busy(arrivals, judged.verdicts))
        if not judged.group.staged:
            self._roll_back()
        return judged

    def _begin(
        self,
        keys: Sequence[AggregateKey],
        pairs: Pairs,
        waited: Sequence[int],
        tried: Sequence[int],
    ) -> tuple[list[Any], list[bool]]:
        """Begin, lock and load: as many statements, one round trip."""
        connection = self.connect()
        prepare = self._sessions.prepares
        wanted = [(key.packed, client.bytes) for key, client in pairs]
        named = {key for key, _ in pairs}
        alone: list[tuple[bytes, bytes | None]] = [
            (key.packed, None) for key in keys if key not in named
        ]
        asked = [*wanted, *alone]
        trying = None
        try:
            with connection.pipeline(), connection.cursor(binary=True) as loading:
                connection.execute(BEGIN, prepare=prepare)
                timeout = f"{self._limits.lock_wait_s * 1000:.0f}ms"
                connection.execute(SETTINGS, (timeout, self._commits), prepare=prepare)
                if waited:
                    connection.execute(LOCK, (Ints.of(waited),), prepare=prepare)
                if tried:
                    trying = connection.execute(TRY_LOCK, (Ints.of(tried),), prepare=prepare)
                loading.execute(
                    LOAD,
                    (Blobs.of([key for key, _ in asked]), Uuids.of([who for _, who in asked])),
                    prepare=prepare,
                )
                rows = loading.fetchall()
                had = [row[0] for row in trying.fetchall()] if trying is not None else []
        except psycopg.errors.LockNotAvailable:
            raise _LockTimeoutError from None
        return rows, had

    def _taken(self, rows: Sequence[Any], pairs: Pairs) -> tuple[int, Stored]:
        """Take apart what was loaded: where the group's positions begin, heads and marks."""
        xid, shift, is_here = rows[0][:3]
        if not is_here:
            raise _ElsewhereError
        turn = xid + shift
        if turn > TURNS_MAX:
            raise StorageError("this log has used up the positions of its feed")
        heads: dict[AggregateKey, Head] = {}
        marks: dict[tuple[AggregateKey, ClientId], int] = {}
        numbers: dict[bytes, int] = {}
        for at, row in enumerate(rows):
            if row[3] is None:
                continue
            found = head_of(row[3 : 3 + HEAD_WIDTH])
            if at < len(pairs):
                key, client = pairs[at]
                mark, row_check = row[3 + HEAD_WIDTH :]
                if mark is not None:
                    marks[pairs[at]] = mark_of(found.number, client, mark, row_check)
            else:
                key = found.key
            if found.key != key:
                raise StorageDamagedError("the index of aggregate keys points to another aggregate")
            heads[key] = found.head
            numbers[key.packed] = found.number
        self._numbers = numbers
        self._marks = marks
        return turn << ORDINAL_BITS, Stored(heads, marks)

    def _lock_of(self, key: AggregateKey) -> int:
        """The lock of an aggregate: the same in every process, another in every log."""
        assert self.identity is not None, "connect first"
        digest = blake2b(key.packed, digest_size=8, key=self.identity.log_id.bytes).digest()
        return int.from_bytes(digest, signed=True)

    # --- the second round trip

    def _drafted(self, judged: Judged) -> tuple[list[Any], list[Any]]:
        group, numbers = judged.group, self._numbers
        raised: dict[tuple[int, bytes], int] = {}
        dead: list[tuple[int, int, int, int]] = []
        for staged in group.staged:
            number = numbers.setdefault(staged.key.packed, staged.position)
            head = staged.head
            if staged.mark:
                pair = (number, staged.client_id.bytes)
                mark = raised.get(pair) or self._marks.get((staged.key, staged.client_id), 0)
                # A store never lowers a mark: a batch may hold lower numbers than an earlier (I5).
                if staged.mark > mark:
                    raised[pair] = staged.mark
            if staged.kind is not FeedKind.WRITTEN:
                below = head.floor if staged.kind is FeedKind.TRIMMED else head.version + 1
                dead.append((staged.position, number, head.incarnation, below))
        parameters = [
            *entries_of(group.staged, numbers),
            *heads_of(group.heads, numbers),
            *marks_of(raised),
        ]
        return parameters, [Ints.of(column) for column in zip(*dead, strict=True)]

    def _write(self, parameters: list[Any], dead: list[Any]) -> None:
        connection = self._connection
        assert connection is not None, "judge first"
        prepare = self._sessions.prepares
        self._warnings.clear()
        with connection.pipeline():
            connection.execute(WRITE, parameters, prepare=prepare)
            if dead:
                connection.execute(DEAD, dead, prepare=prepare)
            connection.execute(COMMIT, prepare=prepare)

    # --- the connection

    def _noticed(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._warnings.append(diagnostic.message_primary or "no text")

    def _roll_back(self) -> None:
        """End the transaction, or the connection if that is not possible (case BC-12)."""
        connection = self._connection
        if connection is None:
            return
        with suppress(psycopg.Error):
            if not connection.closed:
                connection.execute("ROLLBACK", prepare=self._sessions.prepares)
                return
        self.close()

    def _settle_place(self) -> None:
        connection = self.connect()
        try:
            self.identity = settle_place(connection, self._limits)
        except StorageError:
            self.close()
            raise
        self._note("engine.moved", {"place": self._sessions.dsn.place})


def _with_busy(arrivals: Sequence[Arrival], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Add an answer of busy for every change that was left out, in the order of arrival."""
    judged = iter(verdicts)
    following = next(judged, None)
    every = []
    for arrival in arrivals:
        if following is not None and following.arrival is arrival:
            every.append(following)
            following = next(judged, None)
        else:
            every.append(Verdict(arrival, Busy(), Fate.REFUSED))
    return every
