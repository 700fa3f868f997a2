"""What the first write of a new client costs does not grow with the history it meets."""

from __future__ import annotations

import sqlite3
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask
from landed.engines.sqlite import open_sqlite
from landed.engines.sqlite.lookup import find_head, find_mark
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import ANY, Event, Landed, Write

OLD, YOUNG = (AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in (1, 2))
NOBODY_YET = UUID(int=999)


def write(key: AggregateKey, client: int) -> Write:
    event = Event.new(1, b"x" * 100, client_seq=1, event_id=None)
    return Write.to(key, [event], client_id=UUID(int=client), expected_version=ANY)


def steps_of_first_touch(connection: sqlite3.Connection, key: AggregateKey) -> int:
    """SQLite's own instructions for finding a head and the mark of a client that has none."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    head = find_head(connection, key.packed)
    assert head is not None
    assert 0 == find_mark(connection, head.number, NOBODY_YET.bytes)
    connection.set_progress_handler(None, 1)
    return steps


@pytest.mark.scenario("SC-36")
async def test_a_new_client_costs_the_same_after_three_hundred_clients_as_after_one(tmp_path):
    path = tmp_path / "log.sqlite"
    engine = await open_sqlite(path, limits=Limits(), clock=SystemClock())
    for client in range(1, 301):
        assert isinstance(await ask(engine, write(OLD, client)), Landed)
    assert isinstance(await ask(engine, write(YOUNG, 1)), Landed)
    await engine.close()
    connection = sqlite3.connect(path)
    young, old = steps_of_first_touch(connection, YOUNG), steps_of_first_touch(connection, OLD)
    connection.close()
    assert old <= 1.3 * young
