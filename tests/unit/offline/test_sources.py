"""The replay trap: three right sources of a sequence, and no way to a wrong one by accident."""

import sqlite3
from uuid import UUID

import pytest

from landed.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    SequenceOrderError,
    SequenceTakenError,
)
from landed.log import ANY, Event, Write
from landed.offline import (
    Sequence,
    SequencedWriter,
    assert_restart_stable,
    from_row,
    from_stream,
    from_upstream,
    number_with_data,
)
from tests.stories.faulty import LoseAnswer
from tests.unit.offline.devices import CLIENT, NOTES, landed, world

VALUES = ("a", "b", "c")


def event_id(value: str) -> UUID:
    return UUID(int=ord(value))


def outbox() -> sqlite3.Connection:
    """A database of the application's own, with three rows that wait to be sent."""
    sql = sqlite3.connect(":memory:", check_same_thread=False)
    sql.row_factory = sqlite3.Row
    sql.execute(
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT, "
        "client_seq INTEGER, sent INTEGER DEFAULT 0)"
    )
    for value in VALUES:
        with sql:
            sql.execute("INSERT INTO outbox (value) VALUES (?)", (value,))
            sql.execute(
                "UPDATE outbox SET client_seq = ? WHERE value = ?", (number_with_data(sql), value)
            )
    return sql


def world_of(sequence_of):
    """An outbox worker that numbers rows as told; every call of what it returns is a new process."""

    def make_world():
        sql = outbox()

        def start():
            memory: dict[str, int] = {}

            async def work(log):
                writer = SequencedWriter(log, client_id=CLIENT)
                rows = sql.execute("SELECT * FROM outbox WHERE sent = 0 ORDER BY id").fetchall()
                for row in rows:
                    sequence = await sequence_of(log, row, memory)
                    one = event_id(row["value"])
                    value = row["value"].encode()
                    await writer.write(NOTES, 1, value, sequence=sequence, event_id=one)
                    with sql:
                        sql.execute("UPDATE outbox SET sent = 1 WHERE id = ?", (row["id"],))

            return work

        return start

    return make_world


async def by_stream(log, row, memory):
    return await from_stream(log, NOTES, client_id=CLIENT, event_id=event_id(row["value"]))


async def by_upstream(log, row, memory):
    return from_upstream(row["id"])


async def by_row(log, row, memory):
    return from_row(row)


@pytest.mark.scenario("SWA-92")
@pytest.mark.parametrize("right", [by_stream, by_upstream, by_row])
async def test_the_three_right_sources_are_restart_stable(right):
    assert await assert_restart_stable(world_of(right)) >= 2 * len(VALUES)


@pytest.mark.scenario("SWA-92")
async def test_a_counter_in_memory_is_found_out():
    """Deliberately wrong, and even so it takes a detour: the number must pose as an upstream's."""

    def make_world():
        sql = outbox()

        def start():
            counter = 0

            async def work(log):
                nonlocal counter
                for row in sql.execute(
                    "SELECT * FROM outbox WHERE sent = 0 ORDER BY id"
                ).fetchall():
                    counter += 1
                    event = Event.new(1, row["value"].encode(), client_seq=counter, event_id=None)
                    fits = False
                    while not fits:
                        try:
                            await log.write(
                                Write.to(NOTES, [event], client_id=CLIENT, expected_version=ANY)
                            )
                            fits = True
                        except SequenceTakenError:
                            counter += 1  # "it is taken, so take the next one"
                            event = event._replace(client_seq=counter)
                    with sql:
                        sql.execute("UPDATE outbox SET sent = 1 WHERE id = ?", (row["id"],))

            return work

        return start

    with pytest.raises(AssertionError, match="several numbers"):
        await assert_restart_stable(make_world)


async def test_a_worker_that_loses_events_or_sends_nothing_is_found_out():
    def forgetful():
        waiting = list(VALUES)

        def start():
            async def work(log):
                while waiting:
                    value = waiting.pop(0)  # taken out before it was sent
                    event = Event.new(
                        1, value.encode(), client_seq=ord(value), event_id=event_id(value)
                    )
                    await log.write(
                        Write.to(NOTES, [event], client_id=CLIENT, expected_version=ANY)
                    )

            return work

        return start

    with pytest.raises(AssertionError, match="missing"):
        await assert_restart_stable(forgetful)

    async def idle(log):
        pass

    with pytest.raises(AssertionError, match="sent nothing"):
        await assert_restart_stable(lambda: lambda: idle)


def test_a_sequence_is_not_made_from_a_bare_number():
    with pytest.raises(TypeError, match="from_stream, from_upstream or from_row"):
        Sequence(1, "my counter")
    for wrong in (0, -1, True, "1", None):
        with pytest.raises(ConfigurationError):
            from_upstream(wrong)


async def test_the_writer_takes_no_bare_number():
    async with world() as (_, log):
        writer = SequencedWriter(log, client_id=CLIENT)
        with pytest.raises(TypeError, match="bare number"):
            await writer.write(NOTES, 1, b"a", sequence=1, event_id=event_id("a"))
        assert [] == log.writes
        with pytest.raises(ConfigurationError):
            SequencedWriter(log, client_id=UUID(int=0))


def test_number_and_data_are_one_transaction_or_nothing():
    sql = sqlite3.connect(":memory:")
    with pytest.raises(ConfigurationError, match="begin it first"):
        number_with_data(sql)
    sql.execute("CREATE TABLE data (number INTEGER)")
    for expected in (1, 2):
        with sql:
            sql.execute("INSERT INTO data VALUES (0)")
            assert number_with_data(sql) == expected
    sql.execute("INSERT INTO data VALUES (0)")
    number_with_data(sql)
    sql.rollback()
    with sql:
        sql.execute("INSERT INTO data VALUES (0)")
        assert number_with_data(sql) == 3, "rolled back with its data, so never used"


async def test_a_lost_answer_is_found_to_be_ours_and_another_event_is_no_success():
    async with world() as (_, log):
        writer = SequencedWriter(log, client_id=CLIENT)

        async def write(number, value):
            return await writer.write(
                NOTES, 1, value.encode(), sequence=from_upstream(number), event_id=event_id(value)
            )

        log.on_write(LoseAnswer())
        with pytest.raises(OutcomeUnknownError):
            await write(1, "a")
        assert (await write(1, "a")).version is None
        assert (await write(3, "c")).version == 2
        with pytest.raises(SequenceOrderError):
            await write(3, "b")
        with pytest.raises(SequenceOrderError):
            await write(2, "b")
        assert await landed(log) == [(1, "a"), (3, "c")]


async def test_another_writer_s_numbers_mean_nothing_to_a_stream_source():
    async with world() as (_, log):
        event = Event.new(1, b"x", client_seq=50, event_id=event_id("x"))
        await log.write(Write.to(NOTES, [event], client_id=UUID(int=9), expected_version=ANY))
        sequence = await from_stream(log, NOTES, client_id=CLIENT, event_id=event_id("a"))
        assert (sequence.number, sequence.origin) == (1, "stream")
