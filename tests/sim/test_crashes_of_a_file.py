"""The production store on a file whose machine dies: at each statement, and within each flush."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from landed.engines.sqlite.check import verify
from landed.log import ANY, Delete, DeleteLeg, Leg, Trim, Write
from landed.sim.tear import SECTOR_BYTES, Image, read_image, tear, tear_commit, write_image
from tests.unit.engines.sqlite.logfile import A, B, LogFile, event, key, opened

TEARS = 30
MANY = 3_000

Statements = list[tuple[str, Image]]


def fill(log: LogFile) -> None:
    """Something to build on: a history of four aggregates by two clients."""
    log.fill(*(key(number) for number in range(4)), seqs=range(1, 70), clients=(A,))
    log.write(key(1), 1, client=B)


def change_everything(log: LogFile) -> None:
    """One group with every kind of row: batches of one and two legs, a new aggregate, a trim, a
    delete, an anchor, a mark that changes its place, a payload of many pages."""
    legs = tuple(Leg(key(number), (event(100),), ANY, True, True) for number in (0, 1))
    log.commit(
        Write(B, legs),
        Write(A, (Leg(key(0), (event(101, bytes(20_000)),), ANY, True, True),)),
        Write(A, (Leg(key(9), (event(1),), ANY, True, True),)),
        Trim(key(2), 30, A),
        Delete(A, (DeleteLeg(key(3), ANY, True, False),)),
        *(Write(A, (Leg(key(9), (event(seq),), ANY, True, True),)) for seq in range(2, 66)),
    )


def position_of(image: Image, path: Path) -> int:
    """What the next life finds; the file it leaves must be sound to the last row."""
    path.parent.mkdir()
    write_image(path, image)
    with opened(path) as log:
        position = log.position
    report = verify(path)
    assert report.is_sound, report.findings
    return position


@contextmanager
def watched(path: Path) -> Iterator[Statements]:
    """Take the bytes of a log before each statement of the connections opened meanwhile."""
    connect = sqlite3.connect
    images: Statements = []

    def connect_watched(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(
            lambda statement: images.append((statement.split()[0], read_image(path)))
        )
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect_watched)
        yield images


def commit_watched(path: Path) -> tuple[Statements, Image]:
    """Every moment of one commit, and the bytes after it."""
    with opened(path) as log:
        fill(log)
    with watched(path) as images:
        log = LogFile(path)
        for number in (*range(4), 9):  # what the law must know is looked up before the commit
            log.mark(key(number), A)
            log.mark(key(number), B)
            log.head(key(number))
        images.clear()
        change_everything(log)
        after = read_image(path)
        log.close()
    ends = [at for at, (word, _) in enumerate(images) if word == "COMMIT"]
    return images[: ends[0] + 1], after


@pytest.mark.scenario("SC-70", "SC-44")
def test_a_crash_before_or_after_any_statement_leaves_the_group_whole_or_absent(
    tmp_path: Path,
) -> None:
    images, after = commit_watched(tmp_path / "log.db")
    words = [word for word, _ in images]
    assert words.index("BEGIN") < words.index("INSERT") < words.index("COMMIT")
    found = [
        position_of(image, tmp_path / str(number) / "log.db")
        for number, (_, image) in enumerate(images)
    ]
    before = found[0]
    assert set(found) == {before}, "a statement was on the disk before COMMIT"
    assert position_of(after, tmp_path / "after" / "log.db") == before + 70


@pytest.mark.parametrize(
    "tears", [TEARS, pytest.param(MANY, marks=pytest.mark.long)], ids=["some", "many"]
)
@pytest.mark.scenario("SC-70", "SC-44")
def test_a_power_cut_within_the_flush_leaves_the_group_whole_or_absent(
    tmp_path: Path, tears: int
) -> None:
    images, after = commit_watched(tmp_path / "log.db")
    before = images[0][1]
    rng = Random(tears)
    first = position_of(before, tmp_path / "before" / "log.db")
    found = set()
    for number in range(tears):
        torn = tear_commit(before, after, rng)
        found.add(position_of(torn, tmp_path / str(number) / "log.db"))
    assert found <= {first, first + 70}
    assert first in found


def test_a_power_cut_within_a_recovery_loses_nothing(
    tmp_path: Path,
) -> None:
    _, after = commit_watched(tmp_path / "log.db")
    position = position_of(after, tmp_path / "whole" / "log.db")
    path = tmp_path / "recovered" / "log.db"
    path.parent.mkdir()
    write_image(path, after)
    with opened(path):
        recovered = read_image(path)
    assert recovered.file != after.file
    rng = Random(7)
    for number in range(TEARS):
        torn = Image(tear(after.file, recovered.file, rng), after.wal)
        assert position_of(torn, tmp_path / str(number) / "log.db") == position


def test_what_is_torn_is_torn_by_whole_sectors() -> None:
    rng = Random(1)
    before, after = b"a" * 10 * SECTOR_BYTES, b"b" * 12 * SECTOR_BYTES
    mixes = {tear(before, after, rng) for _ in range(200)}
    assert len(mixes) > 100
    untidy = [mix for mix in mixes if b"ba" in mix and b"ab" in mix]
    assert untidy
    for mix in untidy:
        for at in range(0, len(mix), SECTOR_BYTES):
            assert mix[at : at + SECTOR_BYTES].count(mix[at]) == SECTOR_BYTES


def test_nothing_is_torn_where_nothing_was_written() -> None:
    assert {tear(b"same", b"same", Random(seed)) for seed in range(50)} == {b"same"}
