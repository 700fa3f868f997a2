"""A process that loads an engine until it is killed, and tells on standard output what it knows.

Run as ``python -m tests.integration.engine_child PATH SEED`` (or the URL of a log on PostgreSQL) with the state of its writers, JSON, on
standard input. Each line it prints is a fact: what is about to be tried, what was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from uuid import UUID

from landed.clock import SystemClock
from landed.conformance.trial import Levered
from landed.engines.ask import ask
from landed.engines.postgres import open_postgres
from landed.engines.sqlite import open_sqlite
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    ANY,
    Delete,
    DeleteLeg,
    Event,
    Landed,
    Leg,
    Mutation,
    Refusal,
    SequenceTaken,
    Trim,
    Write,
)
from tests.logs_on_postgres import dsn

WRITERS = 24
SHARED = 6
TRANSFERS = 6
LIVES = 3
OUTSTANDING = 4


def key(kind: int, number: int) -> AggregateKey:
    return AggregateKey(UUID(int=1), UUID(int=kind), UUID(int=number))


def keys_of(writer: int) -> list[AggregateKey]:
    """Which aggregates a writer writes: one that it shares, or the two of its transfers."""
    if writer < WRITERS:
        return [key(1, writer % SHARED)]
    return [key(2, (writer + leg) % TRANSFERS) for leg in range(2)]


def client(writer: int) -> ClientId:
    return ClientId(UUID(int=1_000 + writer))


def value(writer: int, seq: int) -> bytes:
    """The same whenever it is asked for, and now and then larger than a page."""
    return random.Random(f"{writer}/{seq}").randbytes(20 + seq * 37 % 6_000)


def write(writer: int, seq: int) -> Write:
    event = Event.new(1, value(writer, seq), client_seq=seq, event_id=UUID(int=seq))
    legs = tuple(Leg(one, (event,), ANY, True, True) for one in keys_of(writer))
    return Write(client(writer), legs)


def tell(*words: object) -> None:
    """One fact, in the pipe before anything else happens."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


async def settle(lane: Levered, writer: int, acknowledged: int, attempted: int) -> int:
    """After a restart: the last acknowledged is taken, and the first that is not taken lands."""
    if acknowledged:
        answer = await ask(lane, write(writer, acknowledged))
        assert isinstance(answer, SequenceTaken), answer
    for seq in range(acknowledged + 1, attempted + 2):
        tell("try", writer, seq)
        answer = await ask(lane, write(writer, seq))
        assert isinstance(answer, Landed | SequenceTaken), answer
        tell("ack", writer, seq)
        if isinstance(answer, Landed):
            return seq
    raise AssertionError("the sequence after the last one attempted did not land")


async def run_writer(lane: Levered, writer: int, acknowledged: int, attempted: int) -> None:
    seq = await settle(lane, writer, acknowledged, attempted)

    async def one(seq: int) -> None:
        answer = await ask(lane, write(writer, seq))
        assert isinstance(answer, Landed), answer
        tell("ack", writer, seq)

    while True:
        async with asyncio.TaskGroup() as group:
            for ahead in range(1, OUTSTANDING + 1):
                tell("try", writer, seq + ahead)
                group.create_task(one(seq + ahead))
        seq += OUTSTANDING


async def run_life(lane: Levered, number: int, seed: int) -> None:
    """Write, trim, delete with continuation, recreate, for ever; tell each version acknowledged."""
    generator = random.Random(f"{seed}/{number}")
    one, mine = key(3, number), ClientId(UUID(int=7))

    async def do(change: Mutation) -> Landed | Refusal | object:
        return await ask(lane, change)

    while True:
        for _ in range(generator.randrange(1, 6)):
            event = Event.new(1, b"life", client_seq=0, event_id=None)
            landed = await do(Write(mine, (Leg(one, (event,), ANY, True, False),)))
            assert isinstance(landed, Landed), landed
            version = landed.versions[0]
            tell("version", number, version)
        await do(Trim(one, version, mine))
        tell("floor", number, version)
        if generator.random() < 0.5:
            await do(Delete(mine, (DeleteLeg(one, ANY, True, True),)))
        if generator.random() < 0.3:
            await lane.reclaim()


async def main(path: str, seed: int, state: dict[str, list[int]]) -> None:
    limits = Limits(replayed_max=200)
    lane: Levered
    if path.startswith("postgresql:"):
        lane = await open_postgres(dsn(path), limits=limits, clock=SystemClock())
    else:
        lane = await open_sqlite(path, limits=limits, clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        for writer in range(WRITERS + TRANSFERS):
            acknowledged, attempted = state.get(str(writer), [0, 0])
            group.create_task(run_writer(lane, writer, acknowledged, attempted))
        for number in range(LIVES):
            group.create_task(run_life(lane, number, seed))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)))
