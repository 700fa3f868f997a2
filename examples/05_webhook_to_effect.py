"""One webhook becomes one charge, though it arrives twice and the bank's answer gets lost.

    python examples/05_webhook_to_effect.py

A shop sends "invoice finalized". Its handler writes a row and asks for a charge, in one transaction.
The bank charges, and the answer never arrives. Nobody guesses: the bank is asked, and it has it.
"""

import asyncio
import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

import httpx

from landed.clock import SystemClock
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
    Tx,
)
from landed.outbound import HttpOut

SECRET = b"what the shop and we have in common"

# --- What is declared ----------------------------------------------------------------------------

ledger = Ledger("billing-example", "sqlite:///billing.sqlite")


@dataclass(frozen=True)
class InvoiceFinalized:
    id: str
    cents: int


@dataclass(frozen=True)
class Charge:
    invoice: str
    cents: int


shop = ledger.producer(
    "shop",
    authentication=StandardWebhooks(keys=(SigningKey(id="2026-11", secret=SECRET),)),
    types={"invoice.finalized": InvoiceFinalized},
    owner="team-billing",
)
bank = ledger.recipient(
    "bank",
    Contract(
        source="https://bank.example/docs/idempotency, read 2026-11-30",
        key=Key(
            same_key=SameKey.REPLAYS,
            payload_equality=PayloadEquality.REJECTED,
            retention_s=24 * 3600,
        ),
        answers=Answers(success=("201",), is_success_durable=True, refusals=("402",)),
        lookup=Lookup(lag_s=0.0),
        series_max_s=12 * 3600,
    ),
)
collect = bank.effect("collect", Charge)


@ledger.on(shop, "invoice.finalized")
def bill(tx: Tx, event: Event[InvoiceFinalized]) -> None:
    """In one transaction with your own rows: tx.conn is SQLAlchemy's connection."""
    invoice = event.data
    tx.conn.exec_driver_sql(
        "INSERT INTO bills (id, cents, state) VALUES (?, ?, 'asked')", (invoice.id, invoice.cents)
    )
    tx.request(collect, f"invoice/{invoice.id}/collect", Charge(invoice.id, invoice.cents))


@collect.send
async def send(call: Call) -> AttemptAnswer:
    """Outside any transaction. The contract says what the answer means."""
    return await there["http"].send(call, f"{there['bank']}/charges")


@collect.lookup
async def look(ask: Ask) -> LookupAnswer:
    async with httpx.AsyncClient() as client:
        found = await client.get(f"{there['bank']}/charges/{ask.idempotency_key}")
    return ask.present(found.content) if found.status_code == 200 else ask.absent()


@collect.settled
def paid(tx: Tx, done: Settlement) -> None:
    """Once, when it is known how it ended."""
    key = (done.effect_key or "").split("/")[1]
    tx.conn.exec_driver_sql("UPDATE bills SET state = ? WHERE id = ?", (done.state.value, key))


# --- The others ----------------------------------------------------------------------------------

there: dict[str, Any] = {}


class Bank:
    """Charges once per key. It loses its very first answer."""

    def __init__(self) -> None:
        self.charges: dict[str, bytes] = {}
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.strip().split("\r\n")[1:])
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if head.startswith("POST"):
            self.requests += 1
            self.charges.setdefault(headers["idempotency-key"], body)
            if self.requests == 1:
                writer.transport.abort()
                return
            status, answer = "201 Created", body
        else:
            key = head.split()[1].rpartition("/")[2]
            status = "200 OK" if key in self.charges else "404 Not Found"
            answer = self.charges.get(key, b"{}")
        writer.write(
            f"HTTP/1.1 {status}\r\ncontent-length: {len(answer)}\r\nconnection: close\r\n\r\n".encode()
            + answer
        )
        writer.close()


def signed(id: str, event: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """What the shop sends: a CloudEvent, signed after Standard Webhooks."""
    body = json.dumps(event).encode()
    stamp = str(SystemClock().wall_ms() // 1000)
    signature = hmac.digest(SECRET, f"{id}.{stamp}.".encode() + body, hashlib.sha256)
    return {
        "content-type": "application/cloudevents+json",
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    }, body


async def main() -> None:
    their_bank = Bank()
    listening = await asyncio.start_server(their_bank.serve, "127.0.0.1", 0)
    there["bank"] = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    there["http"] = HttpOut()
    await ledger.start()
    with ledger.engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE bills (id TEXT PRIMARY KEY, cents INT, state TEXT)")
    worker = ledger.worker()
    working = asyncio.create_task(worker.run())

    event = {
        "specversion": "1.0",
        "id": "evt_1",
        "source": "/shop",
        "type": "invoice.finalized",
        "datacontenttype": "application/json",
        "data": {"id": "481", "cents": 1200},
    }
    for delivery in ("msg_1", "msg_1"):  # the shop is not sure that we heard it the first time
        headers, body = signed(delivery, event)
        print("received:", await ledger.receive(shop, headers=headers, body=body))

    effect = await ledger.wait(collect, "invoice/481/collect", timeout_s=30)
    story = await ledger.explain(effect.effect_id)
    assert story is not None
    print(f"\n{story.kind} {story.state}: {story.why}")
    for line in story.lines:
        print(f"  {line.what:28} {line.detail}")

    worker.stop()
    await working
    await worker.run_until_idle()  # whatever was still due: here, the settlement
    with ledger.engine.connect() as conn:
        (state,) = conn.exec_driver_sql("SELECT state FROM bills").scalars()
    print(f"\nour row says {state}; the bank was sent {their_bank.requests} request(s)", end="")
    print(f" and made {len(their_bank.charges)} charge")
    await there["http"].aclose()
    await ledger.aclose()
    listening.close()


if __name__ == "__main__":
    asyncio.run(main())
