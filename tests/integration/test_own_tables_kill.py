"""A projection in the user's own tables is killed again and again: every change is there once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from uuid import UUID

import pytest
from sqlalchemy import create_engine, text

import landed
from tests.integration.process import READY_S, Serving

CLIENT = UUID(int=5)
ROUNDS = [("apply", 9), ("moved", 1), ("apply", 3), ("apply", 1), ("apply", 7), ("moved", 2)]


@pytest.mark.parametrize(
    ("database", "rounds"),
    [
        ("postgres", ROUNDS[:3]),
        pytest.param("postgres", ROUNDS, marks=pytest.mark.long),
        pytest.param("sqlite", ROUNDS, marks=pytest.mark.long),
    ],
)
async def test_a_projection_that_is_killed_anywhere_neither_loses_nor_doubles(
    request: pytest.FixtureRequest, tmp_path, database: str, rounds: list[tuple[str, int]]
) -> None:
    url = f"sqlite:///{tmp_path}/own.sqlite"
    if database == "postgres":
        url = request.getfixturevalue("postgres_url").replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE taken (value varchar(20))"))
        connection.execute(text("CREATE TABLE total (count integer)"))
        connection.execute(text("INSERT INTO total VALUES (0)"))
    with Serving(f"sqlite:///{tmp_path}/log.sqlite") as serving:
        address = f"landed://127.0.0.1:{serving.port}"
        written = [f"change {number}" for number in range(60)]
        async with await landed.connect(address) as log:
            for seq, value in enumerate(written, 1):
                key = landed.AggregateKey(UUID(int=1), UUID(int=2), UUID(int=seq % 5))
                event = landed.Event.new(1, value.encode(), client_seq=seq, event_id=None)
                await log.write(
                    landed.Write.to(key, [event], client_id=CLIENT, expected_version=landed.ANY)
                )
        for place, count in [*rounds, ("never", 1)]:
            child = await asyncio.to_thread(
                subprocess.run,
                [
                    *(sys.executable, "-m", "tests.integration.own_tables_child"),
                    *(address, url, place, str(count)),
                ],
                capture_output=True,
                text=True,
                timeout=READY_S,
                check=False,
            )
            assert (child.returncode, child.stderr) == (
                0 if place == "never" else -signal.SIGKILL,
                "",
            )
    with engine.connect() as connection:
        taken = list(connection.execute(text("SELECT value FROM taken")).scalars())
        assert sorted(taken) == sorted(written)
        assert connection.execute(text("SELECT count FROM total")).scalar_one() == 60
    engine.dispose()
