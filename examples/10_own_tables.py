"""Events of the log as rows of your own tables: the cursor moves in your own transaction.

python examples/10_own_tables.py            SQLite, in this folder
python examples/10_own_tables.py URL        any SQLAlchemy URL: postgresql+psycopg://app@db/app
"""

import asyncio
import sys
from uuid import UUID

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, select

import landed
from landed.projections.own_tables import TableProjection, cursor_table

SERVICE = UUID("c0013700-0000-4000-8000-000000000010")  # from your configuration, never made here
ORDERS = UUID(int=9)

metadata = MetaData()
placed = Table("placed_orders", metadata, Column("id", String(36)), Column("text", String))
cursor_table(metadata)


def take(connection: Connection, change: landed.FeedEntry) -> None:
    """What one change of the log means here. No guard against repeats: there are none."""
    if change.key.type != ORDERS or change.batch is None:
        return
    for event in change.batch.events:
        if event.value == b"unlucky":
            raise RuntimeError("the process dies in the middle of a page")
        connection.execute(placed.insert().values(id=str(change.key.id), text=event.value.decode()))


async def order(log: landed.Log, number: int, text: bytes) -> None:
    key = landed.AggregateKey(org=UUID(int=1), type=ORDERS, id=UUID(int=number))
    event = landed.Event.new(1, text, client_seq=1, event_id=UUID(int=number))
    await log.write(landed.Write.to(key, [event], client_id=SERVICE, expected_version=0))


def rows(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(placed.c.text).order_by(placed.c.id)).scalars())


async def main(url: str) -> None:
    engine = create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    async with await landed.connect("memory:") as log:
        tables = TableProjection(log, engine, take, name="orders")
        for number, text in enumerate((b"tea", b"bread"), start=1):
            await order(log, number, text)
        await tables.catch_up()
        print("rows:", rows(engine))

        await order(log, 3, b"salt")
        await order(log, 4, b"unlucky")
        try:
            await tables.catch_up()
        except RuntimeError as error:
            print("rows after", error, "-", rows(engine))

        # Another process, with a version of `take` that copes: it goes on from the row.
        def mended(connection: Connection, change: landed.FeedEntry) -> None:
            if change.batch is not None and change.batch.events[0].value != b"unlucky":
                take(connection, change)

        await TableProjection(log, engine, mended, name="orders").catch_up()
        print("rows at the end:", rows(engine))
    engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///own_tables.sqlite"))
