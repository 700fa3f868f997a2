"""The tables of a log file, and what each is for.

The layout follows what was measured: the cost of a commit is the number of B-tree pages it
touches, and of rows it writes. Entries are only ever appended, as many a row as fit a page. Each
batch names the entry of the aggregate's previous batch, so no index over (aggregate, version) is
kept. Everything a head holds can be told from the entries, so heads are written late, many in the
order of their rows, and the newest entries are replayed when the log is opened (``owed.py``).
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x4C4E4431
"""``LND1`` in the file's header: whose file this is, for us and for file(1)."""

SCHEMA_VERSION: Final = 3
"""In the file's header too. A higher one is refused; a lower one, which had a row for each entry, is
rewritten when it is opened for writing (``upgrade.py``)."""

HEADS_UNTIL: Final = "heads_until"
"""The setting that says up to which position the rows of ``aggregates`` are complete."""

ANCHOR_EVERY: Final = 64
"""Every so many versions an anchor is kept, so that a walk along the links is never longer."""

PAGE_BYTES: Final = 4096
"""SQLite's default and the page of the machine; limits.md was measured with it."""

HALF: Final = 2**63
"""A 64-bit number without sign is stored with this taken off, so that SQL compares it rightly."""


def to_column(number: int) -> int:
    """Map a number of 0 to 2**64 - 1 to what a column holds, keeping the order."""
    return number - HALF


def from_column(value: int) -> int:
    """Take a number back from ``to_column``."""
    return value + HALF


TABLES: Final = (
    # Name and value; `row_check` over both. log_id, restore_epoch, num_shards, routing_rule, and
    # `heads_until`: see HEADS_UNTIL.
    """
    CREATE TABLE meta (
      name TEXT PRIMARY KEY,
      value TEXT NOT NULL,
      row_check INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # The log itself: batches, trims and deletes in the order of the feed, some of a commit a row.
    #   position     of the first entry of the pack
    #   entries      what is known of each entry, and a CRC-32 over it and `position` (pack.py)
    #   bodies       the payloads, one after another; last, so that SQLite reads everything before
    #                them without touching their pages
    """
    CREATE TABLE packs (
      position INTEGER PRIMARY KEY,
      entries BLOB NOT NULL,
      bodies BLOB NOT NULL
    )
    """,
    # Heads, complete up to the position in `heads_until`; what is newer is told by the entries.
    # A new aggregate's row is written with its first entry, and a mark that another writer displaces
    # from here goes to `marks` at once. The state (row.py) holds the head, the position of the newest
    # batch, where walks begin, and the pair that wrote last with its mark, which holds for it whatever
    # `marks` says: one writer an aggregate is the common case, and costs no page of `marks` then. A
    # CRC-32 over all of the row ends it.
    """
    CREATE TABLE aggregates (
      number INTEGER PRIMARY KEY,
      key BLOB NOT NULL UNIQUE,
      state BLOB NOT NULL
    )
    """,
    # The marks of every other pair. Never deleted: neither trims nor deletes free a sequence.
    #   pair         the aggregate's number, 8 bytes with the highest first, then the client id;
    #                one column, so that a search downwards passes by no row, whatever is in it
    """
    CREATE TABLE marks (
      pair BLOB PRIMARY KEY NOT NULL,
      mark INTEGER NOT NULL,
      row_check INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Where each 64th version of an aggregate stands. A hint: what it points to is checked.
    """
    CREATE TABLE anchors (
      aggregate INTEGER NOT NULL,
      incarnation INTEGER NOT NULL,
      version INTEGER NOT NULL,
      position INTEGER NOT NULL,
      PRIMARY KEY (aggregate, incarnation, version)
    ) WITHOUT ROWID
    """,
    # Batches to be reclaimed, by the position of the trim or delete: those of `incarnation` below
    # version `below`, found by walking from `start`.
    """
    CREATE TABLE dead (
      position INTEGER PRIMARY KEY,
      aggregate INTEGER NOT NULL,
      incarnation INTEGER NOT NULL,
      below INTEGER NOT NULL,
      start INTEGER NOT NULL
    )
    """,
    # What operators did to the file by hand, and why.
    """
    CREATE TABLE repairs (
      number INTEGER PRIMARY KEY,
      at_ms INTEGER NOT NULL,
      action TEXT NOT NULL,
      subject TEXT NOT NULL,
      before TEXT NOT NULL,
      after TEXT NOT NULL,
      reason TEXT NOT NULL
    )
    """,
)
