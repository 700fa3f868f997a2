"""Every reason not to open a file is told plainly, and changes nothing."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from landed.engines.sqlite import SqliteStore
from landed.engines.sqlite.schema import SCHEMA_VERSION
from landed.errors import (
    ConfigurationError,
    LandedError,
    StorageDamagedError,
    StorageForeignError,
    StorageInUseError,
)
from landed.limits import Limits
from tests.lines import next_line
from tests.unit.engines.sqlite.logfile import key, opened, raw


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def refusal(path: Path, kind: type[LandedError], **settings: object) -> str:
    """Open it, which must fail; return what is said. The lock is free again afterwards."""
    with pytest.raises(kind) as caught:
        SqliteStore(path, limits=Limits(**settings)).open()  # type: ignore[arg-type]
    return str(caught.value)


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    assert "is a directory: name a file in it" in refusal(tmp_path, ConfigurationError)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "create it first" in refusal(tmp_path / "no" / "log.db", ConfigurationError)


@pytest.mark.parametrize("content", [b"hello", b"hello" * 1000, b"SQLite format 3\x00"])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "is not a SQLite database" in refusal(path, StorageForeignError)
    assert content == path.read_bytes()


def test_another_application_s_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.commit()
    before = path.read_bytes()
    assert "of another application" in refusal(path, StorageForeignError)
    assert before == path.read_bytes()
    assert {"log.db", "log.db.lock"} == {file.name for file in path.parent.iterdir()}


def test_a_newer_schema_asks_for_an_upgrade(path: Path) -> None:
    with opened(path):
        pass
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    assert "upgrade Landed" in refusal(path, StorageForeignError)


@pytest.mark.scenario("SC-75")
def test_shards_and_routing_are_frozen_by_the_first_start(path: Path) -> None:
    with opened(path, num_shards=4, routing_rule="org_id") as log:
        log.write(key(1), 1)
    message = refusal(path, StorageForeignError, num_shards=8, routing_rule="org_id")
    assert "start with --set num_shards=4" in message
    message = refusal(path, StorageForeignError, num_shards=4)
    assert "start with --set routing_rule=org_id" in message
    with opened(path, num_shards=4, routing_rule="org_id") as log:
        assert [1] == log.versions(key(1))


def test_a_file_that_cannot_be_opened_is_told_plainly(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path):
        pass

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    message = refusal(path, ConfigurationError)
    assert "Permission denied; the log must be readable and writable" in message


def test_a_lock_file_that_cannot_be_made_is_told_plainly(path: Path) -> None:
    path.with_name("log.db.lock").mkdir()
    assert "cannot make the lock file" in refusal(path, ConfigurationError)


def test_a_file_cut_off_after_its_header_is_damaged(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
    with path.open("rb+") as file:
        file.truncate(4096)
    assert "is cut off" in refusal(path, StorageDamagedError)


def test_a_file_cut_off_in_the_middle_is_damaged(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 2 * 4096)
    assert "landed log verify" in refusal(path, StorageDamagedError)


def test_a_lost_file_whose_write_ahead_log_is_left_is_not_begun_anew(path: Path) -> None:
    path.with_name("log.db-wal").write_bytes(bytes(5000))
    assert "restore the file beside it" in refusal(path, StorageDamagedError)
    assert not path.exists()


def test_what_is_no_regular_file_is_not_replaced_by_one(path: Path) -> None:
    os.mkfifo(path)
    assert "is no regular file" in refusal(path, ConfigurationError)
    assert path.is_fifo()


def test_a_file_with_two_names_is_refused_for_each_would_have_a_lock_of_its_own(
    path: Path,
) -> None:
    with opened(path):
        pass
    other = path.with_name("other.db")
    other.hardlink_to(path)
    assert "has 2 names" in refusal(path, ConfigurationError)
    assert "has 2 names" in refusal(other, ConfigurationError)
    other.unlink()
    with opened(path) as log:
        log.write(key(1), 1)


def test_a_path_that_no_file_can_have_is_told_plainly() -> None:
    for impossible in ("a\0b", "x" * 5000):
        assert "no file can be at" in refusal(Path(impossible), ConfigurationError)


def test_a_creation_that_was_cut_short_is_begun_anew(path: Path) -> None:
    path.touch()
    path.with_name("log.db.new").write_bytes(b"half")
    with opened(path) as log:
        log.write(key(1), 1)
    assert {"log.db", "log.db.lock"} == {file.name for file in path.parent.iterdir()}


def test_a_damaged_setting_is_not_believed(path: Path) -> None:
    with opened(path):
        pass
    with raw(path) as connection:
        connection.execute("UPDATE meta SET value = '2' WHERE name = 'num_shards'")
    assert "'num_shards' is not what was written" in refusal(path, StorageDamagedError)


def test_a_damaged_newest_entry_is_not_opened_for_its_numbers_are_needed(path: Path) -> None:
    with opened(path) as log:
        log.fill(key(1), seqs=range(1, 10))
    with raw(path) as connection:
        connection.execute("UPDATE packs SET entries = zeroblob(length(entries))")
    assert "the pack at position 1 " in refusal(path, StorageDamagedError)


def test_a_head_that_lags_behind_its_newest_entry_is_not_opened(path: Path) -> None:
    with opened(path) as log:
        log.write(key(1), 1)
    with raw(path) as connection:
        (old,) = connection.execute("SELECT * FROM aggregates").fetchall()
    with opened(path) as log:
        log.write(key(1), 2)
    with raw(path) as connection:
        connection.execute(f"REPLACE INTO aggregates VALUES ({', '.join('?' * len(old))})", old)
    assert "does not agree with its newest entry" in refusal(path, StorageDamagedError)


def test_a_log_keeps_its_identity(path: Path) -> None:
    with opened(path) as log:
        identity = log.store.identity
        assert identity.restore_epoch == 0
        assert identity.log_id != UUID(int=0)
    with opened(path) as log:
        assert identity == log.store.identity


# --- one owner


def test_a_second_opening_in_the_same_process_is_refused(path: Path) -> None:
    with opened(path) as log:
        message = refusal(path, StorageInUseError)
        assert f"log.db is in use by pid {os.getpid()}: use landed serve" in message
        log.write(key(1), 1)
    with opened(path) as log:
        assert [1] == log.versions(key(1))


def test_a_link_to_an_open_log_is_the_same_log(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with opened(path):
        refusal(link, StorageInUseError)


def test_another_process_is_told_who_has_it_and_takes_over_when_that_one_is_killed(
    path: Path,
) -> None:
    script = (
        "import sys\n"
        "from landed.engines.sqlite import SqliteStore\n"
        "from landed.limits import Limits\n"
        "store = SqliteStore(sys.argv[1], limits=Limits())\n"
        "store.open()\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert next_line(owner) == b"open\n"
        assert f"in use by pid {owner.pid}:" in refusal(path, StorageInUseError)
        owner.kill()
        owner.wait(30)
        assert f"{owner.pid}" in path.with_name("log.db.lock").read_text()
        with opened(path) as log:
            log.write(key(1), 1)


def test_closing_twice_takes_nobody_s_lock_away(path: Path) -> None:
    store = SqliteStore(path, limits=Limits())
    store.open()
    store.close()
    with opened(path):
        store.close()
        refusal(path, StorageInUseError)
