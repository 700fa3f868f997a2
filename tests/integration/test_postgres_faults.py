"""What can go wrong with PostgreSQL: each a clear answer of its class, and the log goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

import landed
from landed.client.embedded import EmbeddedLog
from landed.clock import SystemClock
from landed.conformance.trial import expect, key, leg, write
from landed.engines.ask import ask, ask_all
from landed.engines.postgres import PostgresEngine, open_postgres, session
from landed.engines.postgres.exchange import Call, Exchange
from landed.errors import ConfigurationError, StorageError, StorageForeignError
from landed.limits import Limits
from landed.log import (
    AggregateMissing,
    Busy,
    Details,
    GetDetails,
    Landed,
    Read,
    SequenceInFlight,
    SequenceTaken,
    Unknown,
    VersionConflict,
    Write,
)
from landed.postgres import checks
from tests.logs_on_postgres import Place, dsn, look_into

A = write(key()).client_id


@asynccontextmanager
async def opened(url: str, **settings: Any) -> AsyncIterator[PostgresEngine]:
    limits = replace(Limits(), **settings)
    engine = await open_postgres(dsn(url), limits=limits, clock=SystemClock())
    try:
        yield engine
    finally:
        await engine.close()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():
            await asyncio.sleep(0.005)


def ask_server(url: str, statement: str) -> Any:
    with look_into(url) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        row = cursor.fetchone() if cursor.description else None
    return None if row is None else row[0]


async def waits(url: str, event: str) -> None:
    """Wait until a backend of ours waits for something."""
    counted = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event = '{event}'"
    await until(lambda: asyncio.to_thread(lambda: ask_server(url, counted) > 0))


@contextmanager
def role(place: Place, name: str, *also: str) -> Iterator[str]:
    """A role that may do everything in its own schema, until told otherwise."""
    with place.admin() as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")  # type: ignore[arg-type]
        admin.execute(f"CREATE SCHEMA {name} AUTHORIZATION {name}")  # type: ignore[arg-type]
        for statement in also:
            admin.execute(statement)  # type: ignore[arg-type]
        try:
            yield place.url(user=name, options=f"-csearch_path={name}")
        finally:
            admin.execute(f"DROP OWNED BY {name} CASCADE")  # type: ignore[arg-type]
            admin.execute(f"DROP ROLE {name}")  # type: ignore[arg-type]


@contextmanager
def server_setting(place: Place, name: str, value: str) -> Iterator[None]:
    """Change a setting of the whole server for a while."""
    with place.admin() as admin:
        _change(admin, sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        try:
            yield
        finally:
            _change(admin, sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))


def _change(admin: psycopg.Connection[Any], statement: sql.Composed) -> None:
    before = admin.execute("SELECT pg_conf_load_time()").fetchone()
    admin.execute(statement)
    admin.execute("SELECT pg_reload_conf()")
    end = time.monotonic() + 20
    while admin.execute("SELECT pg_conf_load_time()").fetchone() == before:
        assert time.monotonic() < end, "the server did not load its settings again"


@contextmanager
def absent_standby(place: Place) -> Iterator[None]:
    """Every commit of the server waits for a standby that is not there.

    Another process of the server than the one that commits reads the setting and makes it count, a
    moment after the reload. So commits are tried until one of them waits.
    """
    probe = "SELECT pg_logical_emit_message(true, 'probe', '')"
    is_waiting = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"
    with (
        server_setting(place, "synchronous_standby_names", "ghost"),
        place.admin() as admin,
        place.admin() as committing,
        ThreadPoolExecutor(1) as thread,
    ):
        pid = committing.info.backend_pid
        counts, end = False, time.monotonic() + 60
        for _ in range(1_000):
            commit = thread.submit(committing.execute, probe)
            while not commit.done() and not counts:
                assert time.monotonic() < end, "the probe neither came through nor waited"
                row = admin.execute(is_waiting, (pid,)).fetchone()
                counts = row is not None and bool(row[0])
            if counts:
                admin.execute("SELECT pg_cancel_backend(%s)", (pid,))
            commit.result(timeout=20)
            if counts:
                break
        assert counts, "the server never waited for its standby"
        yield


def failing_with(state: str, *, at_commit: bool = False, then: str = "") -> str:
    """SQL: a trigger under which every write of the log fails so, in the server's own words."""
    kind = "CONSTRAINT TRIGGER" if at_commit else "TRIGGER"
    deferred = "DEFERRABLE INITIALLY DEFERRED" if at_commit else ""
    body = then or f"RAISE EXCEPTION 'made to fail' USING ERRCODE = '{state}'"
    return (
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM 1; {body}; RETURN NEW; END $$; "
        f"CREATE {kind} fail AFTER INSERT ON landed_log_entries {deferred} "
        "FOR EACH ROW EXECUTE FUNCTION fail()"
    )


