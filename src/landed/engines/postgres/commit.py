"""One group, one transaction: lock, load and judge in one round trip, write and commit in a second.

Many processes write one log, so nothing is trusted from memory. The locks of all aggregates of a
group come first, in one order for everybody, so that nobody waits in a circle; then a statement of
its own loads what is stored, which therefore includes all that was committed before the locks were
had. Only now the transaction gets its id, so transaction ids agree with the versions of every
aggregate, and the feed's order with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import psycopg

from landed.clock import Clock, ServerTime, WallMs
from landed.engines.arrivals import Arrival
from landed.engines.flush import FlushGate
from landed.engines.port import LogIdentity, Stored
from landed.engines.postgres.arrays import blobs, ints, uuids
from landed.engines.postgres.exchange import LOST_STATEMENT, Call, Exchange, Statement
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

_STUCK_MAX: Final = 1_000
"""Stuck locks that are remembered. A log with more of them waits for each once more."""


def _columns(first: int, kinds: Sequence[str]) -> str:
    """Rows from parameters that are arrays, a column each.

    In the target list they advance together and one by one; in FROM, the server would first copy each
    of them into a store of its own, which costs a lone write more than its inserts.
    """
    return ", ".join(f"unnest(${at}::{kind}[])" for at, kind in enumerate(kinds, first))


_ENTRY_KINDS: Final = (*["bigint"] * 13, "uuid", "uuid", "bytea")
_HEAD_KINDS: Final = ("bytea", *["bigint"] * 9, "uuid", "uuid")
_MARK_KINDS: Final = ("bigint", "uuid", "bigint", "bigint")
_FIRST_HEAD: Final = 1 + len(_ENTRY_KINDS)
_FIRST_MARK: Final = _FIRST_HEAD + len(_HEAD_KINDS)

BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
SETTINGS: Final = Statement(
    "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),"
    " set_config('idle_in_transaction_session_timeout', $3, true),"
    " set_config('synchronous_commit', $4, true), set_config('enable_seqscan', 'off', true),"
    " set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),"
    " set_config('plan_cache_mode', 'force_generic_plan', true)",
)
"""For this transaction alone, so that it holds behind a pooler too. Each lock has its bound and all of
them together twice that; a process that stands still loses its locks. The plans are index lookups,
whatever the planner believes to know of a table that was empty a minute ago."""
LOCK: Final = Statement("SELECT count(pg_advisory_xact_lock(k)) FROM unnest($1::bigint[]) AS k")
TRY_LOCK: Final = Statement("SELECT pg_try_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k")
LOAD: Final = Statement(
    f"SELECT s.xid, s.shift, s.is_here, {', '.join(f'h.{name}' for name in HEAD_COLUMNS)}, "
    "m.mark, m.row_check FROM "
    "(SELECT pg_current_xact_id()::text::bigint AS xid, shift,"
    f" timeline = {TIMELINE} AS is_here, set_config('statement_timeout', '0', true)"
    " FROM landed_log OFFSET 0) AS s "
    "CROSS JOIN unnest($1::bytea[], $2::uuid[]) WITH ORDINALITY AS p (key, client, nth) "
    "LEFT JOIN landed_log_heads AS h ON h.key = p.key "
    "LEFT JOIN landed_log_marks AS m ON m.number = h.number AND m.client = p.client "
    "ORDER BY p.nth"
)
"""The transaction gets its id here, after the locks. And their bound ends here: a large group may take
longer to be written."""
WRITE: Final = Statement(
    "WITH entries AS (INSERT INTO landed_log_entries "
    f"SELECT {_columns(1, _ENTRY_KINDS)}), "
    "heads AS (INSERT INTO landed_log_heads "
    f"SELECT {_columns(_FIRST_HEAD, _HEAD_KINDS)} "
    "ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in HEAD_COLUMNS[2:])
    + ") INSERT INTO landed_log_marks "
    f"SELECT {_columns(_FIRST_MARK, _MARK_KINDS)} "
    "ON CONFLICT (number, client) DO UPDATE "
    "SET mark = excluded.mark, row_check = excluded.row_check"
)
DEAD: Final = Statement(f"INSERT INTO landed_log_dead SELECT {_columns(1, ['bigint'] * 4)}")
COMMIT: Final = Statement("COMMIT")
ROLLBACK: Final = Statement("ROLLBACK")

_ATTEMPTS: Final = 4
"""For one group: a dead connection, a place that moved, a lock that was not had, a pooler that lost a
statement, in some order."""


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
        self._exchange: Exchange | None = None
        self._commits = "on"
        self._numbers: dict[bytes, int] = {}
        self._marks: dict[tuple[AggregateKey, ClientId], int] = {}
        self._stuck: set[int] = set()
        """Locks that were not had in time: they are tried, not waited for, until one is had."""
        self._silence_s = 2 * limits.lock_wait_s + limits.commit_wait_s
        """A server that has been silent longer than its own bounds allow is given up; never one that
        was told to commit."""
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
            except LOST_STATEMENT:
                self._roll_back()
                self._sessions.stop_preparing()
                self.close()
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
        """Write what was admitted and commit it: second round trip. Never raises.

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
            if isinstance(error, LOST_STATEMENT):
                self._sessions.stop_preparing()
                self.close()
            return Settled(storage_error(error, phase, doing="the commit failed"), 0)
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not be told as a no
            self.close()
            is_known = phase is Phase.WORKING
            text = f"the commit failed: {error!r}"
            return Settled(StorageError(text, is_outcome_known=is_known), 0)
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
        """Hang up under the thread that waits; from any thread. See ``Exchange.hang_up``."""
        if self._exchange is not None:
            self._exchange.hang_up()

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        connection, self._connection, self._exchange = self._connection, None, None
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
            self._exchange = Exchange(connection, prepares=self._sessions.prepares)
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
        if len(self._stuck) > _STUCK_MAX:
            self._stuck.clear()
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
        self.connect()
        limits = self._limits
        settings = (
            _ms(limits.lock_wait_s),
            _ms(2 * limits.lock_wait_s),
            _ms(2 * limits.commit_wait_s),
            self._commits.encode(),
        )
        named = {key for key, _ in pairs}
        asked: list[tuple[bytes, bytes | None]] = [
            *[(key.packed, client.bytes) for key, client in pairs],
            *[(key.packed, None) for key in keys if key not in named],
        ]
        load = (blobs([key for key, _ in asked]), uuids([client for _, client in asked]))
        calls = [Call(BEGIN), Call(SETTINGS, settings)]
        if waited:
            calls.append(Call(LOCK, (ints(waited),)))
        if tried:
            calls.append(Call(TRY_LOCK, (ints(tried),)))
        calls.append(Call(LOAD, load))
        try:
            rows = self._run(calls, within_s=self._silence_s)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
            raise _LockTimeoutError from None
        return rows[-1], [row[0] for row in rows[-2]] if tried else []

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

    def _drafted(self, judged: Judged) -> tuple[list[bytes], list[bytes]]:
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
        return parameters, [ints(column) for column in zip(*dead, strict=True)]

    def _write(self, parameters: list[bytes], dead: list[bytes]) -> None:
        self._warnings.clear()
        calls = [Call(WRITE, parameters)]
        if dead:
            calls.append(Call(DEAD, dead))
        self._run([*calls, Call(COMMIT)])

    # --- the connection

    def _run(
        self, calls: Sequence[Call], *, within_s: float | None = None
    ) -> list[list[tuple[Any, ...]]]:
        assert self._exchange is not None, "connect first"
        return self._exchange.run(calls, within_s=within_s)

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
                self._run([Call(ROLLBACK)], within_s=self._silence_s)
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


def _ms(seconds: float) -> bytes:
    """A setting of the server; at least one, since 0 is no bound at all."""
    return b"%dms" % max(seconds * 1000, 1)


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
