"""The full check finds what only all of a log can show."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from landed.engines.sqlite.check import verify
from landed.engines.sqlite.lookup import find_head_by_number
from landed.engines.sqlite.pack import drop
from landed.errors import ConfigurationError, StorageForeignError, StorageInUseError
from tests.unit.engines.sqlite.logfile import A, B, key, opened, raw


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.db"
    with opened(path) as log:
        log.fill(key(1), key(2), seqs=range(1, 131), clients=(A, B))
        log.trim(key(1), 5)
        log.delete(key(2))
        log.fill(key(2), key(3), seqs=range(131, 141), clients=(A, B))
    return path


def findings(
    path: Path, *changes: str, dropped: Callable[[sqlite3.Connection], int] | None = None
) -> str:
    with raw(path) as connection:
        if dropped is not None:
            drop(connection, [dropped(connection)])
        for change in changes:
            assert connection.execute(change).rowcount > 0
    report = verify(path)
    assert report.is_sound == (not report.findings)
    return "\n".join(report.findings)


def test_a_sound_log_has_no_findings_and_is_counted(path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = verify(path, progress=lambda done, all_: told.append((done, all_)))
    assert [] == report.findings
    assert (report.entries, report.aggregates, report.marks) == (282, 3, 6)
    assert told[-1][0] == told[-1][1] > 282
    with opened(path) as log:
        while log.store.reclaim():
            pass
    assert verify(path).is_sound


def test_a_missing_batch_is_found(path: Path) -> None:
    assert "the batch before the one at position 61 is gone" in findings(path, dropped=lambda _: 59)


def test_a_missing_newest_batch_is_found(path: Path) -> None:
    def newest(connection: sqlite3.Connection) -> int:
        return find_head_by_number(connection, 1).last_position

    assert "does not agree with its newest batch" in findings(path, dropped=newest)


def test_a_missing_mark_is_found(path: Path) -> None:
    assert "above its pair's mark 0" in findings(
        path, "DELETE FROM marks WHERE pair < x'0000000000000002'"
    )


def test_a_missing_head_is_found(path: Path) -> None:
    assert "the head of aggregate number 3 is gone" in findings(
        path, "DELETE FROM aggregates WHERE number = 3"
    )


def test_a_wrong_anchor_is_found_and_misleads_nobody(path: Path) -> None:
    assert "an anchor of aggregate number 1" in findings(
        path, "UPDATE anchors SET position = position + 2 WHERE aggregate = 1 AND version = 64"
    )


def test_a_payload_that_is_no_events_is_found(path: Path) -> None:
    assert "the payload at position 20" in findings(
        path, "UPDATE packs SET bodies = zeroblob(length(bodies)) WHERE position < 20"
    )


def test_a_check_changes_nothing_and_needs_the_log_closed(path: Path) -> None:
    content = path.read_bytes()
    verify(path)
    assert content == path.read_bytes()
    with opened(path), pytest.raises(StorageInUseError):
        verify(path)
    with opened(path):
        pass


def test_what_is_no_log_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no log"):
        verify(tmp_path / "log.db")
    (tmp_path / "log.db").touch()
    with pytest.raises(ConfigurationError, match="is empty"):
        verify(tmp_path / "log.db")
    (tmp_path / "log.db").write_bytes(b"x" * 200)
    with pytest.raises(StorageForeignError):
        verify(tmp_path / "log.db")
