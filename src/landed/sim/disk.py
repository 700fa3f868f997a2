"""Where a world's log lies: in memory, or in a file of its own that is gone with it.

A disk outlives the servers that use it. Each life of a server has the production store, opened on
what the last life left behind: after a crash of the machine that is what had been flushed, and of
what was being written any part, sector by sector.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

from landed.clock import Clock
from landed.engines.lane import Lane
from landed.engines.memory import MemoryStore
from landed.engines.port import Store
from landed.facts import Note
from landed.limits import Limits
from landed.sim.durable import Durable
from landed.sim.plan import EngineName
from landed.sim.spindle import SimStore
from landed.sim.tear import Image, read_image, tear, tear_commit, write_image

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # folders in it get names of their own
_FILE: Final = "log.db"
_PREFERS_LARGE: Final = 0.7
"""How often a commit of one change is spared for the sake of a larger one."""
_DIES_OPENING: Final = 0.2
"""How often a server whose machine crashed dies once more while it recovers the file."""


class Disk:
    """What outlives a server: the same disk can be opened again, and holds what was flushed."""

    def __init__(
        self, engine: EngineName, limits: Limits | None = None, *, rng: Random | None = None
    ) -> None:
        self.limits = limits or Limits()
        self._rng = rng or Random(0)  # noqa: S311  # repeatable on purpose
        self.durable = Durable()
        """What was committed in all lives, as the store itself was told."""
        self._root: Path | None = None
        self._lives = 0
        self._image: Image | None = None
        self._memory: MemoryStore | None = None
        if engine == "sqlite":
            home = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
            self._root = Path(tempfile.mkdtemp(prefix="landed-sim-", dir=home))
            self._image = _empty_log()
        else:
            self._memory = MemoryStore(self.limits, log_id=UUID(int=1))

    @property
    def path(self) -> Path | None:
        """The log file of the latest life; None if the log is in memory."""
        return None if self._root is None else self._root / str(self._lives) / _FILE

    def insert(self, *, on_crash: Callable[[], None], note: Note) -> SimStore:
        """Begin a life: a store on what is there. ``on_crash`` is called when the machine dies."""
        return SimStore(self._store(), self, on_crash=on_crash, note=note)

    def _store(self) -> Store:
        if self._memory is not None:
            return self._memory
        from landed.engines.sqlite import SqliteStore  # noqa: PLC0415

        path = self._next_path()
        if self._lives > 1 and self._rng.random() < _DIES_OPENING:
            path = self._die_opening(path)
        return SqliteStore(path, limits=self.limits)

    def _next_path(self) -> Path:
        """A folder of its own for each life, so that a dead one cannot touch it any more."""
        before = self.path
        self._lives += 1
        path = self.path
        assert path is not None
        path.parent.mkdir()
        image, self._image = self._image, None
        if image is None:
            assert before is not None
            image = read_image(before)
        write_image(path, image)
        return path

    def _die_opening(self, path: Path) -> Path:
        """Recover the file and lose the power in the middle of it: any sectors were copied."""
        from landed.engines.sqlite import SqliteStore  # noqa: PLC0415

        before = read_image(path)
        store = SqliteStore(path, limits=self.limits)
        store.open()
        recovered = read_image(path)
        store.close()
        # The write-ahead log is cut short only when all it holds is flushed to the file.
        self._image = Image(tear(before.file, recovered.file, self._rng), before.wal)
        return self._next_path()

    def prefers_large(self) -> bool:
        """Whether to tear a later commit, of several changes."""
        return self._rng.random() < _PREFERS_LARGE

    def snapshot(self) -> Image | None:
        """The bytes as they are now; None if the log is in memory, where a commit has no parts."""
        return None if self.path is None else read_image(self.path)

    def keep(self, image: Image | None) -> None:
        """What the next life finds, whatever a dead one still does to its own files."""
        self._image = image

    def keep_torn(self, before: Image, after: Image) -> None:
        """The next life finds a commit half written."""
        self._image = tear_commit(before, after, self._rng)

    async def open(self, *, clock: Clock, note: Note) -> Lane:
        """Open the log for somebody who changes nothing and never crashes."""
        lane = Lane(self._store(), limits=self.limits, clock=clock, note=note)
        await lane.open()
        return lane

    def erase(self) -> None:
        """Leave nothing behind."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)


@lru_cache(maxsize=1)
def _empty_log() -> Image:
    """The bytes of a log in which nothing is yet; making them takes longer than a small world."""
    from landed.engines.sqlite import SqliteStore  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="landed-sim-") as folder:
        path = Path(folder) / _FILE
        store = SqliteStore(path, limits=Limits())
        store.open()
        store.close()
        return read_image(path)
