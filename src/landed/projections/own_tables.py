"""``TableProjection``: the log's changes in tables of your own, through transactions of your own.

Your function writes what a change means; the cursor is a row beside your tables and moves in the same
transaction. So both are there or neither is, wherever a process dies: nothing is lost and nothing
taken twice, and your function needs no guard against repeats. Needs SQLAlchemy 2 (extra ``postgres``
or ``effects``); any database of it that has transactions, PostgreSQL and SQLite are tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    insert,
    select,
    update,
)
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)

from landed.errors import LandedError, StorageError, StorageForeignError
from landed.facts import Note, forget
from landed.log import FeedEntry, FeedPage, FeedRead

PAGE: Final = 200
"""Changes in one transaction, unless told otherwise: enough that commits cost little."""
WAIT_S: Final = 2.0
"""How long one request waits for the next change."""
PAUSE_S: Final = 0.5
"""After a failure of the log or the database, before it is tried again."""

Apply = Callable[[Connection, FeedEntry], None]


class Identified(Protocol):
    """Which log answered."""

    @property
    def log_id(self) -> UUID: ...
    @property
    def restore_epoch(self) -> int: ...


class Feeding(Protocol):
    """What is needed of a log; every ``Log`` has it."""

    async def feed(self, read: FeedRead, *, timeout_s: float | None = None) -> FeedPage:
        """Changes after a position."""

    async def info(self, *, timeout_s: float | None = None) -> Identified:
        """Which log this is."""


def cursor_table(metadata: MetaData) -> Table:
    """The table of cursors, for your own migrations. ``prepare`` makes it if you have none."""
    return Table(
        "landed_cursors",
        metadata,
        Column("name", String(200), primary_key=True),
        Column("log_id", String(36), nullable=False),
        Column("restore_epoch", BigInteger, nullable=False),
        Column("position", BigInteger, nullable=False),
    )


class TableProjection:
    """Follow a log into your own tables.

    Any number of processes may run one with the same name: a page is taken by one of them.

    Args:
        log: any log, open.
        engine: of your database. Every page is one transaction of it, on a thread.
        apply: called for every change, in the feed's order. It uses the connection it is given (a
            ``Session(bind=connection)`` is fine), and neither commits nor reaches outside. What it
            raises stops the run and rolls the page back: a change is never skipped.
        name: of these tables' cursor.
        page: changes in one transaction at most.
        note: takes facts; ``tables.moved`` after each commit.
    """

    def __init__(
        self,
        log: Feeding,
        engine: Engine,
        apply: Apply,
        *,
        name: str,
        page: int = PAGE,
        note: Note = forget,
    ) -> None:
        self._log = log
        self._engine = engine
        self._apply = apply
        self._name = name
        self._page = page
        self._note = note
        self._cursors = cursor_table(MetaData())

    def prepare(self) -> None:
        """Make the table of cursors. Safe from several processes at once, and again at any time."""
        try:
            self._cursors.create(self._engine, checkfirst=True)
        except (IntegrityError, ProgrammingError, OperationalError):
            # Another process made it in the same moment; if not, this says what is wrong.
            with self._engine.connect() as connection:
                connection.execute(select(self._cursors.c.name).limit(1))

    async def run(self) -> None:
        """Follow until cancelled. A log or database that fails is tried again after a pause.

        Raises:
            StorageForeignError: these tables were made from another log, or it was restored.
            Exception: what ``apply`` raised; nothing of its page was kept.
        """
        while True:
            try:
                await self.run_once(wait_s=WAIT_S)
            except StorageForeignError:
                raise
            except LandedError as e:
                self._note("tables.failed", {"name": self._name, "error": str(e)})
                await asyncio.sleep(PAUSE_S)

    async def catch_up(self) -> None:
        """Take every change that the log has now.

        Raises:
            StorageForeignError, Exception: as ``run``.
            LandedError: the log or the database failed; call it again.
        """
        while not await self.run_once():
            pass

    async def run_once(self, *, wait_s: float = 0.0) -> bool:
        """Take one page, in one transaction; say whether it was the last one for now.

        Raises:
            StorageForeignError, Exception: as ``run``.
            LandedError: the log or the database failed. If a commit's answer was lost, the next call
                goes on from what the database really holds.
        """
        info = await self._log.info()
        after = await asyncio.to_thread(self._begin, info)
        page = await self._log.feed(
            FeedRead(after, self._page, int(wait_s * 1000)), timeout_s=wait_s + 10.0
        )
        if page.next_after != after:
            moved = await asyncio.to_thread(self._take, page, after)
            if moved:
                self._note("tables.moved", {"name": self._name, "position": page.next_after})
            return moved and page.is_at_end
        return page.is_at_end

    def start_over(self, connection: Connection) -> None:
        """Forget the cursor, in the transaction in which you empty your tables."""
        connection.execute(self._cursors.delete().where(self._cursors.c.name == self._name))

    def _begin(self, info: Identified) -> int:
        """Where to go on; refuses a log that these tables were not made from (design 23)."""
        cursors, log_id = self._cursors, str(info.log_id)
        row = select(cursors).where(cursors.c.name == self._name)
        try:
            with self._engine.begin() as connection:
                found = connection.execute(row).one_or_none()
                if found is None:
                    connection.execute(
                        insert(cursors).values(
                            name=self._name,
                            log_id=log_id,
                            restore_epoch=info.restore_epoch,
                            position=0,
                        )
                    )
                    return 0
        except DBAPIError as e:
            raise _failed(e) from e
        if (found.log_id, found.restore_epoch) != (log_id, info.restore_epoch):
            raise StorageForeignError(
                f"the tables of {self._name!r} were made from log {found.log_id} (restored "
                f"{found.restore_epoch} times), and this is {log_id} (restored "
                f"{info.restore_epoch} times): they may hold what it does not; empty them and call "
                "start_over in one transaction"
            )
        return int(found.position)

    def _take(self, page: FeedPage, after: int) -> bool:
        """One transaction: the cursor first, which also keeps every other process out, then rows."""
        cursors = self._cursors
        move = (
            update(cursors)
            .where(cursors.c.name == self._name, cursors.c.position == after)
            .values(position=page.next_after)
        )
        try:
            with self._engine.begin() as connection:
                if connection.execute(move).rowcount == 0:
                    return False  # another process took this page
                for entry in page.entries:
                    self._apply(connection, entry)
        except DBAPIError as e:
            if not _may_pass(e):
                raise  # a mistake in ``apply``: trying again would hide it
            raise _failed(e) from e
        return True


def _may_pass(error: DBAPIError) -> bool:
    """Say whether the database was in the way, and not the statement."""
    if error.connection_invalidated:
        return True
    state: str | None = getattr(error.orig, "sqlstate", "none")
    if state == "none":  # a driver without them: SQLite's
        return isinstance(error, OperationalError) and "locked" in str(error.orig)
    if state is None:  # psycopg, and no server said it
        return isinstance(error, OperationalError | InterfaceError)
    return state[:2] in {"08", "40", "53", "55", "57"}


def _failed(error: DBAPIError) -> StorageError:
    line = str(error.orig).strip().partition("\n")[0]
    return StorageError(f"the database failed: {line}", is_outcome_known=False)
