"""Replicas that boot together: one of them makes the tables, all of them start."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from landed.errors import StorageError, StorageForeignError
from landed.postgres import migrate as room
from landed.postgres.checks import Server, check, look, open_connection
from landed.postgres.dsn import parse_dsn
from landed.postgres.migrate import Step, migrate
from tests.lines import next_line

STEPS = (Step(1, "CREATE TABLE one (i int)"), Step(2, "CREATE TABLE two (i int)"))
ROOT = Path(__file__).parents[3]


@pytest.mark.scenario("BC-26")
def test_four_processes_that_boot_together_make_the_tables_once(postgres_url: str) -> None:
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.unit.postgres.booting"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                    env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
                )
            )
            for seed in (1, 2, 3, 4)
        ]
        for replica in replicas:
            stack.callback(replica.kill)  # before the end of the block waits for it
        keys = {next_line(replica) for replica in replicas}
        assert len(keys) == 1, "a lock whose key differs excludes nobody"
        with psycopg.connect(parse_dsn(postgres_url).conninfo, autocommit=True) as admin:
            for _ in range(10):
                admin.execute("DROP SCHEMA public CASCADE")
                admin.execute("CREATE SCHEMA public")
                for replica in replicas:
                    replica.stdin.write(postgres_url + "\n")
                    replica.stdin.flush()
                said = sorted(next_line(replica).split() for replica in replicas)
                assert said == [["1", "done"], ["done"], ["done"], ["done"]]
                applied = admin.execute("SELECT part, number FROM landed_schema ORDER BY 1")
                assert applied.fetchall() == [("projection", 1), ("slow", 1)]
        for replica in replicas:
            _, errors = replica.communicate(timeout=20)
            assert (replica.returncode, errors) == (0, "")


def test_steps_are_applied_once_and_in_order_and_parts_do_not_meet(postgres_url: str) -> None:
    with open_connection(parse_dsn(postgres_url)) as connection:
        assert migrate(connection, "a", STEPS[:1]) == (1,)
        assert migrate(connection, "a", STEPS) == (2,)
        assert migrate(connection, "a", STEPS) == ()
        assert migrate(connection, "b", (Step(1, "CREATE TABLE three (i int)"),)) == (1,)
        with pytest.raises(StorageForeignError, match="schema 2, written by a newer version"):
            migrate(connection, "a", STEPS[:1])


def test_a_step_that_fails_leaves_nothing_behind(postgres_url: str) -> None:
    broken = (*STEPS, Step(3, "CREATE TABLE one (i int)"))
    with open_connection(parse_dsn(postgres_url)) as connection:
        with pytest.raises(StorageError, match="preparing the tables of the a"):
            migrate(connection, "a", broken)
        assert connection.execute("SELECT to_regclass('landed_schema')").fetchone() == (None,)
        assert migrate(connection, "a", STEPS) == (1, 2)


def test_a_migration_that_does_not_end_is_not_waited_for_without_end(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LOCK_WAIT", "50ms")
    dsn = parse_dsn(postgres_url)
    with open_connection(dsn) as slow, open_connection(dsn) as other, slow.transaction():
        slow.execute("SELECT pg_advisory_xact_lock(%s)", (room.LOCK_KEY,))
        with pytest.raises(StorageError, match="lock was not to be had"):
            migrate(other, "a", STEPS)


def test_tables_that_are_there_need_no_right_to_make_any(postgres_url: str) -> None:
    dsn = parse_dsn(postgres_url)
    with open_connection(dsn) as connection:
        migrate(connection, "a", STEPS)
        connection.execute("SET default_transaction_read_only = on")
        assert migrate(connection, "a", STEPS) == ()


def test_a_server_is_refused_for_being_old_or_taking_no_writes(postgres_url: str) -> None:
    with open_connection(parse_dsn(postgres_url)) as connection:
        server = look(connection)
    check(server)
    assert server.losing == ()
    assert isinstance(server, Server)
    with pytest.raises(ValueError, match="PostgreSQL 13 is too old: 14 or newer"):
        check(server._replace(version=13))
    with pytest.raises(ValueError, match="takes no writes"):
        check(server._replace(is_read_only=True))
    weak = server._replace(fsync="off", synchronous_commit="off")
    assert weak.losing == ("fsync=off", "synchronous_commit=off")
