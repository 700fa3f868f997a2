"""Pages of one aggregate and of the feed, each one statement, so each of one moment of the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from landed.engines.postgres.exchange import Call, Statement
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
    NEVER,
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
from landed.log.read import details_of, select

VERSIONS_MAX: Final = 16_384
"""Versions looked at for one page. A page that finds nothing in them ends with a cursor, so that no
filter makes one request long (log rule R10)."""
ROWS_MAX: Final = 2_048
"""Batches of one page."""

_HEADS: Final = ", ".join(f"h.{name}" for name in HEAD_COLUMNS)
_ENTRIES: Final = ", ".join(f"e.{name}" for name in ENTRY_COLUMNS)
_HEAD_OF: Final = Statement(f"SELECT {_HEADS} FROM landed_log_heads AS h WHERE h.key = $1::bytea")
_PAGE: Final = (
    f"SELECT {_HEADS}, e.found, {_ENTRIES} FROM landed_log_heads AS h LEFT JOIN LATERAL ("
    "SELECT *, sum(size) OVER (ORDER BY version) AS total, count(*) OVER () AS found FROM ("
    "SELECT * FROM landed_log_entries WHERE kind = 1 AND number = h.number "
    "AND incarnation = h.incarnation AND h.life = 1 "
    "AND version >= greatest(h.floor, $2::bigint) AND version <= least(h.version, $3::bigint)"
    f"{{conditions}} ORDER BY version LIMIT {ROWS_MAX}) AS chosen) AS e "
    "ON e.total <= $4::bigint OR e.total = e.size WHERE h.key = $1::bytea ORDER BY e.version"
)
"""With the head on every row: two statements would see two moments."""
BELOW: Final = (
    f"((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + shift) << {ORDINAL_BITS})"
)
"""SQL: the position below which nothing can arrive any more. Every transaction with a lower id has
ended, and what it committed is in the very snapshot that says so."""
_FEED: Final = Statement(
    f"SELECT e.found, {_HEADS}, {_ENTRIES} FROM ("
    "SELECT *, sum(size) OVER (ORDER BY position) AS total, count(*) OVER () AS found FROM ("
    "SELECT * FROM landed_log_entries WHERE position > $1::bigint "
    f"AND position < (SELECT {BELOW} FROM landed_log) "
    "ORDER BY position LIMIT $2::bigint) AS chosen) AS e "
    "JOIN landed_log_heads AS h ON h.number = e.number "
    "WHERE e.total <= $3::bigint OR e.total = e.size ORDER BY e.position"
)
NEWEST: Final = (
    "SELECT position, server_ms FROM landed_log_entries "
    f"WHERE position < (SELECT {BELOW} FROM landed_log) ORDER BY position DESC LIMIT 1"
)

_CONDITIONS: Final = (
    # The filter's name, and what it asks of a batch's columns (log rules R5, R7).
    ("include_client", "client = {}::uuid"),
    ("exclude_client", "client <> {}::uuid"),
    ("include_user", "user_id = {}::uuid"),
    ("exclude_user", "user_id IS DISTINCT FROM {}::uuid"),
    ("min_server_ms", "server_ms >= {}::bigint"),
    ("max_server_ms", "server_ms <= {}::bigint"),
    ("min_client_seq", "max_seq >= {}::bigint"),
    ("max_client_seq", "min_seq <= {}::bigint"),
    ("min_event_seq", "event_seq >= {}::bigint"),
    ("max_event_seq", "event_seq - event_count < {}::bigint"),
)
_SHIFTED: Final = frozenset({"min_client_seq", "max_client_seq"})
_BIGINT_MAX: Final = 2**63 - 1


def page_call(read: Read, budget: int) -> Call:
    """The one statement of a page."""
    filters = read.filters
    high = filters.from_version + VERSIONS_MAX - 1
    if filters.to_version is not None:
        high = min(high, filters.to_version)
    values = [read.key.packed, _int(filters.from_version), _int(high), _int(budget)]
    conditions = ""
    for name, condition in _CONDITIONS:
        value = getattr(filters, name)
        if value is None:
            continue
        if isinstance(value, UUID):
            values.append(value.bytes)
        else:
            values.append(_int(value - HALF if name in _SHIFTED else value))
        conditions += f" AND {condition.format(f'${len(values)}')}"
    return Call(_page_statement(conditions), values)


@lru_cache(maxsize=1_024)
def _page_statement(conditions: str) -> Statement:
    return Statement(_PAGE.replace("{conditions}", conditions))


def _int(number: int) -> bytes:
    """A number without sign as ``bigint``. Beyond its range there is nothing to find either way."""
    return min(number, _BIGINT_MAX).to_bytes(8, signed=True)


def details_call(key: AggregateKey) -> Call:
    """The one statement of an aggregate's details."""
    return Call(_HEAD_OF, (key.packed,))


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


def details_from(key: AggregateKey, rows: Sequence[Sequence[Any]]) -> Details | AggregateMissing:
    """Answer a question for details from the head's row, if there is one.

    Raises:
        StorageDamagedError: the head is not what was written.
    """
    return details_of(key, _head(key, rows[0]) if rows else NEVER)


def feed_call(read: FeedRead, budget: int) -> Call:
    """The one statement of a page of the feed. One row more than asked tells whether there is more."""
    rows = min(max(read.limit, 1), ROWS_MAX) + 1
    return Call(_FEED, (_int(read.after), _int(rows), _int(budget)))


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
