"""The production store of one life of a server, on a disk on which things go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Protocol

from landed.engines.port import LogIdentity, Staged, Store, Stored
from landed.errors import StorageError
from landed.facts import Note
from landed.ids import AggregateKey, ClientId
from landed.log import (
    AggregateMissing,
    Answer,
    BelowFloor,
    FeedPage,
    FeedRead,
    Head,
    Page,
    Read,
    Request,
)
from landed.sim.durable import Durable, Seen
from landed.sim.tear import Image


class Flaw(StrEnum):
    """What may happen to a commit."""

    FULL = "full"
    """The disk is full before COMMIT: nothing is stored, and the engine knows it."""
    DOUBT_LOST = "doubt_lost"
    """An I/O error at COMMIT; it is not there."""
    DOUBT_KEPT = "doubt_kept"
    """An I/O error at COMMIT; it is there all the same."""
    CRASH_BEFORE = "crash_before"
    """The machine dies before anything of it is written."""
    CRASH_TORN = "crash_torn"
    """The machine dies in the middle of the flush."""
    CRASH_AFTER = "crash_after"
    """The machine dies when it is flushed and nobody knows."""


class Keeper(Protocol):
    """The disk, as far as a store on it knows it."""

    durable: Durable

    def prefers_large(self) -> bool:
        """Wait for a commit of several changes before tearing one."""

    def snapshot(self) -> Image | None:
        """The bytes as they are now."""

    def keep(self, image: Image | None) -> None:
        """What the next life finds."""

    def keep_torn(self, before: Image, after: Image) -> None:
        """The next life finds any mix of two states."""


class SimStore:
    """A store that a seed can fail, doubt or cut off in a commit. Implements ``Store``."""

    def __init__(
        self, store: Store, disk: Keeper, *, on_crash: Callable[[], None], note: Note
    ) -> None:
        """``note`` takes ``disk.full``, ``disk.crash_torn`` and so on, when they happen."""
        self._store = store
        self._disk = disk
        self._on_crash = on_crash
        self._note = note
        self.flaw: Flaw | None = None
        """What happens to the next commit."""
        self.is_dead = False
        """Its machine has crashed: nothing it does reaches the disk any more."""

    @property
    def identity(self) -> LogIdentity:
        """See ``Store.identity``."""
        return self._store.identity

    def open(self) -> tuple[int, int]:
        """See ``Store.open``."""
        ends = self._store.open()
        self._disk.durable.found(ends[0], self._store)
        return ends

    def load(
        self, keys: Sequence[AggregateKey], pairs: Sequence[tuple[AggregateKey, ClientId]]
    ) -> Stored:
        """See ``Store.load``."""
        return self._store.load(keys, pairs)

    def commit(self, group: Sequence[Staged]) -> None:
        """Commit a group, or let happen to it what the seed says.

        Raises:
            StorageError: nothing of it is stored, or nobody can say.
        """
        if self.is_dead:
            raise StorageError("the machine is off", is_outcome_known=False)
        flaw, self.flaw = self.flaw, None
        if flaw is Flaw.CRASH_TORN and len(group) == 1 and self._disk.prefers_large():
            flaw, self.flaw = None, flaw  # half a group tells more than half a row
        if flaw is None:
            self._flush(group)
            return
        self._note(f"disk.{flaw}", {"changes": len(group)})
        match flaw:
            case Flaw.FULL:
                raise StorageError("the disk is full, says the seed")
            case Flaw.DOUBT_LOST:
                raise StorageError("an I/O error, says the seed", is_outcome_known=False)
            case Flaw.DOUBT_KEPT:
                self._flush(group)
                raise StorageError("an I/O error, says the seed", is_outcome_known=False)
            case _:
                self._crash(flaw, group)

    def _flush(self, group: Sequence[Staged]) -> None:
        self._store.commit(group)
        self._disk.durable.take(group)

    def _crash(self, flaw: Flaw, group: Sequence[Staged]) -> None:
        """Die before, in or after the flush. In memory a commit has no middle: it is not there."""
        before = self._disk.snapshot()
        is_torn = flaw is Flaw.CRASH_TORN and before is not None
        if flaw is Flaw.CRASH_AFTER:
            self._flush(group)
        elif is_torn:
            self._store.commit(group)
            self._disk.durable.expect_any(group)
        after = self._disk.snapshot()
        self.die(after)
        if is_torn and before is not None and after is not None:
            self._disk.keep_torn(before, after)
        raise StorageError("the machine died", is_outcome_known=False)

    def die(self, image: Image | None) -> None:
        """The machine dies and leaves these bytes; whoever runs on it is told."""
        self.is_dead = True
        self._disk.keep(image)
        self._on_crash()

    def crash(self) -> None:
        """The machine dies now, between two commits."""
        if not self.is_dead:
            self.die(self._disk.snapshot())

    def read(self, read: Read, head: Head, budget: int) -> Page | BelowFloor | AggregateMissing:
        """See ``Store.read``."""
        return self._store.read(read, head, budget)

    def feed(self, read: FeedRead, budget: int) -> FeedPage:
        """See ``Store.feed``."""
        return self._store.feed(read, budget)

    def reclaim(self) -> int:
        """See ``Store.reclaim``."""
        return 0 if self.is_dead else self._store.reclaim()

    def close(self) -> None:
        """See ``Store.close``."""
        self._store.close()

    def see(self, request: Request) -> Seen:
        """A request arrives."""
        return self._disk.durable.see(request)

    def published(self) -> None:
        """The oldest group that was flushed and not visible is visible now."""
        self._disk.durable.published()

    def untrue(self, request: Request, answer: Answer, seen: Seen) -> Iterator[str]:
        """What an answer tells that is not flushed (log rules C1, C2): durable, then visible."""
        return self._disk.durable.untrue(request, answer, seen)
