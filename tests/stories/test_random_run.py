"""Everything at once, from a seed: orders, retries, faults, pauses, restarts, failed records.

The ledger check must hold whatever happens (rule SW-135). A failing seed replays.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest

from landed.accounts.domain import Deposit, Order, Transfer, Withdrawal
from landed.commands import Done, Policy
from landed.errors import (
    BusyError,
    ConnectFailedError,
    OutcomeUnknownError,
    ReadTimeoutError,
    SequenceInFlightError,
    StorageError,
)
from landed.projections import MemoryProjection
from tests.stories.faulty import Answer, DelayApply, Fault, LoseAnswer, LoseRequest
from tests.stories.fleet import Fleet, Replica, X, Y, fleet, key

ACCOUNTS = (X, Y, key("account Z"))
POLICY = Policy(deadline_s=4.0, attempt_timeout_s=1.0, window_s=90.0)
"""Short calls, so that a retry is sometimes late and often early."""


@dataclass
class Play:
    """One run: what was asked, and what is still under way."""

    it: Fleet
    rng: Random
    asked: list[tuple[Order, UUID, float]] = field(default_factory=list)
    running: set[asyncio.Task[object]] = field(default_factory=set)

    async def step(self, number: int) -> None:
        rng = self.rng
        replica = rng.choice(self.it.replicas)
        match rng.choices(
            ["ask", "retry", "break", "restart", "foreign", "wait", "evict"],
            [40, 25, 18, 2, 4, 10, 1],
        )[0]:
            case "ask":
                self.ask(replica, self.new_order(), key(f"step {number}"))
            case "retry" if self.asked:
                self.retry(replica)
            case "break":
                self.break_something(replica)
            case "restart":
                replica.restart()
            case "foreign":
                with suppress(OutcomeUnknownError):
                    await self.it.write_foreign(rng.choice(ACCOUNTS), 1, client_seq=number + 1)
            case "evict":
                if isinstance(replica.projection.inner, MemoryProjection):
                    replica.projection.inner._aggregates.clear()
            case _:
                await asyncio.sleep(rng.expovariate(2.0))
        if len(self.running) > 8:
            await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)

    def new_order(self) -> Order:
        source, target = self.rng.sample(ACCOUNTS, 2)
        cents = self.rng.randint(1, 40)
        return self.rng.choice(
            [Deposit(source, cents), Withdrawal(source, cents), Transfer(source, target, cents)]
        )

    def ask(self, replica: Replica, order: Order, key: UUID) -> None:
        self.asked.append((order, key, asyncio.get_running_loop().time()))
        self.start(replica, order, key)

    def retry(self, replica: Replica) -> None:
        """The same key within its window; what is older is not asked again here."""
        now = asyncio.get_running_loop().time()
        order, key, asked_at = self.rng.choice(self.asked[-12:])
        if now - asked_at < POLICY.window_s - 2 * POLICY.deadline_s:
            self.start(replica, order, key)

    def start(self, replica: Replica, order: Order, key: UUID) -> None:
        task = replica.start(order, key)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        if self.rng.random() < 0.05:
            asyncio.get_running_loop().call_later(self.rng.random(), task.cancel)

    def break_something(self, replica: Replica) -> None:
        rng = self.rng
        write_faults: list[Fault] = [
            LoseAnswer(),
            LoseRequest(),
            DelayApply(rng.expovariate(1.0)),
            DelayApply(0.0),
            Answer(OutcomeUnknownError("server", code=2007)),
            Answer(ConnectFailedError("refused")),
            Answer(BusyError()),
            Answer(SequenceInFlightError(highest_seq=None, attempted_seq=None)),
        ]
        match rng.randrange(5):
            case 0 | 1:
                replica.log.on_write(*rng.choices(write_faults, k=rng.randint(1, 3)))
            case 2:
                replica.log.on_read(Answer(ReadTimeoutError()))
            case 3:
                replica.projection.record_script.append(StorageError("not now"))
            case _:
                self.it.lane.gate.slow_s = rng.choice([0.0, 0.0, 0.05, 0.5])
                if rng.random() < 0.3:
                    self.it.lane.gate.fails_next = StorageError("rolled back")


async def _play(seed: int, steps: int, *, replicas: int) -> None:
    async with fleet(replicas, holding=500, policy=POLICY) as it:
        play = Play(it, Random(seed))
        for number in range(steps):
            await play.step(number)
        if play.running:
            await asyncio.wait(play.running)
        for replica in it.replicas:
            replica.log.write_script.clear()
            replica.log.read_script.clear()
        it.lane.gate.slow_s, it.lane.gate.fails_next = 0.0, None
        kinds = {type(call.outcome).__name__ for call in it.calls}
        assert {"Done", "Rejected"} <= kinds, "a run in which nothing happens proves nothing"
        assert any(isinstance(c.outcome, Done) and c.outcome.attempts > 1 for c in it.calls)


@pytest.mark.scenario("SWA-77")
@pytest.mark.parametrize(
    ("engine", "backend", "seed"),
    [
        *(("memory", "memory", seed) for seed in range(8)),
        ("memory", "postgres", 8),
        ("sqlite", "postgres", 9),
        ("postgres", "memory", 10),
        *(
            pytest.param(engine, backend, seed, marks=pytest.mark.long)
            for engine in ("sqlite", "postgres")
            for backend in ("memory", "postgres")
            for seed in range(11, 15)
        ),
    ],
    indirect=["engine", "backend"],
)
async def test_a_random_run_keeps_the_ledger_right(seed: int) -> None:
    await _play(seed, 400, replicas=(2, 3, 5)[seed % 3])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
async def test_ten_thousand_random_steps_keep_the_ledger_right(seed: int) -> None:
    await _play(seed, 10_000, replicas=3)
