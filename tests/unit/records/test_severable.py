"""A SQLite connection is taken away from a thread that uses it, and the process lives."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from landed.records import severable
from landed.records.severable import Severable

_CHILD = """
import sqlite3, sys, threading, time
from landed.records import severable
from landed.records.severable import Severable

path, seconds, way = sys.argv[1], float(sys.argv[2]), sys.argv[3]
factory = Severable if way == "severed" else sqlite3.Connection
with sqlite3.connect(path) as first:
    first.execute("CREATE TABLE t (a)")
    first.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(300)])
first.close()
ended, taken = time.monotonic() + seconds, 0
while time.monotonic() < ended:
    conn = sqlite3.connect(path, check_same_thread=False, isolation_level=None, factory=factory)
    conn.execute("BEGIN IMMEDIATE")
    begun = threading.Event()

    def work():
        try:
            while True:
                cursor = conn.cursor()
                begun.set()
                cursor.execute("SELECT count(*), sum(x.a) FROM t x, t y WHERE y.a < 20")
                cursor.fetchall()
                cursor.execute("UPDATE t SET a = a WHERE a < 50")
                cursor.close()
        except sqlite3.Error:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(10)
    time.sleep(taken % 20 / 10_000)  # another place in the statement each time
    if way == "severed":
        conn.sever()
    else:
        conn.interrupt()
        conn.close()
    thread.join(10)
    assert not thread.is_alive()
    taken += 1
print(taken)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("CREATE TABLE t (a)")
        conn.execute("INSERT INTO t VALUES (1), (2), (3)")
    return tmp_path / "a.db"


@pytest.fixture
def conn(path: Path) -> Iterator[Severable]:
    made = sqlite3.connect(path, check_same_thread=False, isolation_level=None, factory=Severable)
    with closing(made):
        made.execute("BEGIN IMMEDIATE")
        made.execute("INSERT INTO t VALUES (4)")
        yield made


def can_be_written(path: Path) -> bool:
    """Whether the writer's place is free, and nothing of a severed transaction was kept."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        rows = other.execute("SELECT count(*) FROM t").fetchone()
        other.execute("ROLLBACK")
        return bool(rows == (3,))


def test_taking_connections_away_while_statements_run_never_ends_the_process(tmp_path: Path):
    """With ``plain`` in place of ``severed``, which is how it was done, the child dies of SIGSEGV."""
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path / "a.db"), "0.6", "severed"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, (child.returncode, child.stderr)
    assert int(child.stdout) > 5


def test_one_that_its_thread_only_holds_is_rolled_back_at_once(conn: Severable, path: Path):
    assert not can_be_written(path)
    conn.sever()
    assert can_be_written(path)


def test_one_with_rows_left_to_fetch_is_rolled_back_too(conn: Severable, path: Path):
    cursor = conn.execute("SELECT a FROM t")
    assert cursor.fetchone() == (1,)
    conn.sever()
    assert can_be_written(path)
    cursor.close()


def test_a_statement_that_runs_is_interrupted(conn: Severable, path: Path):
    begun, failed = threading.Event(), []
    conn.create_function("begun", 0, begun.set)

    def work() -> None:
        endless = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT begun(), max(i) FROM n"
        )
        try:
            conn.execute("SELECT begun()").fetchall()
            conn.execute(endless).fetchall()
        except sqlite3.Error as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(10)
    conn.sever()
    thread.join(10)
    assert not thread.is_alive()
    assert len(failed) == 1
    assert can_be_written(path)


def test_a_statement_that_does_not_end_is_left_to_its_own_thread(
    conn: Severable, path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A function of the user's within a statement can hang, and no interrupt reaches it."""
    monkeypatch.setattr(severable, "SEVER_S", 0.1)
    begun, release = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        release.wait(30)

    conn.create_function("hang", 0, hang)
    failed: list[Exception] = []

    def work() -> None:
        try:
            conn.execute("SELECT hang() FROM t").fetchall()
        except sqlite3.Error as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert begun.wait(10)
    conn.sever()
    assert not can_be_written(path), "it still runs"
    release.set()
    thread.join(10)
    assert not thread.is_alive()
    assert can_be_written(path)


@pytest.mark.parametrize(
    "call",
    [
        lambda conn, _cursor: conn.execute("INSERT INTO t VALUES (9)"),
        lambda conn, _cursor: conn.cursor().execute("INSERT INTO t VALUES (9)"),
        lambda _conn, cursor: cursor.execute("INSERT INTO t VALUES (9)"),
        lambda _conn, cursor: cursor.executemany("INSERT INTO t VALUES (?)", [(9,)]),
        lambda _conn, cursor: cursor.executescript("INSERT INTO t VALUES (9)"),
        lambda _conn, cursor: cursor.fetchone(),
        lambda _conn, cursor: cursor.fetchmany(2),
        lambda _conn, cursor: cursor.fetchall(),
        lambda _conn, cursor: next(cursor),
        lambda conn, _cursor: conn.commit(),
        lambda conn, _cursor: conn.rollback(),
    ],
)
def test_what_is_called_later_is_refused_and_keeps_nothing(
    conn: Severable, path: Path, call: Any
) -> None:
    cursor = conn.execute("SELECT a FROM t")
    conn.sever()
    with pytest.raises(sqlite3.ProgrammingError):
        call(conn, cursor)
    cursor.close()
    conn.close()
    assert can_be_written(path)


def test_a_statement_within_a_function_of_another_does_not_wait_for_itself(conn: Severable):
    conn.create_function("other", 0, lambda: conn.execute("SELECT count(*) FROM t").fetchone()[0])
    assert conn.execute("SELECT other()").fetchall() == [(4,)]
