"""What a power cut leaves of the bytes that were being written."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all; larger ones exist, smaller ones do not."""
_WAL_HEADER_BYTES: Final = 32
_TIDY: Final = 0.3
"""How often what arrived is the beginning; else it is any of the sectors."""


class Image(NamedTuple):
    """The bytes of a log file and of its write-ahead log at one moment."""

    file: bytes
    wal: bytes


def read_image(path: Path) -> Image:
    """Read both files as they are. An index of the write-ahead log is rebuilt, never kept."""
    wal = path.with_name(path.name + "-wal")
    return Image(path.read_bytes(), wal.read_bytes() if wal.exists() else b"")


def write_image(path: Path, image: Image) -> None:
    """Write both files."""
    path.write_bytes(image.file)
    if image.wal:
        path.with_name(path.name + "-wal").write_bytes(image.wal)


def tear_commit(before: Image, after: Image, rng: Random) -> Image:
    """What is there if the power goes while a commit is flushed.

    A commit only writes the write-ahead log. Its header is flushed by itself before any frame of a
    new round (SQLite, wal.c), so an old header never stands before new frames.
    """
    header = after.wal[:_WAL_HEADER_BYTES]
    frames = tear(before.wal[_WAL_HEADER_BYTES:], after.wal[_WAL_HEADER_BYTES:], rng)
    return Image(before.file, header + frames)


def tear(before: bytes, after: bytes, rng: Random) -> bytes:
    """A mix of two states of a file, sector by sector: of what was not flushed, anything arrives."""
    if before == after:
        return after
    if rng.random() < _TIDY:
        cut = rng.randint(0, len(after))
        return after[:cut] + before[cut:]
    share = rng.random()
    torn = bytearray(before.ljust(len(after), b"\0"))
    for at in range(0, len(after), SECTOR_BYTES):
        end = at + SECTOR_BYTES
        if rng.random() < share:
            torn[at:end] = after[at:end]
    return bytes(torn)
