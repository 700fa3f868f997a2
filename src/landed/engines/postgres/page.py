"""Pages of one aggregate and of the feed, each one statement, so each of one moment of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from landed.engines.postgres.row import (
    ENTRY_COLUMNS,
    HEAD_COLUMNS,
    HEAD_WIDTH,
    entry_of,
    head_of,
)
from landed.engines.postgres.schema import HALF, ORDINAL_BITS
from landed.errors import StorageDamagedError
from landed.ids import AggregateKey
from landed.log import (
    AggregateMissing,
    BelowFloor,
    Details,
    FeedEntry,
    FeedKind,
    FeedPage,
    FeedRead,
    Head,
    Life,
    Page,
    Read,
)
from landed.log.read import select

VERSIONS_MAX: Final = 16_384
"""Versions looked at for one page. A page that finds nothing in them ends with a cursor, so that no
filter makes one request long (log rule R10)."""
ROWS_MAX: Final = 2_048
"""Batches of one page."""

_HEADS: Final = ", ".join(f"h.{name}" for name in HEAD_COLUMNS)
_ENTRIES: Final = ", ".join(f"e.{name}" for name in ENTRY_COLUMNS)
HEAD: Final = f"SELECT {_HEADS} FROM landed_log_heads AS h WHERE h.key = %(key)s"
PAGE: Final = (
    f"SELECT {_HEADS}, e.found, {_ENTRIES} FROM landed_log_heads AS h LEFT JOIN LATERAL ("
    "SELECT *, sum(size) OVER (ORDER BY version) AS total, count(*) OVER () AS found FROM ("
    "SELECT * FROM landed_log_entries WHERE kind = 1 AND number = h.number "
    "AND incarnation = h.incarnation AND h.life = 1 "
    "AND version >= greatest(h.floor, %(low)s) AND version <= least(h.version, %(high)s)"
    "{conditions} ORDER BY version LIMIT %(rows)s) AS chosen) AS e "
    "ON e.total <= %(budget)s OR e.total = e.size WHERE h.key = %(key)s ORDER BY e.version"
)
"""With the head on every row: two statements would see two moments."""
BELOW: Final = (
    f"((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift) << {ORDINAL_BITS})"
)
"""SQL: the position below which nothing can arrive any more. Every transaction with a lower id has
ended, and what it committed is in the very snapshot that says so."""
FEED: Final = (
    f"SELECT e.found, {_HEADS}, {_ENTRIES} FROM ("
    "SELECT *, sum(size) OVER (ORDER BY position) AS total, count(*) OVER () AS found FROM ("
    "SELECT * FROM landed_log_entries WHERE position > %(after)s "
    f"AND position < (SELECT {BELOW} FROM landed_log) "
    "ORDER BY position LIMIT %(rows)s) AS chosen) AS e "
    "JOIN landed_log_heads AS h ON h.number = e.number "
    "WHERE e.total <= %(budget)s OR e.total = e.size ORDER BY e.position"
)
NEWEST: Final = (
    "SELECT position, server_ms FROM landed_log_entries "
    f"WHERE position < (SELECT {BELOW} FROM landed_log) ORDER BY position DESC LIMIT 1"
)

_CONDITIONS: Final = (
    # The filter's name, and what it asks of a batch's columns (log rules R5, R7).
    ("include_client", "client = %(include_client)s"),
    ("exclude_client", "client <> %(exclude_client)s"),
    ("include_user", "user_id = %(include_user)s"),
    ("exclude_user", "user_id IS DISTINCT FROM %(exclude_user)s"),
    ("min_server_ms", "server_ms >= %(min_server_ms)s"),
    ("max_server_ms", "server_ms <= %(max_server_ms)s"),
    ("min_client_seq", "max_seq >= %(min_client_seq)s"),
    ("max_client_seq", "min_seq <= %(max_client_seq)s"),
    ("min_event_seq", "event_seq >= %(min_event_seq)s"),
    ("max_event_seq", "event_seq - event_count < %(max_event_seq)s"),
)
_SHIFTED: Final = frozenset({"min_client_seq", "max_client_seq"})
_BIGINT_MAX: Final = 2**63 - 1


class Query(NamedTuple):
    """A statement and its parameters."""

    statement: str
    parameters: dict[str, Any]


def page_query(read: Read, budget: int) -> Query:
    """The one statement of a page."""
    filters = read.filters
    high = filters.from_version + VERSIONS_MAX - 1
    if filters.to_version is not None:
        high = min(high, filters.to_version)
    parameters: dict[str, Any] = {
        "key": read.key.packed,
        "low": min(filters.from_version, _BIGINT_MAX),
        "high": min(high, _BIGINT_MAX),
        "rows": ROWS_MAX,
        "budget": budget,
    }
    conditions = ""
    for name, condition in _CONDITIONS:
        value = getattr(filters, name)
        if value is None:
            continue
        conditions += f" AND {condition}"
        if isinstance(value, UUID):
            parameters[name] = value
        else:
            parameters[name] = value - HALF if name in _SHIFTED else min(value, _BIGINT_MAX)
    return Query(PAGE.replace("{conditions}", conditions), parameters)


def page_of(read: Read, rows: Sequence[Sequence[Any]]) -> Page | BelowFloor | AggregateMissing:
    """Take a page apart and answer from it.

    The budget counts every batch that the conditions on batches select, whether or not the
    conditions on events leave anything of it.

    Raises:
        StorageDamagedError: something in it is not what was written.
    """
    filters = read.filters
    if not rows:
        return AggregateMissing(read.key)
    head = _head(read.key, rows[0])
    if head.life is not Life.LIVE:
        return AggregateMissing(read.key)
    if filters.from_version < head.floor:
        return BelowFloor(filters.from_version, head.floor)
    end = head.version if filters.to_version is None else min(filters.to_version, head.version)
    window = filters.from_version + VERSIONS_MAX - 1
    following = window + 1 if window < end else None
    batches = []
    found = 0
    for row in rows:
        if row[HEAD_WIDTH] is None:
            break
        entry = entry_of(row[HEAD_WIDTH + 1 :])
        if entry.batch is None:
            raise StorageDamagedError(f"a batch of {read.key} is none")
        found += 1
        if found == len(rows) and (row[HEAD_WIDTH] > found or found == ROWS_MAX):
            following = entry.version + 1 if entry.version < end else None
        selected = select(filters, entry.batch)
        if selected is not None:
            batches.append(selected)
    if not any(bound is not None for bound in filters[3:]):
        _check_contiguous(read, min(end, window), found, following)
    return Page(tuple(batches), following)


def details_of(key: AggregateKey, rows: Sequence[Sequence[Any]]) -> Details | AggregateMissing:
    """Answer a question for details from a head.

    Raises:
        StorageDamagedError: the head is not what was written.
    """
    if not rows:
        return AggregateMissing(key)
    head = _head(key, rows[0])
    is_deleted = head.life is Life.DELETED
    return Details(
        first_version=0 if is_deleted else head.floor,
        version=head.version,
        event_seq=head.event_seq,
        is_deleted=is_deleted,
        allow_recreate=is_deleted and head.allow_recreate,
        allow_continuation=is_deleted and head.allow_continuation,
        last_server_ms=head.last_ms,
        last_client_id=head.last_client,
        last_user_id=head.last_user,
    )


def feed_query(read: FeedRead, budget: int) -> Query:
    """The one statement of a page of the feed. One row more than asked tells whether there is more."""
    rows = min(max(read.limit, 1), ROWS_MAX) + 1
    after = min(read.after, _BIGINT_MAX)
    return Query(FEED, {"after": after, "rows": rows, "budget": budget})


def feed_page_of(read: FeedRead, rows: Sequence[Sequence[Any]]) -> FeedPage:
    """Take a page of the feed apart.

    A damaged entry ends the page before it, and is an error where it would be the first.

    Raises:
        StorageDamagedError: the first entry is not what was written.
    """
    limit = min(max(read.limit, 1), ROWS_MAX)
    entries: list[FeedEntry] = []
    next_after = read.after
    for at, row in enumerate(rows):
        if at == limit:
            return FeedPage(tuple(entries), next_after, False)
        try:
            head = head_of(row[1 : 1 + HEAD_WIDTH])
            entry = entry_of(row[1 + HEAD_WIDTH :])
        except StorageDamagedError:
            if at == 0:
                raise
            return FeedPage(tuple(entries), next_after, False)
        next_after = entry.position
        if entry.kind is not FeedKind.WRITTEN or _is_readable(
            head.head, row[1 + HEAD_WIDTH + 4], entry.version
        ):
            entries.append(
                FeedEntry(entry.position, head.key, entry.kind, entry.batch, entry.version)
            )
    is_whole = not rows or len(rows) == rows[0][0]
    return FeedPage(tuple(entries), next_after, is_whole)


def _head(key: AggregateKey, row: Sequence[Any]) -> Head:
    found = head_of(row[:HEAD_WIDTH])
    if found.key != key:
        raise StorageDamagedError("the index of aggregate keys points to another aggregate")
    return found.head


def _is_readable(head: Head, incarnation: int, version: int) -> bool:
    return head.life is Life.LIVE and incarnation == head.incarnation and version >= head.floor


def _check_contiguous(read: Read, end: int, found: int, following: int | None) -> None:
    """No version between the first and the last of a page may be missing (invariant 1)."""
    low = read.filters.from_version
    if following is not None and found:
        end = min(end, following - 1)
    if found != max(end - low + 1, 0):
        raise StorageDamagedError(
            f"versions of {read.key} are gone: {found} of {low} to {end} were found"
        )
