"""Which log this is, where it lies, and the shift that makes positions of its transactions.

A position is ``(transaction id + shift) * 2^18 + ordinal``. Transaction ids rise within one history
of one cluster; where that ends, a new shift lifts the positions to come above every old one:

- a standby was promoted (another timeline): its transaction ids may repeat some of the old primary;
- the log was restored from a dump (another cluster, or other tables): they may be far lower.
  Then history may have forked as well, and ``restore_epoch`` tells projections so.

So the order of the feed never changes, and nobody's cursor is ever above what is yet to come.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import uuid4

import psycopg

from landed.engines.port import LogIdentity
from landed.engines.postgres.schema import MARGIN, ORDINAL_BITS, TURNS_MAX
from landed.errors import StorageError, StorageForeignError
from landed.limits import Limits
from landed.postgres.faults import Phase, storage_error

TIMELINE: Final = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
"""SQL: the timeline that this primary writes."""

UNFINISHED: Final = "unfinished copy"
"""In place of a cluster: ``landed copy`` is not through, and these tables are no log yet."""

_LOCK_KEY: Final = 0x6C64_6C6F_6770_6C61
"""Of the lock that whoever looks after the place takes."""
_FOUND: Final = (
    "SELECT log_id, restore_epoch, num_shards, routing_rule, cluster, made_as, timeline, shift "
    "FROM landed_log"
)
_NOW: Final = (
    f"SELECT {TIMELINE}, 'landed_log'::regclass::oid::bigint, pg_current_xact_id()::text::bigint, "
    "coalesce((SELECT max(position) FROM landed_log_entries), 0)"
)


class _Found(NamedTuple):
    log_id: Any
    restore_epoch: int
    num_shards: int
    routing_rule: str
    cluster: str
    made_as: int
    timeline: str
    shift: int


def settle_place(connection: psycopg.Connection[Any], limits: Limits) -> LogIdentity:
    """Make the log's one row where there is none, and see to it that it speaks of this place.

    Called whenever a connection is new, and whenever a transaction found itself elsewhere.

    Transaction: the row, and the new shift, or nothing.

    Raises:
        StorageForeignError: another shard count or routing rule (log rule G3), an unfinished copy,
            or a log that has used up its positions.
        StorageError: the database failed.
    """
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            connection.execute("SET LOCAL lock_timeout = '30s'")
            # A primary without its standby can still be opened and read. Nothing is lost with this
            # row: what leans on it waits for the standby itself, and comes after it in the WAL.
            connection.execute("SET LOCAL synchronous_commit = local")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
            cluster = _cluster(connection)
            row = connection.execute(_FOUND).fetchone()
            found = None if row is None else _Found._make(row)
            if found is not None:
                _check_finished(found)
                _check_frozen(found, limits)
            now = connection.execute(_NOW).fetchone()
            assert now is not None
            timeline, made_as, xid, highest = now
            if found is None:
                return _make(connection, limits, cluster, made_as, timeline)
            is_copy = (found.cluster, found.made_as) != (cluster, made_as)
            identity = LogIdentity(found.log_id, found.restore_epoch + is_copy)
            if is_copy or found.timeline != timeline:
                shift = max(highest >> ORDINAL_BITS, xid + found.shift) + MARGIN - xid
                if xid + shift + MARGIN > TURNS_MAX:
                    raise StorageForeignError("this log has used up the positions of its feed")
                connection.execute(
                    "UPDATE landed_log SET restore_epoch = %s, cluster = %s, made_as = %s, "
                    "timeline = %s, shift = %s",
                    (identity.restore_epoch, cluster, made_as, timeline, shift),
                )
            return identity
    except psycopg.Error as e:
        raise storage_error(e, Phase.WORKING, doing="opening the log") from e


def _make(
    connection: psycopg.Connection[Any], limits: Limits, cluster: str, made_as: int, timeline: str
) -> LogIdentity:
    identity = LogIdentity(uuid4(), 0)
    connection.execute(
        "INSERT INTO landed_log (log_id, restore_epoch, num_shards, routing_rule, cluster, made_as,"
        " timeline, shift) VALUES (%s, 0, %s, %s, %s, %s, %s, 0)",
        (identity.log_id, limits.num_shards, limits.routing_rule, cluster, made_as, timeline),
    )
    return identity


def _cluster(connection: psycopg.Connection[Any]) -> str:
    """Which cluster this is; empty where the role may not ask, and then only tables tell copies."""
    try:
        with connection.transaction():
            row = connection.execute(
                "SELECT system_identifier::text FROM pg_control_system()"
            ).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return ""
    if row is None:
        raise StorageError("the server did not say which cluster it is")
    return str(row[0])


def _check_finished(found: _Found) -> None:
    if found.cluster == UNFINISHED:
        raise StorageForeignError(
            f"here lies an unfinished copy of log {found.log_id}: run `landed copy` again to its "
            "end, or drop its tables"
        )


def _check_frozen(found: _Found, limits: Limits) -> None:
    for name in ("num_shards", "routing_rule"):
        had, wanted = getattr(found, name), getattr(limits, name)
        if had != wanted:
            raise StorageForeignError(
                f"this log was made with {name}={had}, not {wanted}; that is frozen: start with "
                f"--set {name}={had}"
            )
