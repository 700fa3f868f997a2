"""Pages of one aggregate and of the feed, read along the links, every row checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

from landed.engines.sqlite.lookup import find_head, find_head_by_number
from landed.engines.sqlite.pack import (
    Entry,
    Opened,
    check_body,
    find_body,
    find_entry,
    packs_from,
)
from landed.engines.sqlite.row import HeadRow
from landed.errors import StorageDamagedError
from landed.log import (
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
from landed.wire.codec import decode_events

EXAMINED_MAX: Final = 16_384
"""Entries looked at for one page. A page that finds nothing in them ends with a cursor, so that no
filter makes one request long (log rule R10)."""
_ANCHOR: Final = (
    "SELECT version, position FROM anchors WHERE aggregate = ? AND incarnation = ? "
    "AND version >= ? ORDER BY version LIMIT 1"
)

Found = tuple[Entry, object]
"""An entry and its payload, which may be missing."""


class _GoneError(Exception):
    """A link leads to an entry that is not there any more."""


def read_page(
    connection: sqlite3.Connection,
    read: Read,
    head: Head,
    budget: int,
    owed: Mapping[bytes, HeadRow],
) -> Page | BelowFloor | AggregateMissing:
    """Read one page of the life that ``head`` describes. See ``Store.read``.

    ``owed`` holds the heads that are newer than their rows.

    The budget counts the stored size of every batch that the batch conditions select, whether or
    not the event conditions leave anything of it.
    """
    filters = read.filters
    stored = owed.get(read.key.packed) or find_head(connection, read.key.packed)
    if stored is None:
        raise StorageDamagedError(f"the head of {read.key} is gone")
    low = max(filters.from_version, head.floor)
    high = head.version if filters.to_version is None else min(filters.to_version, head.version)
    with_body = not _has_batch_conditions(filters)
    batches: list[Batch] = []
    spent = 0
    if low > high:
        return Page((), None)
    try:
        life = walk_life(connection, stored, head, low=low, with_bodies=with_body)
        for examined, (entry, body) in enumerate(life):
            if entry.version > high:
                break
            if examined == EXAMINED_MAX:
                return Page(tuple(batches), entry.version)
            if not _may_select(filters, entry):
                continue
            if spent and spent + entry.size > budget:
                return Page(tuple(batches), entry.version)
            spent += entry.size
            selected = select(filters, _with_events(connection, entry, body))
            if selected is not None:
                batches.append(selected)
    except _GoneError:
        return _overtaken(read, head, stored)
    return Page(tuple(batches), None)


def walk_life(
    connection: sqlite3.Connection,
    stored: HeadRow,
    head: Head,
    *,
    low: int,
    with_bodies: bool = False,
) -> Iterator[Found]:
    """Go through the batches of one life from version ``low`` to ``head.version``, upwards.

    Yields each entry, checked, with its payload, unchecked, if that is asked for and not large.
    """
    while low <= head.version:
        chunk = _chunk(connection, stored, head.incarnation, low=low, with_bodies=with_bodies)
        yield from chunk
        low = chunk[-1][0].version + 1


def _chunk(
    connection: sqlite3.Connection,
    stored: HeadRow,
    incarnation: int,
    *,
    low: int,
    with_bodies: bool,
) -> list[Found]:
    """The batches from ``low`` up to the next anchor, or up to the newest one, in ascending order.

    Walks backwards: links lead to older batches only.
    """
    anchor = connection.execute(_ANCHOR, (stored.number, incarnation, low)).fetchone()
    position = stored.last_position if anchor is None else anchor[1]
    walked: list[Found] = []
    newer: Entry | None = None
    while True:
        found = find_entry(connection, position, with_body=with_bodies)
        if found is None:
            raise _GoneError
        entry = found[0]
        if not _follows(entry, newer, stored.number):
            raise StorageDamagedError(f"the links of aggregate number {stored.number} are broken")
        newer = entry
        if (entry.incarnation, entry.version) < (incarnation, low):
            raise StorageDamagedError(f"version {low} of aggregate number {stored.number} is gone")
        # Entries of a later life are passed over: this read began before it did.
        if entry.incarnation == incarnation:
            walked.append(found)
            if entry.version == low:
                walked.reverse()
                return walked
        position = entry.previous


def _follows(entry: Entry, newer: Entry | None, number: int) -> bool:
    """Whether a link leads from ``newer`` to the batch before it."""
    if entry.aggregate != number or entry.kind != FeedKind.WRITTEN:
        return False
    if newer is None:
        return True
    if entry.position >= newer.position:
        return False
    if entry.incarnation == newer.incarnation:
        return entry.version == newer.version - 1
    return entry.incarnation < newer.incarnation


def _overtaken(read: Read, head: Head, stored: HeadRow) -> BelowFloor | AggregateMissing:
    """Say why batches that ``head`` promised are not there any more (log rule R11)."""
    now = stored.head
    if now.life is not Life.LIVE or now.incarnation != head.incarnation:
        return AggregateMissing(read.key)
    if read.filters.from_version < now.floor:
        return BelowFloor(read.filters.from_version, now.floor)
    raise StorageDamagedError(f"a batch of {read.key} is gone from the file")


def _has_batch_conditions(filters: ReadFilters) -> bool:
    return any(bound is not None for bound in filters[3:])


def _may_select(filters: ReadFilters, entry: Entry) -> bool:
    """Judge a batch by its metadata alone, without reading its payload (log rule R7)."""
    first_event_seq = entry.event_seq - entry.event_count + 1
    return (
        (filters.min_client_seq is None or entry.max_seq >= filters.min_client_seq)
        and (filters.max_client_seq is None or entry.min_seq <= filters.max_client_seq)
        and (filters.min_event_seq is None or entry.event_seq >= filters.min_event_seq)
        and (filters.max_event_seq is None or first_event_seq <= filters.max_event_seq)
        and selects_batch(filters, entry.batch())
    )


def _with_events(connection: sqlite3.Connection, entry: Entry, body: object) -> Batch:
    if body is None:
        body = find_body(connection, entry.position)
    try:
        events = decode_events(check_body(entry, body))
    except ValueError:
        raise StorageDamagedError(
            f"the payload at position {entry.position} cannot be decoded"
        ) from None
    return entry.batch()._replace(events=events)


# --- the feed


def read_feed(
    connection: sqlite3.Connection, read: FeedRead, budget: int, owed: Mapping[bytes, HeadRow]
) -> FeedPage:
    """Read entries after a position. See ``Store.feed``.

    A damaged pack ends the page before it, and is an error where it would be the first. So is the
    one that holds ``read.after``: with a damaged position it may have led the search astray.
    """
    entries: list[FeedEntry] = []
    heads: dict[int, HeadRow] = {}
    next_after = read.after
    spent = examined = 0
    found = _entries_after(connection, read.after)
    while True:
        try:
            entry, body = next(found, (None, None))
            if entry is None:
                return FeedPage(tuple(entries), next_after, True)
            if examined == EXAMINED_MAX or len(entries) >= read.limit:
                return FeedPage(tuple(entries), next_after, False)
            head = heads.get(entry.aggregate)
            if head is None:
                head = find_head_by_number(connection, entry.aggregate)
                head = heads[entry.aggregate] = owed.get(head.key.packed, head)
            if _is_served(entry, head.head):
                if entries and spent + entry.size > budget:
                    return FeedPage(tuple(entries), next_after, False)
                entries.append(_feed_entry(connection, entry, body, head))
                spent += entry.size
        except StorageDamagedError:
            if next_after == read.after:
                raise
            return FeedPage(tuple(entries), next_after, False)
        next_after = entry.position
        examined += 1


def _entries_after(connection: sqlite3.Connection, position: int) -> Iterator[tuple[Entry, object]]:
    for row in packs_from(connection, position, with_bodies=True):
        yield from Opened(row).after(position)


def _is_served(entry: Entry, head: Head) -> bool:
    """Trims and deletes always; batches as long as they are readable."""
    return entry.kind != FeedKind.WRITTEN or (
        head.life is Life.LIVE
        and entry.incarnation == head.incarnation
        and entry.version >= head.floor
    )


def _feed_entry(
    connection: sqlite3.Connection, entry: Entry, body: object, head: HeadRow
) -> FeedEntry:
    kind = FeedKind(entry.kind)
    batch = _with_events(connection, entry, body) if kind is FeedKind.WRITTEN else None
    return FeedEntry(entry.position, head.key, kind, batch, entry.version)
