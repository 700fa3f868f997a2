"""Connections: flushed fully, never left inside a transaction, never upgraded by surprise."""

import multiprocessing
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from landed.engines.group import Group
from landed.engines.sqlite import file as sqlite_file
from landed.engines.sqlite.pack import Drafted, Pack, pack
from landed.errors import StorageError
from landed.log import ANY, Leg, Mutation, Write
from tests.unit.engines.sqlite.logfile import A, LogFile, event, key, opened, raw

FULL = 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def connections(log: LogFile) -> list[sqlite3.Connection]:
    assert log.store._writer is not None
    return [log.store._writer, *log.store._idle]


@pytest.mark.scenario("BC-08")
def test_every_connection_flushes_fully_those_of_a_grown_pool_too(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        together = threading.Barrier(4, timeout=30)

        def read(_: int) -> None:
            log.store._reading(lambda _connection: together.wait())

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))
        assert len(connections(log)) == 5
        for connection in connections(log):
            assert connection.execute("PRAGMA synchronous").fetchone()[0] >= FULL
            assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
            assert connection.execute("PRAGMA checkpoint_fullfsync").fetchone() == (1,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.scenario("BC-08")
def test_there_is_one_place_that_opens_connections_and_all_go_through_it() -> None:
    rooms = Path(sqlite_file.__file__).parents[2]
    found = [
        file.name
        for file in (rooms / "engines").rglob("*.py")
        if "sqlite3.connect(" in file.read_text()
    ]
    assert ["file.py"] == found
    assert Path(sqlite_file.__file__).read_text().count("sqlite3.connect(") == 2  # one makes files


@pytest.mark.scenario("BC-09")
def test_a_reading_connection_cannot_begin_to_write(path: Path) -> None:
    with opened(path) as log:
        with pytest.raises(StorageError, match="cannot be opened or written"):
            log.store._reading(lambda connection: connection.execute("DELETE FROM packs"))
        log.write(key(1), 1)
        assert [1] == log.versions(key(1))


@pytest.mark.scenario("BC-09")
def test_a_writer_waits_for_a_foreign_program_and_then_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as log, raw(path) as foreign:
        judged, stage = threading.Event(), log.stage

        def staged(group: Group, change: Mutation) -> None:
            stage(group, change)
            judged.set()

        monkeypatch.setattr(log, "stage", staged)
        foreign.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(log.write, key(1), 1)
            assert judged.wait(30), "its commit never began"
            with pytest.raises(TimeoutError):
                writing.result(0.1)
            foreign.execute("COMMIT")
            writing.result(30)
        assert [1] == log.versions(key(1))


@pytest.mark.scenario("BC-09")
def test_a_wait_that_is_used_up_wrote_nothing_and_the_next_write_lands(path: Path) -> None:
    with opened(path) as log, raw(path) as foreign:
        connections(log)[0].execute("PRAGMA busy_timeout = 1")
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="nothing was written") as caught:
            log.write(key(1), 1)
        assert caught.value.is_outcome_known
        assert not connections(log)[0].in_transaction
        foreign.execute("COMMIT")
    with opened(path) as log:
        assert log.position == 0
        log.write(key(1), 1)


@pytest.mark.scenario("BC-10")
def test_no_way_out_of_a_call_leaves_a_transaction_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as log:
        log.write(key(1), 1)

        def fail(_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            log.store._reading(fail)
        for broken in ("INSERT INTO nowhere VALUES (1)", "INSERT INTO meta VALUES (1)"):
            with monkeypatch.context() as patch:
                patch.setattr("landed.engines.sqlite.append.INSERT_PACK", broken)
                with pytest.raises(StorageError) as caught:
                    log.commit(Write(A, (Leg(key(1), (event(2),), ANY, True, False),)))
                assert caught.value.is_outcome_known
            assert not any(connection.in_transaction for connection in connections(log))
    with opened(path) as log:
        assert [1] == log.versions(key(1))
        assert log.position == 1


@pytest.mark.scenario("BC-10")
def test_a_group_that_fails_half_way_leaves_nothing_and_the_next_uses_its_numbers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
        legs = tuple(Leg(key(at), (event(at),), ANY, True, False) for at in range(2, 7))
        group = Group()
        log.stage(group, Write(A, legs))
        with monkeypatch.context() as patch:

            def fail_late(drafted: list[Drafted]) -> list[Pack]:
                return [*pack(drafted[:3]), (5, None, b"")]  # type: ignore[list-item]

            patch.setattr("landed.engines.sqlite.append.pack", fail_late)
            with pytest.raises(StorageError):
                log.store.commit(group.staged)
    with opened(path) as log:
        assert log.position == 1
        assert [1] == [entry.position for entry in log.feed()]
        log.commit(Write(A, legs))
        assert list(range(1, 7)) == [entry.position for entry in log.feed()]
        assert {staged.position for staged in group.staged} == set(range(2, 7))


def _write_through(path: str, first: int, count: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    for number in range(first, first + count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE dead SET start = ? WHERE position = -1", (number,))
        connection.execute("COMMIT")
    connection.close()


@pytest.mark.scenario("BC-09")
def test_two_processes_that_write_as_fast_as_they_can_queue_for_each_other(path: Path) -> None:
    with opened(path) as log:
        other = multiprocessing.get_context("spawn").Process(
            target=_write_through, args=(str(path), 0, 100)
        )
        other.start()
        for seq in range(1, 101):
            log.write(key(seq % 7), seq)
            assert log.page(key(seq % 7)).batches[-1].events[0].client_seq == seq
        other.join(60)
        assert other.exitcode == 0


def test_a_lookup_never_goes_back_while_heads_move_from_memory_into_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was durable when a lookup began is found by it, owed or paid (log rule I17)."""
    monkeypatch.setattr("landed.engines.sqlite.owed.SLICE", 1)
    rounds = 120
    durable = 1
    with opened(path, replayed_max=4) as log:
        log.fill(key(1), key(2), seqs=[1])

        def write() -> None:
            nonlocal durable
            for seq in range(2, rounds):
                log.fill(key(1), key(2), seqs=[seq])
                durable = seq

        def read() -> int:
            looks = 0
            while not writing.done():
                least = durable
                found = log.store.load([key(1), key(2)], [(key(1), A)])
                versions = [head.version for head in found.heads.values()]
                assert [least, least] <= [min(versions), max(versions)]
                assert least <= found.marks[key(1), A]
                looks += 1
            return looks

        with ThreadPoolExecutor(3) as pool:
            writing = pool.submit(write)
            looks = [pool.submit(read), pool.submit(read)]
            writing.result(60)
            assert all(look.result(60) for look in looks)
