"""Disks that are full or fail: a clear no with nothing written, or an honest "nobody knows"."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask, ask_all
from landed.engines.sqlite import append, open_sqlite
from landed.engines.sqlite.check import verify
from landed.errors import StorageError
from landed.limits import Limits
from landed.log import ANY, Landed, Leg, NotLoaded, Page, Read, Unknown, Write
from tests.unit.engines.sqlite.logfile import A, LogFile, event, key, opened, raw

MIB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def fill_up(log: LogFile) -> int:
    """Write until it is refused. Returns the highest sequence that landed."""
    seq = 0
    while True:
        before = log.position
        failure: StorageError | None = None
        try:
            log.fill(key(1), key(2), seqs=[seq + 1], value=bytes(50_000))
        except StorageError as error:
            failure = error
        if failure is not None:
            break
        seq += 1
    assert failure.is_outcome_known
    assert "the disk is full; nothing was written, make room" in str(failure)
    log.position = before
    log._heads.clear()
    log._marks.clear()
    return seq


def test_a_full_file_refuses_whole_groups_and_goes_on_when_there_is_room(path: Path) -> None:
    with opened(path) as log:
        writer = log.store._writer
        assert writer is not None
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages + 200}")
        seq = fill_up(log)
        assert seq == fill_up_again(log, seq)
        assert seq == log.stored_mark(key(1)) == log.stored_mark(key(2))
        assert [seq, seq] == [len(log.batches(key(at))) for at in (1, 2)]
        writer.execute(f"PRAGMA max_page_count = {pages + 2_000}")
        log.fill(key(1), key(2), seqs=[seq + 1])
    assert verify(path).is_sound
    with opened(path) as log:
        assert list(range(1, seq + 2)) == log.versions(key(1)) == log.versions(key(2))


def fill_up_again(log: LogFile, seq: int) -> int:
    """A refusal is repeated for as long as there is no room."""
    for _ in range(3):
        with pytest.raises(StorageError, match="the disk is full"):
            log.fill(key(1), key(2), seqs=[seq + 1], value=bytes(50_000))
        log._heads.clear()
        log._marks.clear()
        log.position = log.feed()[-1].position
    return log.stored_mark(key(1))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of its own, which only root may make."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)],
        capture_output=True,
        timeout=30,
        check=False,
    )
    if mount.returncode:
        pytest.skip("no right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], timeout=30, check=True)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_a_full_disk_refuses_whole_groups_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2 * MIB) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(MIB // 2))
        with opened(disk / "log.db") as log:
            seq = fill_up(log)
            assert seq > 3
            assert list(range(1, seq + 1)) == log.versions(key(1)) == log.versions(key(2))
            ballast.unlink()
            log.fill(key(1), key(2), seqs=[seq + 1], value=bytes(50_000))
        assert verify(disk / "log.db").is_sound
        with opened(disk / "log.db") as log:
            assert list(range(1, seq + 2)) == log.versions(key(1)) == log.versions(key(2))


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a small disk")
def test_a_log_that_finds_no_room_to_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 32 * 1024) as disk:
        with pytest.raises(StorageError, match="the disk is full"), opened(disk / "log.db"):
            pass
        assert ["log.db.lock"] == [file.name for file in disk.iterdir()]


WRITE_UNTIL_IT_FAILS = """
import resource, sys
from tests.unit.engines.sqlite.logfile import LogFile, key
from pathlib import Path
log = LogFile(Path(sys.argv[1]))
log.fill(key(1), seqs=[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
seq = 1
try:
    while True:
        log.fill(key(1), key(2), seqs=[seq + 1], value=bytes(50_000))
        seq += 1
except Exception as error:
    print(seq, error.is_outcome_known, type(error).__name__, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of a file")
def test_an_error_at_commit_is_not_called_a_refusal(path: Path) -> None:
    """A write that the system refuses half-way, in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-c", WRITE_UNTIL_IT_FAILS, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seq, is_known, kind = child.stdout.split()
    assert (is_known, kind) == ("False", "StorageError")
    with opened(path) as log:
        stored = len(log.batches(key(1)))
        assert stored in {int(seq), int(seq) + 1}
        assert stored == len(log.batches(key(2))) + 1
        assert stored == log.stored_mark(key(1))


class Breaking:
    """A connection whose COMMIT fails, before it or after it was done."""

    def __init__(self, connection: object, *, lands: bool) -> None:
        self._connection = connection
        self._lands = lands

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, *more: object) -> object:
        if sql != "COMMIT":
            return self._connection.execute(sql, *more)  # type: ignore[attr-defined]
        if self._lands:
            self._connection.execute("COMMIT")  # type: ignore[attr-defined]
        import sqlite3

        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error


@pytest.mark.real_loop
@pytest.mark.parametrize("lands", [False, True])
async def test_a_commit_in_doubt_stops_the_engine_and_a_restart_tells_what_happened(
    path: Path, lands: bool
) -> None:
    lane = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    first = Write(A, (Leg(key(1), (event(1),), ANY, True, True),))
    second = Write(A, (Leg(key(1), (event(2),), ANY, True, True),))
    assert Landed((1,)) == await ask(lane, first)
    appender = lane._store._appender  # type: ignore[attr-defined]
    appender._connection = Breaking(appender._connection, lands=lands)
    assert isinstance(await ask(lane, second), Unknown)
    assert lane.is_stopped
    assert isinstance(await ask(lane, second), Unknown)
    await lane.close()
    with opened(path) as log:
        assert [1, 2][: 1 + lands] == log.versions(key(1))
        assert log.stored_mark(key(1)) == 1 + lands


@pytest.mark.real_loop
async def test_a_damaged_aggregate_is_not_served_and_its_neighbours_are(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 5))
        log.fill(key(2), seqs=range(1, 300))
    with raw(path) as connection:
        connection.execute("UPDATE aggregates SET state = zeroblob(40) WHERE number = 1")
    lane = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    try:
        for _ in range(2):
            answer = await ask(lane, Read(key(1)))
            assert isinstance(answer, Unknown)
            assert "could not be read" in answer.detail
            page = await ask(lane, Read(key(2)))
            assert isinstance(page, Page)
            assert len(page.batches) == 299
        writes = [
            Write(A, (Leg(key(number), (event(seq),), ANY, True, True),))
            for number, seq in ((2, 300), (1, 5), (3, 1))
        ]
        before, refused, after = await ask_all(lane, writes)
        assert (before, after) == (Landed((300,)), Landed((1,)))
        assert isinstance(refused, NotLoaded)
        assert "aggregate" in refused.detail
    finally:
        await lane.close()


@pytest.mark.parametrize("where", ["encode_events", "head_row"])
def test_a_value_no_row_can_hold_is_refused_and_leaves_no_doubt(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def refuse(*_: object) -> bytes:
        raise OverflowError("int too big to convert")

    with opened(path) as log:
        log.fill(key(1), seqs=[1])
        with monkeypatch.context() as broken:
            broken.setattr(append, where, refuse)
            before = log.position
            with pytest.raises(StorageError) as caught:
                log.fill(key(1), key(2), seqs=[2])
        assert caught.value.is_outcome_known
        log.position = before
        log._heads.clear()
        log._marks.clear()
        log.fill(key(1), key(2), seqs=[2])
        assert 2 == log.stored_mark(key(1))
