"""The log in memory: an engine held to every obligation but durability, not a mock."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

from landed.clock import Clock
from landed.engines.lane import Lane
from landed.engines.port import LogIdentity, Staged, Stored
from landed.errors import StorageDamagedError, StorageForeignError
from landed.facts import Note, forget
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    NEVER,
    AggregateMissing,
    Batch,
    BelowFloor,
    FeedEntry,
    FeedKind,
    FeedPage,
    FeedRead,
    Head,
    Life,
    Page,
    Read,
    ReadFilters,
)
from landed.log.read import select, selects_batch

_OVERHEAD: Final = 64
"""Encoded bytes of an event or a batch besides payloads, about; for page budgets."""
_RECLAIM_SLICE: Final = 1_000
"""Batches dropped by one call, so that none of them is long."""
_COUNT: Final = count()
"""Tells logs apart that one process opens in one millisecond: a projection must notice a swap."""


async def open_memory(*, limits: Limits, clock: Clock, note: Note = forget) -> Lane:
    """Open an empty log in memory. It is gone when the process is."""
    store = MemoryStore(limits, log_id=UUID(int=clock.wall_ms() << 32 | next(_COUNT)))
    lane = Lane(store, limits=limits, clock=clock, note=note)
    await lane.open()
    return lane


class _Entry(NamedTuple):
    """One change in the order of the log."""

    position: int
    key: AggregateKey
    kind: FeedKind
    incarnation: int
    version: int


class MemoryStore:
    """A store in dictionaries. It outlives the lane that closed it, as a file would."""

    def __init__(self, limits: Limits, *, log_id: UUID) -> None:
        self._lock = threading.Lock()
        self._frozen = (limits.num_shards, limits.routing_rule)
        self._heads: dict[AggregateKey, Head] = {}
        self._marks: dict[tuple[AggregateKey, ClientId], int] = {}
        self._lives: dict[tuple[AggregateKey, int], dict[int, Batch]] = {}
        self._entries: list[_Entry] = []
        self._dead: deque[tuple[AggregateKey, int, int]] = deque()
        self._last_ms = 0
        self.identity = LogIdentity(log_id, 0)
        """Which log this is."""

    def check_settings(self, limits: Limits) -> None:
        """Refuse settings that its keys were not placed by (log rule G3).

        Raises:
            StorageForeignError: another shard count or routing rule.
        """
        if self._frozen != (limits.num_shards, limits.routing_rule):
            raise StorageForeignError(
                f"the log was made with {self._frozen[0]} shards by {self._frozen[1]}"
            )

    def open(self) -> tuple[int, int]:
        """Return the highest position ever used and the last server time."""
        return (self._entries[-1].position if self._entries else 0), self._last_ms

    def load(
        self, keys: Sequence[AggregateKey], pairs: Sequence[tuple[AggregateKey, ClientId]]
    ) -> Stored:
        """Look up heads and marks; what is not there was never written."""
        with self._lock:
            return Stored(
                {key: self._heads[key] for key in keys if key in self._heads},
                {pair: self._marks[pair] for pair in pairs if pair in self._marks},
            )

    def commit(self, group: Sequence[Staged]) -> None:
        """Take a group in, all of it under one lock."""
        with self._lock:
            for staged in group:
                self._take(staged)

    def _take(self, staged: Staged) -> None:
        key, head = staged.key, staged.head
        version = head.version
        if staged.batch is not None:
            self._lives.setdefault((key, head.incarnation), {})[version] = staged.batch
            pair = (key, staged.client_id)
            self._marks[pair] = max(self._marks.get(pair, 0), staged.mark)
        elif staged.kind is FeedKind.TRIMMED:
            version = head.floor
            self._dead.append((key, head.incarnation, head.floor))
        else:
            self._dead.append((key, head.incarnation, head.version + 1))
        self._heads[key] = head
        self._last_ms = max(self._last_ms, head.last_ms)
        self._entries.append(_Entry(staged.position, key, staged.kind, head.incarnation, version))

    def read(self, read: Read, head: Head, budget: int) -> Page | BelowFloor | AggregateMissing:
        """One page of the life that ``head`` describes; see ``Store.read``.

        Raises:
            StorageDamagedError: a batch is missing, and neither a trim nor a delete explains it.
        """
        filters = read.filters
        end = head.version
        if filters.to_version is not None:
            end = min(end, filters.to_version)
        batches: list[Batch] = []
        spent = 0
        with self._lock:
            life = self._lives.get((read.key, head.incarnation), {})
            for version in range(max(filters.from_version, head.floor), end + 1):
                batch = life.get(version)
                if batch is None:
                    return self._overtaken(read, head, version)
                if not _may_select(filters, batch):
                    continue
                size = _size(batch)
                if spent and spent + size > budget:
                    return Page(tuple(batches), version)
                spent += size
                selected = select(filters, batch)
                if selected is not None:
                    batches.append(selected)
        return Page(tuple(batches), None)

    def _overtaken(self, read: Read, head: Head, version: int) -> BelowFloor | AggregateMissing:
        """Say why a batch that ``head`` promised is not there any more (log rule R11).

        What drops it may run right behind the commit that let it die, before readers see that commit.
        """
        now = self._heads[read.key]
        if now.life is not Life.LIVE or now.incarnation != head.incarnation:
            return AggregateMissing(read.key)
        if read.filters.from_version < now.floor:
            return BelowFloor(read.filters.from_version, now.floor)
        raise StorageDamagedError(f"version {version} of {read.key} is missing")

    def feed(self, read: FeedRead, budget: int) -> FeedPage:
        """Entries after a position; see ``Store.feed``.

        Raises:
            StorageDamagedError: a batch is missing that can still be read.
        """
        entries: list[FeedEntry] = []
        spent = 0
        next_after = read.after
        with self._lock:
            start = bisect_right(self._entries, read.after, key=lambda entry: entry.position)
            for at in range(start, len(self._entries)):
                made = self._feed_entry(self._entries[at])
                if made is not None:
                    size = _OVERHEAD if made.batch is None else _size(made.batch)
                    if entries and (len(entries) >= read.limit or spent + size > budget):
                        return FeedPage(tuple(entries), next_after, False)
                    entries.append(made)
                    spent += size
                next_after = self._entries[at].position
        return FeedPage(tuple(entries), next_after, True)

    def _feed_entry(self, entry: _Entry) -> FeedEntry | None:
        """The entry as it is served, or None if its batch is not readable any more."""
        if entry.kind is not FeedKind.WRITTEN:
            return FeedEntry(entry.position, entry.key, entry.kind, None, entry.version)
        head = self._heads.get(entry.key, NEVER)
        if (
            head.life is not Life.LIVE
            or head.incarnation != entry.incarnation
            or head.floor > entry.version
        ):
            return None
        batch = self._lives.get((entry.key, entry.incarnation), {}).get(entry.version)
        if batch is None:
            raise StorageDamagedError(f"version {entry.version} of {entry.key} is missing")
        return FeedEntry(entry.position, entry.key, entry.kind, batch, entry.version)

    def reclaim(self) -> int:
        """Drop dead batches, a bounded slice; returns how many."""
        dropped = 0
        with self._lock:
            while self._dead and dropped < _RECLAIM_SLICE:
                key, incarnation, below = self._dead[0]
                life = self._lives.get((key, incarnation), {})
                gone = [version for version in life if version < below][: _RECLAIM_SLICE - dropped]
                for version in gone:
                    del life[version]
                dropped += len(gone)
                if not any(version < below for version in life):
                    self._dead.popleft()
                if not life:
                    self._lives.pop((key, incarnation), None)
        return dropped

    def close(self) -> None:
        """Keep everything: a lane opened on it later goes on."""


def _may_select(filters: ReadFilters, batch: Batch) -> bool:
    """Judge a batch by what an engine knows of it without decoding its events (log rule R7)."""
    if not selects_batch(filters, batch):
        return False
    seqs = [event.client_seq for event in batch.events]
    low, high = filters.min_client_seq, filters.max_client_seq
    return (low is None or max(seqs) >= low) and (high is None or min(seqs) <= high)


def _size(batch: Batch) -> int:
    return _OVERHEAD + sum(len(event.value) + _OVERHEAD for event in batch.events)
