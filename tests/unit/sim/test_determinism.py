"""One seed, one history: in this process, in another, under any hash seed."""

import asyncio
import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from landed import sim

ROUGH = sim.Dials(
    stall=0.02, split=0.3, merge=0.3, refuse=0.05, lose_before=0.05, lose_after=0.05,
    reset=0.05, half_close=0.03, silence=0.5, executor_stall=0.1,
)  # fmt: skip


async def many_talk() -> None:
    """Ten clients talk to a server that answers from threads."""

    async def answer(reader, writer):
        try:
            while line := await reader.readline():
                writer.write(await asyncio.to_thread(bytes.upper, line))
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def talk(number: int) -> None:
        for attempt in range(5):
            try:
                async with asyncio.timeout(3):
                    reader, writer = await asyncio.open_connection("127.0.0.1", 7)
            except (OSError, TimeoutError):
                continue
            try:
                for word in range(5):
                    writer.write(b"%d %d %d\n" % (number, attempt, word))
                    async with asyncio.timeout(3):
                        assert await reader.readline()
            except (OSError, TimeoutError, AssertionError):
                continue
            else:
                return
            finally:
                writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 7)
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(talk(number))
    await asyncio.sleep(30)
    server.close()
    server.abort_clients()
    await server.wait_closed()
    await asyncio.sleep(30)


def digest(seed: int) -> str:
    """A hash over every fact of the network and its moment."""
    seen = blake2b(digest_size=16)
    loop = sim.SimLoop(seed, dials=ROUGH)
    loop.network._note = lambda name, fields: seen.update(
        f"{loop.time()!r} {name} {sorted(fields.items())}\n".encode()
    )
    try:
        loop.run(many_talk())
    finally:
        loop.close()
    return seen.hexdigest()


def test_one_seed_gives_one_digest_and_another_seed_another():
    digests = [digest(seed) for seed in range(15)]
    assert digests == [digest(seed) for seed in range(15)]
    assert len(set(digests)) == len(digests)


@pytest.mark.real_loop
def test_the_digest_does_not_depend_on_the_hash_seed():
    program = "import test_determinism as t; print(*(t.digest(seed) for seed in range(6)))"
    here = str(Path(__file__).parent)
    printed = set()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": here}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        printed.add(done.stdout.strip())
    assert printed == {" ".join(digest(seed) for seed in range(6))}
