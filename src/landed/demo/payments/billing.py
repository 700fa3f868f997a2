"""What a team of its own would write: a producer, two recipients, and what is done at an event.

Run by ``landed work landed.demo.payments.billing:ledger``; its boundary is in service.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import httpx
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, Uuid

from landed.effects.answer import AttemptAnswer, LookupAnswer
from landed.ledger import (
    Answers,
    Ask,
    Call,
    Contract,
    Event,
    Key,
    Ledger,
    Lookup,
    PayloadEquality,
    SameKey,
    Settlement,
    SigningKey,
    StandardWebhooks,
    State,
    Tx,
)
from landed.outbound import HttpOut

SHOP_SECRET: Final = b"the demo's shop and its billing know this"
"""No secret at all: everything of the demo listens on loopback. Yours comes from a secret store."""
NEIGHBOURS: Final = "LANDED_DEMO_NEIGHBOURS"
"""The environment variable that says where the bank and the mail house are."""
FINALIZED: Final = "invoice.finalized"
TIMEOUT_S: Final = 3.0
"""Both neighbours are on this machine; an answer that is not here by then was lost."""

ledger = Ledger("landed-demo-billing", "sqlite:///.landed-demo/payments.sqlite")

metadata: Final = MetaData()
invoices: Final = Table(
    "invoices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("receipt_id", Uuid, nullable=False),
    Column("customer", Text, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
)
"""The team's own table, in the same database as the ledger's."""


@dataclass(frozen=True)
class InvoiceFinalized:
    """What the shop sends."""

    id: str
    customer: str
    cents: int


@dataclass(frozen=True)
class Charge:
    """What the bank takes."""

    invoice: str
    customer: str
    cents: int


@dataclass(frozen=True)
class Mail:
    """What the mail house takes."""

    to: str
    subject: str


def _contract(whose: str) -> Contract:
    return Contract(
        source=f"{whose}: landed.demo.payments.neighbours, which keeps it with landed.recipient",
        key=Key(
            same_key=SameKey.REPLAYS,
            payload_equality=PayloadEquality.REJECTED,
            retention_s=24 * 3600,
        ),
        answers=Answers(
            success=("201",),
            is_success_durable=True,
            refusals=("402",),
            in_flight=("409",),
            key_conflict=("422",),
        ),
        lookup=Lookup(lag_s=0.0),
        timeout_s=TIMEOUT_S,
        series_max_s=12 * 3600,
    )


shop = ledger.producer(
    "shop",
    authentication=StandardWebhooks(keys=(SigningKey(id="demo", secret=SHOP_SECRET),)),
    types={FINALIZED: InvoiceFinalized},
    owner="team-billing",
)
bank = ledger.recipient("bank", _contract("the demo's bank"))
collect = bank.effect("collect", Charge)
mail_house = ledger.recipient("mail-house", _contract("the demo's mail house"))
send_mail = mail_house.effect("mail", Mail)


@ledger.on(shop, FINALIZED)
def bill(tx: Tx, event: Event[InvoiceFinalized]) -> None:
    """Write the invoice and ask for its charge: both are kept, or neither."""
    invoice = event.data
    tx.conn.execute(
        invoices.insert().values(
            id=invoice.id,
            receipt_id=event.receipt_id,
            customer=invoice.customer,
            cents=invoice.cents,
            state="open",
        )
    )
    charge = Charge(invoice.id, invoice.customer, invoice.cents)
    tx.request(collect, f"invoice/{invoice.id}/collect", charge)


@collect.settled
def paid(tx: Tx, done: Settlement) -> None:
    """Once it is known how the charge ended: say so in our row, and ask for the mail."""
    id = (done.effect_key or "").split("/")[1]
    mine = invoices.c.id == id
    is_paid = done.state is State.CONFIRMED
    tx.conn.execute(
        invoices.update().where(mine).values(state="paid" if is_paid else done.state.value)
    )
    if is_paid:
        row = tx.conn.execute(invoices.select().where(mine)).one()
        mail = Mail(f"{row.customer.lower()}@customer.example", f"Invoice {id} is paid")
        tx.request(send_mail, f"invoice/{id}/mail", mail)


@collect.send
async def charge(call: Call) -> AttemptAnswer:
    """One attempt. The contract says what the answer means."""
    return await _out().send(call, f"{_neighbours()}/bank/charges")


@collect.lookup
async def find_charge(ask: Ask) -> LookupAnswer:
    """Ask the bank what it knows of this key."""
    return await _look(ask, f"{_neighbours()}/bank/landed/keys/{ask.idempotency_key}")


@send_mail.send
async def mail(call: Call) -> AttemptAnswer:
    """One attempt at the mail house."""
    return await _out().send(call, f"{_neighbours()}/mail/mails")


@send_mail.lookup
async def find_mail(ask: Ask) -> LookupAnswer:
    """Ask the mail house what it knows of this key."""
    return await _look(ask, f"{_neighbours()}/mail/landed/keys/{ask.idempotency_key}")


async def _look(ask: Ask, url: str) -> LookupAnswer:
    async with httpx.AsyncClient(trust_env=False) as client:
        found = await client.get(url, timeout=ask.timeout_s)
    match found.status_code:
        case 200:
            return ask.present(found.content)
        case 404:
            return ask.absent()
        case other:
            return ask.inconclusive(f"answered {other}")


_outs: Final[list[HttpOut]] = []


def _out() -> HttpOut:
    if not _outs:
        _outs.append(HttpOut())
    return _outs[0]


def _neighbours() -> str:
    return os.environ[NEIGHBOURS]
