"""Groups of admitted changes become rows, all of a group in one transaction and one flush."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from landed.engines.port import Staged
from landed.engines.sqlite.file import translated
from landed.engines.sqlite.lookup import find_head, find_mark
from landed.engines.sqlite.owed import Owed, Payment
from landed.engines.sqlite.pack import INSERT_PACK, Drafted, Pack, pack
from landed.engines.sqlite.row import (
    ALLOW_CONTINUATION,
    ALLOW_RECREATE,
    HeadRow,
    column_of,
    head_row,
    mark_row,
    meta_row,
    pair_of,
)
from landed.engines.sqlite.schema import ANCHOR_EVERY, HEADS_UNTIL
from landed.errors import StorageDamagedError, StorageError
from landed.log import NEVER, FeedKind
from landed.wire.codec import encode_events

_WRITTEN: Final = int(FeedKind.WRITTEN)

INSERT_HEAD: Final = "INSERT INTO aggregates VALUES (?, ?, ?)"
UPDATE_HEAD: Final = "UPDATE aggregates SET state = ?3 WHERE number = ?1 AND key = ?2"
UPSERT_MARK: Final = (
    "INSERT INTO marks VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
    "SET mark = excluded.mark, row_check = excluded.row_check"
)
INSERT_ANCHOR: Final = "INSERT OR REPLACE INTO anchors VALUES (?, ?, ?, ?)"
INSERT_DEAD: Final = "INSERT INTO dead VALUES (?, ?, ?, ?, ?)"
UPDATE_META: Final = "UPDATE meta SET value = ?, row_check = ? WHERE name = ?"

_new = tuple.__new__  # past the constructor, on the hot path


class Draft:
    """The rows of one group, before anything is written."""

    __slots__ = ("anchors", "created", "dead", "entries", "heads", "marks", "packs")

    packs: list[Pack]
    """All of ``entries``, once they are complete."""

    def __init__(self) -> None:
        self.entries: list[Drafted] = []
        self.heads: dict[bytes, HeadRow] = {}
        """The newest head of each aggregate."""
        self.created: dict[bytes, None] = {}
        """Aggregates that are new, in the order of their numbers."""
        self.marks: dict[bytes, int] = {}
        self.anchors: list[tuple[int, int, int, int]] = []
        self.dead: list[tuple[int, int, int, int, int]] = []


class Appender:
    """The writing side of a store, on its one writing connection.

    A commit writes entries, the heads of new aggregates, and the marks of pairs that another writer
    displaced from a head. All other heads are owed (see ``owed.py``).

    The newest row of an aggregate, written or owed, is kept as the place of its standing, so that
    the next append to it looks nothing up.
    """

    def __init__(self, connection: sqlite3.Connection, owed: Owed, *, position: int) -> None:
        """Go on after ``position``."""
        self._connection = connection
        self._owed = owed
        self._position = position
        (highest,) = connection.execute("SELECT max(number) FROM aggregates").fetchone()
        self._numbers_used: int = highest or 0
        self._is_in_doubt = False

    def append(self, group: Sequence[Staged]) -> None:
        """Write a group and flush it.

        Transaction: every entry, new head, displaced mark, anchor and dead range of the group, and
        a slice of what is owed from before; or none.

        Raises:
            StorageError: nothing was written (``is_outcome_known``), or COMMIT itself failed and
                nobody can say.
        """
        try:
            self._append(group)
        except BaseException:
            # The places are of rows that are nowhere: what is true is looked up again.
            for staged in group:
                staged.standing.place = None
            raise

    def _append(self, group: Sequence[Staged]) -> None:
        try:
            draft = self._draft(group)
        except sqlite3.Error as error:
            raise translated(error, "cannot prepare a commit") from error
        except (TypeError, ValueError, OverflowError) as error:
            # A value that no row can hold got past the doors. Nothing was written, and it must not
            # be taken for a commit in doubt: that would stop the engine for everybody.
            raise StorageError(f"cannot prepare a commit: {error}") from error
        payment = self._owed.slice(len(group), self._position)
        self._is_in_doubt = True
        try:
            with Transaction(self._connection):
                self._write(draft)
                if payment is not None:
                    self._write_heads(payment)
        except StorageError as error:
            self._is_in_doubt = not error.is_outcome_known
            raise
        self._is_in_doubt = False
        self._keep(group, draft, payment)

    def settle(self) -> None:
        """Write every head that is owed, so that no entry has to be told again at open.

        Transaction: all of them, and the position up to which the rows are complete then.

        Raises:
            StorageError: as for ``append``; they stay owed.
        """
        if self._owed.until == self._position or self._is_in_doubt:
            return
        payment = self._owed.everything(self._position)
        with Transaction(self._connection):
            self._write_heads(payment)
        self._owed.pay(payment)

    @property
    def settled(self) -> int:
        """Entries up to this position may be dropped: their heads stand in the file."""
        return self._owed.until

    def _keep(self, group: Sequence[Staged], draft: Draft, payment: Payment | None) -> None:
        """Take note of what is durable now."""
        if payment is not None:
            self._owed.pay(payment)
        self._position = group[-1].position
        self._numbers_used += len(draft.created)
        for key in draft.created:
            del draft.heads[key]
        self._owed.owe(draft.heads)

    def _draft(self, group: Sequence[Staged]) -> Draft:
        draft = Draft()
        heads = draft.heads
        for staged in group:
            standing = staged.standing
            row: HeadRow = standing.place or self._find(staged, draft)
            row = (
                self._end(staged, row, draft)
                if staged.batch is None
                else self._extend(staged, row, draft)
            )
            heads[staged.key.packed] = standing.place = row
        draft.packs = pack(draft.entries)
        return draft

    def _find(self, staged: Staged, draft: Draft) -> HeadRow:
        """Find the row of an aggregate whose standing has no place, or number a new one."""
        key, head = staged.key.packed, staged.head
        known = self._owed.rows.get(key)
        if known is not None:
            return known
        if staged.batch is not None and head.incarnation == staged.batch.version == 1:
            # The law has just begun its first life, so it is not looked for a second time.
            draft.created[key] = None
            number = self._numbers_used + len(draft.created)
            return HeadRow(number, staged.key, NEVER, 0, None, 0)
        row = find_head(self._connection, key)
        if row is None:
            raise StorageDamagedError(f"the head of {staged.key} is gone")
        return row

    def _extend(self, staged: Staged, row: HeadRow, draft: Draft) -> HeadRow:
        """One more batch at the end of the chain; return the row of the head after it."""
        key, _, position, head, batch, _, highest, _ = staged
        assert batch is not None
        version, client_id, user_id, server_ms, events = batch
        number, _, _, previous, mark_client, mark = row
        client = column_of(client_id.int)
        incarnation = head.incarnation
        if len(events) == 1:
            low = high = events[0].client_seq
        else:
            seqs = [event.client_seq for event in events]
            low, high = min(seqs), max(seqs)
        draft.entries.append(
            (
                position,
                number,
                _WRITTEN,
                0,
                incarnation,
                version,
                head.event_seq,
                len(events),
                previous,
                client,
                None if user_id is None else column_of(user_id.int),
                server_ms,
                low,
                high,
                encode_events(events),
            )
        )
        if version % ANCHOR_EVERY == 0:
            draft.anchors.append((number, incarnation, version, position))
        if highest:
            if client != mark_client:
                mark_client, mark = client, self._change_writer(row, client, draft)
            # A store never lowers a mark: a batch may hold lower numbers than an earlier one (I5).
            mark = max(mark, highest)
        return _new(HeadRow, (number, key, head, position, mark_client, mark))

    def _change_writer(self, row: HeadRow, client: bytes, draft: Draft) -> int:
        """Put the mark of the pair that wrote last into the table; return the other pair's."""
        number, displaced = row.number, row.mark_client
        if displaced is not None:
            draft.marks[pair_of(number, displaced)] = row.mark
        if number > self._numbers_used and displaced is None:
            return 0  # an aggregate of this very group: nobody has written to it before
        mark = draft.marks.get(pair_of(number, client))
        return find_mark(self._connection, number, client) if mark is None else mark

    def _end(self, staged: Staged, row: HeadRow, draft: Draft) -> HeadRow:
        """A trim or a delete: an entry of its own, and a range of batches that are dead now."""
        head = staged.head
        number, _, _, last_position, _, _ = row
        is_trim = staged.kind is FeedKind.TRIMMED
        draft.entries.append(
            (
                staged.position,
                number,
                int(staged.kind),
                (ALLOW_RECREATE if head.allow_recreate else 0)
                | (ALLOW_CONTINUATION if head.allow_continuation else 0),
                head.incarnation,
                head.floor if is_trim else head.version,
                head.event_seq,
                0,
                0,
                head.last_client.bytes,
                None if head.last_user is None else head.last_user.bytes,
                head.last_ms,
                0,
                0,
                b"",
            )
        )
        below = head.floor if is_trim else head.version + 1
        draft.dead.append((staged.position, number, head.incarnation, below, last_position))
        return row._replace(head=head)

    def _write(self, draft: Draft) -> None:
        """Insert, each table in the order of its keys: fewest pages are touched so."""
        write = self._connection.executemany
        write(INSERT_PACK, draft.packs)
        if draft.created:
            write(INSERT_HEAD, [head_row(draft.heads[key]) for key in draft.created])
        if draft.marks:
            write(UPSERT_MARK, [mark_row(*item) for item in sorted(draft.marks.items())])
        if draft.anchors:
            write(INSERT_ANCHOR, draft.anchors)
        if draft.dead:
            write(INSERT_DEAD, draft.dead)

    def _write_heads(self, payment: Payment) -> None:
        """Update the rows of heads, and say up to where they are complete."""
        rows = [head_row(row) for row in payment.rows]
        updated = self._connection.executemany(UPDATE_HEAD, rows).rowcount if rows else 0
        if updated != len(rows):
            raise StorageError(f"{len(rows) - updated} heads are gone from the file")
        if payment.until is not None:
            name, value, row_check = meta_row(HEADS_UNTIL, str(payment.until))
            self._connection.execute(UPDATE_META, (value, row_check, name))


class Transaction:
    """One write transaction on the writing connection, begun and ended by hand.

    Every way out leaves the connection without a transaction (cases BC-09, BC-10): the body's
    error rolls back and nothing of it is stored; an error at COMMIT leaves the outcome unknown,
    unless SQLite says that the disk was full or the file busy, for then no commit mark was written.
    """

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translated(error, "cannot begin a commit") from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as failure:
                code = getattr(failure, "sqlite_errorcode", 0) & 0xFF
                is_known = code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
                self._roll_back()
                raise translated(
                    failure, "the commit failed", is_outcome_known=is_known
                ) from failure
            return
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            raise translated(error, "cannot write") from error
        if isinstance(error, TypeError | ValueError | OverflowError):
            raise StorageError(f"cannot write: {error}") from error

    def _roll_back(self) -> None:
        # A full disk may have rolled it back already.
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise translated(
                    error, "the transaction cannot be undone", is_outcome_known=False
                ) from error
