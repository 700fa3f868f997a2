"""A process that writes a log on PostgreSQL beside others.

Run as ``python -m tests.integration.postgres_writers URL``. Each line on standard input is a list of
writes, to be submitted together: ``{"legs": [[aggregate, seq, expected version or null]…], "client": n}``.
For each line it prints the answers, in order: the name of each with the versions it holds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

from landed.clock import SystemClock
from landed.engines.ask import ask_all
from landed.engines.postgres import open_postgres
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import Answer, Event, Landed, Leg, Write
from tests.logs_on_postgres import dsn


def key(number: int) -> AggregateKey:
    return AggregateKey(UUID(int=1), UUID(int=2), UUID(int=number))


def write_of(job: dict[str, Any]) -> Write:
    legs = tuple(
        Leg(
            key(number),
            (Event.new(1, b"%d" % job["client"], client_seq=seq, event_id=None),),
            expected,
            allow_create=True,
            enforce_sequence=True,
        )
        for number, seq, expected in job["legs"]
    )
    return Write(ClientId(UUID(int=job["client"])), legs)


def told(answer: Answer) -> list[Any]:
    return [type(answer).__name__, list(answer.versions) if isinstance(answer, Landed) else []]


async def main(url: str) -> None:
    limits = Limits(lock_wait_s=30.0, commit_wait_s=30.0)
    engine = await open_postgres(dsn(url), limits=limits, clock=SystemClock())
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        answers = await ask_all(engine, [write_of(job) for job in json.loads(line)])
        print(json.dumps([told(answer) for answer in answers]), flush=True)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
