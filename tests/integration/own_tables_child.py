"""Follows a log into a table of its own until it kills itself, at the place it is told.

Run as ``python -m tests.integration.own_tables_child LOG DATABASE PLACE COUNT``: PLACE is ``apply``
(after COUNT changes, in the middle of a transaction), ``moved`` (after COUNT commits) or ``never``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count

from sqlalchemy import Connection, create_engine, text

import landed
from landed.log import FeedEntry
from landed.projections.own_tables import TableProjection


async def main(log_url: str, database: str, place: str, last: int) -> None:
    steps = {"apply": count(1), "moved": count(1), "never": count(1)}

    def reached(here: str) -> None:
        if here == place and next(steps[here]) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def take(connection: Connection, change: FeedEntry) -> None:
        assert change.batch is not None
        for event in change.batch.events:
            connection.execute(
                text("INSERT INTO taken (value) VALUES (:value)"), {"value": event.value.decode()}
            )
            connection.execute(text("UPDATE total SET count = count + 1"))
        reached("apply")

    engine = create_engine(database)
    async with await landed.connect(log_url) as log:
        tables = TableProjection(
            log, engine, take, name="child", page=7, note=lambda name, _: reached(name[7:])
        )
        tables.prepare()
        await tables.catch_up()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
