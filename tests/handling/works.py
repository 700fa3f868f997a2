"""What the tests of the agents share: a desk with one recipient, its senders, and its agents."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import httpx
from sqlalchemy import select

from landed.clock import MonotonicMs, WallMs
from landed.effects.contract import Contract
from landed.effects.order import OrderPolicy
from landed.outbound import HttpOut
from landed.records import contracts, effects
from landed.records.attempts import GRACE_US
from landed.records.session import Books
from landed.records.tables import attempts, reconciliations, reviews
from landed.records.tables import effects as effect_rows
from landed.registry import Ask, Call, EffectType, Ordering, Registry, SealAsk
from landed.workers.desk import Desk, Tempo
from landed.workers.executor import Executor
from landed.workers.flow import Flow
from landed.workers.keeper import Keeper
from landed.workers.reaper import Reaper
from landed.workers.reconciler import Reconciler
from tests.handling import lives
from tests.handling.conftest import LedgerDb
from tests.handling.far_side import FarSide

QUICK = Tempo(retry_us=0, retry_max_us=0, question_us=0, question_max_us=0, breaker_after=1_000_000)
"""Comes again at once and pauses for nobody, so that no test waits."""


class Turned:
    """A clock that a test turns."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self.ms = 0.0
        self._wall_ms = wall_ms

    def wall_ms(self) -> WallMs:
        return WallMs(int(self._wall_ms + self.ms))

    def monotonic_ms(self) -> MonotonicMs:
        return MonotonicMs(self.ms)

    def turn(self, seconds: float) -> None:
        self.ms += seconds * 1000


@dataclass
class Acme:
    """One ledger's desk, with the recipient ``acme`` and the effect type ``collect``."""

    db: LedgerDb
    desk: Desk
    contract: Contract
    collect: EffectType[Any]
    flow: Flow
    out: HttpOut
    facts: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)

    @property
    def executor(self) -> Executor:
        return Executor(self.desk, lives.RECIPIENT, self.flow)

    @property
    def reconciler(self) -> Reconciler:
        return Reconciler(self.desk, lives.RECIPIENT, self.flow)

    @property
    def reaper(self) -> Reaper:
        return Reaper(self.desk)

    @property
    def keeper(self) -> Keeper:
        return Keeper(self.desk)

    def ask(self, key: str, *, version: int | None = None, **more: Any) -> UUID:
        """Request one effect; with a version, an ordered one."""
        order = None
        if version is not None:
            assert self.collect.ordering is not None
            order = effects.Ordered(
                domain="acme/invoice",
                key="i1",
                version=version,
                policy=self.collect.ordering.policy,
            )
        intent = lives.intent(
            key, {"id": "i1", "key": key}, contract=self.contract, order=order, **more
        )
        return self.db.transact(
            lambda conn: effects.request(conn, self.desk.books, intent).effect_id
        )

    def ask_many(self, keys: Iterable[str]) -> list[UUID]:
        """Request effects in one transaction."""
        intents = [
            lives.intent(key, {"id": key, "key": key}, contract=self.contract) for key in keys
        ]
        return self.db.transact(
            lambda conn: [
                effects.request(conn, self.desk.books, intent).effect_id for intent in intents
            ]
        )

    def see(self, effect_id: UUID) -> effects.EffectView:
        with self.db.engine.connect() as conn:
            return lives.seen(conn, effect_id)

    def attempts(self, effect_id: UUID) -> list[Any]:
        with self.db.engine.connect() as conn:
            query = select(attempts).where(attempts.c.effect_id == effect_id)
            return list(conn.execute(query.order_by(attempts.c.attempt_no)))

    def questions(self, effect_id: UUID) -> list[Any]:
        with self.db.engine.connect() as conn:
            query = select(reconciliations).where(reconciliations.c.effect_id == effect_id)
            return list(conn.execute(query.order_by(reconciliations.c.asked_at)))

    def reviews(self) -> list[tuple[str, str]]:
        with self.db.engine.connect() as conn:
            query = select(reviews.c.kind, reviews.c.severity).where(reviews.c.state == "open")
            return sorted((row.kind, row.severity) for row in conn.execute(query))

    def outdate(self, effect_id: UUID, by_us: int = GRACE_US + 60_000_000) -> None:
        """Let an open attempt be past its deadline, as time would."""
        self.shift(effect_id, send_deadline=by_us)

    def shift(self, effect_id: UUID, **back_us: int) -> None:
        """Move times of an effect into the past."""
        values = {name: effect_rows.c[name] - by for name, by in back_us.items()}
        self.db.transact(
            lambda conn: conn.execute(
                effect_rows.update().where(effect_rows.c.effect_id == effect_id).values(**values)
            )
        )

    async def settle(self, effect_id: UUID, *, rounds: int = 20) -> effects.EffectView:
        """Let executor and reconciler work until the effect is settled, or nothing is due."""
        executor, reconciler = self.executor, self.reconciler
        for _ in range(rounds):
            if await executor.run_once() + await reconciler.run_once() == 0:
                break
        return self.see(effect_id)


