"""An outbox worker that can be killed anywhere: each row keeps one number, so it lands once.

python examples/09_outbox_worker.py

The trap it avoids: a counter in memory starts again after a crash, gives a row that was written
already a second number, and the log takes it for a new event.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from uuid import UUID

import landed
from landed.offline import SequencedWriter, Worker, assert_restart_stable, from_upstream

ORDERS = landed.AggregateKey(org=UUID(int=1), type=UUID(int=8), id=UUID(int=1))
SERVICE = UUID("c0013700-0000-4000-8000-000000000008")  # from your configuration, never made here


def open_shop() -> sqlite3.Connection:
    """The shop's own database: an order and its outbox row are one transaction."""
    sql = sqlite3.connect(":memory:", check_same_thread=False)
    # AUTOINCREMENT: without it SQLite gives the number of a deleted last row out again.
    sql.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, body TEXT)")
    with sql:
        for number in (1, 2, 3):
            row = (str(UUID(int=number)), f"order {number}")
            sql.execute("INSERT INTO outbox (key, body) VALUES (?, ?)", row)
    return sql


async def send_all(sql: sqlite3.Connection, log: landed.Log) -> None:
    """One life of the worker. Pausing between tries is left out; the number would be the same."""
    writer = SequencedWriter(log, client_id=SERVICE)
    for number, key, body in sql.execute("SELECT * FROM outbox ORDER BY id").fetchall():
        written = await writer.write(
            ORDERS, 1, body.encode(), sequence=from_upstream(number), event_id=UUID(key)
        )
        print(written.sequence, "landed" if written.version else "was there already")
        with sql:
            sql.execute("DELETE FROM outbox WHERE id = ?", (number,))


async def main() -> None:
    sql = open_shop()
    async with await landed.connect("memory:") as log:
        backup = sql.execute("SELECT * FROM outbox").fetchall()
        await send_all(sql, log)
        with sql:  # as if it had been killed before it could delete the rows
            sql.executemany("INSERT INTO outbox VALUES (?, ?, ?)", backup)
        await send_all(sql, log)

    def make_world() -> Callable[
        [], Worker
    ]:  # the same, checked for every place it can be killed at
        fresh = open_shop()
        return lambda: lambda log: send_all(fresh, log)

    print("killed at", await assert_restart_stable(make_world), "places: one number a row")


if __name__ == "__main__":
    asyncio.run(main())
