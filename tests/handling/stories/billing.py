"""A small billing service as a user would write it, whole: boundary, handlers, relay, effects.

The shop sends "invoice finalized" and "terms changed"; the service keeps a row, publishes an event,
and charges at a bank. The bank is ``landed.testing.FaultyRecipient``; the bus is a file.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Column, Integer, MetaData, Table, Text, func, insert, select, update

from landed.deliveries.event import IdentityRule
from landed.effects.order import OrderPolicy
from landed.facts import Note, forget
from landed.ledger import Ledger, Order, Ordering, StandardWebhooks
from landed.outbound import HttpOut
from landed.records.effects import EffectView
from landed.records.tables import effects, receipts, reviews, schedule
from landed.relay.port import Taken
from landed.testing import FaultyRecipient, invariants
from landed.workers.desk import Desk, Tempo
from landed.workers.worker import Worker, agents_of
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.doors import KEY, TYPE, Door, door

TERMS = "terms.changed"
_AT_ONCE = Tempo(retry_us=0, retry_max_us=0, question_us=0, question_max_us=0)

own = MetaData()
bills = Table("bills", own, Column("event", Text, primary_key=True), Column("cents", Integer))


@dataclass(frozen=True)
class Invoice:
    id: str
    cents: int


@dataclass(frozen=True)
class Terms:
    id: str
    version: int
    days: int


class FileBus:
    """A destination that outlives every process: one line a message."""

    proof = "a line in the file"
    dedup_window_s = None

    def __init__(self, path: Path) -> None:
        self.path = path

    async def hand_on(self, message: Any) -> Taken:
        with self.path.open("a") as file:
            file.write(message.message_id + "\n")
        return Taken({"line": True})

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Billing:
    """One life of the service, from a start to a stop or a crash."""

    db: LedgerDb
    bank: FaultyRecipient
    bus: FileBus
    ledger: Ledger
    door: Door
    collect: Any
    terms: Any
    note: Note

    # --- What others do -------------------------------------------------------------------------

    async def invoice(
        self, event: str = "e1", *, id: str = "481", cents: int = 1200, **attributes: str
    ) -> httpx.Response:
        """The shop delivers "invoice finalized"."""
        body = json.dumps({"id": id, "cents": cents}).encode()
        return await self.door.post(self.door.cloudevent(event, body, TYPE, **attributes))

    async def change_terms(self, event: str, version: int) -> httpx.Response:
        """The shop delivers "terms changed"."""
        body = json.dumps({"id": "481", "version": version, "days": 10 * version}).encode()
        return await self.door.post(self.door.cloudevent(event, body, TERMS))

    async def work(self) -> int:
        """Workers do what is due."""
        return await self.work_on()

    async def work_on(self, *lanes: str) -> int:
        """Workers of these lanes do what is due; without any, of all."""
        desk = Desk(
            engine=self.ledger.engine,
            books=self.ledger.books,
            registry=self.ledger.registry,
            worker="w",
            note=self.note,
            chance=random.Random(1),
            tempo=_AT_ONCE,
        )
        agents = agents_of(desk, lanes=lanes or None)
        return await Worker(agents, note=self.note).run_until_idle()

    async def recover(self) -> None:
        """Time passes: leases and send deadlines of the dead are over, and others work on."""
        for _ in range(3):
            with self.ledger.engine.begin() as conn:
                conn.execute(update(schedule).values(lease_until=1, ready_at=1))
                conn.execute(update(effects).values(send_deadline=1))
            await self.work()

    # --- What there is to see -------------------------------------------------------------------

    async def charge(self, key: str = "invoice/481/collect") -> EffectView:
        found = await self.ledger.effect(self.collect, key)
        assert found is not None
        return found

    async def terms_effect(self, version: int) -> EffectView:
        found = await self.ledger.effect(self.terms, f"invoice/481/terms/{version}")
        assert found is not None
        return found

    def count(self, table: Table) -> int:
        with self.ledger.engine.connect() as conn:
            return conn.execute(select(func.count()).select_from(table)).scalar_one()

    def receipts(self) -> int:
        return self.count(receipts)

    def reviews(self) -> list[str]:
        with self.ledger.engine.connect() as conn:
            return list(conn.execute(select(reviews.c.kind)).scalars())

    def published(self) -> list[str]:
        return self.bus.path.read_text().split() if self.bus.path.exists() else []

    def check(self) -> None:
        invariants(self.ledger)


@asynccontextmanager
async def billing(
    db: LedgerDb, bank: FaultyRecipient, bus: Path, *, note: Note = forget
) -> AsyncIterator[Billing]:
    """Start the service; its end is an ordinary stop."""
    ledger = Ledger(LEDGER, db.given or db.url, digest_key=DIGEST_KEY, note=note)
    shop = ledger.producer(
        "shop",
        authentication=StandardWebhooks(keys=(KEY,)),
        types={TYPE: Invoice, TERMS: Terms},
        owner="team-billing",
        identity=IdentityRule.CLOUDEVENTS,
        has_signed_event_time=True,
    )
    acme = ledger.recipient("bank", bank.contract())
    collect = acme.effect("collect", Invoice)
    latest = Ordering(domain="terms", policy=OrderPolicy.LATEST_WINS)
    terms = acme.effect("terms", Terms, ordered=latest)
    file_bus = FileBus(bus)
    ledger.destination("bus", file_bus)

    @ledger.on(shop, TYPE, name="bill")
    def bill(tx: Any, event: Any) -> None:
        invoice = event.data
        tx.conn.execute(insert(bills).values(event=event.id, cents=invoice.cents))
        tx.request(collect, f"invoice/{invoice.id}/collect", invoice)
        tx.publish("billing.invoice.opened", {"id": invoice.id}, to="bus", key=invoice.id)

    @ledger.on(shop, TERMS, name="agree")
    def agree(tx: Any, event: Any) -> None:
        new = event.data
        key = f"invoice/{new.id}/terms/{new.version}"
        tx.request(terms, key, new, order=Order(new.id, version=new.version))

    async with HttpOut(note=note, verify=False) as out, httpx.AsyncClient(verify=False) as client:
        for effect_type in (collect, terms):
            _reach(effect_type, bank, out, client)
        with db.engine.begin() as conn:
            own.create_all(conn)
        async with door(db, ledger=(ledger, shop), note=note) as at:
            yield Billing(db, bank, file_bus, ledger, at, collect, terms, note)


def _reach(
    effect_type: Any, bank: FaultyRecipient, out: HttpOut, client: httpx.AsyncClient
) -> None:
    async def send(call: Any) -> Any:
        return await out.send(call, f"{bank.url}/effects")

    async def look(ask: Any) -> Any:
        found = await client.get(f"{bank.url}/effects/{ask.idempotency_key}")
        if found.headers.get("landed-key-state") == "in_progress":
            return ask.in_progress()
        return ask.present(found.content) if found.status_code == 200 else ask.absent()

    async def seal(ask: Any) -> Any:
        answer = await client.post(f"{bank.url}/effects/{ask.idempotency_key}/seal")
        return ask.sealed() if answer.status_code == 200 else ask.already_acted(answer.content)

    effect_type.send(send)
    effect_type.lookup(look)
    effect_type.seal(seal)