@asynccontextmanager
async def acme(
    db: LedgerDb,
    far: FarSide | None = None,
    *,
    contract: Contract = lives.REPLAYS,
    tempo: Tempo = QUICK,
    policy: OrderPolicy | None = None,
    clock: Turned | None = None,
    send: Callable[[Call], Any] | None = None,
    note: Callable[[str, Mapping[str, object]], None] | None = None,
) -> AsyncIterator[Acme]:
    """A desk whose sender calls ``far`` over HTTP, or is a function of the test's own."""
    facts: list[tuple[str, Mapping[str, object]]] = []

    def _note(name: str, fields: Mapping[str, object]) -> None:
        facts.append((name, fields))
        if note is not None:
            note(name, fields)

    books = db.books if clock is None else Books(db.books.ledger, db.books.digest_key, clock)
    registry = Registry()
    ordering = None if policy is None else Ordering(domain="invoice", policy=policy)
    collect = registry.add_recipient(lives.RECIPIENT, contract).effect(
        "collect", dict, ordered=ordering
    )
    desk = Desk(
        engine=db.engine,
        books=books,
        registry=registry,
        worker="w1",
        note=_note,
        chance=random.Random(7),
        tempo=tempo,
    )
    async with HttpOut(note=_note) as out, httpx.AsyncClient(verify=False) as client:
        declare(collect, out, client, far, send)
        registry.freeze()
        db.transact(lambda conn: contracts.register(conn, books, lives.RECIPIENT, contract))
        flow = Flow(
            lives.RECIPIENT,
            contract,
            clock=books.clock,
            chance=desk.chance,
            tempo=tempo,
            note=_note,
        )
        yield Acme(db, desk, contract, collect, flow, out, facts)


def declare(
    collect: EffectType[Any],
    out: HttpOut,
    client: httpx.AsyncClient,
    far: FarSide | None,
    send: Callable[[Call], Any] | None = None,
) -> None:
    """The functions a user would write for a recipient that speaks HTTP."""
    url = "http://127.0.0.1:9" if far is None else far.url

    async def _send(call: Call) -> Any:
        return await out.send(call, f"{url}/effects", method="POST")

    collect.send(_send if send is None else send)

    async def _look(ask: Ask) -> Any:
        name = ask.effect_key if ask.contract.key is None else ask.idempotency_key
        found = await client.get(f"{url}/effects/{name}")
        return ask.present(found.content) if found.status_code == 200 else ask.absent()

    collect.lookup(_look)

    async def _seal(ask: SealAsk) -> Any:
        answer = await client.post(f"{url}/seals/{ask.idempotency_key}")
        if answer.status_code == 200:
            return ask.sealed()
        return ask.already_acted(answer.content)

    collect.seal(_seal)

    @collect.settled
    def noticed(_tx: Any, _settlement: Any) -> None:
        """Runs once per settlement; its row is what these tests count."""


def outcomes(rows: list[Any]) -> list[str | None]:
    return [row.outcome for row in rows]


async def forever(*_args: Any) -> None:
    """A sender that hangs."""
    await asyncio.Event().wait()