# --- at the start


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
        ({"user": "nobody"}, 'role "nobody" does not exist'),
        ({"port": "1"}, "no connection was to be had"),
    ],
)
async def test_where_no_log_can_be_the_reason_is_one_line(
    postgres_place: Place, options: dict[str, str], said: str
) -> None:
    with pytest.raises(StorageError, match=said) as raised:
        await landed.connect(postgres_place.url(**options))
    assert "\n" not in str(raised.value)
    assert raised.value.is_outcome_known


async def test_a_wrong_password_is_told_and_never_shown(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = postgres_place.cluster.sockets / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all secretive scram-sha-256\n" + before)
    with role(postgres_place, "secretive", "ALTER ROLE secretive PASSWORD 'right'") as url:
        try:
            ask_server(postgres_place.url(), "SELECT pg_reload_conf()")
            monkeypatch.setenv("PGPASSWORD", "hunter2")

            async def is_refused() -> bool:
                try:
                    await (await landed.connect(url)).close()
                except StorageError as error:
                    return "password authentication failed" in str(error) and "hunter2" not in str(
                        error
                    )
                return False

            await until(is_refused)
            monkeypatch.setenv("PGPASSWORD", "right")
            await (await landed.connect(url)).close()
        finally:
            rules.write_text(before)
            monkeypatch.delenv("PGPASSWORD")
            ask_server(postgres_place.url(), "SELECT pg_reload_conf()")


async def test_a_role_without_rights_is_told_which_is_missing(postgres_place: Place) -> None:
    with (
        role(postgres_place, "guest", "REVOKE CREATE ON SCHEMA guest FROM guest") as url,
        pytest.raises(StorageError, match="the role lacks a right: permission denied for schema"),
    ):
        await landed.connect(url)


async def test_a_role_that_may_only_read_cannot_write(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    schema = url.rpartition("search_path%3D")[2]
    async with opened(url) as engine:
        await ask(engine, write(key(), 1))
    allowed = [f"GRANT USAGE ON SCHEMA {schema} TO reader"]
    allowed.append(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO reader")
    with role(postgres_place, "reader", *allowed):
        limited = postgres_place.url(user="reader", options=f"-csearch_path={schema}")
        async with opened(limited) as engine:
            assert expect(Details, await ask(engine, GetDetails(key()))).version == 1
            assert await ask(engine, write(key(), 2)) == Busy()
    async with opened(url) as engine:
        assert await ask(engine, write(key(), 2)) == Landed((2,))


async def test_an_old_server_is_refused(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(connection: psycopg.Connection[Any]) -> checks.Server:
        return checks.look(connection)._replace(version=13)

    monkeypatch.setattr(session, "look", look)
    with pytest.raises(ConfigurationError, match="PostgreSQL 13 is too old: 14 or newer"):
        await landed.connect(postgres_place.new_log())


async def test_a_read_only_server_is_refused(postgres_place: Place) -> None:
    setting = "ALTER ROLE readonly SET default_transaction_read_only = on"
    with (
        role(postgres_place, "readonly", setting) as url,
        pytest.raises(ConfigurationError, match="takes no writes"),
    ):
        await landed.connect(url)


async def test_a_newer_schema_is_refused(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    async with opened(url):
        ask_server(url, "INSERT INTO landed_schema (part, number) VALUES ('log', 99)")
    with pytest.raises(StorageForeignError, match="schema 99, written by a newer version"):
        await landed.connect(url)


# --- what an acknowledgement is worth


@pytest.mark.scenario("BC-08")
async def test_a_server_that_may_lose_acknowledged_writes_is_refused_unless_told(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    with server_setting(postgres_place, "fsync", "off"):
        with pytest.raises(ConfigurationError, match=r"fsync=off\): change that, or say --accept"):
            await landed.connect(url)
        facts: list[Any] = []
        log = await landed.connect(
            url, accept_data_loss="true", note=lambda name, fields: facts.append((name, fields))
        )
        await log.close()
        assert "next to nothing" in dict(facts)["engine.opened"]["acknowledged"]


@pytest.mark.scenario("BC-08")
async def test_every_commit_is_as_strong_as_the_disk_whatever_the_role_s_setting(
    postgres_place: Place,
) -> None:
    used = "SELECT current_setting('synchronous_commit')"
    for setting, chosen in (("local", "on"), ("remote_apply", "remote_apply")):
        with role(
            postgres_place, "lazy", f"ALTER ROLE lazy SET synchronous_commit = {setting}"
        ) as url:
            async with opened(url) as engine:
                told = f"RAISE EXCEPTION 'it is %', ({used})"
                ask_server(url, failing_with("", then=told))
                errors: list[str] = []
                engine._note = lambda _, fields, to=errors: to.append(fields["error"])  # type: ignore[assignment,misc]
                assert await ask(engine, write(key(), 1)) == Busy()
                assert errors[0].endswith(f"it is {chosen}")
    with role(postgres_place, "lossy", "ALTER ROLE lossy SET synchronous_commit = off") as url:
        with pytest.raises(ConfigurationError, match="synchronous_commit=off"):
            await landed.connect(url)
        await (await landed.connect(f"{url}&accept_data_loss=true")).close()


@pytest.mark.scenario("BC-08")
def test_one_sentence_says_what_an_acknowledgement_means() -> None:
    alone = checks.Server(16, False, "on", "on", "on", "")
    assert "not the loss of its disk" in session.meaning_of(alone)
    paired = alone._replace(standby_names="ANY 1 (a, b)")
    assert "survives the loss of the primary" in session.meaning_of(paired)
    lossy = paired._replace(fsync="off")
    assert "a crash of the server may take acknowledged writes" in session.meaning_of(lossy)


@pytest.mark.scenario("BC-08", "C1", "C2")
async def test_a_commit_that_waits_for_a_standby_is_neither_visible_nor_acknowledged_nor_cancelled(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    bounds = {"commit_wait_s": 0.3, "lock_wait_s": 0.1, "shutdown_grace_s": 0.3}
    async with opened(url, **bounds) as other:
        async with opened(url, **bounds) as engine:
            with absent_standby(postgres_place):
                waiting = ask(engine, write(key(), 1))
                await waits(url, "SyncRep")
                behind = ask(engine, write(key(2), 1))
                assert await ask(engine, write(key(), 1)) == SequenceInFlight(key(), 1, 1)
                assert await behind == Busy(), "nobody waits behind it without a bound"
                assert await ask(engine, write(key(3), 1)) == Busy()
                assert await ask(other, write(key(), 1)) == Busy(), "it is locked, not in flight"
                assert await ask(other, Read(key())) == AggregateMissing(key())
                assert not waiting.done()
                async with asyncio.timeout(5):
                    await engine.close()
                assert "commit" in expect(Unknown, await waiting).detail
                assert await ask(other, Read(key())) == AggregateMissing(key())
                await waits(url, "SyncRep")

        async def is_through() -> bool:
            return await ask(other, write(key(), 1)) == SequenceTaken(key(), 1, 1)

        await until(is_through)


@pytest.mark.scenario("BC-08")
async def test_a_wait_for_a_standby_that_somebody_cancelled_is_no_acknowledgement(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine:
        with absent_standby(postgres_place):
            waiting = ask(engine, write(key(), 1))
            await waits(url, "SyncRep")
            ask_server(
                url,
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
            )
            assert "warning" in expect(Unknown, await waiting).detail
        assert await ask(engine, write(key(), 1)) == SequenceTaken(key(), 1, 1)


# --- while it runs


async def test_a_group_is_two_exchanges_of_six_statements_whatever_its_size(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanges: list[int] = []
    run = Exchange.run

    def counting(
        exchange: Exchange, calls: list[Call], *, within_s: float | None = None
    ) -> list[list[tuple[Any, ...]]]:
        exchanges.append(len(calls))
        return run(exchange, calls, within_s=within_s)

    monkeypatch.setattr(Exchange, "run", counting)
    async with opened(postgres_place.new_log()) as engine:
        for size in (1, 300):
            writes = [write(key(n), size) for n in range(size)]
            assert all(isinstance(a, Landed) for a in await ask_all(engine, writes))
    assert exchanges == [4, 2] * 2


@pytest.mark.parametrize("at_commit", [False, True])
@pytest.mark.parametrize("state", ["40001", "40P01", "53100", "57014", "23514"])
async def test_what_the_server_refuses_is_not_applied_and_the_next_write_lands(
    postgres_place: Place, state: str, at_commit: bool
) -> None:
    """Serialization failure, deadlock, full disk, statement timeout, somebody's own constraint."""
    url = postgres_place.new_log()
    async with opened(url) as engine:
        await ask(engine, write(key(), 1))
        ask_server(url, failing_with(state, at_commit=at_commit))
        assert await ask(engine, write(key(), 2)) == Busy()
        ask_server(url, "DROP FUNCTION fail CASCADE")
        assert await ask(engine, write(key(), 2)) == Landed((2,))


async def test_a_role_s_own_timeouts_and_isolation_are_not_used(postgres_place: Place) -> None:
    settings = (
        "ALTER ROLE hasty SET statement_timeout = '50ms'",
        "ALTER ROLE hasty SET lock_timeout = '1ms'",
        "ALTER ROLE hasty SET default_transaction_isolation = 'serializable'",
    )
    with role(postgres_place, "hasty", *settings) as url:
        async with opened(url, lock_wait_s=0.05) as engine:
            ask_server(url, failing_with("", then="PERFORM pg_sleep(0.2)"))
            assert await ask(engine, write(key(), 1)) == Landed((1,))


async def test_a_stuck_lock_makes_only_its_own_aggregate_busy(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    async with opened(url, lock_wait_s=0.3) as engine:
        await ask(engine, write(key(), 1))
        lock = engine._committer._lock_of(key())
        with look_into(url) as foreign:
            foreign.execute("SELECT pg_advisory_lock(%s)", (lock,))
            joined = Write(A, (leg(key(), 2), leg(key(3), 1)))
            answers = await ask_all(engine, [write(key(), 2), write(key(2), 1), joined])
            assert answers == [Busy(), Landed((1,)), Busy()]
            began = asyncio.get_running_loop().time()
            answers = await ask_all(engine, [write(key(3), 1), write(key(), 2)])
            assert answers == [Landed((1,)), Busy()]
            assert asyncio.get_running_loop().time() - began < 0.25, "it is not waited for again"
            foreign.execute("SELECT pg_advisory_unlock_all()")
        assert await ask(engine, write(key(), 2)) == Landed((2,))
        assert not engine._committer._stuck


async def test_a_session_that_was_ended_is_replaced_unseen(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine:
        await ask_all(engine, [write(key(), 1), Read(key())])
        ask_server(
            url,
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
            "WHERE application_name = 'landed' AND pid <> pg_backend_pid()",
        )
        assert await ask(engine, write(key(), 2)) == Landed((2,))
        assert expect(Details, await ask(engine, GetDetails(key()))).version == 2


async def test_a_session_that_ends_while_it_commits_leaves_the_outcome_unknown(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine:
        await ask(engine, write(key(), 1))
        ask_server(url, failing_with("", at_commit=True, then="PERFORM pg_sleep(30)"))
        committing = ask(engine, write(key(), 2, at=1))
        await waits(url, "PgSleep")
        ask_server(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE wait_event = 'PgSleep'",
        )
        expect(Unknown, await committing)
        ask_server(url, "DROP FUNCTION fail CASCADE")
        assert await ask(engine, write(key(), 2, at=1)) == Landed((2,))
        assert await ask(engine, write(key(), 2, at=1)) == VersionConflict(key(), 1, 2)


async def test_without_a_connection_left_nothing_is_applied_and_reads_say_so(
    postgres_place: Place,
) -> None:
    with role(postgres_place, "crowded") as url:
        async with opened(url) as engine:
            await ask(engine, write(key(), 1))
            ask_server(postgres_place.url(), "ALTER ROLE crowded CONNECTION LIMIT 1")
            assert "too many connections" in expect(Unknown, await ask(engine, Read(key()))).detail
            assert await ask(engine, write(key(), 2)) == Landed((2,)), "this one has its own"
            ask_server(postgres_place.url(), "ALTER ROLE crowded CONNECTION LIMIT 0")
            ask_server(
                postgres_place.url(),
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE usename = 'crowded'",
            )
            assert await ask(engine, write(key(), 3)) == Busy()
            ask_server(postgres_place.url(), "ALTER ROLE crowded CONNECTION LIMIT -1")
            assert await ask(engine, write(key(), 3)) == Landed((3,))


async def test_a_value_that_no_row_can_hold_is_refused_and_leaves_no_doubt(
    postgres_place: Place,
) -> None:
    async with opened(postgres_place.new_log()) as engine:
        impossible = write(key(), 2**64, enforce=False)
        assert await ask_all(engine, [impossible, write(key(2), 1)]) == [Busy(), Busy()]
        assert await ask(engine, write(key(), 1)) == Landed((1,))


def sessions_of(url: str) -> list[int]:
    """The processes of the server that work for the log's engine."""
    asked = (
        "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity "
        "WHERE application_name = 'landed' AND pid <> pg_backend_pid()"
    )
    return [int(pid) for pid in ask_server(url, asked).split()]


async def test_a_frozen_server_does_not_keep_an_engine_from_closing(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url, shutdown_grace_s=0.2) as engine:
        await ask_all(engine, [write(key(), 1), Read(key())])
        pids = sessions_of(url)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            waiting = [ask(engine, write(key(), 2)), ask(engine, Read(key()))]
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await engine.close()
            assert all(answer.done() for answer in waiting)
            # Nothing was sent to commit, so it was tried again on a session that is not frozen.
            assert waiting[0].result() == Landed((2,))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


async def test_a_session_frozen_before_a_commit_is_given_up_and_another_one_goes_on(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url, lock_wait_s=0.1, commit_wait_s=0.3) as engine:
        await ask(engine, write(key(), 1))
        pids = sessions_of(url)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            # Neither closed nor killed: only the bound of our own tells it from a slow one.
            async with asyncio.timeout(20):
                assert await ask(engine, write(key(), 2)) == Landed((2,))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.scenario("SC-73")
async def test_altered_bytes_are_never_returned(postgres_place: Place) -> None:
    changes = (
        "UPDATE landed_log_entries SET body = set_byte(body, 5, get_byte(body, 5) # 1)",
        "UPDATE landed_log_entries SET server_ms = server_ms + 1",
        "UPDATE landed_log_heads SET version = 1",
        "DELETE FROM landed_log_entries WHERE version = 2",
    )
    for change in changes:
        url = postgres_place.new_log()
        async with opened(url) as engine:
            await ask_all(engine, [write(key(), 1), write(key(), 2), write(key(), 3)])
            ask_server(url, change)
            assert "could not be read" in expect(Unknown, await ask(engine, Read(key()))).detail
    url = postgres_place.new_log()
    async with opened(url) as engine:
        await ask(engine, write(key(), 5))
        ask_server(url, "UPDATE landed_log_marks SET mark = mark - 3")
        assert await ask(engine, write(key(), 4)) == Busy()


@pytest.mark.scenario("BC-12")
async def test_a_write_cancelled_at_any_suspension_leaves_no_transaction_and_no_lock(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    left = (
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'landed' "
        "AND state LIKE 'idle in transaction%') + "
        "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')"
    )
    async with opened(url, readers_max=1) as engine:
        log = EmbeddedLog(engine)
        for seq, suspensions in enumerate([*range(12), 50, 200], 1):
            task = asyncio.ensure_future(log.write(write(key(), seq)))
            for _ in range(suspensions):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert await ask(engine, write(key(2), seq)) == Landed((seq,))
            again = await ask(engine, write(key(), seq))
            assert isinstance(again, Landed | SequenceTaken)
            assert await asyncio.to_thread(ask_server, url, left) == 0
            assert expect(Details, await ask(engine, GetDetails(key()))).version == seq
