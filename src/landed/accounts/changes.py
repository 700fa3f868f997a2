"""Which accounts there are, and who wants to know when one changes: both from the log's feed.

Every replica follows the feed by itself. A slow listener loses intermediate changes, never the last
one of an account (SW-123).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from landed.accounts.domain import is_account
from landed.client.log import Log
from landed.errors import LandedError
from landed.facts import Note, forget
from landed.log import FeedEntry, FeedKind, FeedPage, FeedRead

WAIT_S: Final = 2.0
"""How long one request waits for the next change. Short, since a log server that stops waits for it."""
TIMEOUT_S: Final = WAIT_S + 5.0
"""For the whole request, the wait included."""
PAUSE_S: Final = 0.5
"""After a failure, before the feed is asked again."""
LISTENERS_MAX: Final = 256
"""Live streams of one replica."""
WAITING_ACCOUNTS_MAX: Final = 4096
"""Accounts changed but not yet told to one listener; beyond it a resync says the same in one line."""
ACCOUNTS_MAX: Final = 100_000
"""Accounts kept for the list, so that memory stays bounded; those that appear later are not listed."""

_OPERATIONS: Final = {
    FeedKind.WRITTEN: "write",
    FeedKind.TRIMMED: "trim",
    FeedKind.DELETED: "delete",
}


class Change(NamedTuple):
    """The newest change of one account that a listener has not been told yet."""

    account: UUID
    operation: str
    """write, trim or delete."""
    version: int


class Listener:
    """One live stream. Holds at most one change an account."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: dict[UUID, Change] = {}
        self._must_resync = True
        self._something = asyncio.Event()
        self._something.set()

    def tell(self, change: Change) -> None:
        """Add a change; it replaces an older one of the same account."""
        self._waiting[change.account] = change
        if len(self._waiting) > WAITING_ACCOUNTS_MAX:
            self.resync()
        self._something.set()

    def resync(self) -> None:
        """Say that something may have been missed: everything must be fetched again."""
        self._waiting.clear()
        self._must_resync = True
        self._something.set()

    def close(self) -> None:
        """End the stream at its next turn."""
        self.is_closed = True
        self._something.set()

    async def take(self) -> tuple[bool, list[Change]]:
        """Wait for news; return whether to resync, and then the changes after it."""
        await self._something.wait()
        self._something.clear()
        must_resync, self._must_resync = self._must_resync, False
        changes = list(self._waiting.values())
        self._waiting.clear()
        return must_resync, changes


class Changes:
    """Follow the feed of one log.

    Args:
        log: open as long as this is used.
        names: accounts to list even before they are written, and what to call them.
    """

    def __init__(self, log: Log, *, names: Mapping[UUID, str], note: Note = forget) -> None:
        self._log = log
        self._names = names
        self._note = note
        self._after = 0
        self._log_id: tuple[UUID, int] | None = None
        self._accounts: dict[UUID, None] = dict.fromkeys(names)
        self._listeners: set[Listener] = set()

    async def follow(self) -> None:
        """Follow the feed until cancelled. Failures are noted and tried again."""
        while True:
            try:
                await self._meet()
                while True:
                    await self._advance(wait_s=WAIT_S)
            except LandedError as e:
                self._note("accounts.feed_failed", {"error": str(e)})
                await asyncio.sleep(PAUSE_S)

    async def accounts(self) -> list[tuple[UUID, str]]:
        """Every account with its name, those in the names file first, then as they appeared.

        Raises:
            LandedError: the feed cannot be read.
        """
        while not await self._advance(wait_s=0.0):
            pass
        return [(account, self._names.get(account, "")) for account in self._accounts]

    @property
    def is_full(self) -> bool:
        """This replica has as many live streams as it may."""
        return len(self._listeners) >= LISTENERS_MAX

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """Listen for the time of the block. The first thing told is a resync."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End every live stream, so that the server can stop."""
        for listener in self._listeners:
            listener.close()

    async def _meet(self) -> None:
        """Start over if this is another log than before, or the same one restored (decision 23)."""
        info = await self._log.info()
        log_id = (info.log_id, info.restore_epoch)
        if self._log_id not in (None, log_id) or info.position < self._after:
            self._after = 0
            self._accounts = dict.fromkeys(self._names)
        self._log_id = log_id
        for listener in self._listeners:
            listener.resync()

    async def _advance(self, *, wait_s: float) -> bool:
        """Take one page; say whether it was the last one for now."""
        read = FeedRead(self._after, wait_ms=int(wait_s * 1000))
        page: FeedPage = await self._log.feed(read, timeout_s=TIMEOUT_S)
        if self._after < read.after:
            return False  # started over meanwhile: this page belongs to the log before
        for entry in page.entries:
            # Two readers may hold the same page: the follower, and whoever asked for the list.
            if entry.position > self._after:
                self._take(entry)
        self._after = max(self._after, page.next_after)
        return page.is_at_end

    def _take(self, entry: FeedEntry) -> None:
        if not is_account(entry.key):
            return
        account = entry.key.id
        if entry.kind is FeedKind.DELETED:
            self._accounts.pop(account, None)
        elif len(self._accounts) < ACCOUNTS_MAX:
            self._accounts.setdefault(account)
        change = Change(account, _OPERATIONS[entry.kind], entry.version)
        for listener in self._listeners:
            listener.tell(change)
