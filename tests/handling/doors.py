"""What the tests of the boundary share: signed deliveries, and a boundary reached over ASGI."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from sqlalchemy import func, select

from landed.deliveries.event import IdentityRule
from landed.facts import Note, forget
from landed.intake import Bounds, Intake, IntakeApp
from landed.ledger import Ledger, Producer, SigningKey, StandardWebhooks
from landed.records.tables import metadata
from tests.handling.conftest import DIGEST_KEY, LEDGER, LedgerDb

SECRET = b"a secret of the shop's own"
KEY = SigningKey(id="k1", secret=SECRET)
NEXT_KEY = SigningKey(id="k2", secret=b"the secret that comes after it")
TYPE = "invoice.finalized"


def sign(
    body: bytes,
    *,
    id: str = "msg_1",
    at_s: int,
    key: bytes = SECRET,
) -> str:
    """A Standard Webhooks token."""
    signed = f"{id}.{at_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@dataclass
class Door:
    """A started ledger, its boundary, and a client in front of it."""

    db: LedgerDb
    ledger: Ledger
    producer: Producer
    intake: Intake
    client: httpx.AsyncClient

    def now_s(self) -> int:
        return self.ledger.books.now_us() // 1_000_000

    def webhook(
        self,
        body: bytes | Mapping[str, Any],
        *,
        id: str = "msg_1",
        at_s: int | None = None,
        key: bytes = SECRET,
        **more: str,
    ) -> dict[str, Any]:
        """The arguments of a POST: signed as Standard Webhooks."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed_s = self.now_s() if at_s is None else at_s
        headers = {
            "content-type": "application/json",
            "webhook-id": id,
            "webhook-timestamp": str(signed_s),
            "webhook-signature": sign(raw, id=id, at_s=signed_s, key=key),
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {"content": raw, "headers": headers}

    def cloudevent(
        self, id: str = "e1", data: bytes = b'{"cents":1200}', type: str = TYPE, **attributes: str
    ) -> dict[str, Any]:
        """The same with a CloudEvent in binary mode."""
        made = self.webhook(data, id=f"delivery of {id}")
        made["headers"] |= {
            "ce-specversion": "1.0",
            "ce-id": id,
            "ce-source": "/shop",
            "ce-type": type,
            **{f"ce-{name}": value for name, value in attributes.items()},
        }
        return made

    async def post(self, made: Mapping[str, Any], endpoint: str = "shop") -> httpx.Response:
        return await self.client.post(f"/{endpoint}", **made)

    def counts(self) -> dict[str, int]:
        """Rows by table, without those that are empty and the ingest clock."""
        with self.db.engine.connect() as conn:
            found = {
                table.name.removeprefix("landed_"): conn.execute(
                    select(func.count()).select_from(table)
                ).scalar_one()
                for table in metadata.sorted_tables
            }
        for name in ("meta", "migrations", "ingest_clock", "forms"):
            found.pop(name, None)
        return {name: count for name, count in found.items() if count}


def plain_ledger(db: LedgerDb, **more: Any) -> tuple[Ledger, Producer]:
    """A ledger with one producer of webhooks and one handler that does nothing."""
    ledger = Ledger(LEDGER, db.url, digest_key=DIGEST_KEY)
    declared: dict[str, Any] = {
        "authentication": StandardWebhooks(keys=(KEY,)),
        "types": {TYPE: None},
        "ignore": {"invoice.viewed"},
        "owner": "team-billing",
        "identity": IdentityRule.WEBHOOK_ID,
        **more,
    }
    producer = ledger.producer("shop", **declared)
    for event_type in producer.types:
        ledger.on(producer, event_type, name=f"on {event_type}")(_nothing)
    return ledger, producer


@asynccontextmanager
async def door(
    db: LedgerDb,
    *,
    ledger: tuple[Ledger, Producer] | None = None,
    note: Note = forget,
    bounds: Bounds | None = None,
    is_grouping: bool = True,
    endpoints: Mapping[str, tuple[str, ...]] | None = None,
    **more: Any,
) -> AsyncIterator[Door]:
    made, producer = plain_ledger(db, **more) if ledger is None else ledger
    made.prepare()
    intake = Intake(
        made.engine,
        made.books,
        made.registry,
        endpoints=endpoints,
        note=note,
        bounds=bounds,
        is_grouping=is_grouping,
    )
    transport = httpx.ASGITransport(app=IntakeApp(intake))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://landed") as client:
            yield Door(db, made, producer, intake, client)
    finally:
        await intake.close()
        made.close()


def _nothing(_tx: object, _event: object) -> None: ...
