"""Failures by phase: an answer of the server settles it, silence after a COMMIT does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from landed.postgres.dsn import parse_dsn
from landed.postgres.faults import BY_STATE, Kind, Phase, explain, storage_error

COMMITTING, WORKING, CONNECTING = Phase.COMMITTING, Phase.WORKING, Phase.CONNECTING


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(parse_dsn(postgres_url).conninfo, autocommit=True) as opened:
        yield opened


def failing(connection: psycopg.Connection[Any], *statements: str) -> psycopg.Error:
    *before, last = statements
    with suppress(psycopg.Error):
        for statement in before:
            connection.execute(statement)  # type: ignore[arg-type]
    with pytest.raises(psycopg.Error) as failed:
        connection.execute(last)  # type: ignore[arg-type]
    return failed.value


@pytest.mark.parametrize(
    ("statements", "kind"),
    [
        (["SET statement_timeout = 20", "SELECT pg_sleep(5)"], Kind.BUSY),
        (["SELECT * FROM nothing_there"], Kind.REFUSED),
        (["SELECT 1/0"], Kind.REFUSED),
        (["DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$"], Kind.BUSY),
        (["DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$"], Kind.BUSY),
        (["DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53100'; END $$"], Kind.BUSY),
        (["DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '42501'; END $$"], Kind.REFUSED),
        (["SET default_transaction_read_only = on", "CREATE TABLE t ()"], Kind.NOT_SENT),
    ],
)
def test_an_error_that_the_server_answers_is_never_unknown(connection, statements, kind) -> None:
    error = failing(connection, *statements)
    assert {explain(error, phase).kind for phase in (WORKING, COMMITTING)} == {kind}
    assert storage_error(error, COMMITTING).is_outcome_known


def test_a_server_that_says_it_does_not_know_is_believed(connection) -> None:
    error = failing(connection, "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '08007'; END $$")
    assert explain(error, COMMITTING).kind is Kind.UNKNOWN


def test_a_session_that_was_ended_is_unknown_only_where_a_commit_was_on_its_way(
    connection,
) -> None:
    error = failing(connection, "SELECT pg_terminate_backend(pg_backend_pid())")
    assert (error.sqlstate, explain(error, COMMITTING).kind) == ("57P01", Kind.UNKNOWN)
    assert explain(error, WORKING).kind is Kind.NOT_SENT
    assert not storage_error(error, COMMITTING).is_outcome_known
    assert storage_error(error, WORKING).is_outcome_known
    after = failing(connection, "SELECT 1")
    assert explain(after, WORKING).kind is Kind.NOT_SENT


def test_a_session_ended_for_being_idle_had_not_begun_to_commit(connection) -> None:
    connection.execute("SET idle_in_transaction_session_timeout = 30")
    connection.execute("BEGIN")
    with psycopg.connect(connection.info.dsn, autocommit=True) as other:
        for _ in range(1000):
            left = other.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND pg_sleep(0.01) IS NOT NULL",
                (connection.info.backend_pid,),
            ).fetchone()
            if left == (0,):
                break
    error = failing(connection, "COMMIT")
    assert (error.sqlstate, explain(error, COMMITTING).kind) == ("25P03", Kind.NOT_SENT)


@pytest.mark.parametrize("change", ["dbname=nowhere", "user=nobody_at_all", "host=/nowhere"])
def test_a_connection_that_was_not_had_sent_nothing(connection, change: str) -> None:
    with pytest.raises(psycopg.OperationalError) as failed:
        psycopg.connect(connection.info.dsn + " " + change)
    assert explain(failed.value, CONNECTING).kind is Kind.NOT_SENT
    assert "\n" not in str(storage_error(failed.value, CONNECTING, doing="here"))


def test_what_the_driver_itself_refuses_was_not_sent_in_any_phase(connection) -> None:
    with pytest.raises(psycopg.ProgrammingError) as failed:
        connection.execute("SELECT %s", (object(),))
    assert explain(failed.value, COMMITTING).kind is Kind.REFUSED


def test_every_row_of_the_table_has_a_reason_and_a_code_that_exists() -> None:
    for state, why in BY_STATE.items():
        assert why.reason
        assert psycopg.errors.lookup(state).sqlstate == state
