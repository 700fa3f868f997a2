"""The log in one SQLite file (a store for the lane)."""

from __future__ import annotations

import os

from landed.clock import Clock
from landed.engines.lane import Lane
from landed.engines.sqlite.store import SqliteStore
from landed.facts import Note, forget
from landed.limits import Limits

__all__ = ["SqliteStore", "open_sqlite"]


async def open_sqlite(
    path: str | os.PathLike[str], *, limits: Limits, clock: Clock, note: Note = forget
) -> Lane:
    """Open the log in a file, or create it there. One process owns it until it is closed.

    Raises:
        ConfigurationError: the path, or this user's rights to it, are no good.
        StorageInUseError: another process has it open; ``landed serve`` would share it.
        StorageForeignError: the file is not ours, or a newer or differently placed log.
        StorageDamagedError: it is not what was written.
    """
    store = SqliteStore(path, limits=limits)
    lane = Lane(store, limits=limits, clock=clock, note=note)
    await lane.open()
    return lane
