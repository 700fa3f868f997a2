"""``kill -9`` of a real server under load: every acknowledged write once, none torn, none doubled.

The audit opens the file itself, before the next start can recover anything.
"""

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from landed.ids import AggregateKey, ClientId
from landed.log import ANY, Event, Landed, Leg, SequenceInFlight, SequenceTaken, Write
from tests.integration.audit import audit
from tests.integration.process import Serving
from tests.unit.server.peer import ORG, Peer, dial, key

WRITERS = 24
AGGREGATES = 6
TRANSFERS = 4
OUTSTANDING = 8
ACCOUNT = UUID(int=3)


def value(client: UUID, seq: int) -> bytes:
    """What a client writes under a sequence: the same whenever it is asked for."""
    return random.Random(f"{client}/{seq}").randbytes(50 + seq * 37 % 2_000)


class Writer:
    """One client id that writes 1, 2, 3, ... and keeps account of what it was told."""

    def __init__(self, number: int, legs: int) -> None:
        self.client = UUID(int=1_000 + number)
        self.attempted = 0
        self.acknowledged = 0
        if legs == 1:
            self.keys = [key(number % AGGREGATES)]
        else:
            at = 2 * (number % TRANSFERS)
            self.keys = [AggregateKey(ORG, ACCOUNT, UUID(int=at + leg)) for leg in range(legs)]

    def write(self, seq: int) -> Write:
        event = Event.new(1, value(self.client, seq), client_seq=seq, event_id=UUID(int=seq))
        legs = tuple(Leg(key, (event,), ANY, True, True) for key in self.keys)
        return Write(ClientId(self.client), legs)

    async def run(self, port: int, acknowledged: asyncio.Semaphore) -> None:
        """Write until the server is gone."""
        try:
            async with dial(port) as peer:
                await self._settle_last(peer)
                waiting = 0
                while True:
                    while waiting < OUTSTANDING:
                        self.attempted += 1
                        waiting += 1
                        await peer.send(self.write(self.attempted))
                    assert isinstance(await peer.answer(), Landed)
                    waiting -= 1
                    self.acknowledged += 1
                    acknowledged.release()
        except (OSError, EOFError):
            return

    async def _settle_last(self, peer: Peer) -> None:
        """After a restart: the last acknowledged is taken; the first that is not taken goes on."""
        if self.acknowledged:
            assert isinstance(await peer.ask(self.write(self.acknowledged)), SequenceTaken)
        for seq in range(self.acknowledged + 1, self.attempted + 2):
            answer = await peer.ask(self.write(seq))
            assert not isinstance(answer, SequenceInFlight)
            if isinstance(answer, Landed):
                self.attempted = self.acknowledged = seq
                return
            self.acknowledged = seq
        raise AssertionError("the sequence after the last one attempted did not land")


def check(path, writers: list[Writer]) -> None:
    """Compare the file with what the writers know."""
    by_leg: dict[tuple[bytes, bytes], list[int]] = {}
    for found in audit(path):
        assert value(UUID(bytes=found.client), found.client_seq) == found.value
        assert found.client_seq.to_bytes(16) == found.event_id
        by_leg.setdefault((found.client, found.key), []).append(found.client_seq)
    for writer in writers:
        legs = [by_leg.get((writer.client.bytes, leg.packed), []) for leg in writer.keys]
        for seqs in legs:
            assert list(range(1, len(seqs) + 1)) == seqs, "not a prefix, or not each once"
            assert writer.acknowledged <= len(seqs) <= writer.attempted
        assert 1 == len(Counter(map(len, legs))), "half of a write of two legs"


@pytest.mark.scenario("SC-44", "SC-70")
@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.long)])
def test_after_a_kill_every_acknowledged_write_is_there_once_and_whole(tmp_path, rounds):
    path = tmp_path / "log.db"
    rng = random.Random(rounds)
    writers = [Writer(number, 1) for number in range(WRITERS)]
    writers += [Writer(100 + number, 2) for number in range(TRANSFERS)]

    async def load(serving: Serving, kill_after: int) -> None:
        acknowledged = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.run(serving.port, acknowledged))
            # Writers that are all gone acknowledge nothing more.
            async with asyncio.timeout(60):
                for _ in range(kill_after):
                    await acknowledged.acquire()
            serving.process.kill()

    for _ in range(rounds):
        with Serving(f"sqlite:///{path}", "--log-format", "none") as serving:
            asyncio.run(load(serving, rng.randint(200, 1_500)))
            serving.kill()
        check(path, writers)
        assert all(writer.acknowledged for writer in writers)
    with Serving(f"sqlite:///{path}") as serving:
        code, errors = serving.stop()
        assert 0 == code, errors
    check(path, writers)
