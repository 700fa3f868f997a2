"""Heads are written late, and a kill at any moment loses none of them."""

import random
import shutil
import sqlite3
from pathlib import Path
from uuid import UUID

import pytest

from landed.clock import WallMs
from landed.engines.sqlite import store
from landed.engines.sqlite.check import verify
from landed.engines.sqlite.file import read_meta
from landed.engines.sqlite.repair import lower_mark
from landed.engines.sqlite.row import HeadRow
from landed.engines.sqlite.schema import HEADS_UNTIL, SCHEMA_VERSION
from landed.engines.sqlite.upgrade import upgrade
from landed.errors import StorageDamagedError, StorageError, StorageForeignError
from landed.ids import ClientId
from landed.log import Head, Life
from tests.unit.engines.sqlite.logfile import A, B, LogFile, key, opened, raw
from tests.unit.engines.sqlite.oldfile import make_old

C = ClientId(UUID(int=0xC))
KEYS = [key(number) for number in range(1, 13)]

Known = tuple[dict[int, Head], dict[tuple[int, ClientId], int]]
"""What is durable: heads and marks, by the number of the key."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def killed(path: Path, name: str = "killed.db") -> Path:
    """The files as a kill would leave them now, while the log is open."""
    copy = path.with_name(name)
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    return copy


def known(log: LogFile) -> Known:
    """What a cold start finds."""
    found = log.store.load(KEYS, [(one, client) for one in KEYS for client in (A, B, C)])
    numbers = {one: number for number, one in enumerate(KEYS)}
    return (
        {numbers[one]: head for one, head in found.heads.items()},
        {(numbers[one], client): mark for (one, client), mark in found.marks.items() if mark},
    )


def change(log: LogFile, rng: random.Random) -> None:
    """Anything that can be done to a log: writers that take turns, trims, lives that end."""
    one = rng.choice(KEYS)
    head = log.head(one)
    what = rng.random()
    if head.life is Life.LIVE and what < 0.1:
        log.delete(one, go_on=rng.random() < 0.5)
    elif head.life is Life.LIVE and what < 0.2 and head.floor < head.version:
        log.trim(one, rng.randint(head.floor + 1, head.version))
    elif what < 0.25:
        log.store.reclaim()
    elif what < 0.4:
        log.fill(*rng.sample(KEYS, 3), seqs=[rng.randint(10_000, 2**40) + log.position * 2**41])
    else:
        client = rng.choice((A, A, B, C))
        log.write(one, rng.randint(0, 50), client=client, enforce=False, user=rng.choice((None, B)))


def crash_everywhere(path: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int, count: int) -> int:
    """Copy the files before every statement that the writer runs; each copy is opened later."""
    monkeypatch.setattr("landed.engines.sqlite.owed.SLICE", 1)
    rng = random.Random(seed)
    crashes: list[Known] = []
    with opened(path, replayed_max=16) as log:
        durable = known(log)

        def crash(_statement: str) -> None:
            killed(path, f"crash-{len(crashes)}.db")
            crashes.append(durable)

        assert log.store._writer is not None
        for _ in range(count):
            log.store._writer.set_trace_callback(crash)
            change(log, rng)
            log.store._writer.set_trace_callback(None)
            durable = known(log)
            by_law = {number: log.head(one) for number, one in enumerate(KEYS)}
            assert durable[0] == {at: head for at, head in by_law.items() if head.life}
        crash("the end")
        assert log.store._owed.until > 0, "a sweep was through before the end"
    for number, expected in enumerate(crashes):
        copy = path.with_name(f"crash-{number}.db")
        if number % 5 == 0:
            assert [] == verify(copy).findings
        with opened(copy) as log:
            assert expected == known(log), f"crash {number}"
        for file in path.parent.glob(f"crash-{number}.db*"):
            file.unlink()
    return len(crashes)


@pytest.mark.scenario("SC-70")
def test_a_crash_before_any_statement_loses_no_head_and_no_mark(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crash_everywhere(path, monkeypatch, seed=1, count=20) > 80


@pytest.mark.long
@pytest.mark.scenario("SC-70")
@pytest.mark.parametrize("seed", range(2, 6))
def test_crashes_before_any_statement_lose_no_head_and_no_mark(
    path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert crash_everywhere(path, monkeypatch, seed=seed, count=100) > 400


def test_what_is_replayed_stays_bounded_and_a_closed_log_replays_nothing(path: Path) -> None:
    keys = [key(number) for number in range(1, 201)]
    with opened(path, replayed_max=800) as log:
        log.fill(*keys, seqs=[1])
        longest = 0
        for seq in range(2, 30):
            log.fill(*keys[::2], seqs=[seq])
            longest = max(longest, log.position - log.store._owed.until)
        assert 400 <= longest <= 800
        assert len(log.store._owed.rows) <= 200
    assert str(log.position) == setting(path)


def setting(path: Path) -> str:
    with raw(path) as connection:
        (value,) = connection.execute(
            "SELECT value FROM meta WHERE name = ?", (HEADS_UNTIL,)
        ).fetchone()
        return str(value)


def test_a_slice_that_cannot_be_written_refuses_the_commit_and_is_paid_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landed.engines.sqlite.owed.SLICE", 1)
    with opened(path, replayed_max=4) as log:
        log.fill(*KEYS, seqs=[1])
        log.fill(*KEYS, seqs=[2])
        before = known(log)
        with monkeypatch.context() as patch:
            patch.setattr("landed.engines.sqlite.append.UPDATE_HEAD", "UPDATE nowhere SET x = 1")
            with pytest.raises(StorageError) as caught:
                log.fill(key(1), seqs=[3])
        assert caught.value.is_outcome_known
        assert before == known(log)
        log.position = log.feed()[-1].position
        log._heads.clear()
        log._marks.clear()
        for seq in range(3, 9):
            log.fill(*KEYS, seqs=[seq])
        expected = known(log)
        copy = killed(path)
    for file in (path, copy):
        with opened(file) as log:
            assert expected == known(log)
    assert {8} == set(expected[1].values())


def test_a_log_closes_though_what_it_owes_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as log:
        log.fill(*KEYS, seqs=[1])
        log.fill(*KEYS, seqs=[2])
        expected = known(log)
        with monkeypatch.context() as patch:
            patch.setattr("landed.engines.sqlite.append.UPDATE_HEAD", "UPDATE nowhere SET x = 1")
            log.close()
    assert "0" == setting(path)
    with opened(path) as log:
        assert expected == known(log)


def test_a_batch_is_not_dropped_before_the_mark_that_only_it_tells_is_written(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        log.write(key(1), 70)
        log.delete(key(1))
        assert log.store.reclaim() == 2
        copy = killed(path)
    with opened(copy) as log:
        assert 70 == log.stored_mark(key(1))
        assert log.head(key(1)).life is Life.DELETED


def test_a_lowered_mark_is_not_raised_again_by_what_a_kill_left_to_be_replayed(path: Path) -> None:
    with opened(path) as log:
        for seq in (1, 2**60):
            log.write(key(1), seq)
        log.write(key(1), 2, enforce=False)
        log.trim(key(1), 3)
        copy = killed(path)
    lower_mark(copy, key=key(1), client_id=A, to=2, reason="typo", at_ms=WallMs(1))
    with opened(copy) as log:
        assert 2 == log.stored_mark(key(1))
        log.write(key(1), 3)
        again = killed(copy, "again.db")
    with opened(again) as log:
        assert 3 == log.stored_mark(key(1))


def test_a_mark_lowered_to_nothing_hides_no_other_writers_mark(path: Path) -> None:
    """The head names nobody then; the others stand in the table."""
    with opened(path) as log:
        log.write(key(1), 7, client=B)
        log.write(key(1), 9, client=A)
        log.delete(key(1))
    lower_mark(path, key=key(1), client_id=A, to=0, reason="typo", at_ms=WallMs(1))
    with opened(path) as log:
        log.write(key(1), 3, client=B, enforce=False)
        assert 7 == log.stored_mark(key(1), B)


# --- files of earlier schemas


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_earlier_schema_is_taken_over_with_everything_in_it(
    path: Path, version: int
) -> None:
    rng = random.Random(3)
    with opened(path) as log:
        for _ in range(60):
            change(log, rng)
        expected, feed = known(log), log.feed()
    make_old(path)
    if version == 1:  # which wrote every head with its change, and had no such setting
        with raw(path) as connection:
            connection.execute("DELETE FROM meta WHERE name = ?", (HEADS_UNTIL,))
            connection.execute("PRAGMA user_version = 1")
    with pytest.raises(StorageForeignError, match=f"schema version {version}, of an earlier"):
        verify(path)
    with opened(path) as log:
        assert (expected, feed) == (known(log), log.feed())
        log.write(key(1), 2**63)
        expected = known(log)
        copy = killed(path)
    with raw(copy) as connection:
        assert (SCHEMA_VERSION,) == connection.execute("PRAGMA user_version").fetchone()
    assert [] == verify(copy).findings
    with opened(copy) as log:
        assert expected == known(log)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET server_ms = server_ms + 1 WHERE position = 9",
        "UPDATE entries SET body = x'00' WHERE position = 9",
        "UPDATE aggregates SET floor = floor + 1 WHERE number = 2",
    ],
)
def test_damage_in_a_file_of_an_earlier_schema_is_not_rewritten_as_sound(
    path: Path, damage: str
) -> None:
    with opened(path) as log:
        log.fill(*KEYS, seqs=range(1, 4))
    make_old(path)
    with raw(path) as connection:
        connection.execute(damage)
    for _ in range(2):  # and the refusal leaves it as it was
        with pytest.raises(StorageDamagedError, match="is not what was written"), opened(path):
            pass


def test_a_kill_while_an_earlier_schema_is_rewritten_leaves_the_file_as_it_was(path: Path) -> None:
    with opened(path) as log:
        log.fill(*KEYS, seqs=range(1, 4))
        expected = known(log)
    make_old(path)
    copies: list[Path] = []
    with raw(path) as connection:
        settings = read_meta(connection, path)
        connection.set_trace_callback(
            lambda _: copies.append(killed(path, f"crash-{len(copies)}.db"))
        )
        upgrade(connection, settings)
    assert len(copies) > 8
    for copy in copies:
        with opened(copy) as log:
            assert expected == known(log)


def test_a_damaged_entry_that_has_to_be_replayed_is_not_opened(path: Path) -> None:
    """Its mark and its floor may stand nowhere else."""
    with opened(path) as log:
        log.fill(key(1), seqs=[1])
        log.fill(*KEYS, seqs=range(2, 100))
        copy = killed(path)
    with raw(copy) as connection:
        connection.execute("UPDATE packs SET entries = zeroblob(99) WHERE position = 2")
    with pytest.raises(StorageDamagedError, match="the pack at position 2 "), opened(copy):
        pass
    assert not verify(copy).is_sound


def test_a_lookup_beside_a_commit_finds_the_mark_of_a_writer_who_is_displaced_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is owed is taken before the file is looked at; else the mark is in neither (I4, I12)."""
    first, second, *_ = KEYS
    with opened(path) as log:
        log.write(first, 1)
        log.write(second, 7, client=B)
    find_head = store.find_head
    with opened(path) as log:
        log.head(second)

        def found_before_a_commit(connection: sqlite3.Connection, packed: bytes) -> HeadRow | None:
            found = find_head(connection, packed)
            if packed == first.packed:
                log.write(second, 1, enforce=False)
            return found

        monkeypatch.setattr(store, "find_head", found_before_a_commit)
        found = log.store.load([first], [(second, B)])
        assert log.batches(second)[-1].client_id == A
    assert found.marks == {(second, B): 7}
