"""The log in PostgreSQL, written by many processes at once.

Start with commit.py, which is the life of a group; engine.py queues and answers, place.py tells how
the feed gets its order.
"""

from __future__ import annotations

from landed.clock import Clock
from landed.engines.postgres.engine import PostgresEngine
from landed.engines.postgres.session import OPTIONS, Sessions
from landed.facts import Note, forget
from landed.limits import Limits
from landed.postgres.dsn import Dsn

__all__ = ["OPTIONS", "PostgresEngine", "open_postgres"]


async def open_postgres(
    dsn: Dsn,
    *,
    limits: Limits,
    clock: Clock,
    note: Note = forget,
    accept_data_loss: bool = False,
) -> PostgresEngine:
    """Open the log in a database, or make its tables there. Any number of processes may have it open.

    Args:
        dsn: from ``parse_dsn(url, own=OPTIONS)``.
        limits: of this process.
        clock: of this process.
        note: takes facts.
        accept_data_loss: also where the server may lose what it acknowledged (case BC-08).

    Raises:
        ConfigurationError: the server is too old, takes no writes, or may lose acknowledged writes.
        StorageForeignError: the tables are a newer version's, or placed by other shards.
        StorageError: no connection, a right is missing, or the database failed.
    """
    sessions = Sessions(dsn, limits=limits, note=note, accept_data_loss=accept_data_loss)
    engine = PostgresEngine(sessions, limits=limits, clock=clock, note=note)
    await engine.open()
    return engine
