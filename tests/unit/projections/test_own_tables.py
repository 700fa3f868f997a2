"""A log's changes in the user's own tables: the cursor and the rows are one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Barrier
from uuid import UUID

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    select,
    text,
)
from sqlalchemy.exc import OperationalError, ProgrammingError

from landed.client.embedded import EmbeddedLog
from landed.clock import Clock, SystemClock, WallMs
from landed.engines.memory import open_memory
from landed.errors import StorageForeignError
from landed.ids import AggregateKey
from landed.limits import Limits
from landed.log import ANY, Event, FeedEntry, Write
from landed.projections.own_tables import TableProjection

pytestmark = pytest.mark.real_loop

CLIENT = UUID(int=5)
metadata = MetaData()
lines = Table("lines", metadata, Column("id", Integer, primary_key=True), Column("text", String))


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path}/own.sqlite"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url").replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(url)
    metadata.create_all(engine)
    yield engine
    engine.dispose()


class Later(SystemClock):
    """A log in memory is named by the millisecond it was opened in."""

    def wall_ms(self) -> WallMs:
        return WallMs(super().wall_ms() + 60_000)


@asynccontextmanager
async def a_log(clock: Clock | None = None) -> AsyncIterator[EmbeddedLog]:
    log = EmbeddedLog(await open_memory(limits=Limits(), clock=clock or SystemClock()))
    async with log:
        yield log


async def write(log: EmbeddedLog, *texts: str, start: int = 1) -> None:
    for seq, said in enumerate(texts, start):
        key = AggregateKey(UUID(int=1), UUID(int=2), UUID(int=seq % 3))
        event = Event.new(1, said.encode(), client_seq=seq, event_id=None)
        await log.write(Write.to(key, [event], client_id=CLIENT, expected_version=ANY))


def take(connection: Connection, change: FeedEntry) -> None:
    assert change.batch is not None
    for event in change.batch.events:
        connection.execute(lines.insert().values(text=event.value.decode()))


def rows(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(lines.c.text).order_by(lines.c.id)).scalars())


async def test_every_change_becomes_rows_once_and_in_the_feeds_order(engine: Engine) -> None:
    async with a_log() as log:
        for _ in range(2):  # as a process that starts again
            tables = TableProjection(log, engine, take, name="t", page=3)
            tables.prepare()
            await tables.catch_up()
        await write(log, *"abcdefgh")
        await tables.catch_up()
        await TableProjection(log, engine, take, name="t").catch_up()
        assert rows(engine) == list("abcdefgh")


async def test_a_page_that_fails_leaves_neither_rows_nor_a_moved_cursor(engine: Engine) -> None:
    seen: list[bytes] = []

    def stumble(connection: Connection, change: FeedEntry) -> None:
        take(connection, change)
        assert change.batch is not None
        seen.append(change.batch.events[0].value)
        if seen == [b"a", b"b"]:
            raise KeyError("a bug")

    async with a_log() as log:
        tables = TableProjection(log, engine, stumble, name="t")
        tables.prepare()
        await write(log, *"abc")
        with pytest.raises(KeyError):
            await tables.run()
        assert rows(engine) == []
        await tables.catch_up()
        assert rows(engine) == list("abc")


async def test_a_mistake_in_a_statement_stops_the_run_and_is_not_tried_for_ever(
    engine: Engine,
) -> None:
    async with a_log() as log:
        tables = TableProjection(
            log, engine, lambda c, _: c.execute(text("SELECT * FROM no_such_table")), name="t"
        )
        tables.prepare()
        await write(log, "a")
        with pytest.raises((OperationalError, ProgrammingError), match="no_such_table"):
            await tables.run()


async def test_two_that_share_a_name_share_the_work_and_double_nothing(engine: Engine) -> None:
    async with a_log() as log:
        await write(log, *map(str, range(60)))
        both = [TableProjection(log, engine, take, name="t", page=2) for _ in range(2)]
        both[0].prepare()
        await both[0].run_once()
        running = [asyncio.create_task(one.run()) for one in both]
        async with asyncio.timeout(30):
            while len(rows(engine)) < 60:
                await asyncio.sleep(0.01)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert rows(engine) == [str(n) for n in range(60)]


async def test_another_log_is_refused_until_the_tables_are_emptied(engine: Engine) -> None:
    async with a_log() as log, a_log(Later()) as other:
        tables = TableProjection(log, engine, take, name="t")
        tables.prepare()
        await write(log, "a")
        await tables.catch_up()
        await write(other, "b")
        moved = TableProjection(other, engine, take, name="t")
        with pytest.raises(StorageForeignError, match="start_over"):
            await moved.catch_up()
        with engine.begin() as connection:
            connection.execute(lines.delete())
            moved.start_over(connection)
        await moved.catch_up()
        assert rows(engine) == ["b"]


async def test_a_database_that_comes_back_is_gone_on_with(engine: Engine) -> None:
    facts: list[str] = []
    async with a_log() as log:
        tables = TableProjection(
            log, engine, take, name="t", note=lambda name, _: facts.append(name)
        )
        tables.prepare()
        await write(log, "a")
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE landed_cursors RENAME TO away"))
        running = asyncio.create_task(tables.run())
        async with asyncio.timeout(30):
            while "tables.failed" not in facts:
                await asyncio.sleep(0.01)
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE away RENAME TO landed_cursors"))
            while rows(engine) != ["a"]:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_many_may_make_the_table_of_cursors_at_once(engine: Engine) -> None:
    together = Barrier(4)

    def prepare(_: int) -> None:
        together.wait(20)
        TableProjection(None, engine, take, name="t").prepare()  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            assert list(threads.map(prepare, range(4))) == [None] * 4
            with engine.begin() as connection:
                connection.execute(text("DROP TABLE landed_cursors"))
