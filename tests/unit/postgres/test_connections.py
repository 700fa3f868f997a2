"""Threads, connections and callers that go away: nothing is lost, inherited or kept waiting."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from landed.errors import StorageError
from landed.postgres.connections import Connections
from landed.postgres.dsn import parse_dsn
from landed.postgres.faults import Phase

pytestmark = pytest.mark.real_loop
END_ALL = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@asynccontextmanager
async def opened(url: str, size: int = 1) -> AsyncIterator[Connections]:
    connections = Connections(parse_dsn(url), size=size)
    try:
        yield connections
    finally:
        connections.close()


async def run(connections: Connections, statement: Any, **options: Any) -> Any:
    settings = {"timeout_s": 10.0, "phase": Phase.WORKING, **options}
    return await connections.run(lambda c: c.execute(statement).fetchone(), **settings)


@pytest.mark.scenario("BC-11")
@pytest.mark.parametrize("repeats", [100, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_waiter_that_is_cancelled_when_its_turn_comes_takes_no_connection_with_it(
    postgres_url: str, repeats: int
) -> None:
    async with opened(postgres_url) as connections:
        for number in range(repeats):
            holder = asyncio.create_task(run(connections, "SELECT 1"))
            limit_s = 0.0005 if number % 3 == 2 else 10.0
            waiter = asyncio.create_task(run(connections, "SELECT 2", timeout_s=limit_s))
            if number % 3 == 0:
                await holder  # (i) it is its turn now, and it is cancelled in the same tick
                waiter.cancel()
            elif number % 3 == 1:
                await asyncio.sleep(0)
                waiter.cancel()  # (ii) cancelled first
            # (iii) its own limit expires about when the connection comes free
            ended = await asyncio.gather(holder, waiter, return_exceptions=True)
            assert ended[0] == (1,)
            assert isinstance(ended[1], asyncio.CancelledError | StorageError) or ended[1] == (2,)
        assert await run(connections, "SELECT 3", timeout_s=1.0) == (3,)
        assert connections._running == set()
        assert len(connections._idle) == 1


async def test_whoever_finds_every_connection_busy_is_told_so_and_sent_nothing(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as connections:
        busy = asyncio.create_task(run(connections, "SELECT pg_sleep(0.4)"))
        await asyncio.sleep(0)
        with pytest.raises(StorageError, match="no answer within") as refused:
            await run(connections, "SELECT 1", timeout_s=0.05, phase=Phase.COMMITTING)
        assert refused.value.is_outcome_known
        await busy
        assert await run(connections, "SELECT 1", timeout_s=2.0) == (1,)


@pytest.mark.scenario("BC-11")
async def test_a_server_that_stands_still_holds_nobody_beyond_his_limit(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as connections:
        (pid,) = await run(connections, "SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(StorageError, match="no answer within") as known:
                await run(connections, "SELECT 1", timeout_s=0.05)
            assert time.monotonic() - begun < 1.0, "0.1 s where the machine is free"
            assert known.value.is_outcome_known
            # The thread is free again, with a session of its own, until that one stands still.
            (pid_2,) = await run(connections, "SELECT pg_backend_pid()")
            os.kill(pid_2, signal.SIGSTOP)
            with pytest.raises(StorageError, match="no answer within") as unknown:
                await run(connections, "SELECT 1", timeout_s=0.05, phase=Phase.COMMITTING)
            assert not unknown.value.is_outcome_known
            os.kill(pid_2, signal.SIGCONT)
            assert await run(connections, "SELECT 1", timeout_s=5.0) == (1,)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.scenario("BC-12")
async def test_a_caller_that_is_cancelled_anywhere_leaves_no_transaction_to_the_next(
    postgres_url: str,
) -> None:
    def write(connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("INSERT INTO kept VALUES (%s)", (number,))

    with psycopg.connect(parse_dsn(postgres_url).conninfo, autocommit=True) as third:
        third.execute("CREATE TABLE kept (number int)")
        async with opened(postgres_url) as connections:
            for number in range(40):
                task = asyncio.create_task(
                    connections.run(write, timeout_s=10.0, phase=Phase.COMMITTING)
                )
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                if number % 4 == 3:
                    await asyncio.sleep(number * 0.00005)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                assert await run(connections, "INSERT INTO kept VALUES (-1) RETURNING 1") == (1,)
                idle = third.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND state LIKE 'idle in%'"
                ).fetchone()
                assert idle == (0,)
        assert third.execute("SELECT count(*) FROM kept WHERE number = -1").fetchone() == (40,)
        doubled = third.execute(
            "SELECT number FROM kept WHERE number >= 0 GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
        assert doubled == [], "wholly there or wholly absent"


@pytest.mark.scenario("BC-12")
async def test_a_transaction_left_open_is_closed_and_not_inherited(postgres_url: str) -> None:
    async with opened(postgres_url) as connections:
        await connections.run(lambda c: c.execute("BEGIN"), timeout_s=5, phase=Phase.WORKING)
        assert connections._idle == []
        assert await run(connections, "SELECT pg_current_xact_id_if_assigned() IS NULL") == (True,)


async def test_sessions_that_all_died_cost_a_repeatable_step_one_more_try(
    postgres_url: str,
) -> None:
    async with opened(postgres_url, size=3) as connections:
        await asyncio.gather(*[run(connections, "SELECT pg_sleep(0.05)") for _ in range(3)])
        assert len(connections._idle) == 3
        with psycopg.connect(parse_dsn(postgres_url).conninfo, autocommit=True) as third:
            third.execute(END_ALL)
        assert await run(connections, "SELECT 1", is_repeatable=True) == (1,)
        assert len(connections._idle) == 1


async def test_what_may_not_be_repeated_is_not_and_one_failure_is_enough(
    postgres_url: str,
) -> None:
    async with opened(postgres_url, size=3) as connections:
        await asyncio.gather(*[run(connections, "SELECT pg_sleep(0.05)") for _ in range(3)])
        with psycopg.connect(parse_dsn(postgres_url).conninfo, autocommit=True) as third:
            third.execute(END_ALL)
        with pytest.raises(StorageError) as lost:
            await run(connections, "SELECT 1", phase=Phase.COMMITTING)
        assert not lost.value.is_outcome_known
        assert await run(connections, "SELECT 1", phase=Phase.COMMITTING) == (1,)
