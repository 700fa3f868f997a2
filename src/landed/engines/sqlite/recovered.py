"""Whether the write-ahead log was read to its end, or given up in the middle of what was durable.

SQLite reads it up to the first frame whose checksum is wrong and drops the rest in silence, for
after a power cut that is the commit that was being written. One flipped bit makes it drop commits
that were acknowledged long before as well, and their numbers would be given out again (SC-73).
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

from landed.engines.sqlite.file import connect, translated
from landed.errors import StorageDamagedError

_CACHE_KIB: Final = 64
_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_SALT: Final = slice(16, 24)
_FRAME_SALT: Final = slice(8, 16)
_FRAME_COMMIT: Final = slice(4, 8)
"""Not zero in the last frame of a commit."""
_INDEX_LAST: Final = slice(16, 20)
"""The number of the last frame taken; in the machine's own byte order (SQLite, walformat.html)."""


def check_recovered(path: Path) -> None:
    """Refuse a log whose write-ahead log holds commits behind the point where reading it ended.

    A commit is flushed before the next one begins. So a frame of this round behind a commit that
    was not taken proves that the commit had been durable: it is damaged, and not merely unfinished.

    Read-only, and before anything else opens the file: the last writing connection that closes
    would throw the write-ahead log away, and with it what shows the damage.

    Raises:
        StorageDamagedError: it does.
        StorageError: the file cannot be read.
    """
    if not path.with_name(path.name + "-wal").exists():
        return
    try:
        with closing(connect(path, cache_kib=_CACHE_KIB, mode="ro")) as look:
            look.execute("SELECT count(*) FROM sqlite_master").fetchone()
            _check_frames(path)
    except sqlite3.Error as error:
        raise translated(error, f"cannot open {path}") from error


def _check_frames(path: Path) -> None:
    try:
        with (
            path.with_name(path.name + "-wal").open("rb") as wal,
            path.with_name(path.name + "-shm").open("rb") as index,
        ):
            last = int.from_bytes(index.read(_INDEX_LAST.stop)[_INDEX_LAST], sys.byteorder)
            is_committed = False
            for is_end in _frames_behind(wal, last):
                if is_committed:
                    raise StorageDamagedError(
                        f"{path.name}-wal is damaged behind its frame {last}: changes that were "
                        "acknowledged cannot be read; restore the file and this one from a backup",
                        is_outcome_known=True,
                    )
                is_committed = is_end
    except FileNotFoundError:
        return


def _frames_behind(wal: BinaryIO, last: int) -> Iterator[bool]:
    """Of each frame of this round behind one of them: whether a commit ends with it."""
    header = wal.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return
    size = _FRAME_HEADER_BYTES + int.from_bytes(header[8:12])
    wal.seek(_HEADER_BYTES + last * size)
    while len(frame := wal.read(size)) == size:
        if frame[_FRAME_SALT] == header[_SALT]:
            yield any(frame[_FRAME_COMMIT])
