"""Space of dead batches is given back, in bounded slices, and nothing but the size of the file tells."""

from pathlib import Path
from typing import Any

import pytest

from landed.engines.sqlite.check import verify
from landed.engines.sqlite.pack import Opened, whole_packs
from landed.engines.sqlite.reclaim import SLICE
from landed.log import FeedKind, Life, Page, Read, ReadFilters
from tests.unit.engines.sqlite.logfile import BUDGET, A, B, LogFile, key, opened, raw

KEYS = [key(number) for number in range(1, 8)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def everything(log: LogFile) -> list[Any]:
    found: list[Any] = [log.feed()]
    for one in KEYS:
        log._heads.clear()
        head = log.head(one)
        found += [head, log.stored_mark(one), log.stored_mark(one, B)]
        if head.life is Life.LIVE:
            page = log.store.read(Read(one, ReadFilters(head.floor)), head, BUDGET)
            assert isinstance(page, Page)
            found.append(page)
    return found


def reclaim_all(log: LogFile) -> int:
    total = 0
    while dropped := log.store.reclaim():
        assert dropped <= SLICE
        total += dropped
    return total


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob("log.db*"))


def count(path: Path) -> int:
    with raw(path) as connection:
        packs = [Opened(row) for row in whole_packs(connection, 0)]
    return sum(entry.kind == FeedKind.WRITTEN for pack in packs for entry in pack.entries())


@pytest.mark.scenario("SC-69", "SC-65")
def test_reclaiming_changes_no_answer_and_the_file_shrinks(path: Path) -> None:
    with opened(path) as log:
        for life in range(3):
            log.fill(*KEYS, seqs=range(100 * life + 1, 100 * life + 101), value=bytes(1_000))
            log.trim(KEYS[0], log.head(KEYS[0]).version - 30)
            log.trim(KEYS[0], log.head(KEYS[0]).version - 10)
            for at, one in enumerate(KEYS[1:5]):
                log.delete(one, go_on=at % 2 == 0)
        log.fill(*KEYS[1:3], seqs=[301])
        log.store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # type: ignore[union-attr]
        before, big = everything(log), size(path)
        assert reclaim_all(log) == 4 * 300 + 289
        assert before == everything(log)
        assert size(path) < big * 0.6
        assert reclaim_all(log) == 0
    assert count(path) == 7 * 300 + 2 - 4 * 300 - 289
    with opened(path) as log:
        assert before == everything(log)
        log.write(KEYS[0], 301)
        assert log.head(KEYS[0]).version == 301
    assert verify(path).is_sound


def test_a_slice_is_bounded_in_batches_and_in_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landed.engines.sqlite.reclaim.SLICE", 10)
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 36))
        log.delete(key(1))
        assert [10, 10, 10, 5, 0] == [log.store.reclaim() for _ in range(5)]
        monkeypatch.setattr("landed.engines.sqlite.reclaim.SLICE_BYTES", 3_000)
        log.fill(key(2), seqs=range(1, 11), value=bytes(1_000))
        log.delete(key(2))
        assert [3, 3, 3, 1, 0] == [log.store.reclaim() for _ in range(5)]


def test_a_trim_far_into_a_long_history_is_found_from_its_anchor(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landed.engines.sqlite.reclaim.SLICE", 100)
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 1_001))
        log.trim(key(1), 51)
        assert log.store.reclaim() > 0, "the first slice need not walk through what lives"
        assert list(range(51, 1_001)) == log.versions(key(1))


def test_reclaiming_goes_on_where_a_closed_log_left_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landed.engines.sqlite.reclaim.SLICE", 7)
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 31))
        log.trim(key(1), 21)
        log.delete(key(1), go_on=True)
        log.write(key(1), 31)
        dropped = log.store.reclaim()
    while True:
        with opened(path) as log:
            more = log.store.reclaim()
            assert [31] == log.versions(key(1))
        if not more:
            break
        dropped += more
    assert dropped == 30
    assert verify(path).is_sound


def test_a_damaged_dead_batch_ends_the_reclaiming_of_its_range_only(path: Path) -> None:
    with opened(path) as log:
        for seq in range(1, 11):
            log.write(key(1), seq)
            log.write(key(2), seq)
        log.delete(key(1))
        log.delete(key(2))
        # So much more that the check at open does not come to what is damaged.
        log.fill(key(3), seqs=range(1, 301))
    with raw(path) as connection:
        connection.execute("UPDATE packs SET entries = zeroblob(60) WHERE position = 9")
    with opened(path) as log:
        assert reclaim_all(log) == 5 + 10
        assert log.head(key(1)).life is Life.DELETED


def test_reclaiming_never_touches_what_another_life_or_aggregate_owns(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), key(2), seqs=range(1, 6))
        log.trim(key(1), 3)
        log.trim(key(1), 5)
        log.delete(key(1), go_on=True)
        log.fill(key(1), seqs=range(6, 9))
        log.trim(key(1), 8)
        before = (log.batches(key(1)), log.batches(key(2)), log.stored_mark(key(1), A))
        assert reclaim_all(log) == 7
        assert before == (log.batches(key(1)), log.batches(key(2)), log.stored_mark(key(1), A))
    assert count(path) == 1 + 5


def test_a_range_in_which_nothing_is_left_hides_no_other(path: Path) -> None:
    with opened(path) as log:
        log.fill(KEYS[0], seqs=range(1, 6))
        log.trim(KEYS[0], 4)
    with raw(path) as connection:
        connection.execute("INSERT INTO dead VALUES (1, 1, 1, 1, 0)")
    with opened(path) as log:
        assert log.store.reclaim() == 3
        assert log.versions(KEYS[0]) == [4, 5]
