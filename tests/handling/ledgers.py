"""What the tests of the ledger's face share: a ledger as a user writes one, on a database of a test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, insert, select

from landed.facts import Note, forget
from landed.ledger import (
    Answers,
    Contract,
    EffectType,
    Fence,
    Key,
    Ledger,
    Lookup,
    PayloadEquality,
    Producer,
    SameKey,
    SigningKey,
    StandardWebhooks,
)
from landed.records import receipts
from landed.records.outbox import rows
from landed.records.session import Books
from landed.records.tables import outbox
from landed.relay import LogSink
from landed.workers.handling import Handling, Pace
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb
from tests.handling.lives import arrival

KEY = SigningKey(id="k1", secret=b"a secret of the shop's own")
ACME = Contract(
    source="tests",
    key=Key(
        same_key=SameKey.REPLAYS, payload_equality=PayloadEquality.REJECTED, retention_s=86_400.0
    ),
    answers=Answers(success=("200",), is_success_durable=True, refusals=("402",)),
    lookup=Lookup(lag_s=0.0),
    fence=Fence(is_key_consulted_first=True),
    series_max_s=3600.0,
)
QUICK = Pace(backoff_us=0, backoff_max_us=0, tries_max=3, limit_s=20.0)
"""Comes again at once, so that no test waits."""

user_tables = MetaData()
bills = Table(
    "user_bills", user_tables, Column("id", Text, primary_key=True), Column("cents", Integer)
)


@dataclass(frozen=True)
class Invoice:
    id: str
    cents: int


@dataclass(frozen=True)
class Charge:
    invoice: str
    cents: int


@dataclass
class Shop:
    """A ledger with one producer, one recipient, two effect types, and what its handlers saw."""

    db: LedgerDb
    ledger: Ledger
    producer: Producer
    collect: EffectType[Charge]
    ordered: EffectType[Charge]
    seen: list[Any] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return self.ledger.engine

    @property
    def books(self) -> Books:
        return self.ledger.books

    def receive(self, id: str, data: bytes | None = None, **more: Any) -> Any:
        """One event, taken as the boundary would take it."""
        body = b'{"id":"%b","cents":1200}' % id.encode() if data is None else data
        names = tuple(h.name for h in self.ledger.registry.handlers_of("shop", "invoice.finalized"))
        taken = self.db.transact(
            lambda conn: receipts.keep(
                conn, self.books, [arrival(id, body, handlers=names, **more)]
            )
        )
        return taken[0]

    def agent(self, *, note: Note = forget, pace: Pace = QUICK, owner: str = "w1") -> Handling:
        return Handling(
            self.engine,
            self.books,
            self.ledger.registry,
            owner=owner,
            note=note,
            chance=random.Random(1),
            pace=pace,
        )

    def billed(self) -> dict[str, int]:
        """The user's own rows."""
        with self.engine.connect() as conn:
            return {row.id: row.cents for row in conn.execute(select(bills))}

    def outbox(self) -> list[Any]:
        """All outbox rows, oldest first."""
        with self.engine.connect() as conn:
            ids = list(
                conn.execute(select(outbox.c.outbox_id).order_by(outbox.c.created_at)).scalars()
            )
            found = {row.outbox_id: row for row in rows(conn, ids)}
            return [found[id] for id in ids]


@contextmanager
def shop(
    db: LedgerDb,
    handler: Callable[..., object] | None = None,
    *,
    declare: Callable[[Shop], None] | None = None,
    **on: Any,
) -> Iterator[Shop]:
    """A started ledger whose one handler is ``handler`` (by default it notes what it sees)."""
    ledger = Ledger(LEDGER, db.url, digest_key=DIGEST_KEY)
    producer = ledger.producer(
        "shop",
        authentication=StandardWebhooks(keys=(KEY,)),
        types={"invoice.finalized": Invoice},
        owner="team-billing",
    )
    acme = ledger.recipient("acme", ACME)
    made = Shop(
        db,
        ledger,
        producer,
        acme.effect("collect", Charge),
        acme.effect("remind", Charge, ordered="invoice"),
    )
    made.collect.send(_never)
    made.collect.lookup(_never)
    made.ordered.send(_never)
    made.ordered.lookup(_never)
    ledger.destination("bus", LogSink())

    def bill(tx: Any, event: Any) -> None:
        made.seen.append(event)
        if handler is not None:
            result = handler(tx, event)
            if result is not None:
                return result  # type: ignore[return-value]
        return None

    ledger.on(producer, "invoice.finalized", name="bill", **on)(bill)
    if declare is not None:
        declare(made)
    with db.engine.begin() as conn:
        user_tables.create_all(conn)
    ledger.prepare()
    try:
        yield made
    finally:
        ledger.close()


async def _never(_call: Any) -> Any:
    raise AssertionError("no network in these tests")


def bill_row(tx: Any, event: Any) -> None:
    """A handler: a row of one's own, and the effect that goes with it."""
    tx.conn.execute(insert(bills).values(id=event.data.id, cents=event.data.cents))
