"""Where a world's log lies: in memory, or in a file of its own that is gone with it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from uuid import UUID

from landed.clock import Clock
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.facts import Note
from landed.limits import Limits
from landed.sim.plan import EngineName


class Disk:
    """What outlives a server: the same disk can be opened again."""

    def __init__(self, engine: EngineName, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._folder: Path | None = None
        if engine == "sqlite":
            self._folder = Path(tempfile.mkdtemp(prefix="landed-sim-"))
        else:
            self._store = MemoryStore(self._limits, log_id=UUID(int=1))

    async def open(self, *, clock: Clock, note: Note) -> Lane:
        """Open the log on it."""
        if self._folder is not None:
            from landed.engines.sqlite import open_sqlite  # noqa: PLC0415

            return await open_sqlite(
                self._folder / "log.db", limits=self._limits, clock=clock, note=note
            )
        lane = Lane(self._store, limits=self._limits, clock=clock, note=note)
        await lane.open()
        return lane

    def erase(self) -> None:
        """Leave nothing behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
