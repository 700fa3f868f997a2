"""Everything at once on the engine's real threads, which no simulated world interleaves.

Small caches, so that lookups never end; sweeps of a few heads; commits on their own thread; writers
who take each other's place, lives that end and begin again, and everybody repeating himself. The
interpreter changes threads as often as it can.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from landed.clock import SystemClock
from landed.engines.ask import ask
from landed.engines.lane import Lane
from landed.engines.sqlite import open_sqlite
from landed.engines.sqlite.check import verify
from landed.ids import AggregateKey, ClientId
from landed.limits import Limits
from landed.log import (
    ANY,
    Delete,
    DeleteLeg,
    Event,
    FeedEntry,
    FeedPage,
    FeedRead,
    Landed,
    Leg,
    Mutation,
    Trim,
    Write,
)

KEYS = [AggregateKey(UUID(int=1), UUID(int=2), UUID(int=n)) for n in range(8_000)]
AT_ONCE = 16
"""Keys that are written to at a time; each turn leaves one and takes a new one, for what goes wrong
goes wrong where a writer was displaced for the first time."""
CLIENTS = [ClientId(UUID(int=n)) for n in (7, 8, 9)]
LIMITS = Limits(
    inline_commit_ms=0,
    cached_heads_max=12,
    cached_marks_max=4,
    replayed_max=32,
    reclaim_after_s=0.01,
)

Pair = tuple[AggregateKey, ClientId]

pytestmark = pytest.mark.real_loop


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Writers:
    """Those who write, and the sequences that each of them was told had landed."""

    def __init__(self, lane: Lane, rng: random.Random) -> None:
        self._lane = lane
        self._rng = rng
        self._used: dict[Pair, int] = {}
        self._at = 0
        self.landed: dict[Pair, list[int]] = {}

    async def write_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            self._at += 1
            turn = [self._one() for _ in range(self._rng.randint(1, 12))]
            answers = [ask(self._lane, change) for change in turn]
            for change, answer in zip(turn, answers, strict=True):
                self._take(change, await answer)

    def _one(self) -> Mutation:
        rng = self._rng
        keys = rng.sample(KEYS[self._at : self._at + AT_ONCE], rng.randint(1, 3))
        client = rng.choice(CLIENTS)
        match rng.random():
            case dice if dice < 0.15:
                return Delete(client, (DeleteLeg(keys[0], ANY, True, rng.random() < 0.5),))
            case dice if dice < 0.2:
                return Trim(keys[0], rng.randint(1, 9), client)
            case dice if dice < 0.5:  # once more what may have landed long ago
                legs = [self._leg((key, client), self._used.get((key, client), 1)) for key in keys]
            case _:
                legs = [self._leg((key, client), self._next((key, client))) for key in keys]
        return Write(client, tuple(legs), None)

    def _next(self, pair: Pair) -> int:
        self._used[pair] = self._used.get(pair, 0) + 1
        return self._used[pair]

    def _leg(self, pair: Pair, seq: int) -> Leg:
        event = Event.new(1, b"x" * 40, client_seq=seq, event_id=None)
        return Leg(pair[0], (event,), ANY, True, True)

    def _take(self, change: Mutation, answer: object) -> None:
        if isinstance(change, Write) and isinstance(answer, Landed):
            for leg in change.legs:
                seqs = self.landed.setdefault((leg.key, change.client_id), [])
                seqs += [event.client_seq for event in leg.events]


async def follow(lane: Lane, into: list[FeedEntry], is_over: asyncio.Event) -> None:
    """Read the feed to its end, and on, until nothing more comes."""
    after = 0
    while True:
        last = is_over.is_set()
        page = await ask(lane, FeedRead(after, 50, wait_ms=10))
        assert isinstance(page, FeedPage), page
        into += page.entries
        after = page.next_after
        if last and page.is_at_end:
            return


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(1, 120), *[pytest.param(seed, 600, marks=pytest.mark.long) for seed in range(2, 22)]],
)
async def test_nothing_lands_twice_and_nothing_is_missed(
    tmp_path: Path, seed: int, rounds: int
) -> None:
    path = tmp_path / "log.db"
    lane = await open_sqlite(path, limits=LIMITS, clock=SystemClock())
    writers = [Writers(lane, random.Random(f"{seed}/{n}")) for n in range(4)]
    for one in writers[1:]:
        one._used = writers[0]._used
        one.landed = writers[0].landed
    is_over = asyncio.Event()
    told: list[list[FeedEntry]] = [[], []]
    followers = [asyncio.create_task(follow(lane, into, is_over)) for into in told]
    await asyncio.gather(*[one.write_for_a_while(rounds) for one in writers])
    is_over.set()
    await asyncio.gather(*followers)
    await lane.close()
    for pair, seqs in writers[0].landed.items():
        assert len(seqs) == len(set(seqs)), f"{pair} landed twice: {sorted(seqs)}"
    assert sum(map(len, writers[0].landed.values())) > rounds
    again = await open_sqlite(path, limits=LIMITS, clock=SystemClock())
    is_over.set()
    readable: list[FeedEntry] = []
    await follow(again, readable, is_over)
    await again.close()
    for entries in told:
        positions = [entry.position for entry in entries]
        assert positions == sorted(set(positions))
        missed = {entry.position for entry in readable} - set(positions)
        assert not missed
    assert not verify(path).findings
